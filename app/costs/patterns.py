"""What each pattern of messages costs to average gradients: the bytes that a rank sends, and the least time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from app.costs.bandwidth import (
    CENTRE,
    LinkSpeed,
    all_reduce_seconds,
    all_reduce_share,
    gather_seconds,
    scatter_seconds,
)


class Size(NamedTuple):
    """All gradients of a step."""

    elements: int
    bytes: int  # S in the formulas


BytesSent = Callable[[Size, int, int], float]  # by a rank, among so many ranks
LeastSeconds = Callable[[Size, Sequence[LinkSpeed]], float]


@dataclass(frozen=True)
class Cost:
    """The formulas of a pattern."""

    bytes_sent: BytesSent
    least_seconds: LeastSeconds | None = None  # where messages wait for each other, as in a star

    def seconds_at_least(self, size: Size, links: Sequence[LinkSpeed]) -> float:
        """The time of a step's messages if only the links took time: what a rank sends must pass its link."""
        if self.least_seconds is not None:
            return self.least_seconds(size, links)
        return max(self.bytes_sent(size, rank, len(links)) / link.sends for rank, link in enumerate(links))


def _star_bytes_sent(size: Size, rank: int, world_size: int) -> float:
    """Each worker sends everything once, and rank 0 sends it once to each."""
    if world_size == 1:
        return 0.0
    return float((world_size - 1) * size.bytes if rank == CENTRE else size.bytes)


def _star_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
    """A parameter's mean leaves rank 0 once all gradients are in; the next parameter follows once it has arrived."""
    return gather_seconds(size.bytes, links) + scatter_seconds(size.bytes, links)


def _all_reduce_bytes_sent(size: Size, rank: int, world_size: int) -> float:
    return all_reduce_share(size.bytes, world_size)


def _all_reduce_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
    """Every rank's share, in both directions at once."""
    return all_reduce_seconds(size.bytes, links)


def _ring_bytes_sent(size: Size, rank: int, world_size: int) -> float:
    """All chunks in both phases, except the one in each that a rank only receives."""
    if not size.elements:
        return 0.0
    chunks = cut(range(size.elements), world_size)
    sent = 2 * size.elements - len(chunks[(rank + 1) % world_size]) - len(chunks[(rank + 2) % world_size])
    return sent * (size.bytes / size.elements)


def cut(whole: range, parts: int) -> list[range]:
    """Cut a range as evenly as possible: if it does not divide, some parts are longer by one."""
    edges = [whole.start + len(whole) * index // max(1, parts) for index in range(parts + 1)]
    return [range(*edge) for edge in pairwise(edges)]


NOTHING = Cost(lambda size, rank, world_size: 0.0)
STAR = Cost(_star_bytes_sent, _star_seconds)
ALL_REDUCE = Cost(_all_reduce_bytes_sent, _all_reduce_seconds)
RING = Cost(_ring_bytes_sent, _all_reduce_seconds)  # an all-reduce of chunks that differ by one element
