"""Bandwidth as this field defines it, and the least time that a pattern of messages can take on given links."""

from collections.abc import Sequence
from typing import NamedTuple

CENTRE = 0  # the rank in the middle of gather and scatter


class LinkSpeed(NamedTuple):
    """Payload that a rank's link carries, in bytes per second."""

    sends: float
    receives: float


def all_reduce_share(size: int, world_size: int) -> float:
    """Bytes that a rank sends, and receives, in a ring all-reduce of `size` bytes: no algorithm needs fewer."""
    return 2 * (world_size - 1) / world_size * size


def all_reduce_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """The least time for an all-reduce round a ring: every rank's share must pass its link in both directions."""
    share = all_reduce_share(size, len(links))
    return max(share / speed for link in links for speed in link)


def gather_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """The least time for rank 0 to receive `size` bytes from each of the others."""
    centre, *others = links
    return max([len(others) * size / centre.receives, *(size / other.sends for other in others)])


def scatter_seconds(size: int, links: Sequence[LinkSpeed]) -> float:
    """The least time for rank 0 to send `size` bytes to each of the others."""
    centre, *others = links
    return max([len(others) * size / centre.sends, *(size / other.receives for other in others)])
