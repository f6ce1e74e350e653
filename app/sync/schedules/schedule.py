"""A schedule is a list of rounds, each a list of messages (sender, receiver, piece of the gradients).

Its execution, its cost and its drawing are derived from it. A rank's part consists of its sends and receives and their
dependencies.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple

PIECE_BYTES = 8 << 20  # smaller pieces cost more wake-ups than their overlap saves


class Message(NamedTuple):
    """A slice of the gradient buffer, sent from one rank to another."""

    sender: int
    receiver: int
    piece: range  # of elements
    adds: bool  # whether the receiver adds it to its own values; otherwise it replaces them


Round = tuple[Message, ...]


@dataclass(frozen=True)
class Schedule:
    """The rounds of a collective.

    All messages of a round carry their senders' values from before the round. A message that replaces values overlaps
    neither a message that its receiver sends in that round nor another one to that receiver.
    """

    rounds: tuple[Round, ...]

    @classmethod
    def of(cls, *rounds: Sequence[Message]) -> "Schedule":
        """Omit empty pieces, which occur if there are fewer elements than pieces."""
        return cls(tuple(tuple(message for message in each if message.piece) for each in rounds))

    @property
    def messages(self) -> Iterator[Message]:
        return chain.from_iterable(self.rounds)

    def elements_sent(self, rank: int) -> int:
        return sum(len(each.piece) for each in self.messages if each.sender == rank)

    def in_pieces(self, most: int) -> "Schedule":
        """Cut every message into pieces of at most `most` elements, each forwarded as soon as it has arrived.

        The first pieces of all messages of a round precede the second ones.
        """
        return Schedule(tuple(_in_pieces(each, most) for each in self.rounds))

    def completing(self, elements: int, world_size: int) -> frozenset[tuple[int, Message]]:
        """The additions, with their rounds, that complete a sum over all ranks.

        Raises ValueError if the schedule leaves a rank without this sum: it counts a rank twice or omits one.
        """
        edges = sorted({0, elements, *(edge for each in self.messages for edge in (each.piece.start, each.piece.stop))})
        stretches = [range(*edge) for edge in pairwise(edges)]
        place = {stretch.start: index for index, stretch in enumerate(stretches)} | {edges[-1]: len(stretches)}
        everybody = (1 << world_size) - 1
        held = [[1 << rank] * len(stretches) for rank in range(world_size)]  # which ranks' values are in a rank's sum
        found: set[tuple[int, Message]] = set()
        for number, messages in enumerate(self.rounds):
            spans = [range(place[each.piece.start], place[each.piece.stop]) for each in messages]
            carried = [[held[each.sender][at] for at in span] for each, span in zip(messages, spans, strict=True)]
            for message, span, sums in zip(messages, spans, carried, strict=True):
                own, where = held[message.receiver], f"round {number}, rank {message.sender} to {message.receiver}"
                for at, arriving in zip(span, sums, strict=True):
                    if message.adds and own[at] & arriving:
                        twice = ", ".join(map(str, _ranks_in(own[at] & arriving)))
                        raise ValueError(f"{where}: {_described(stretches[at])} of rank {twice} would be counted twice")
                    own[at] = own[at] | arriving if message.adds else arriving
                complete = {own[at] == everybody for at in span}
                if message.adds and len(complete) > 1:
                    raise ValueError(f"{where}: only a part of the piece is then a complete sum. Split the message")
                if message.adds and complete == {True}:
                    found.add((number, message))
        for rank, own in enumerate(held):
            for stretch, ranks in zip(stretches, own, strict=True):
                if ranks != everybody:
                    missing = ", ".join(map(str, _ranks_in(everybody & ~ranks)))
                    raise ValueError(f"rank {rank} ends without {_described(stretch)} of rank {missing}")
        return frozenset(found)


def _in_pieces(messages: Round, most: int) -> Round:
    if all(len(each.piece) <= most for each in messages):
        return messages
    pieces = ([*_cut(each, most)] for each in messages)
    return tuple(filter(None, chain(*zip_longest(*pieces))))


def _cut(message: Message, most: int) -> Iterator[Message]:
    return (message._replace(piece=piece) for piece in cut(message.piece, -(-len(message.piece) // most)))


def _ranks_in(mask: int) -> Iterator[int]:
    return (rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def _described(stretch: range) -> str:
    return f"elements {stretch.start} to {stretch.stop - 1}" if len(stretch) > 1 else f"element {stretch.start}"


def cut(whole: range, parts: int) -> list[range]:
    """Cut a range as evenly as possible, so that parts differ by at most one element."""
    edges = [whole.start + len(whole) * index // max(1, parts) for index in range(parts + 1)]
    return [range(*edge) for edge in pairwise(edges)]


def elements_in(piece_bytes: int, element_bytes: float) -> int:
    """The length of the longest piece, at least one element because otherwise nothing would be sent."""
    return max(1, int(piece_bytes / element_bytes)) if element_bytes else 1


class Send(NamedTuple):
    """A message that a rank sends once its first `after` receives are finished."""

    message: Message
    number: int  # among the messages from this sender to this receiver
    round: int
    after: int


class Receive(NamedTuple):
    """A message that a rank receives. A receive is finished once its piece is added or stored."""

    message: Message
    number: int
    round: int
    after: int  # number of receives to finish before its elements may change
    sent: tuple[int, ...]  # indices of the sends that must have left before


class RankPart(NamedTuple):
    """One rank's sends and receives, each in the order of the rounds."""

    sends: list[Send]
    receives: list[Receive]


def part_of(schedule: Schedule, rank: int) -> RankPart:
    """A message waits for those of earlier rounds that touch the same elements."""
    part, counts = RankPart([], []), Counter[tuple[int, int]]()
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
    """For each receive, the number of receives finished before the rank requests it, which its sender waits for.

    Messages of two senders share the link, so an early request would delay a message that other ranks need. A piece is
    requested when those of earlier rounds from other senders have arrived.
    """
    found: list[int] = []
    others: list[int] = []  # for each, the number of receives up to the last one before it from another sender
    earlier = 0  # receives of earlier rounds

    def up_to_another(number: int, sender: int) -> int:
        """Number of receives, of the first `number`, up to and including the last one from a different sender."""
        return others[number - 1] if number and receives[number - 1].message.sender == sender else number

    for at, receive in enumerate(receives):
        others.append(up_to_another(at, receive.message.sender))
        if at and receives[at - 1].round != receive.round:
            earlier = at
        found.append(up_to_another(earlier, receive.message.sender))
    return found


def sent_after(sends: Sequence[Send], receives: Sequence[Receive]) -> list[int]:
    """For each send, the number of receives that must be finished before it starts.

    A request to a rank would queue behind data sent to that rank, so the request goes first.
    """
    requested = asked_after(receives)
    last = {(each.message.sender, each.round): at for each, at in zip(receives, requested, strict=True)}
    return [max(each.after, last.get((each.message.receiver, each.round), 0)) for each in sends]


def _done_with(receives: Sequence[Receive], message: Message) -> int:
    """Number of receives up to and including the last one that touches the same elements."""
    return next((at + 1 for at in reversed(range(len(receives))) if _touch(receives[at].message, message)), 0)


def _touch(one: Message, other: Message) -> bool:
    return max(one.piece.start, other.piece.start) < min(one.piece.stop, other.piece.stop)
