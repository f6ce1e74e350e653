"""`gather_scatter`: rank 0 gathers each parameter's gradients, averages them, and scatters the mean."""

from collections.abc import Sequence

from torch import nn

from app.costs.patterns import STAR
from app.gradient_sync.contract import GradientSync, gradients_of, mean_of


class GatherScatter(GradientSync):
    """A star of collective operations, one parameter after another, rank 0 in the middle.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), which all ranks take.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1.
    Equivalent to `send_recv` to the bit, and to `all_reduce` within rounding.
    """

    cost = STAR

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gather, average, scatter."""
        for gradient in gradients_of(parameters):
            everyones = self._communicator.gather(gradient)
            means = [mean_of(everyones)] * self._communicator.world_size if everyones else []
            self._communicator.scatter(gradient, means)
