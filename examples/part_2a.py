"""Part 2a: rank 0 gathers each gradient from all ranks, averages it, and scatters the mean.

self._communicator is the only way to the other ranks:

    .rank, .world_size                  this rank's number, 0 to N - 1, and N
    .gather(tensor)                     on rank 0 a list with every rank's tensor, by rank; on the others an empty list
    .scatter(tensor, parts)             fills each rank's `tensor` with that rank's part of the list `parts`, which only
                                        rank 0 passes; the others pass an empty list

Every rank makes the same calls in the same order, or all of them wait for ever.
"""

from collections.abc import Sequence

from torch import nn

from app.sync import STAR, GradientSync, gradients_of


class Part2a(GradientSync):
    """A star: gather, average, scatter, one parameter after another."""

    cost = STAR  # what you are held to: rank 0 sends (N - 1) times all gradients, every other rank sends them once

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """After backward: make every gradient the mean over all ranks, in place."""
        for gradient in gradients_of(parameters):  # parameters without a gradient are left out
            # TODO 1: rank 0 gathers this gradient from all ranks.
            raise NotImplementedError(
                f"TODO 1: rank 0 gathers this gradient, of shape {tuple(gradient.shape)}, from all ranks."
            )

            # TODO 2: rank 0 computes the mean. The other ranks have an empty list here.
            raise NotImplementedError("TODO 2: rank 0 computes the mean of all that it has gathered.")

            # TODO 3: rank 0 scatters the mean, so that it replaces this gradient on every rank.
            raise NotImplementedError("TODO 3: rank 0 scatters the mean into every rank's gradient.")
