"""`none`: no synchronisation, the floor to measure the other modes against."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from app.costs.bandwidth import LinkSpeed
from app.gradient_sync.contract import Overlap
from app.settings.fields import Settings
from app.wire.communicator import Communicator


class NoSync:
    """Each rank trains a model of its own on its own part of the data.

    Formula: none. Bytes per rank and step: 0, in no message.
    Equivalent to as many separate trainings as there are ranks: the replicas drift apart.
    """

    explicit: ClassVar[bool] = False

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        """Nothing to talk to."""

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Leave the gradients as they are."""

    def overlap(self) -> Overlap | None:
        """Nothing is sent."""
        return None

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """Nothing is sent."""
        return 0.0

    @staticmethod
    def seconds_at_least(parameters: Sequence[nn.Parameter], links: Sequence[LinkSpeed]) -> float:
        """Nothing is waited for."""
        return 0.0
