"""`send_recv`: the star of `gather_scatter`, built from messages between two ranks."""

from collections.abc import Sequence

import torch
from torch import nn

from app.costs.bandwidth import CENTRE
from app.costs.patterns import STAR
from app.gradient_sync.contract import GradientSync, gradients_of, mean_of


class SendRecv(GradientSync):
    """Non-blocking sends and receives, one parameter after another, all transfers of a parameter in flight at once.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), which all ranks take.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1.
    Equivalent to `gather_scatter` to the bit, and to `all_reduce` within rounding.
    """

    cost = STAR

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Workers send and await the mean; rank 0 receives from all at once, and answers all at once."""
        for gradient in gradients_of(parameters):
            if self._communicator.rank == CENTRE:
                self._average(gradient)
            else:
                self._communicator.start_send(gradient, CENTRE).wait()
                self._communicator.start_receive(gradient, CENTRE).wait()

    def _average(self, gradient: torch.Tensor) -> None:
        workers = [rank for rank in range(self._communicator.world_size) if rank != CENTRE]
        theirs = [torch.empty_like(gradient) for _ in workers]
        arriving = [self._communicator.start_receive(other, rank) for rank, other in zip(workers, theirs, strict=True)]
        for transfer in arriving:
            transfer.wait()
        mean_of([gradient, *theirs])
        for transfer in [self._communicator.start_send(gradient, rank) for rank in workers]:
            transfer.wait()
