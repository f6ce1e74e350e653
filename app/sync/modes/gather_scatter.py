"""`gather_scatter`: rank 0 gathers each parameter's gradients, averages them, and scatters the mean."""

import torch

from app.cluster.wire.bandwidth import CENTRE
from app.settings.averaging import AveragingSettings
from app.sync.contract import mean_of
from app.sync.exchange import OneByOne
from app.sync.schedules.costs import schedule_cost
from app.sync.schedules.schedule import Message, Schedule


def star(elements: int, world_size: int) -> Schedule:
    """All ranks send to rank 0, which adds and sends the result back."""
    whole, workers = range(elements), [rank for rank in range(world_size) if rank != CENTRE]
    return Schedule.of(
        [Message(rank, CENTRE, whole, adds=True) for rank in workers],
        [Message(CENTRE, rank, whole, adds=False) for rank in workers],
    )


STAR = schedule_cost(star, piece_bytes=None)  # rank 0 sends a parameter's mean once all gradients have arrived


class GatherScatter(OneByOne):
    """Gather and scatter through rank 0, one parameter after another.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), sent to all ranks.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1.
    Equivalent to `send_recv` to the bit, and to `all_reduce` within rounding.
    """

    cost = STAR

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        return star(elements, world_size)

    def average(self, values: torch.Tensor) -> None:
        everyones = self._communicator.gather(values)
        means = [mean_of(everyones)] * self._communicator.world_size if everyones else []
        self._communicator.scatter(values, means)
