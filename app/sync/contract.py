"""The interface of a synchronisation mode, and its guarantees."""

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
HALF_EPSILONS: dict[WirePrecision, float] = {"bf16": 2**-7, "fp16": 2**-10}
FEWEST_ROUNDINGS = 8  # allowed whatever the number of ranks; `scripts/conformance` tries up to 8 ranks

# The result that a mode guarantees. exact: the mean, within rounding. unbiased: the mean in expectation. contraction:
# most of the mean, with the residual added in later steps. vote: the sign that most ranks have.
Law = Literal["exact", "unbiased", "contraction", "vote"]


@dataclass(frozen=True)
class Overlap:
    """A step's communication that overlaps other work, each list in chronological order."""

    buckets: list[Passage]  # gradients, during backward
    buffers: list[Passage]  # broadcast by rank 0 before forward


class GradientSync(ABC):
    """Averages gradients over all ranks.

    After `synchronise`, all ranks hold bitwise identical gradients: their mean within rounding, unless the mode has
    another `law`. (Only `none` guarantees nothing.) Every byte goes through the communicator.
    A parameter has a gradient on all ranks or on none, and one without is skipped. Gradients may have any memory
    layout: the optimiser copies a gradient whose layout differs from its parameter's.

    A minimal mode defines `cost` and `synchronise`. A subclass of `Exchange` averages any vector, not only gradients.
    """

    cost: ClassVar[Cost] = NOTHING
    """Formulas for the bytes that a rank sends, and for the minimum time on given links."""

    law: ClassVar[Law] = "exact"
    """The guarantee about the resulting gradients."""

    explicit: ClassVar[bool] = True
    """Whether all communication happens inside `synchronise`, where it can be timed."""

    settles: ClassVar[bool] = False
    """Whether the first step differs from all others, so that a resumed run takes a warm-up step first."""

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        self._communicator, self._settings = communicator, settings

    def attach(self, model: nn.Module) -> nn.Module:
        """Prepare the model before training, and return the module that the loop calls."""
        return model

    @abstractmethod
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every `.grad` by the mean over all ranks. The loop calls this after backward."""

    def overlap(self) -> Overlap | None:
        """This step's communication outside `synchronise`, or None for a mode that has none."""
        return None

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors that a mode keeps between steps, by name. Most modes keep none."""
        return {}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        if state:
            raise ValueError(f"{type(self).__name__} has no state, but was given {', '.join(state)}")

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        """The cost with these settings, for modes whose cost depends on them."""
        return cls.cost

    def cost_for(self, parameters: Sequence[nn.Parameter]) -> Cost:
        """The cost for these parameters, for modes whose cost depends on their shapes."""
        return self.cost_of(self._settings)


def gradients_of(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    """All existing gradients, made contiguous so that they can be sent."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.contiguous()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def align_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Give gradients their parameters' memory layout, because PyTorch's fused SGD pairs elements by memory position."""
    for parameter in parameters:
        if parameter.grad is not None and not _have_one_layout(parameter, parameter.grad):
            parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


def _have_one_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return one.stride() == other.stride() or all(size == 1 or left == right for size, left, right in strides)


def mean_of(everyones: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elementwise mean, summed in rank order in the first tensor's memory."""
    mean, *others = everyones
    for other in others:
        mean += other
    return mean.mul_(1 / len(everyones))


def tolerance_for(wire_precision: WirePrecision, *, double: bool, ranks: int) -> float:
    """The largest deviation from the exact mean by rounding, relative to the gradients, which are fp64 or fp32.

    In half precision, a number is rounded up to N times, each time by at most half of the machine epsilon.
    """
    if wire_precision in HALF_EPSILONS:
        return max(FEWEST_ROUNDINGS, ranks) / 2 * HALF_EPSILONS[wire_precision]
    return 1e-12 if double else 1e-5


def learned_of(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters that require a gradient."""
    return [parameter for parameter in parameters if parameter.requires_grad]


def size_of(parameters: Sequence[nn.Parameter], wire_precision: WirePrecision = "fp32") -> Size:
    """Size on the wire of these parameters' gradients, in their own type or in half precision."""
    learned = learned_of(parameters)
    elements = sum(parameter.numel() for parameter in learned)
    whole = sum(parameter.nbytes for parameter in learned)
    return Size(elements, whole if wire_precision == "fp32" else HALF_BYTES * elements)
