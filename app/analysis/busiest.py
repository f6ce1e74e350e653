"""The rank whose link carries most: it sets the least time of a synchronisation."""

from collections.abc import Collection
from dataclasses import dataclass

from app.analysis import averaging
from app.analysis.measures import BYTES_RECEIVED, BYTES_SENT
from app.analysis.summary import Summary
from app.analysis.units import digits
from app.records.manifest import Manifest

ALIKE = 0.01  # of the most: ranks that carry as much


@dataclass(frozen=True)
class BusiestRank:
    """What one rank sends and receives in a step, and the speed of its link."""

    rank: int
    sent: float
    received: float
    every_rank: bool  # whether all others carry as much
    speed: float | None  # bytes per second of the slower direction; None if it was not measured
    one_after_the_other: bool | None  # whether it sends only after it has received; None if not known

    @property
    def words(self) -> str:
        sent, received = megabytes(self.sent), megabytes(self.received)
        who = "Every rank" if self.every_rank else f"Rank {self.rank} is the busiest: it"
        if self.one_after_the_other:
            return f"{who} receives {received} and then sends {sent} in a step{self._link}"
        once = " at once" if self.one_after_the_other is False else ""
        if sent == received:
            return f"{who} sends and receives {sent}{once} in a step{self._link}"
        return f"{who} sends {sent} and receives {received}{once} in a step{self._link}"

    def is_like(self, ranks: Collection[int | None]) -> bool:
        """Whether these ranks carry as much, because they include the busiest one or all do."""
        return self.every_rank or self.rank in ranks

    @property
    def _link(self) -> str:
        return "" if self.speed is None else f", over a link of {digits(self.speed / 1e6)} MB/s"


def of(summary: Summary, manifest: Manifest) -> BusiestRank | None:
    """None if nothing is sent, or not in every step."""
    counted = [(rank[BYTES_SENT], rank[BYTES_RECEIVED]) for rank in summary.ranks]
    carried = [(sent, received) for sent, received in counted if sent is not None and received is not None]
    if len(carried) < len(counted) or not any(map(sum, carried)) or averaging.moves_parameters(manifest):
        return None
    links = [rank.link for rank in manifest.ranks]
    speeds = [
        (link.sent.measured_bytes_per_second, link.received.measured_bytes_per_second) if link else None
        for link in links
    ]
    loads = [
        sum(carried[rank]) if own is None else carried[rank][0] / own[0] + carried[rank][1] / own[1]
        for rank, own in enumerate(speeds)
    ]
    busiest = max(range(len(loads)), key=lambda rank: loads[rank])
    (sent, received), own = carried[busiest], speeds[busiest]
    return BusiestRank(
        rank=busiest,
        sent=sent,
        received=received,
        every_rank=all(min(way) >= (1 - ALIKE) * max(way) for way in zip(*carried, strict=True)),
        speed=min(own) if own else None,
        one_after_the_other=_in_turn(sent, received, own, manifest.sync_seconds_at_least),
    )


def _in_turn(sent: float, received: float, speeds: tuple[float, float] | None, least: float | None) -> bool | None:
    """The mode's least time is either the sum of both directions or the longer of them."""
    if speeds is None or least is None:
        return None
    ways = sent / speeds[0], received / speeds[1]
    return abs(least - sum(ways)) < abs(least - max(ways))


def megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e7 else f"{digits(size / 1e6)} MB"
