"""`ddp`: PyTorch's DistributedDataParallel, which averages buckets of gradients while backward still runs."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

from app.communicator import Communicator, all_reduce_share


class Ddp:
    """DistributedDataParallel with its own buckets and overlap.

    Formula: grad = sum over the ranks of grad/N, bucket by bucket, as its gradients become ready.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes, in one all-reduce per bucket.
    Equivalent to `all_reduce`, within rounding. Before each forward pass rank 0's buffers (batch
    normalisation's running statistics) go to all ranks as well; those bytes are not gradients.
    """

    explicit: ClassVar[bool] = False

    def __init__(self, communicator: Communicator) -> None:
        """Talk through this communicator."""
        self._communicator = communicator

    def attach(self, model: nn.Module) -> nn.Module:
        """Wrap the model; its buckets pass the communicator on their way."""
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, self._average)
        return wrapped

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing is left to do: backward has averaged them."""

    def _average(self, state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's own recipe, divide and then sum, so that the results are its results to the bit."""
        return self._communicator.start_all_reduce(bucket.buffer().div_(self._communicator.world_size))

    @staticmethod
    def bytes_sent_per_step(gradient_bytes: Sequence[int], world_size: int) -> float:
        """The all-reduce's share of all buckets together."""
        return all_reduce_share(sum(gradient_bytes), world_size)
