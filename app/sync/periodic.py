"""Parameters averaged every H steps (SYNC_EVERY): local SGD, and DiLoCo with an outer optimiser."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, learned_of
from app.sync.exchange import Exchange, places_in, vector_for
from app.sync.schedules.costs import Cost

START, MOMENTUM, EXCHANGE = "start", "outer_momentum", "exchange/"


class Periodic(GradientSync):
    """Each rank trains independently for H steps, then all ranks average their parameters.

    Formula, with start the parameters after the last average:
    outer gradient = mean over the ranks of (start - parameters)
    momentum = OUTER_MOMENTUM * momentum + outer gradient
    parameters = start - OUTER_LEARNING_RATE * (outer gradient + OUTER_MOMENTUM * momentum), on all ranks.
    With rate 1 and no momentum, this averages the parameters (local SGD). DiLoCo uses rate 0.7 and Nesterov momentum
    0.9.
    Bytes per rank: those of the exchange every H steps, 2(N-1)/N * S/H per step in a ring.
    It averages after H, 2H ... steps and after the last step of a run, so that a run ends with one model.
    Equivalent with H = 1 to averaging gradients, within rounding.

    Each rank keeps its own SGD momentum, which averaging does not reset, and its own running statistics of batch
    normalisation. Neither is averaged.
    """

    explicit: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._exchange, self._every = exchange, settings.sync_every or 1
        self._rate, self._momentum_factor = settings.outer_learning_rate, settings.outer_momentum
        self._parameters: list[nn.Parameter] = []
        self._start = self._outer_gradient = self._momentum = torch.empty(0)

    def attach(self, model: nn.Module) -> nn.Module:
        self._parameters = learned_of(model.parameters())
        self._exchange.expect(self._parameters)
        self._start, self._outer_gradient, self._momentum = (vector_for(self._parameters) for _ in range(3))
        self._read_into(self._start)
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Leave each rank its own gradients."""

    def is_due(self, step: int, last: bool) -> bool:
        """Whether parameters are averaged after this step, counted from 0; they are after the `last` one of a run."""
        return (step + 1) % self._every == 0 or last

    @torch.no_grad()
    def move_parameters(self) -> None:
        """Apply a step of the outer optimiser to the parameters. The loop calls this after an update."""
        if self._communicator.world_size == 1 and self._rate == 1 and self._momentum_factor == 0:
            return  # one rank is its own average
        self._read_into(self._outer_gradient)
        torch.sub(self._start, self._outer_gradient, out=self._outer_gradient)
        self._exchange.average(self._outer_gradient)
        self._momentum.mul_(self._momentum_factor).add_(self._outer_gradient)
        self._start.sub_(self._outer_gradient.add_(self._momentum, alpha=self._momentum_factor), alpha=self._rate)
        for parameter, place in zip(self._parameters, places_in(self._start, self._parameters), strict=True):
            parameter.copy_(place)

    def cost_for(self, parameters: Sequence[nn.Parameter]) -> Cost:
        return self._exchange.cost_for(parameters)

    def state(self) -> dict[str, torch.Tensor]:
        """The parameters at the last average, the outer momentum, and the state of the exchange."""
        inner = {f"{EXCHANGE}{name}": tensor for name, tensor in self._exchange.state().items()}
        return {START: self._start, MOMENTUM: self._momentum} | inner

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._start.copy_(state[START])
        self._momentum.copy_(state[MOMENTUM])
        inner = {name: tensor for name, tensor in state.items() if name.startswith(EXCHANGE)}
        self._exchange.load_state({name.removeprefix(EXCHANGE): tensor for name, tensor in inner.items()})

    @torch.no_grad()
    def _read_into(self, vector: torch.Tensor) -> None:
        for parameter, place in zip(self._parameters, places_in(vector, self._parameters), strict=True):
            place.copy_(parameter)
