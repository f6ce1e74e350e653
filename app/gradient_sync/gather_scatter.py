"""`gather_scatter`: rank 0 gathers each parameter's gradients, averages them, and scatters the mean."""

from collections.abc import Sequence

import torch
from torch import nn

from app.costs.bandwidth import LinkSpeed, gather_seconds, scatter_seconds
from app.gradient_sync.contract import ExplicitSync, gradient_bytes, gradients_of
from app.wire.communicator import CENTRE


class GatherScatter(ExplicitSync):
    """A star of collective operations, one parameter after another, rank 0 in the middle.

    Formula: on rank 0, mean = (1/N) * (grad of rank 0 + grad of rank 1 + ...), which all ranks take.
    Bytes per step for gradients of S bytes: each worker sends S and receives S; rank 0 sends and receives (N-1) * S.
    Messages per parameter: a worker sends one, rank 0 sends N-1.
    Equivalent to `send_recv` to the bit, and to `all_reduce` within rounding.
    """

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gather, average, scatter."""
        for gradient in gradients_of(parameters):
            everyones = self._communicator.gather(gradient)
            means = [mean_of(everyones)] * self._communicator.world_size if everyones else []
            self._communicator.scatter(gradient, means)

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """Everything once from each worker, and once to each."""
        return star_bytes_sent(gradient_bytes(parameters), rank, world_size)

    @staticmethod
    def seconds_at_least(parameters: Sequence[nn.Parameter], links: Sequence[LinkSpeed]) -> float:
        """All gradients to rank 0, and then all means from it."""
        return star_seconds_at_least(gradient_bytes(parameters), links)


def mean_of(everyones: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elementwise mean, summed up in the order of the ranks, in the first one's memory."""
    mean, *others = everyones
    for other in others:
        mean += other
    return mean.div_(len(everyones))


def star_bytes_sent(size: int, rank: int, world_size: int) -> float:
    """Payload that a rank of a star sends to average `size` bytes."""
    if world_size == 1:
        return 0.0
    return float((world_size - 1) * size if rank == CENTRE else size)


def star_seconds_at_least(size: int, links: Sequence[LinkSpeed]) -> float:
    """A parameter's mean leaves rank 0 when all has come, and the next one's gradients come when it has arrived."""
    return gather_seconds(size, links) + scatter_seconds(size, links)
