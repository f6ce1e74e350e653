"""`all_reduce`: each parameter's gradient summed by the backend's all-reduce, then divided."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from app.communicator import Communicator, all_reduce_share
from app.gradient_sync.contract import gradient_bytes, gradients_of
from app.settings import Settings


class AllReduce:
    """The backend's all-reduce, one parameter after another.

    Formula: grad = (1/N) * sum of all ranks' grad.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce per parameter, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `gather_scatter` and `send_recv`, within rounding: the sum is taken in another order.
    """

    explicit: ClassVar[bool] = True

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        """Talk through this communicator."""
        self._communicator = communicator

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum and divide, in the same order on all ranks."""
        for gradient in gradients_of(parameters):
            self._communicator.all_reduce(gradient)
            gradient /= self._communicator.world_size

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """The all-reduce's share of each gradient."""
        return all_reduce_share(gradient_bytes(parameters), world_size)
