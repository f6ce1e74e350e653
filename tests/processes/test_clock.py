"""One clock for a run, whatever the ranks' own clocks start at and however fast they run."""

import time
from unittest.mock import patch

import pytest

from app.analysis.run_records import RankRecords
from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator
from app.records.lines import Clock
from tests.processes.conftest import GroupOf

SKEWED = 1
AHEAD_SECONDS = 1234.5
FASTER = 1.1
PAUSE_SECONDS = 0.3

monotonic = time.monotonic


def skewed(moment: float | None = None) -> float:
    """A clock that was set elsewhere and gains a tenth of a second each second."""
    return AHEAD_SECONDS + FASTER * (monotonic() if moment is None else moment)


def compare(cluster: Cluster) -> tuple[Clock, Clock, list[tuple[float, float]]]:
    """The two comparisons of a run, and moments between them: by the run's clock, and as they really were."""
    with patch("time.monotonic", skewed if cluster.rank == SKEWED else monotonic):
        communicator = Communicator(cluster)
        run_clock = RunClock(cluster, communicator)
        moments = []
        for _ in range(3):
            time.sleep(PAUSE_SECONDS / 3)
            really = monotonic()  # read once: between two readings a busy machine may do something else
            moments.append((run_clock.since(skewed(really) if cluster.rank == SKEWED else really), really))
        return run_clock.start, run_clock.compare(communicator), moments


@pytest.mark.parametrize("world_size", [1, 3])
def test_moments_of_different_clocks_come_together(group_of: GroupOf, world_size: int) -> None:
    ranks = [(RankRecords(rank), *each) for rank, each in enumerate(group_of(world_size).run(compare))]
    zeros = []
    for rank, start, end, moments in ranks:
        rank.clocks.extend([start, end])
        print(start, end)
        zeros += [really - rank.on_common_clock(by_the_run) for by_the_run, really in moments]
        uncertainty = start.uncertainty_seconds + end.uncertainty_seconds
        gained = (FASTER - 1) * PAUSE_SECONDS if rank.rank == SKEWED else 0.0
        assert end.ahead_seconds >= gained - uncertainty
        if rank.rank != SKEWED:
            assert abs(end.ahead_seconds) <= uncertainty
    # All ranks date the same zero.
    slack = 2 * max(clock.uncertainty_seconds for rank, *_ in ranks for clock in rank.clocks)
    assert max(zeros) - min(zeros) <= slack
