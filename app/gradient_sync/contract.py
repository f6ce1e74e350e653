"""What each mode promises."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from torch import nn

from app.communicator import Communicator


class GradientSync(Protocol):
    """One way to average gradients over all ranks.

    After `synchronise`, every rank holds bitwise the same gradients, equal to the mean over the ranks
    within rounding. (`none` alone promises nothing.) Every byte goes through the communicator.
    """

    explicit: ClassVar[bool]
    """Whether all communication happens inside `synchronise`, where it can be timed."""

    def __init__(self, communicator: Communicator) -> None: ...

    def attach(self, model: nn.Module) -> nn.Module:
        """Prepare the model before training; what comes back is called in its place."""
        ...

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """After backward: make every `.grad` the mean over all ranks."""
        ...

    @staticmethod
    def bytes_sent_per_step(gradient_bytes: Sequence[int], world_size: int) -> float:
        """The formula: payload that a rank sends in a step, from the sizes of the parameters' gradients."""
        ...
