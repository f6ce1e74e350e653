"""`halving_doubling`: Rabenseifner's all-reduce, with the rounds of a tree and, on 2^k ranks, the bytes of a ring."""

from app.settings.averaging import AveragingSettings
from app.sync.modes.recursive_doubling import folded
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Message, Schedule, cut


class HalvingDoubling(Scheduled):
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling.

    With p the largest power of two up to N, the buffer is cut into p chunks. In each round of the reduce-scatter, a
    rank sends one half of its range to its partner and adds the partner's values to the other half. After lg p rounds,
    rank r holds the sum of chunk r. The all-gather runs the same rounds in reverse. Each of the N-p ranks beyond p
    first sends its gradients to a partner among the p, and receives the mean at the end.

    Formula: grad = (1/N) * sum of all ranks' grad, added up pair by pair.
    Bytes per rank and step: 2(p-1)/p * S for gradients of S bytes; S more for partners; S for the ranks beyond p.
    Messages: 2 lg p, each in its own round, and two more rounds if N is not a power of two.
    Equivalent to `all_reduce`, within rounding. It beats the ring where latency dominates. If N is not a power of two,
    the partners' extra S makes it slower on slow links.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        whole = range(elements)
        inner, given, back = folded(world_size, whole)
        chunks = cut(whole, inner)

        def held(rank: int, count: int) -> range:
            """The chunks of the rank's group of `count` neighbours, which are one contiguous range."""
            first = rank - rank % count
            return range(chunks[first].start, chunks[first + count - 1].stop)

        distances = [1 << level for level in range(inner.bit_length() - 1)]
        halving = [
            [Message(rank, rank ^ each, held(rank ^ each, each), adds=True) for rank in range(inner)]
            for each in reversed(distances)
        ]
        doubling = [
            [Message(rank, rank ^ each, held(rank, each), adds=False) for rank in range(inner)] for each in distances
        ]
        return Schedule.of(given, *halving, *doubling, back)
