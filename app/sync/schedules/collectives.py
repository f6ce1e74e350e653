"""The schedules that several modes share, and what others are put together from."""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from app.cluster.wire.bandwidth import CENTRE
from app.sync.schedules.schedule import Message, Round, Schedule
from app.sync.schedules.sizes import cut


def star(elements: int, world_size: int) -> Schedule:
    """Everything to rank 0, which adds it up, and back."""
    whole, workers = range(elements), [rank for rank in range(world_size) if rank != CENTRE]
    return Schedule.of(
        [Message(rank, CENTRE, whole, adds=True) for rank in workers],
        [Message(CENTRE, rank, whole, adds=False) for rank in workers],
    )


def ring(elements: int, world_size: int) -> Schedule:
    """A reduce-scatter, then an all-gather."""
    ranks, whole = range(world_size), range(elements)
    return Schedule.of(*reduce_scatter_round_a_ring(ranks, whole), *all_gather_round_a_ring(ranks, whole))


def reduce_scatter_round_a_ring(ranks: Sequence[int], whole: range) -> Iterator[Round]:
    """In the end, the rank in place i holds the sum of chunk i."""
    chunks = cut(whole, len(ranks))
    for step in range(len(ranks) - 1):
        yield _to_the_next(ranks, [chunks[(place - 1 - step) % len(ranks)] for place in range(len(ranks))], adds=True)


def all_gather_round_a_ring(ranks: Sequence[int], whole: range) -> Iterator[Round]:
    """In the beginning, the rank in place i holds chunk i; in the end, each holds all."""
    chunks = cut(whole, len(ranks))
    for step in range(len(ranks) - 1):
        yield _to_the_next(ranks, [chunks[(place - step) % len(ranks)] for place in range(len(ranks))], adds=False)


def _to_the_next(ranks: Sequence[int], pieces: Sequence[range], adds: bool) -> Round:
    after = [*ranks[1:], ranks[0]]
    return tuple(Message(*each, adds) for each in zip(ranks, after, pieces, strict=True))


def at_once(*exchanges: Iterator[Round]) -> Iterator[Round]:
    """The rounds of several exchanges among different ranks, side by side."""
    for rounds in zip_longest(*exchanges, fillvalue=()):
        yield tuple(chain.from_iterable(rounds))


def folded(world_size: int, whole: range) -> tuple[int, Round, Round]:
    """The largest power of two in N, and the rounds before and after an exchange among so many ranks.

    Each rank beyond them gives its values to a partner first, and is given the result in the end.
    """
    inner = 1 << (world_size.bit_length() - 1)
    given = tuple(Message(rank, rank - inner, whole, adds=True) for rank in range(inner, world_size))
    back = tuple(Message(rank - inner, rank, whole, adds=False) for rank in range(inner, world_size))
    return inner, given, back
