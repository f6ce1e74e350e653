"""`none`: no synchronisation, the baseline for all other modes."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from app.sync.contract import GradientSync
from app.sync.schedules.costs import NOTHING


class NoSync(GradientSync):
    """Each rank trains its own model on its own part of the data.

    Formula: none. Bytes per rank and step: 0, in no message.
    Equivalent to N independent trainings: the replicas diverge from each other.
    """

    cost = NOTHING
    explicit: ClassVar[bool] = False

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Leave each rank its own gradients."""
