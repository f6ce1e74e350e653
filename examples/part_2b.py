"""Part 2b: each gradient goes through one all-reduce.

self._communicator is the only way to the other ranks:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .all_reduce(tensor)                 replaces the tensor, on every rank, by the SUM over all ranks

Every rank makes the same calls in the same order, or all of them wait for ever.
"""

from collections.abc import Sequence

from torch import nn

from app.sync import ALL_REDUCE, GradientSync, gradients_of


class Part2b(GradientSync):
    """The backend's all-reduce, one parameter after another."""

    cost = ALL_REDUCE  # what you are held to: every rank sends 2 (N - 1) / N times all gradients

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """After backward: make every gradient the mean over all ranks, in place."""
        for gradient in gradients_of(parameters):  # parameters without a gradient are left out
            # TODO 1: replace this gradient by the sum over all ranks.
            raise NotImplementedError(
                f"TODO 1: sum up this gradient, of shape {tuple(gradient.shape)}, over all ranks."
            )

            # TODO 2: make a mean of the sum.
            raise NotImplementedError("TODO 2: divide the sum by the number of ranks.")
