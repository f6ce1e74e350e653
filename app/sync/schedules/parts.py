"""One rank's part in a schedule: what it sends and receives, and what has to wait for what."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from app.sync.schedules.schedule import Message, Schedule


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


def asked_after(receives: Sequence[Receive]) -> list[int]:
    """How many receives a rank is done with when it asks for each; its sender waits for that.

    What comes from two senders shares the link, so what others wait for would come later. A piece is asked for when
    those of earlier rounds from other senders are there.
    """
    found: list[int] = []
    others: list[int] = []  # for each, the number of receives up to the last one before it from another sender
    earlier = 0  # receives of earlier rounds

    def up_to_another(number: int, sender: int) -> int:
        """Of the first so many, how many there are up to the last from anybody else."""
        return others[number - 1] if number and receives[number - 1].message.sender == sender else number

    for at, receive in enumerate(receives):
        others.append(up_to_another(at, receive.message.sender))
        if at and receives[at - 1].round != receive.round:
            earlier = at
        found.append(up_to_another(earlier, receive.message.sender))
    return found


def sent_after(sends: Sequence[Send], receives: Sequence[Receive]) -> list[int]:
    """How many receives a rank is done with when it may start each send.

    What it asks of another rank would wait behind the data that it sends to it, so it asks first.
    """
    asked = asked_after(receives)
    last = {(each.message.sender, each.round): at for each, at in zip(receives, asked, strict=True)}
    return [max(each.after, last.get((each.message.receiver, each.round), 0)) for each in sends]


def _done_with(receives: Sequence[Receive], message: Message) -> int:
    """How many receives come before a message that may follow the last of those that touch the same elements."""
    return next((at + 1 for at in reversed(range(len(receives))) if _touch(receives[at].message, message)), 0)


def _touch(one: Message, other: Message) -> bool:
    return max(one.piece.start, other.piece.start) < min(one.piece.stop, other.piece.stop)
