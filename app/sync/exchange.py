"""Base classes of modes that average any vector: all gradients at once, or one parameter after another."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, align_gradients, learned_of
from app.sync.schedules.schedule import Schedule


class GradientBuffer:
    """One contiguous buffer of all gradients, so that nothing has to be packed before sending.

    Backward allocates memory for each gradient. A hook that copies it at once finds it in the CPU cache, and frees its
    memory for the next one. Scaling during that copy is free, while a separate pass over all gradients takes as long
    as the copy.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], prescale: float = 1.0) -> None:
        """Each gradient is multiplied by `prescale` while it is copied into the buffer."""
        self._prescale = prescale
        self._taken = set[nn.Parameter]()  # since the last complete set
        self.values = vector_for(parameters)
        self._places = dict(zip(parameters, places_in(self.values, parameters), strict=True))

    def fill_in_backward(self) -> None:
        """Copy each gradient as soon as backward has produced it."""
        for parameter in self._places:
            parameter.register_post_accumulate_grad_hook(self.take)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def take(self, parameter: nn.Parameter) -> None:
        """Copy a parameter's gradient into its slice of the buffer, which becomes its `.grad`."""
        place = self._places[parameter]
        if parameter.grad is place and parameter in self._taken and self._prescale != 1:
            raise RuntimeError(
                "a second backward added to gradients that are already divided by N. "
                "Call `synchronise` after each backward."
            )
        if parameter.grad is not None:
            torch.mul(parameter.grad, self._prescale, out=place)
            parameter.grad = place
            self._taken.add(parameter)

    def take_all(self) -> bool:
        """Copy the gradients that no hook copied, zeros for missing ones; return whether any exists."""
        for parameter, place in self._places.items():
            if parameter.grad is None:
                place.zero_()  # or an earlier step's gradient would be sent again
            elif parameter.grad is not place or parameter not in self._taken:
                self.take(parameter)
        self._taken.clear()
        return any(parameter.grad is not None for parameter in self._places)


def vector_for(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    return parameters[0].new_zeros(sum(map(torch.numel, parameters))) if parameters else torch.empty(0)


def places_in(vector: torch.Tensor, parameters: Sequence[nn.Parameter]) -> Iterator[torch.Tensor]:
    """Yield consecutive views of the vector with each parameter's shape and layout."""
    start = 0
    for parameter in parameters:
        strides = torch.empty_like(parameter, device="meta").stride()  # the parameter's own, unless it has gaps
        yield vector.as_strided(parameter.shape, strides, start)
        start += parameter.numel()


class Exchange(GradientSync):
    """Averages all gradients in one buffer, which backward fills.

    A minimal subclass defines `cost` and `average`. For communication in rounds, subclass `Scheduled`.
    """

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._buffer: GradientBuffer | None = None

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule | None:
        """The rounds for a vector of this length, or None if the backend hides its messages."""
        return None

    @abstractmethod
    def average(self, values: torch.Tensor) -> None:
        """Replace the vector by its mean over all ranks, bitwise identical on all of them."""

    def expect(self, parameters: Sequence[nn.Parameter]) -> None:
        """Prepare for vectors of these parameters' elements, if the exchange depends on their shapes."""

    def attach(self, model: nn.Module) -> nn.Module:
        self._lay_out(learned_of(model.parameters()))
        if self._buffer is not None:
            self._buffer.fill_in_backward()
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the whole buffer. Without `attach`, gradients are copied into it only now."""
        if self._buffer is None:
            self._lay_out(learned_of(parameters))
        if self._buffer is not None and self._buffer.take_all():
            self._average_buffer(self._buffer)

    def _lay_out(self, learned: Sequence[nn.Parameter]) -> None:
        self.expect(learned)
        if learned and self._communicator.world_size > 1:
            self._buffer = self._buffer_for(learned)

    def _buffer_for(self, learned: Sequence[nn.Parameter]) -> GradientBuffer:
        return GradientBuffer(learned)

    def _average_buffer(self, buffer: GradientBuffer) -> None:
        self.average(buffer.values)


class OneByOne(Exchange):
    """Averages one parameter's gradient after another, in place."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model unchanged, because gradients are averaged in place."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average gradients in the same order on all ranks, each as a vector in memory order."""
        align_gradients(parameters)
        for gradient in (each.grad for each in parameters if each.grad is not None):
            self.average(gradient.as_strided((gradient.numel(),), (1,)))
