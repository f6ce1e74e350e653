"""`recursive_doubling`: each round doubles the distance between the ranks that exchange all gradients."""

from app.settings.averaging import AveragingSettings
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Message, Round, Schedule


class RecursiveDoubling(Scheduled):
    """In lg p rounds, ranks 1, 2, 4 ... apart exchange all gradients, p being the largest power of two up to N.

    After round t (from 0) each rank holds the sum of 2^(t+1) ranks. Both ranks of a pair add the same two sums, and
    addition commutes, so they hold the same bits. Each of the N-p ranks beyond p first sends its gradients to
    a partner among the p, and receives the mean at the end.

    Formula: grad = (1/N) * sum of all ranks' grad, added up pair by pair.
    Bytes per rank and step: S lg p for gradients of S bytes; S more for partners; S for the ranks beyond p.
    Messages: one for each S, in lg p rounds, and two more rounds if N is not a power of two.
    Equivalent to `all_reduce`, within rounding. Few rounds, each of all gradients, suit small models.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        whole = range(elements)
        inner, given, back = folded(world_size, whole)
        distances = [1 << level for level in range(inner.bit_length() - 1)]
        rounds = [[Message(rank, rank ^ each, whole, adds=True) for rank in range(inner)] for each in distances]
        return Schedule.of(given, *rounds, back)


def folded(world_size: int, whole: range) -> tuple[int, Round, Round]:
    """The largest power of two p up to N, and the rounds that fold the ranks beyond p into p and unfold them.

    Each rank beyond p first sends its values to a partner, and receives the result at the end.
    """
    inner = 1 << (world_size.bit_length() - 1)
    given = tuple(Message(rank, rank - inner, whole, adds=True) for rank in range(inner, world_size))
    back = tuple(Message(rank - inner, rank, whole, adds=False) for rank in range(inner, world_size))
    return inner, given, back
