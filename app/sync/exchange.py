"""What the modes share that can average any vector: all gradients at once, or one parameter's after another's."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.fields import Settings
from app.sync.contract import GradientSync, align_gradients, learned_of
from app.sync.gradient_buffer import GradientBuffer
from app.sync.schedules.schedule import Schedule


class Exchange(GradientSync):
    """All gradients in one buffer, which backward fills and `average` averages.

    A simple exchange has a `cost` and an `average`, and nothing else; one of rounds is `Scheduled`.
    """

    share: float = 1.0
    """What each gradient is multiplied by on its way into the buffer."""

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        self._buffer: GradientBuffer | None = None

    @staticmethod
    def schedule(elements: int, world_size: int, settings: Settings) -> Schedule | None:
        """The rounds for a vector of so many elements; None where the backend does not tell its messages."""
        return None

    @abstractmethod
    def average(self, values: torch.Tensor) -> None:
        """Replace the ranks' values, a vector, by their mean: bitwise the same on all ranks."""

    def average_shares(self, values: torch.Tensor) -> None:
        """The same for values that have been multiplied by `share`."""
        self.average(values)

    def expect(self, parameters: Sequence[nn.Parameter]) -> None:
        """Get ready for vectors of so many elements, for an exchange that needs the shapes of what lies in them."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Lay out the buffer, and let backward fill it."""
        learned = learned_of(model.parameters())
        self._lay_out(learned)
        if self._buffer is not None:
            for parameter in learned:
                parameter.register_post_accumulate_grad_hook(self._buffer.take)  # type: ignore[no-untyped-call]
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the whole buffer; without `attach`, gradients are copied into it only now."""
        if self._buffer is None:
            self._lay_out(learned_of(parameters))
        if self._buffer is not None and self._buffer.take_all():
            self.average_shares(self._buffer.values)

    def _lay_out(self, learned: Sequence[nn.Parameter]) -> None:
        self.expect(learned)
        if learned and self._communicator.world_size > 1:
            self._buffer = GradientBuffer(learned, self.share)


class OneByOne(Exchange):
    """One parameter's gradient after another's, each where backward has left it."""

    def attach(self, model: nn.Module) -> nn.Module:
        """There is no buffer."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """In the same order on all ranks, each as a vector in the order of its elements in memory."""
        align_gradients(parameters)
        for gradient in (each.grad for each in parameters if each.grad is not None):
            self.average(gradient.as_strided((gradient.numel(),), (1,)))
