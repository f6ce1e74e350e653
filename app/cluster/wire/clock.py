"""Clocks of different ranks: how far each is ahead of rank 0's, and one clock for a whole run."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE
from app.cluster.wire.communicator import Communicator
from app.cluster.wire.messages import give, take
from app.records.lines import Clock

QUESTIONS = 20


@dataclass(frozen=True)
class ClockOffset:
    """A rank's clock compared with rank 0's."""

    at: float  # when, by the rank's own clock
    ahead_seconds: float  # negative: behind
    uncertainty_seconds: float


class RunClock:
    """Seconds since the run began, the same on all ranks within the uncertainty of their comparison.

    Every host's clock starts at an arbitrary value and runs at its own speed. So each rank takes rank 0's clock as zero
    and compares again at the end. Its drift is assumed to have grown evenly in between.
    """

    def __init__(self, cluster: Cluster, communicator: Communicator, began: float | None = None) -> None:
        """All ranks call this together. In a later attempt rank 0 knows when the first one `began`."""
        self._rank = cluster.rank
        centre: float = cluster.exchange("clock", time.monotonic() if began is None else began)[CENTRE]
        difference = compare_clocks(communicator, time.monotonic)
        self._zero = centre + difference.ahead_seconds
        self.start = Clock(self._rank, self.since(difference.at), 0.0, difference.uncertainty_seconds)

    @property
    def began(self) -> float:
        """When it was zero, on rank 0's own clock; other ranks know it less surely."""
        return self._zero

    def since(self, moment: float) -> float:
        """Convert a moment of `time.monotonic` to seconds since the run began."""
        return moment - self._zero

    def compare(self, communicator: Communicator) -> Clock:
        """How far this rank's clock has drifted ahead of rank 0's; all ranks call this together."""
        difference = compare_clocks(communicator, lambda: self.since(time.monotonic()))
        return Clock(self._rank, difference.at, difference.ahead_seconds, difference.uncertainty_seconds)


def compare_clocks(communicator: Communicator, now: Callable[[], float]) -> ClockOffset:
    """Compare this rank's clock with rank 0's; the ranks ask one after another, and all take part."""
    own = ClockOffset(now(), 0.0, 0.0)  # rank 0 is the reference
    for rank in range(1, communicator.world_size):
        own = compare_clock(communicator, rank, now) or own
    return own


def compare_clock(communicator: Communicator, rank: int, now: Callable[[], float]) -> ClockOffset | None:
    """Compare a rank's clock with rank 0's; every rank calls this, and only that rank gets the answer.

    As in NTP, rank 0's time is assumed to be from the middle of the round trip, which is wrong by at most half of it.
    """
    difference = None
    if communicator.rank == rank:
        samples = [_ask_for_the_time(communicator, now) for _ in range(QUESTIONS)]
        difference = min(samples, key=lambda sample: sample.uncertainty_seconds)
    elif communicator.rank == CENTRE:
        for _ in range(QUESTIONS):
            take(communicator, rank)
            give(communicator, rank, now())
    communicator.wait_for_peers()
    return difference


def _ask_for_the_time(communicator: Communicator, now: Callable[[], float]) -> ClockOffset:
    asked = now()
    give(communicator, CENTRE, 0)
    central = take(communicator, CENTRE)
    answered = now()
    middle = (asked + answered) / 2
    return ClockOffset(middle, middle - central, (answered - asked) / 2)
