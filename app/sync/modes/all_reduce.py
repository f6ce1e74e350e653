"""`all_reduce`: the backend's all-reduce sums each parameter's gradient, and every rank divides by N."""

import torch

from app.sync.exchange import OneByOne
from app.sync.schedules.costs import ALL_REDUCE


class AllReduce(OneByOne):
    """The backend's all-reduce, one parameter after another.

    Formula: grad = (1/N) * sum of all ranks' grad.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce per parameter, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `gather_scatter` and `send_recv`, within rounding: the sum is taken in another order.
    """

    cost = ALL_REDUCE

    def average(self, values: torch.Tensor) -> None:
        self._communicator.all_reduce(values)
        values /= self._communicator.world_size
