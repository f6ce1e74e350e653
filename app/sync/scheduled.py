"""What the modes share whose rounds are written down as a schedule: they run it, and state what follows from it."""

from abc import abstractmethod

import torch

from app.cluster.wire.communicator import Communicator
from app.settings.fields import Settings
from app.sync.exchange import Exchange
from app.sync.rounds import Rounds
from app.sync.schedules import costs
from app.sync.schedules.costs import PIECE_BYTES
from app.sync.schedules.schedule import Schedule
from app.sync.schedules.sizes import Cost


class Scheduled(Exchange):
    """The rounds of a schedule, after which every rank has the sum, divided by N where it is complete."""

    piece_bytes: int = PIECE_BYTES

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        ranks = communicator.world_size
        self._rounds = Rounds(
            communicator, settings, lambda elements: self.schedule(elements, ranks, settings), self.piece_bytes
        )

    @staticmethod
    @abstractmethod
    def schedule(elements: int, world_size: int, settings: Settings) -> Schedule:
        """The rounds for a vector of so many elements."""

    @classmethod
    def cost_of(cls, settings: Settings) -> Cost:
        """What follows from the schedule."""
        return costs.cost_of(lambda elements, ranks: cls.schedule(elements, ranks, settings), cls.piece_bytes)

    def average(self, values: torch.Tensor) -> None:
        """One round after another."""
        self._rounds.run(values)
