"""`gathered_all_reduce`: every rank gathers all gradients and averages them itself."""

import torch

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import mean_of
from app.sync.exchange import Exchange
from app.sync.modes.ring_all_reduce import all_gather
from app.sync.rounds import Rounds
from app.sync.schedules import costs
from app.sync.schedules.costs import Cost
from app.sync.schedules.schedule import Schedule


class GatheredAllReduce(Exchange):
    """All ranks' gradients travel around the ring of ranks once, and every rank adds them in rank order.

    Formula: grad = (1/N) * (grad of rank 0 + grad of rank 1 + ...), on every rank.
    Bytes per rank and step: (N-1) * S for gradients of S bytes, N/2 times those of a ring all-reduce.
    Messages: N-1, each in its own round; every rank holds N * S.
    Equivalent to `all_reduce`, within rounding. Nothing is added in transit, so it also supports messages that
    cannot be added: COMPRESSION=top_k.
    """

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        ranks = communicator.world_size
        self._rounds = Rounds(
            communicator, settings, lambda elements: self.schedule(elements // ranks, ranks, settings)
        )
        self._everyones = torch.empty(0)

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        """The rounds for a buffer with a slot for each rank's elements."""
        return Schedule.of(*all_gather(range(world_size), range(world_size * elements)))

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        return costs.schedule_cost(lambda elements, ranks: cls.schedule(elements, ranks, settings))

    def average(self, values: torch.Tensor) -> None:
        values.copy_(mean_of(self.gather(values)))

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's values, by rank, in memory that the next call reuses."""
        ranks, length = self._communicator.world_size, len(values)
        if len(self._everyones) != ranks * length or self._everyones.dtype != values.dtype:
            self._everyones = values.new_empty(ranks * length)
        places = list(self._everyones.view(ranks, length))
        places[self._communicator.rank].copy_(values)
        self._rounds.run(self._everyones)
        return places
