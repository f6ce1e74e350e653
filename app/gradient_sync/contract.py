"""What each mode promises, and what it may count on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import nn

from app.costs.bandwidth import LinkSpeed
from app.settings.fields import Settings
from app.wire.communicator import Communicator, Passage


@dataclass(frozen=True)
class Overlap:
    """What a mode has sent in a step behind other work, each list in the order of time."""

    buckets: list[Passage]  # gradients, behind backward
    buffers: list[Passage]  # what rank 0 gives to all before forward


class GradientSync(Protocol):
    """One way to average gradients over all ranks.

    After `synchronise`, every rank holds bitwise the same gradients, equal to the mean over the ranks
    within rounding. (`none` alone promises nothing.) Every byte goes through the communicator.
    A parameter has a gradient on all ranks or on none; one without is left alone.
    """

    explicit: ClassVar[bool]
    """Whether all communication happens inside `synchronise`, where it can be timed."""

    def __init__(self, communicator: Communicator, settings: Settings) -> None: ...

    def attach(self, model: nn.Module) -> nn.Module:
        """Prepare the model before training; what comes back is called in its place."""
        ...

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """After backward: make every `.grad` the mean over all ranks."""
        ...

    def overlap(self) -> Overlap | None:
        """What this step has sent outside `synchronise`; None for a mode that sends nothing there."""
        ...

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """The formula: payload that this rank sends in a step to average these parameters' gradients."""
        ...

    @staticmethod
    def seconds_at_least(parameters: Sequence[nn.Parameter], links: Sequence[LinkSpeed]) -> float:
        """The time of a step's messages if the ranks' links were all that costs time."""
        ...


class ExplicitSync:
    """What those modes share whose communication all happens inside `synchronise`."""

    explicit: ClassVar[bool] = True

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        """Talk through this communicator."""
        self._communicator = communicator

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is."""
        return model

    def overlap(self) -> Overlap | None:
        """Nothing is sent behind other work."""
        return None

    @classmethod
    def seconds_at_least(cls, parameters: Sequence[nn.Parameter], links: Sequence[LinkSpeed]) -> float:
        """What every rank sends has to pass its link; a mode knows more where messages wait for each other."""
        return max(
            cls.bytes_sent_per_step(parameters, rank, len(links)) / link.sends for rank, link in enumerate(links)
        )

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """Each mode has a formula of its own."""
        raise NotImplementedError


def gradients_of(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    """The gradients that there are, each contiguous in memory, as the wire wants them."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.contiguous()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def gradient_bytes(parameters: Sequence[nn.Parameter]) -> int:
    """Size of the gradients that these parameters get: S in the formulas."""
    return sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)
