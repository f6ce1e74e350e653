"""`tree`: gradients are summed up a binomial tree of ranks, and the mean is sent back down."""

from app.settings.averaging import AveragingSettings
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Message, Schedule


class Tree(Scheduled):
    """In each round, half of the ranks that hold a sum send it to another; then the same rounds run in reverse.

    In round t (from 0) each rank r that is an odd multiple of 2^t sends to rank r - 2^t. Rank 0 is the root.

    Formula: grad = (1/N) * sum of all ranks' grad, added up subtree by subtree.
    Bytes per rank and step: S for gradients of S bytes to each child, and S to the parent, except on rank 0.
    Messages: one for each S, in 2 ceil(lg N) rounds.
    Equivalent to `all_reduce`, within rounding. It has fewer rounds than the star has messages on one link (N-1), but
    each carries all gradients, so it suits small models.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        distances = [1 << level for level in range((world_size - 1).bit_length())]
        edges = [[(rank, rank - each) for rank in range(each, world_size, 2 * each)] for each in distances]
        whole = range(elements)
        up = [[Message(child, parent, whole, adds=True) for child, parent in level] for level in edges]
        down = [[Message(parent, child, whole, adds=False) for child, parent in level] for level in reversed(edges)]
        return Schedule.of(*up, *down)
