"""`ring_all_reduce`: the bandwidth-optimal all-reduce by hand: a reduce-scatter and an all-gather around a ring."""

from collections.abc import Iterator, Sequence

from app.settings.averaging import AveragingSettings
from app.sync.rounds import Scheduled
from app.sync.schedules.costs import ALL_REDUCE, Cost, schedule_cost
from app.sync.schedules.schedule import Message, Round, Schedule, cut


def ring(elements: int, world_size: int) -> Schedule:
    ranks, whole = range(world_size), range(elements)
    return Schedule.of(*reduce_scatter(ranks, whole), *all_gather(ranks, whole))


def reduce_scatter(ranks: Sequence[int], whole: range) -> Iterator[Round]:
    """In each of N-1 rounds, every rank sends one chunk to the next rank, which adds it to its own.

    At the end, the rank at position i of the ring holds the sum of chunk i.
    """
    count, chunks = len(ranks), cut(whole, len(ranks))
    for step in range(count - 1):
        yield tuple(
            Message(rank, ranks[(place + 1) % count], chunks[(place - step - 1) % count], adds=True)
            for place, rank in enumerate(ranks)
        )


def all_gather(ranks: Sequence[int], whole: range) -> Iterator[Round]:
    """In each of N-1 rounds, every rank forwards a complete chunk, which replaces the next rank's.

    At the start, the rank at position i of the ring holds chunk i. At the end, every rank holds all chunks.
    """
    count, chunks = len(ranks), cut(whole, len(ranks))
    for step in range(count - 1):
        yield tuple(
            Message(rank, ranks[(place + 1) % count], chunks[(place - step) % count], adds=False)
            for place, rank in enumerate(ranks)
        )


# All links of a ring are always busy, so its time follows from a rank's share; chunks of unequal size do not matter.
RING = Cost(schedule_cost(ring).bytes_sent, ALL_REDUCE.least_seconds)


class RingAllReduce(Scheduled):
    """One buffer of N chunks, which travel around the ring of ranks twice, less two steps.

    Every rank sends to the next one and receives from the previous one, in 2(N-1) steps. During the first N-1 steps,
    the reduce-scatter, it adds its own gradients to each received chunk and forwards the sum in the next step. Then
    rank r holds chunk r of the sum over all ranks, and divides it by N. During the other N-1 steps, the all-gather, the
    finished chunks circulate and replace the unfinished ones.

    A chunk is cut into pieces, and a piece is forwarded as soon as it is added, so that the network carries one piece
    while the CPU adds another.

    Formula: grad = (1/N) * sum of all ranks' grad; chunk c is summed from rank c+1 onwards.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes: all chunks twice, but for one chunk in each phase.
    If N does not divide the buffer, chunks and therefore ranks differ by one element.
    Messages per rank and step: 2(N-1) * the pieces of a chunk, independent of the number of parameters.
    Equivalent to `all_reduce`, within rounding.

    WIRE_PRECISION=bf16 or fp16 halves S. Received pieces are added in fp32 and rounded again for sending, so a number
    is rounded up to N times.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        return ring(elements, world_size)

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        """All links are busy in both directions from the first to the last step."""
        return RING
