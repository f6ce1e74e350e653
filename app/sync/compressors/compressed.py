"""An exchange of compressed vectors, with error feedback."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.compressors import compressor_class
from app.sync.compressors.contract import Compressor
from app.sync.contract import GradientSync, learned_of
from app.sync.exchange import Exchange
from app.sync.schedules.costs import Cost

RESIDUAL = "residual"


def cost_of(exchange: type[GradientSync], settings: AveragingSettings, parameters: Sequence[nn.Parameter]) -> Cost:
    """The exchange's cost for the compressor's messages of these parameters."""
    learned = learned_of(parameters)
    shapes, element_bytes = [each.shape for each in learned], learned[0].dtype.itemsize if learned else 0
    return compressor_class(settings.compression).cost_with(exchange, shapes, element_bytes, settings)


class Compressed(Exchange):
    """Replaces the exchange that it wraps.

    Contractions use error feedback: a step's residual on a rank is added to that rank's next vector. The sum of all
    applied updates plus the mean of the ranks' final residuals therefore equals the sum of all means. A single rank
    sends nothing, so it has no residual.
    """

    def __init__(self, exchange: Exchange, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._exchange, self._kind = exchange, compressor_class(settings.compression)
        self._error_feedback = self._kind.law == "contraction" and settings.error_feedback == "on"
        self._compressor: Compressor | None = None
        self._residual = torch.empty(0)

    def expect(self, parameters: Sequence[nn.Parameter]) -> None:
        if parameters and self._communicator.world_size > 1:
            dtype = parameters[0].dtype
            shapes = [parameter.shape for parameter in parameters]
            self._compressor = self._kind(self._communicator, self._settings, shapes, dtype)
            if self._error_feedback:
                self._residual = torch.zeros(sum(map(torch.Size.numel, shapes)), dtype=dtype)

    def average(self, values: torch.Tensor) -> None:
        """Add the last residual, average, and keep the new residual."""
        if self._compressor is None:
            return
        if self._error_feedback:
            values += self._residual
        mean, own = self._compressor.aggregate(values, self._exchange)
        if self._error_feedback:
            torch.sub(values, own, out=self._residual)
        values.copy_(mean)

    def cost_for(self, parameters: Sequence[nn.Parameter]) -> Cost:
        return cost_of(type(self._exchange), self._settings, parameters)

    def state(self) -> dict[str, torch.Tensor]:
        """The residual and the state of the compressor."""
        own = {RESIDUAL: self._residual} if self._error_feedback and len(self._residual) else {}
        return own | (self._compressor.state() if self._compressor else {})

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        if RESIDUAL in state:
            self._residual.copy_(state[RESIDUAL])
        if self._compressor:
            self._compressor.load_state({name: tensor for name, tensor in state.items() if name != RESIDUAL})
