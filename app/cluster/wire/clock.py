"""Clock synchronisation: the offset of each rank's clock from rank 0's, and a common clock for a run."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE
from app.cluster.wire.communicator import Communicator
from app.cluster.wire.messages import give, take
from app.records.lines import Clock

SAMPLES = 20


@dataclass(frozen=True)
class ClockOffset:
    """The offset of a rank's clock from rank 0's, with its uncertainty."""

    at: float  # time of the comparison, on the rank's own clock
    ahead_seconds: float  # negative: behind
    uncertainty_seconds: float


class RunClock:
    """Seconds since the run began, the same on all ranks within the uncertainty of their comparison.

    Every host's clock starts at an arbitrary value and runs at its own rate. So each rank aligns its zero with rank 0's
    and compares again at the end, assuming linear drift in between.
    """

    def __init__(self, cluster: Cluster, communicator: Communicator, began: float | None = None) -> None:
        """All ranks must call this together. In a later attempt, rank 0 passes when the first one `began`."""
        self._rank = cluster.rank
        centre: float = cluster.exchange("clock", time.monotonic() if began is None else began)[CENTRE]
        difference = compare_clocks(communicator, time.monotonic)
        self._zero = centre + difference.ahead_seconds
        self.start = Clock(self._rank, self.since(difference.at), 0.0, difference.uncertainty_seconds)

    @property
    def began(self) -> float:
        """The clock's zero on this host's monotonic clock: exact on rank 0, estimated on other ranks."""
        return self._zero

    def since(self, moment: float) -> float:
        """Convert a moment of `time.monotonic` to seconds since the run began."""
        return moment - self._zero

    def compare(self, communicator: Communicator) -> Clock:
        """Measure how far this rank's clock has drifted ahead of rank 0's. All ranks must call this together."""
        difference = compare_clocks(communicator, lambda: self.since(time.monotonic()))
        return Clock(self._rank, difference.at, difference.ahead_seconds, difference.uncertainty_seconds)


def compare_clocks(communicator: Communicator, now: Callable[[], float]) -> ClockOffset:
    """Compare this rank's clock with rank 0's. All ranks must call this together, and they take turns."""
    own = ClockOffset(now(), 0.0, 0.0)  # rank 0 is the reference
    for rank in range(1, communicator.world_size):
        own = compare_clock(communicator, rank, now) or own
    return own


def compare_clock(communicator: Communicator, rank: int, now: Callable[[], float]) -> ClockOffset | None:
    """Compare a rank's clock with rank 0's. Every rank must call this, and only that rank receives the result.

    As in NTP, rank 0's time is assigned to the middle of the round trip, with an error of at most half of it.
    """
    difference = None
    if communicator.rank == rank:
        samples = [_sample(communicator, now) for _ in range(SAMPLES)]
        difference = min(samples, key=lambda sample: sample.uncertainty_seconds)
    elif communicator.rank == CENTRE:
        for _ in range(SAMPLES):
            take(communicator, rank)
            give(communicator, rank, now())
    communicator.wait_for_peers()
    return difference


def _sample(communicator: Communicator, now: Callable[[], float]) -> ClockOffset:
    sent = now()
    give(communicator, CENTRE, 0)
    central = take(communicator, CENTRE)
    received = now()
    middle = (sent + received) / 2
    return ClockOffset(middle, middle - central, (received - sent) / 2)
