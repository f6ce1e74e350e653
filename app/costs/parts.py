"""One rank's part in a schedule: what it sends and receives, and what has to wait for what."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from app.costs.schedules import Message, Schedule


class Send(NamedTuple):
    """What a rank sends, as soon as it is done with so many receives."""

    message: Message
    number: int  # among the messages from this sender to this receiver
    round: int
    after: int


class Receive(NamedTuple):
    """What a rank receives. It is done with one receive after another: has added it, or left it in its place."""

    message: Message
    number: int
    round: int
    after: int  # the receives that it must be done with before the values may change there
    sent: tuple[int, ...]  # the sends, by their place in the list, that must have left before


class Part(NamedTuple):
    """Both lists are in the order of the rounds."""

    sends: list[Send]
    receives: list[Receive]


def part_of(schedule: Schedule, rank: int) -> Part:
    """What touches the same elements has to wait for what stands in an earlier round."""
    part, counts = Part([], []), Counter[tuple[int, int]]()
    for number, messages in enumerate(schedule.rounds):
        own: list[tuple[Message, int]] = []
        for message in messages:
            pair = (message.sender, message.receiver)
            if rank in pair:
                own.append((message, counts[pair]))
                counts[pair] += 1
        earlier = len(part.receives)
        part.sends.extend(
            Send(message, place, number, _done_with(part.receives[:earlier], message))
            for message, place in own
            if message.sender == rank
        )
        for message, place in own:
            if message.receiver == rank:
                sent = tuple(at for at, each in enumerate(part.sends) if _touch(each.message, message))
                after = max(_done_with(part.receives, message), *(part.sends[at].after for at in sent), 0)
                part.receives.append(Receive(message, place, number, after, sent))
    return part


def _done_with(receives: Sequence[Receive], message: Message) -> int:
    """How many receives come before a message that may follow the last of those that touch the same elements."""
    return next((at + 1 for at in reversed(range(len(receives))) if _touch(receives[at].message, message)), 0)


def _touch(one: Message, other: Message) -> bool:
    return max(one.piece.start, other.piece.start) < min(one.piece.stop, other.piece.stop)
