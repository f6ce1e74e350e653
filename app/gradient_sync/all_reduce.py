"""`all_reduce`: each parameter's gradient summed by the backend's all-reduce, then divided."""

from collections.abc import Sequence

from torch import nn

from app.costs.patterns import ALL_REDUCE
from app.gradient_sync.contract import GradientSync, gradients_of


class AllReduce(GradientSync):
    """The backend's all-reduce, one parameter after another.

    Formula: grad = (1/N) * sum of all ranks' grad.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce per parameter, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `gather_scatter` and `send_recv`, within rounding: the sum is taken in another order.
    """

    cost = ALL_REDUCE

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum and divide, in the same order on all ranks."""
        for gradient in gradients_of(parameters):
            self._communicator.all_reduce(gradient)
            gradient /= self._communicator.world_size
