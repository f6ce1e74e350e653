"""Algorithm and bus bandwidth, and lower bounds on the time of a collective on given links."""

from collections.abc import Sequence
from typing import NamedTuple

CENTRE = 0  # the root of gather and scatter


class LinkSpeed(NamedTuple):
    """Payload per second of a rank's link, in bytes."""

    sends: float
    receives: float


def all_reduce_share(size: int, world_size: int) -> float:
    """Bytes that each rank sends and receives in a ring all-reduce of `size` bytes.

    This is optimal for the busiest rank: the ranks together send at least 2(N-1) * size. One rank may send less, such
    as a worker of a star, which sends `size`.
    """
    return 2 * (world_size - 1) / world_size * size


def all_reduce_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """Lower bound for a ring all-reduce: every rank's share passes its link in both directions."""
    share = all_reduce_share(size, len(links))
    return max(share / speed for link in links for speed in link)


def gather_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """Lower bound for rank 0 to receive `size` bytes from each other rank."""
    centre, *others = links
    return max([len(others) * size / centre.receives, *(size / other.sends for other in others)])


def scatter_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """Lower bound for rank 0 to send `size` bytes to each other rank."""
    centre, *others = links
    return max([len(others) * size / centre.sends, *(size / other.receives for other in others)])
