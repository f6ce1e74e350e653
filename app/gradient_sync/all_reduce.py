"""`all_reduce`: each parameter's gradient summed by the backend's all-reduce, then divided."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from app.communicator import Communicator, all_reduce_share


class AllReduce:
    """The backend's all-reduce, one parameter after another.

    Formula: grad = (1/N) * sum of all ranks' grad.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes, in one all-reduce per parameter.
    Equivalent to gathering the gradients on one rank, averaging them there and sending the mean to all.
    """

    explicit: ClassVar[bool] = True

    def __init__(self, communicator: Communicator) -> None:
        """Talk through this communicator."""
        self._communicator = communicator

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum and divide, in the same order on all ranks."""
        for parameter in parameters:
            if parameter.grad is not None:
                self._communicator.all_reduce(parameter.grad)
                parameter.grad /= self._communicator.world_size

    @staticmethod
    def bytes_sent_per_step(gradient_bytes: Sequence[int], world_size: int) -> float:
        """The all-reduce's share of each gradient."""
        return sum(all_reduce_share(size, world_size) for size in gradient_bytes)
