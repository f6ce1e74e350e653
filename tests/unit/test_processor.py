"""The scheduler's account: a thread without a CPU waits, and what a quota takes is not what others take."""

import multiprocessing
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis.measures import CPU_SECONDS, NO_CORE, NO_CORE_SECONDS, QUOTA, QUOTA_SECONDS
from app.analysis.run_records import RankRecords, RunRecords
from app.analysis.table import RunTable
from app.machine.cpus import Throttling
from app.machine.scheduler import Threads
from app.records.lines import PhaseSeconds, Step
from app.training import processor as phases
from tests import runs
from tests.unit.test_records import STEP


@pytest.mark.parametrize(
    ("delay", "throttled", "to_others", "to_quota"),
    [
        (0.5, 0.0, 0.5, 0.0),
        (0.5, 0.2, 0.3, 0.2),
        (0.5, 0.9, 0.0, 0.5),  # the kernel sums a quota's time over CPUs
        (0.5, None, 0.5, None),
        (None, 0.2, None, None),
    ],
)
def test_a_delay_is_divided_without_remainder(
    delay: float | None, throttled: float | None, to_others: float | None, to_quota: float | None
) -> None:
    divided = phases.lost(delay, throttled)
    assert divided.to_others == (None if to_others is None else pytest.approx(to_others))
    assert divided.to_quota == to_quota


class Waited(Threads):
    """Threads of which the kernel says at every look that they have waited for an hour more."""

    def __init__(self) -> None:
        super().__init__()
        self._hours = 0.0

    def own_delay(self) -> float:
        self._hours += 3600.0
        return self._hours

    def delays(self) -> dict[int, float]:
        return {1: self.own_delay(), 2: self._hours}

    delays_of_known = delays


def test_a_delay_that_began_in_an_earlier_phase_is_no_longer_than_this_one(tmp_path: Path) -> None:
    began = time.monotonic()
    processor = phases.PhaseProcessor(Waited(), Throttling(tmp_path), before="backward")
    for phase in ("data", "forward", "backward", "wait", "sync", "optimiser"):
        processor.mark(phase)
    lost = processor.lost_to_others()
    assert lost
    assert 0 < lost.of("data", "forward", "backward", "wait", "sync", "optimiser") <= time.monotonic() - began + 1e-5


def test_the_summary_has_means_by_phase_and_shares_of_the_step() -> None:
    """A step whose kernel did not say counts for CPU time alone; a phase that no step has stays null."""
    used, lost, nothing = (PhaseSeconds(*values) for values in ((1.0, 2.0, 3.0, 4.0), (0.0, 0.5, 1.0, 0.5), (0.0,) * 4))
    measured = replace(STEP, step=1, seconds=20.0, cpu_seconds=used, no_core_seconds=lost, quota_seconds=nothing)
    silent = replace(STEP, step=2, seconds=12.0, cpu_seconds=nothing)
    rows = table(measured, silent, replace(STEP, step=3)).all
    accounts = [{phase: each.of(rows) for phase, each in of.items()} for of in (CPU_SECONDS, NO_CORE_SECONDS)]
    assert accounts == [vars(PhaseSeconds(0.5, 1.0, 1.5, 2.0)), vars(lost)]
    assert (NO_CORE.of(rows), QUOTA.of(rows)) == (2.0 / 20.0, 0.0)
    rows = table(silent).all
    assert {each.of(rows) for each in NO_CORE_SECONDS.values()} == {NO_CORE.of(rows)} == {None}
    assert {each.of(table(STEP).all) for of in (CPU_SECONDS, QUOTA_SECONDS) for each in of.values()} == {None}


def table(*steps: Step) -> RunTable:
    """One rank's steps, after a first one that does not count."""
    return RunTable(RunRecords(runs.manifest(), [RankRecords(0, [STEP, *steps])]))


def spin() -> None:
    while True:
        pass


def test_who_shares_a_core_with_three_others_waits_for_it_longer_than_it_has_it() -> None:
    """However busy the machine is, because that can only make it wait longer."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(3)]
    try:
        for other in others:
            other.start()  # on the same core
        threads = Threads()
        delayed, used = threads.own_delay(), time.thread_time()
        assert delayed is not None
        while time.thread_time() - used < 0.1:
            pass
        waited = (threads.own_delay() or 0.0) - delayed
        assert waited > 1.5 * (time.thread_time() - used)
        assert threading.get_native_id() in threads.delays()
    finally:
        for other in others:
            other.kill()
            other.join()
        os.sched_setaffinity(0, cores)
