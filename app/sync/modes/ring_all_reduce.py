"""`ring_all_reduce`: the bandwidth-optimal all-reduce, written out: reduce-scatter, then all-gather, round a ring."""

from app.settings.fields import Settings
from app.sync.scheduled import Scheduled
from app.sync.schedules.collectives import ring
from app.sync.schedules.patterns import RING
from app.sync.schedules.schedule import Schedule
from app.sync.schedules.sizes import Cost


class RingAllReduce(Scheduled):
    """All gradients as one buffer of N chunks, which travel round the ring of ranks twice, less two steps.

    Every rank sends to the next one and receives from the one before, in 2(N-1) steps. During the first N-1 steps, the
    reduce-scatter, it adds its own gradients to each chunk received, and sends it on in the next step. Then rank r
    holds chunk r of the sum of all ranks, and divides it by N. During the other N-1 steps, the all-gather, the
    finished chunks go round and replace the unfinished ones.

    A chunk is cut into pieces, and a piece is sent on as soon as it is added up: the network moves one piece
    while the processor adds another.

    Formula: grad = (1/N) * sum of all ranks' grad; chunk c is summed up from rank c+1 onwards.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes: all chunks twice, but for one chunk in each phase.
    Where N does not divide, chunks differ by one element, and so do the ranks.
    Messages per rank and step: 2(N-1) * the pieces of a chunk, whatever the number of parameters.
    Equivalent to `all_reduce`, within rounding.

    With WIRE_PRECISION=bf16 or fp16, S is half as large. What arrives is added in fp32, and rounded again to be sent:
    a number is rounded up to N times.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: Settings) -> Schedule:
        """Once round to add up, once to hand out."""
        return ring(elements, world_size)

    @classmethod
    def cost_of(cls, settings: Settings) -> Cost:
        """All links are busy in both directions from the first to the last step."""
        return RING
