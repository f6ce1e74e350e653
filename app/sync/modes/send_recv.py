"""`send_recv`: the star of `gather_scatter`, built from point-to-point messages."""

from app.settings.averaging import AveragingSettings
from app.sync.exchange import OneByOne
from app.sync.modes.gather_scatter import STAR, star
from app.sync.rounds import Scheduled
from app.sync.schedules.costs import Cost
from app.sync.schedules.schedule import Schedule


class SendRecv(OneByOne, Scheduled):
    """Non-blocking sends and receives, one parameter after another, all transfers of a parameter in flight at once.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), sent to all ranks.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1; more for parameters above 8 MiB.
    Equivalent to `gather_scatter` to the bit, and to `all_reduce` within rounding.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        return star(elements, world_size)

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        """The star's cost without pieces, because each parameter waits for the previous one."""
        return STAR
