"""The costs that several modes share."""

from collections.abc import Sequence

from app.cluster.wire.bandwidth import LinkSpeed, all_reduce_seconds, all_reduce_share
from app.sync.schedules.collectives import ring, star
from app.sync.schedules.costs import cost_of
from app.sync.schedules.sizes import Cost as Cost
from app.sync.schedules.sizes import Size as Size


def _bytes_sent(size: Size, rank: int, world_size: int) -> float:
    return all_reduce_share(size.bytes, world_size)


def _seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
    """Every rank's share, in both directions at once."""
    return all_reduce_seconds(size.bytes, links)


NOTHING = Cost(lambda size, rank, world_size: 0.0)
ALL_REDUCE = Cost(_bytes_sent, _seconds)  # the backend's own, which does not tell its messages
STAR = cost_of(star, piece_bytes=None)  # a parameter's mean leaves rank 0 once all gradients are in
# A ring's links are busy all the time, so what counts is a rank's share, and not that chunks differ by one element.
RING = Cost(cost_of(ring).bytes_sent, _seconds)
