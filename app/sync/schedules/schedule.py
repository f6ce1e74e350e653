"""A schedule: who sends which piece to whom, in rounds. Running it and what it costs follow from this one object."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple

from app.sync.schedules.sizes import cut


class Message(NamedTuple):
    """A piece of the gradients, which lie end to end in one buffer on each rank, on its way between two ranks."""

    sender: int
    receiver: int
    piece: range  # of elements
    adds: bool  # whether the receiver adds it to its own values; otherwise it replaces them


Round = tuple[Message, ...]


@dataclass(frozen=True)
class Schedule:
    """The rounds of an exchange.

    All messages of a round carry what their senders had before it. What replaces a piece of the receiver's overlaps
    neither what the receiver sends in that round nor another message to it.
    """

    rounds: tuple[Round, ...]

    @classmethod
    def of(cls, *rounds: Sequence[Message]) -> "Schedule":
        """Leave out empty pieces, which occur where there are fewer elements than pieces."""
        return cls(tuple(tuple(message for message in each if message.piece) for each in rounds))

    @property
    def messages(self) -> Iterator[Message]:
        """All of them, round after round."""
        return chain.from_iterable(self.rounds)

    def elements_sent(self, rank: int) -> int:
        """By a rank, over all rounds."""
        return sum(len(each.piece) for each in self.messages if each.sender == rank)

    def in_pieces(self, most: int) -> "Schedule":
        """The same with every message cut, so that a piece can go on while others are still under way.

        The first pieces of a round's messages come before all second ones.
        """
        return Schedule(tuple(_in_pieces(each, most) for each in self.rounds))

    def completing(self, elements: int, world_size: int) -> frozenset[tuple[int, Message]]:
        """The additions, by round, that complete a sum over all ranks.

        A ValueError for a schedule after which some rank has no such sum: it counts a rank twice, or leaves one out.
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
                        raise ValueError(f"{where}: {_words(stretches[at])} of rank {twice} would be counted twice")
                    own[at] = own[at] | arriving if message.adds else arriving
                complete = {own[at] == everybody for at in span}
                if message.adds and len(complete) > 1:
                    raise ValueError(f"{where}: only a part of its piece is a complete sum then; make it two messages")
                if message.adds and complete == {True}:
                    found.add((number, message))
        for rank, own in enumerate(held):
            for stretch, ranks in zip(stretches, own, strict=True):
                if ranks != everybody:
                    missing = ", ".join(map(str, _ranks_in(everybody & ~ranks)))
                    raise ValueError(f"rank {rank} ends without {_words(stretch)} of rank {missing}")
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


def _words(stretch: range) -> str:
    return f"elements {stretch.start} to {stretch.stop - 1}" if len(stretch) > 1 else f"element {stretch.start}"
