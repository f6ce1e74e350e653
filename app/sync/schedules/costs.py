"""What a schedule costs: the bytes that a rank sends, and the least time on given links."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from app.cluster.wire.bandwidth import LinkSpeed
from app.sync.schedules.parts import part_of
from app.sync.schedules.schedule import Message, Schedule
from app.sync.schedules.sizes import Cost, Size

PIECE_BYTES = 8 << 20  # smaller pieces cost more wake-ups than their overlap saves


def seconds_at_least(schedule: Schedule, bytes_of: Callable[[Message], float], links: Sequence[LinkSpeed]) -> float:
    """The time if only the links took time.

    A message leaves when the earlier ones that touch its elements have arrived. A link carries one message after
    another, in both directions at once.
    """
    sends = [iter(part_of(schedule, rank).sends) for rank in range(len(links))]
    arrivals: list[list[float]] = [[0.0] for _ in links]  # when a rank has received its first so many messages
    sent, received = [0.0] * len(links), [0.0] * len(links)  # when a link is free again
    for message in schedule.messages:
        sender, receiver, size = message.sender, message.receiver, bytes_of(message)
        leaves = max(sent[sender], arrivals[sender][next(sends[sender]).after])
        sent[sender] = leaves + size / links[sender].sends
        received[receiver] = max(sent[sender], max(received[receiver], leaves) + size / links[receiver].receives)
        arrivals[receiver].append(max(arrivals[receiver][-1], received[receiver]))
    return max([0.0, *sent, *received])


def cost_of(schedule: Callable[[int, int], Schedule], piece_bytes: int | None = PIECE_BYTES) -> Cost:
    """The formulas of an exchange that is scheduled for so many elements on so many ranks, and runs in such pieces."""
    scheduled = lru_cache(maxsize=8)(schedule)

    def bytes_sent(size: Size, rank: int, world_size: int) -> float:
        return scheduled(size.elements, world_size).elements_sent(rank) * size.element_bytes

    def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
        whole, each = scheduled(size.elements, len(links)), size.element_bytes
        pieces = whole if piece_bytes is None else whole.in_pieces(elements_in(piece_bytes, each))
        return seconds_at_least(pieces, lambda message: len(message.piece) * each, links)

    return Cost(bytes_sent, least_seconds)


def cost_of_messages(schedule: Callable[[int], Schedule], bytes_of: Callable[[Message], int]) -> Cost:
    """The formulas of an exchange of messages that have sizes of their own; the size of the gradients is known."""

    def bytes_sent(size: Size, rank: int, world_size: int) -> float:
        return float(sum(bytes_of(each) for each in schedule(world_size).messages if each.sender == rank))

    def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
        return seconds_at_least(schedule(len(links)), bytes_of, links)

    return Cost(bytes_sent, least_seconds)


def elements_in(piece_bytes: int, element_bytes: float) -> int:
    """How many elements a piece has at most."""
    return max(1, int(piece_bytes / element_bytes)) if element_bytes else 1
