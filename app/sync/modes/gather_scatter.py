"""`gather_scatter`: rank 0 gathers each parameter's gradients, averages them, and scatters the mean."""

import torch

from app.settings.fields import Settings
from app.sync.contract import mean_of
from app.sync.exchange import OneByOne
from app.sync.schedules.collectives import star
from app.sync.schedules.patterns import STAR
from app.sync.schedules.schedule import Schedule


class GatherScatter(OneByOne):
    """A star of collective operations, one parameter after another, rank 0 in the middle.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), which all ranks take.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1.
    Equivalent to `send_recv` to the bit, and to `all_reduce` within rounding.
    """

    cost = STAR

    @staticmethod
    def schedule(elements: int, world_size: int, settings: Settings) -> Schedule:
        """To rank 0, and back."""
        return star(elements, world_size)

    def average(self, values: torch.Tensor) -> None:
        """Gather, average, scatter."""
        everyones = self._communicator.gather(values)
        means = [mean_of(everyones)] * self._communicator.world_size if everyones else []
        self._communicator.scatter(values, means)
