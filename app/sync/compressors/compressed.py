"""An exchange of what a compressor makes of a vector, and the memory of what it has left out."""

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
    """Those of the exchange, for what the compressor sends of these parameters."""
    learned = learned_of(parameters)
    shapes, element_bytes = [each.shape for each in learned], learned[0].dtype.itemsize if learned else 0
    return compressor_class(settings.compression).cost_with(exchange, shapes, element_bytes, settings)


class Compressed(Exchange):
    """Takes the place of the exchange that it uses.

    With error feedback, for compressors that are contractions: what a step leaves out of a rank's vector is added to
    the next one. So the sum over the steps of what was applied, and the mean over the ranks of what is left in the
    end, are together the sum of all means. A single rank sends nothing, so it leaves nothing out.
    """

    def __init__(self, exchange: Exchange, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._exchange, self._kind = exchange, compressor_class(settings.compression)
        self._remembers = self._kind.law == "contraction" and settings.error_feedback == "on"
        self._compressor: Compressor | None = None
        self._residual = torch.empty(0)

    def expect(self, parameters: Sequence[nn.Parameter]) -> None:
        if parameters and self._communicator.world_size > 1:
            dtype = parameters[0].dtype
            shapes = [parameter.shape for parameter in parameters]
            self._compressor = self._kind(self._communicator, self._settings, shapes, dtype)
            if self._remembers:
                self._residual = torch.zeros(sum(map(torch.Size.numel, shapes)), dtype=dtype)

    def average(self, values: torch.Tensor) -> None:
        """Add what was left out before, exchange, and remember what is left out now."""
        if self._compressor is None:
            return
        if self._remembers:
            values += self._residual
        mean, own = self._compressor.aggregate(values, self._exchange)
        if self._remembers:
            torch.sub(values, own, out=self._residual)
        values.copy_(mean)

    def cost_for(self, parameters: Sequence[nn.Parameter]) -> Cost:
        return cost_of(type(self._exchange), self._settings, parameters)

    def state(self) -> dict[str, torch.Tensor]:
        """What was left out, and what the compressor remembers."""
        own = {RESIDUAL: self._residual} if self._remembers and len(self._residual) else {}
        return own | (self._compressor.state() if self._compressor else {})

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        if RESIDUAL in state:
            self._residual.copy_(state[RESIDUAL])
        if self._compressor:
            self._compressor.load_state({name: tensor for name, tensor in state.items() if name != RESIDUAL})
