"""The size of the gradients, what a cost is, and how a range is cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from app.cluster.wire.bandwidth import LinkSpeed


class Size(NamedTuple):
    """All gradients of a step."""

    elements: int
    bytes: int  # S in the formulas

    @property
    def element_bytes(self) -> float:
        """Bytes of one number."""
        return self.bytes / self.elements if self.elements else 0.0


BytesSent = Callable[[Size, int, int], float]  # by a rank, among so many ranks
LeastSeconds = Callable[[Size, Sequence[LinkSpeed]], float]


@dataclass(frozen=True)
class Cost:
    """The formulas of a way to average gradients."""

    bytes_sent: BytesSent
    least_seconds: LeastSeconds | None = None  # where messages wait for each other, as in a star

    def seconds_at_least(self, size: Size, links: Sequence[LinkSpeed]) -> float:
        """The time of a step's messages if only the links took time: what a rank sends must pass its link."""
        if self.least_seconds is not None:
            return self.least_seconds(size, links)
        return max(self.bytes_sent(size, rank, len(links)) / link.sends for rank, link in enumerate(links))


def cut(whole: range, parts: int) -> list[range]:
    """Cut a range as evenly as possible: if it does not divide, some parts are longer by one."""
    edges = [whole.start + len(whole) * index // max(1, parts) for index in range(parts + 1)]
    return [range(*edge) for edge in pairwise(edges)]
