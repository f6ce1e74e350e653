"""Part 2a: rank 0 gathers each gradient from all ranks, averages it, and scatters the mean.

All communication goes through self._communicator:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .gather(tensor)                     on rank 0 a list with every rank's tensor, by rank; on the others an empty list
    .scatter(tensor, parts)             fills each rank's `tensor` with that rank's part of the list `parts`, which only
                                        rank 0 passes; the others pass an empty list

All ranks must make the same calls in the same order. Otherwise they deadlock.
"""

from collections.abc import Sequence

from torch import nn

from app.sync import STAR, GradientSync, gradients_of


class Part2a(GradientSync):
    """A star: gather, average, scatter, one parameter after another."""

    cost = STAR  # checked: rank 0 sends (N - 1) times all gradients, every other rank sends them once

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by the mean over all ranks, in place. The loop calls this after backward."""
        for gradient in gradients_of(parameters):  # it skips parameters without a gradient
            # TODO 1: rank 0 gathers this gradient from all ranks.
            raise NotImplementedError(
                f"TODO 1: rank 0 gathers this gradient, of shape {tuple(gradient.shape)}, from all ranks."
            )

            # TODO 2: rank 0 computes the mean. On the other ranks the list is empty.
            raise NotImplementedError("TODO 2: rank 0 computes the mean of the gathered gradients.")

            # TODO 3: rank 0 scatters the mean, which replaces this gradient on every rank.
            raise NotImplementedError("TODO 3: rank 0 scatters the mean into every rank's gradient.")
