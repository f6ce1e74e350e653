"""One piece of memory in which all gradients lie end to end, so that none has to be packed before it is sent."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn


class GradientBuffer:
    """The gradients of these parameters, in their order; each has a place of its parameter's shape.

    Backward makes each gradient in fresh memory. A hook that takes it at once finds it in the processor's cache, and
    frees its memory for the next one. What each is multiplied by comes with that copy, because a pass of its own over
    all gradients takes as long as the copy itself.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], share: float) -> None:
        """Each gradient is multiplied by this share on its way into its place."""
        self._share = share
        self.values = vector_for(parameters)
        self._places = dict(zip(parameters, places_in(self.values, parameters), strict=True))

    @torch.no_grad()
    def take(self, parameter: nn.Parameter) -> None:
        """Put a parameter's share of the mean into its place, which becomes its gradient."""
        place = self._places[parameter]
        if parameter.grad is place:
            raise RuntimeError("a second backward has added to gradients that were divided for the first one")
        if parameter.grad is not None:
            torch.mul(parameter.grad, self._share, out=place)
            parameter.grad = place

    def take_all(self) -> bool:
        """Take what no hook has taken, zeros for a missing gradient; return whether there is any gradient."""
        for parameter, place in self._places.items():
            if parameter.grad is None:
                place.zero_()  # or an earlier step's gradient would be sent again
            elif parameter.grad is not place:
                self.take(parameter)
        return any(parameter.grad is not None for parameter in self._places)


def vector_for(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """Zeros, one for each element."""
    return parameters[0].new_zeros(sum(map(torch.numel, parameters))) if parameters else torch.empty(0)


def places_in(vector: torch.Tensor, parameters: Sequence[nn.Parameter]) -> Iterator[torch.Tensor]:
    """A place of each parameter's shape and layout, one after another."""
    start = 0
    for parameter in parameters:
        strides = torch.empty_like(parameter, device="meta").stride()  # the parameter's own, unless it has gaps
        yield vector.as_strided(parameter.shape, strides, start)
        start += parameter.numel()
