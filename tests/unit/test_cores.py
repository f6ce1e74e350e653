"""The CPU time of all ranks of a host: a sum over the same moments, against the cores or the quotas."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.analysis import neighbours
from app.analysis.run import Run
from app.pages.cores import cores
from app.pages.drawing import Missing
from app.pages.plot import Plot
from app.records.journal import Recorder
from app.records.lines import Clock, Record
from tests import runs
from tests.unit.test_trace import USAGE


def run_of(folder: Path, participants: list[dict[str, Any]], *ranks: list[Record]) -> Run:
    manifest = runs.MANIFEST | {"world_size": len(ranks), "ranks": participants}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for rank, content in enumerate(ranks):
        with Recorder(folder, rank) as recorder:
            for record in content:
                recorder.write(replace(record, rank=rank))
    return Run(folder)


def used(at: float, user: float, system: float, machine: float | None = None, seconds: float = 1.0) -> Record:
    return replace(
        USAGE,
        at_seconds=at,
        seconds=seconds,
        cpu_user_percent=user,
        cpu_system_percent=system,
        machine_busy_percent=machine,
    )


def drawn(plot: Plot) -> list[tuple[list[float], list[float], float]]:
    """Of each panel: its line, which ends with a gap, and its level."""
    return [
        (list(trace.x)[:-1], list(trace.y)[:-1], panel.levels[0][0]) for panel in plot.panels for trace in panel.traces
    ]


def test_ranks_are_summed_on_one_clock_while_all_are_there(tmp_path: Path) -> None:
    """Rank 1's clock is ten seconds ahead; it begins half a second after rank 0 and ends half a second later."""
    first: list[Record] = [Clock(0, 0.0, 0.0, 0.0), used(1.0, 50, 10), used(2.0, 90, 10)]
    second: list[Record] = [Clock(1, 10.0, 10.0, 0.0), used(11.5, 20, 0), used(12.5, 30, 10)]
    plot, caption = cores(run_of(tmp_path, [runs.participant(0), runs.participant(1)], first, second))
    assert drawn(plot) == [([1.0, 1.5, 2.0], [80.0, 120.0, 140.0], 200.0)]  # of each rank's share, one CPU
    assert caption.startswith("On average 110 of 200 %")


def test_each_host_has_its_own_sum(tmp_path: Path) -> None:
    there = [runs.participant(0), runs.participant(1) | {"host_boot_id": "another", "fair_share_cpus": 0.5}]
    plot, _ = cores(run_of(tmp_path, there, [used(1.0, 50, 10)], [used(1.0, 20, 0)]))
    assert drawn(plot) == [([1.0], [60.0], 100.0), ([1.0], [20.0], 50.0)]


@pytest.mark.parametrize(
    ("busy", "own", "seconds", "told"),
    [
        (180.0, (60.0, 50.0), 10.0, ["other programs used 0.7 CPUs"]),
        (180.0, (60.0, 110.0), 10.0, []),
        (180.0, (60.0, 50.0), 1.0, []),  # too short
        (None, (60.0, 50.0), 10.0, []),  # an earlier version's run
    ],
)
def test_what_other_programs_took_of_the_machine_is_a_warning(
    tmp_path: Path, busy: float | None, own: tuple[float, float], seconds: float, told: list[str]
) -> None:
    first, second = (used(seconds, percent, 0, busy, seconds) for percent in own)
    run = run_of(tmp_path, [runs.participant(0), runs.participant(1)], [first], [second])
    assert [warning.partition(" of this machine ")[0] for warning in neighbours.warnings(run.records)] == told


def test_a_sum_without_one_of_its_ranks_is_none(tmp_path: Path) -> None:
    run = run_of(tmp_path, [runs.participant(0), runs.participant(1)], [used(1.0, 50, 10)], [Clock(1, 0.0, 0.0, 0.0)])
    with pytest.raises(Missing, match="rank 1 left no sample of usage"):
        cores(run)
