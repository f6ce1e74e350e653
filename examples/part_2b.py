"""Part 2b: each gradient goes through one all-reduce.

All communication goes through self._communicator:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .all_reduce(tensor)                 replaces the tensor, on every rank, by the SUM over all ranks

All ranks must make the same calls in the same order. Otherwise they deadlock.
"""

from collections.abc import Sequence

from torch import nn

from app.sync import ALL_REDUCE, GradientSync, gradients_of


class Part2b(GradientSync):
    """The backend's all-reduce, one parameter after another."""

    cost = ALL_REDUCE  # checked: every rank sends 2 (N - 1) / N times all gradients

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by the mean over all ranks, in place. The loop calls this after backward."""
        for gradient in gradients_of(parameters):  # it skips parameters without a gradient
            # TODO 1: replace this gradient by the sum over all ranks.
            raise NotImplementedError(f"TODO 1: sum this gradient, of shape {tuple(gradient.shape)}, over all ranks.")

            # TODO 2: turn the sum into the mean.
            raise NotImplementedError("TODO 2: divide the sum by the number of ranks.")
