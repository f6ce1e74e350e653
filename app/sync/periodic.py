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
    """Each rank trains by itself for H steps; then all move from where they started to the average of where they are.

    Formula, with start the parameters after the last average:
    outer gradient = mean over the ranks of (start - parameters)
    momentum = OUTER_MOMENTUM * momentum + outer gradient
    parameters = start - OUTER_LEARNING_RATE * (outer gradient + OUTER_MOMENTUM * momentum), on all ranks.
    With rate 1 and no momentum it is the average of the parameters: local SGD. DiLoCo has rate 0.7 and momentum 0.9,
    which is Nesterov's.
    Bytes per rank: those of the exchange every H steps; 2(N-1)/N * S/H a step in a ring.
    After H, 2H ... steps, and after the last one of a run, so that a run ends with one model.
    Equivalent with H = 1 to averaging gradients, within rounding.

    Each rank keeps its own SGD momentum, which an average does not reset, and its own running statistics of batch
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
        """Gradients stay each rank's own."""

    def is_due(self, step: int, last: bool) -> bool:
        """Whether parameters are averaged after this step, which may be the last one of the run; steps count from 0."""
        return (step + 1) % self._every == 0 or last

    @torch.no_grad()
    def move_parameters(self) -> None:
        """After an update: move the parameters to their average, or as far as the outer optimiser takes them."""
        if self._communicator.world_size == 1 and self._rate == 1 and self._momentum_factor == 0:
            return  # the average of one
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
        """Where the parameters started, the outer momentum, and what the exchange remembers."""
        remembered = {f"{EXCHANGE}{name}": tensor for name, tensor in self._exchange.state().items()}
        return {START: self._start, MOMENTUM: self._momentum} | remembered

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._start.copy_(state[START])
        self._momentum.copy_(state[MOMENTUM])
        remembered = {name: tensor for name, tensor in state.items() if name.startswith(EXCHANGE)}
        self._exchange.load_state({name.removeprefix(EXCHANGE): tensor for name, tensor in remembered.items()})

    @torch.no_grad()
    def _read_into(self, vector: torch.Tensor) -> None:
        for parameter, place in zip(self._parameters, places_in(vector, self._parameters), strict=True):
            place.copy_(parameter)
