"""What the modes share whose rounds are written down as a schedule: they run it, and state what follows from it."""

from abc import abstractmethod
from functools import cached_property, lru_cache

import torch

from app.costs import scheduled
from app.costs.parts import part_of
from app.costs.scheduled import PIECE_BYTES, elements_in
from app.costs.schedules import Schedule
from app.costs.sizes import Cost
from app.gradient_sync.exchange import Exchange
from app.gradient_sync.rounds import Plan, Rounds
from app.gradient_sync.wire_precision import DTYPES
from app.settings.fields import Settings
from app.wire.communicator import Communicator


class Scheduled(Exchange):
    """The rounds of a schedule, after which every rank has the sum, divided by N where it is complete."""

    piece_bytes: int = PIECE_BYTES

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        self._settings = settings
        self._plan_of = lru_cache(maxsize=None)(self._make_plan)

    @staticmethod
    @abstractmethod
    def schedule(elements: int, world_size: int, settings: Settings) -> Schedule:
        """The rounds for a vector of so many elements."""

    @classmethod
    def cost_of(cls, settings: Settings) -> Cost:
        """What follows from the schedule."""
        return scheduled.cost_of(lambda elements, ranks: cls.schedule(elements, ranks, settings), cls.piece_bytes)

    def average(self, values: torch.Tensor) -> None:
        """One round after another."""
        if len(values) and self._communicator.world_size > 1:
            self._rounds.run(self._plan_of(len(values), values.dtype), values)

    @cached_property
    def _rounds(self) -> Rounds:
        return Rounds(self._communicator, self._settings)

    def _make_plan(self, elements: int, dtype: torch.dtype) -> Plan:
        wire = DTYPES[self._settings.wire_precision] if self._settings.wire_precision != "fp32" else dtype
        ranks = self._communicator.world_size
        pieces = self.schedule(elements, ranks, self._settings).in_pieces(elements_in(self.piece_bytes, wire.itemsize))
        return Plan.of(part_of(pieces, self._communicator.rank), pieces.completing(elements, ranks), wire)
