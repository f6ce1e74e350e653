"""`parameter_server`: each shard of the gradients has a server rank that sums it and returns the mean."""

from app.settings.averaging import AveragingSettings
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Message, Schedule, cut


class ParameterServer(Scheduled):
    """K = SHARDS shards. Rank k < K serves shard k in addition to its own training.

    Formula: grad = (1/N) * sum of all ranks' grad: the server's own first, then those of the ranks before it.
    Bytes per rank and step, for gradients of S bytes: a server sends (N-1) * S/K as server, and (K-1)/K * S as worker;
    other ranks send S. With one shard it is the star of `gather_scatter`; with N shards each rank sends 2(N-1)/N * S.
    Messages: a server sends (N-1) + (K-1), other ranks K, in two rounds.
    Equivalent to `all_reduce`, within rounding.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        """To the servers and back. Each rank starts with a different server, so that no link is a bottleneck."""
        shards = cut(range(elements), settings.shards_of(world_size))
        pairs = [
            (rank, server)
            for distance in range(1, world_size)
            for rank in range(world_size)
            if (server := (rank + distance) % world_size) < len(shards)
        ]
        return Schedule.of(
            [Message(rank, server, shards[server], adds=True) for rank, server in pairs],
            [Message(server, rank, shards[server], adds=False) for rank, server in pairs],
        )
