"""What each mode promises, and what it may count on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator, Passage
from app.settings.averaging import AveragingSettings, WirePrecision
from app.sync.schedules.costs import NOTHING, Cost, Size

HALF_BYTES = 2  # of a number in bf16 or fp16

# What a mode turns the gradients into. exact: their mean, within rounding. unbiased: their mean, averaged over draws.
# contraction: the larger part of it, the rest remembered for later steps. vote: the sign that most ranks have.
Law = Literal["exact", "unbiased", "contraction", "vote"]


@dataclass(frozen=True)
class Overlap:
    """What a mode sent in a step behind other work; each list is in order of time."""

    buckets: list[Passage]  # gradients, behind backward
    buffers: list[Passage]  # what rank 0 sends to all before forward


class GradientSync(ABC):
    """One way to average gradients over all ranks.

    After `synchronise`, every rank holds bitwise the same gradients: the mean over the ranks within rounding, unless
    its `law` is another one. (Only `none` promises nothing.) Every byte goes through the communicator.
    A parameter has a gradient on all ranks or on none; one without is left alone. A gradient may have any layout in
    memory: the optimiser copies one that differs from its parameter's.

    A simple mode has a `cost` and a `synchronise`, and nothing else; an `Exchange` can average more than gradients.
    """

    cost: ClassVar[Cost] = NOTHING
    """Its formulas: the bytes that a rank sends, and the least time on given links."""

    law: ClassVar[Law] = "exact"
    """What it promises of the gradients."""

    explicit: ClassVar[bool] = True
    """Whether all communication happens inside `synchronise`, where it can be timed."""

    settles: ClassVar[bool] = False
    """Whether its first step differs from all others, so that a resumed run takes a practice step first."""

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        """Send everything through this communicator."""
        self._communicator, self._settings = communicator, settings

    def attach(self, model: nn.Module) -> nn.Module:
        """Prepare the model before training; the loop then calls the model returned here."""
        return model

    @abstractmethod
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """After backward: make every `.grad` the mean over all ranks."""

    def overlap(self) -> Overlap | None:
        """What this step has sent outside `synchronise`; None for a mode that sends nothing there."""
        return None

    def state(self) -> dict[str, torch.Tensor]:
        """What the mode remembers from one step to the next, by name; most remember nothing."""
        return {}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state` returned."""
        if state:
            raise ValueError(f"{type(self).__name__} remembers nothing, and was given {', '.join(state)}")

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        """The formulas with these settings, for a mode that they change."""
        return cls.cost

    def cost_for(self, parameters: Sequence[nn.Parameter]) -> Cost:
        """The formulas for the gradients of these parameters, for a mode that needs their shapes."""
        return self.cost_of(self._settings)


def gradients_of(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    """All gradients that exist, each made contiguous in memory for the wire."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.contiguous()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def align_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Give each gradient its parameter's layout: PyTorch's fused SGD pairs their elements by place in memory."""
    for parameter in parameters:
        if parameter.grad is not None and not _have_one_layout(parameter, parameter.grad):
            parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


def _have_one_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return one.stride() == other.stride() or all(size == 1 or left == right for size, left, right in strides)


def mean_of(everyones: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elementwise mean, summed in rank order into the first tensor's memory."""
    mean, *others = everyones
    for other in others:
        mean += other
    return mean.mul_(1 / len(everyones))


def learned_of(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [parameter for parameter in parameters if parameter.requires_grad]


def size_of(parameters: Sequence[nn.Parameter], wire_precision: WirePrecision = "fp32") -> Size:
    """Size on the wire of the gradients that these parameters get: as they are, or in half precision."""
    learned = learned_of(parameters)
    elements = sum(parameter.numel() for parameter in learned)
    whole = sum(parameter.nbytes for parameter in learned)
    return Size(elements, whole if wire_precision == "fp32" else HALF_BYTES * elements)
