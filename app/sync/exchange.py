"""What the modes share that can average any vector: all gradients at once, or one parameter's after another's."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, align_gradients, learned_of
from app.sync.schedules.schedule import Schedule


class GradientBuffer:
    """One piece of memory in which all gradients lie end to end, so that none has to be packed before it is sent.

    Backward makes each gradient in fresh memory. A hook that takes it at once finds it in the processor's cache, and
    frees its memory for the next one. A factor that is applied with that copy is free, while a pass of its own over all
    gradients takes as long as the copy itself.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], prescale: float = 1.0) -> None:
        """Each gradient is multiplied by `prescale` on its way into its place."""
        self._prescale = prescale
        self._taken = set[nn.Parameter]()  # since the gradients were last complete
        self.values = vector_for(parameters)
        self._places = dict(zip(parameters, places_in(self.values, parameters), strict=True))

    def fill_in_backward(self) -> None:
        """Take each gradient as soon as backward has made it."""
        for parameter in self._places:
            parameter.register_post_accumulate_grad_hook(self.take)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def take(self, parameter: nn.Parameter) -> None:
        """Put a parameter's gradient into its place, which becomes its gradient."""
        place = self._places[parameter]
        if parameter.grad is place and parameter in self._taken and self._prescale != 1:
            raise RuntimeError(
                "a second backward has added to gradients that were divided for the first one: "
                "call `synchronise` after each backward"
            )
        if parameter.grad is not None:
            torch.mul(parameter.grad, self._prescale, out=place)
            parameter.grad = place
            self._taken.add(parameter)

    def take_all(self) -> bool:
        """Take what no hook has taken, zeros for a missing gradient; return whether there is any gradient."""
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
    """A place of each parameter's shape and layout, one after another."""
    start = 0
    for parameter in parameters:
        strides = torch.empty_like(parameter, device="meta").stride()  # the parameter's own, unless it has gaps
        yield vector.as_strided(parameter.shape, strides, start)
        start += parameter.numel()


class Exchange(GradientSync):
    """All gradients in one buffer, which backward fills and `average` averages.

    A simple exchange has a `cost` and an `average`, and nothing else; one of rounds is `Scheduled`.
    """

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._buffer: GradientBuffer | None = None

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule | None:
        """The rounds for a vector of this length; None where the backend hides its messages."""
        return None

    @abstractmethod
    def average(self, values: torch.Tensor) -> None:
        """Replace the ranks' values, a vector, by their mean: bitwise the same on all ranks."""

    def expect(self, parameters: Sequence[nn.Parameter]) -> None:
        """Prepare for vectors of these parameters' elements, for an exchange that needs to know their shapes."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Lay out the buffer, and let backward fill it."""
        self._lay_out(learned_of(model.parameters()))
        if self._buffer is not None:
            self._buffer.fill_in_backward()
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the whole buffer; without `attach`, gradients are copied into it only now."""
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
    """One parameter's gradient after another's, each where backward has left it."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is: gradients are averaged where backward puts them."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """In the same order on all ranks, each as a vector in the order of its elements in memory."""
        align_gradients(parameters)
        for gradient in (each.grad for each in parameters if each.grad is not None):
            self.average(gradient.as_strided((gradient.numel(),), (1,)))
