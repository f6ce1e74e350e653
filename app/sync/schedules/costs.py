"""The cost of averaging: the bytes that a rank sends, and the minimum time on given links."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from app.cluster.wire.bandwidth import LinkSpeed, all_reduce_seconds, all_reduce_share
from app.sync.schedules.schedule import PIECE_BYTES, Message, Schedule, elements_in, part_of


class Size(NamedTuple):
    """The size of all gradients of a step."""

    elements: int
    bytes: int  # S in the formulas

    @property
    def element_bytes(self) -> float:
        return self.bytes / self.elements if self.elements else 0.0


BytesSent = Callable[[Size, int, int], float]  # of the size, the rank, and the number of ranks
LeastSeconds = Callable[[Size, Sequence[LinkSpeed]], float]


@dataclass(frozen=True)
class Cost:
    """The cost formulas of a mode."""

    bytes_sent: BytesSent
    least_seconds: LeastSeconds | None = None  # if messages wait for each other, as in a star

    def seconds_at_least(self, size: Size, links: Sequence[LinkSpeed]) -> float:
        """A lower bound on the communication time of a step, as if only the links took time."""
        if self.least_seconds is not None:
            return self.least_seconds(size, links)
        return max(self.bytes_sent(size, rank, len(links)) / link.sends for rank, link in enumerate(links))


def seconds_at_least(schedule: Schedule, bytes_of: Callable[[Message], float], links: Sequence[LinkSpeed]) -> float:
    """The duration of a schedule if only the links took time.

    A message starts when the earlier messages with any of its elements have arrived. A link carries one message at a
    time in each direction.
    """
    sends = [iter(part_of(schedule, rank).sends) for rank in range(len(links))]
    arrivals: list[list[float]] = [[0.0] for _ in links]  # by rank: when each of its messages has arrived
    sent, received = [0.0] * len(links), [0.0] * len(links)  # when a link is free again
    for message in schedule.messages:
        sender, receiver, size = message.sender, message.receiver, bytes_of(message)
        leaves = max(sent[sender], arrivals[sender][next(sends[sender]).after])
        sent[sender] = leaves + size / links[sender].sends
        received[receiver] = max(sent[sender], max(received[receiver], leaves) + size / links[receiver].receives)
        arrivals[receiver].append(max(arrivals[receiver][-1], received[receiver]))
    return max([0.0, *sent, *received])


def schedule_cost(schedule: Callable[[int, int], Schedule], piece_bytes: int | None = PIECE_BYTES) -> Cost:
    """The cost of a collective, given its schedule by elements and ranks, and the size of its pieces."""
    scheduled = lru_cache(maxsize=8)(schedule)

    def bytes_sent(size: Size, rank: int, world_size: int) -> float:
        return scheduled(size.elements, world_size).elements_sent(rank) * size.element_bytes

    def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
        whole, each = scheduled(size.elements, len(links)), size.element_bytes
        pieces = whole if piece_bytes is None else whole.in_pieces(elements_in(piece_bytes, each))
        return seconds_at_least(pieces, lambda message: len(message.piece) * each, links)

    return Cost(bytes_sent, least_seconds)


def messages_cost(schedule: Callable[[int], Schedule], bytes_of: Callable[[Message], int]) -> Cost:
    """The cost of a collective whose messages differ in size, for gradients of a known size."""

    def bytes_sent(size: Size, rank: int, world_size: int) -> float:
        return float(sum(bytes_of(each) for each in schedule(world_size).messages if each.sender == rank))

    def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
        return seconds_at_least(schedule(len(links)), bytes_of, links)

    return Cost(bytes_sent, least_seconds)


def _bytes_sent(size: Size, rank: int, world_size: int) -> float:
    return all_reduce_share(size.bytes, world_size)


def _seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
    return all_reduce_seconds(size.bytes, links)


NOTHING = Cost(lambda size, rank, world_size: 0.0)
ALL_REDUCE = Cost(_bytes_sent, _seconds)  # the backend's own, whose messages are hidden
