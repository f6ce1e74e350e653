"""SGD with scaling, warm-up and decay of the learning rate and with gradient clipping, for large batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from app.settings.training import ScheduleName, TrainingSettings
from app.sync.contract import align_gradients


def cosine(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def staircase(progress: float) -> float:
    """The factor is 0.1 from half of the steps, and 0.01 from three quarters."""
    return 0.1 ** ((progress >= 0.5) + (progress >= 0.75))


# Factor on the peak learning rate, by the progress from the end of the warm-up (0) to the end of the run (1).
SHAPES: dict[ScheduleName, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": cosine,
    "step": staircase,
}


@dataclass(frozen=True)
class LearningRateSchedule:
    """The learning rate of every step of a run. It depends only on the step, not on the number of ranks."""

    peak: float
    warmup_steps: int
    steps: int
    shape: Callable[[float], float]

    @classmethod
    def of(cls, training: TrainingSettings, global_batch_size: int, steps: int) -> Self:
        peak = training.full_learning_rate(global_batch_size)
        return cls(peak, training.warmup_steps, steps, SHAPES[training.schedule])

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * ((step + 1) / self.warmup_steps)
        return self.peak * self.shape((step - self.warmup_steps) / (self.steps - self.warmup_steps))


@dataclass(frozen=True)
class Update:
    """The learning rate and the gradient norm of an optimiser's step."""

    learning_rate: float
    gradient_norm: float | None  # of all gradients together, before clipping; None if GRADIENT_CLIP is unset


class Optimiser:
    """SGD on averaged gradients, identical on every rank."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], training: TrainingSettings, schedule: LearningRateSchedule
    ) -> None:
        self._parameters, self._schedule, self._clip = parameters, schedule, training.gradient_clip
        self._sgd = torch.optim.SGD(
            parameters,
            lr=schedule.rate(0),
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            fused=True,  # one pass over parameters, gradients and momenta, not four
        )

    def momenta(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yield the momentum of each parameter that has been updated."""
        for parameter in self._parameters:
            if (momentum := self._sgd.state[parameter].get("momentum_buffer")) is not None:
                yield parameter, momentum

    def remember(self, parameter: nn.Parameter, momentum: torch.Tensor) -> None:
        """Restore a parameter's momentum, in the memory layout of the parameter."""
        self._sgd.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)

    def zero_grad(self) -> None:
        self._sgd.zero_grad()

    def step(self, step: int) -> Update:
        """Clip the gradient if GRADIENT_CLIP is set, and update the parameters."""
        align_gradients(self._parameters)
        rate, norm = self._schedule.rate(step), None
        if self._clip is not None:
            norm = float(nn.utils.clip_grad_norm_(self._parameters, self._clip))
        for group in self._sgd.param_groups:
            group["lr"] = rate
        self._sgd.step()
        return Update(rate, norm)
