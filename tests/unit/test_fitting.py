"""What is fitted to the runs of a calibration, and when nothing is: from records of runs that never were."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis.run import Run
from app.errors import LockstepError
from app.records.journal import Recorder
from app.records.lines import PhaseSeconds
from app.tools.prediction import fitting
from app.tools.prediction.observed import Observed
from app.tools.prediction.simulation import simulate
from tests import runs
from tests.unit.test_records import STEP

RANKS = 3  # on two cores
USED = PhaseSeconds(data=0.0, forward=0.01, backward=0.02, wait=0.001, sync=0.01, optimiser=0.001)


def observed(
    folder: Path,
    mode: str,
    quota: float | None = None,
    longer: float = 1.0,
    exchanging: float = 0.01,
    **recorded: float,
) -> Observed:
    """A run with that mode: computing took so many times the usual CPU time, exchanges so many seconds of it."""
    given = {"MODEL": "lenet5", "SYNC_MODE": mode, "WORKERS": str(RANKS - 1), "LINK_RATE": "1gbit"}
    if mode == "ddp":
        given["BUCKET_BYTES"] = "50000"  # several, so that something passes behind backward
    ranks = [runs.participant(rank, speed=1.2e8) | {"quota_cpus": quota} for rank in range(RANKS)]
    name = f"{mode}-{quota}"
    place = folder / name
    place.mkdir(exist_ok=True)
    content = runs.MANIFEST | {"run": name, "world_size": RANKS, "ranks": ranks}
    used = replace(USED, forward=USED.forward * longer, backward=USED.backward * longer, sync=exchanging)
    (place / "manifest.json").write_text(json.dumps(content))
    seconds = {"seconds": 0.05, "wait_seconds": 0.001, "sync_seconds": 0.01, "optimiser_seconds": 0.001} | recorded
    step = replace(STEP, **seconds)  # type: ignore[arg-type]  # all of them are floats
    for rank in range(RANKS):
        with Recorder(place, rank) as recorder:
            for number in range(3):
                recorder.write(replace(step, rank=rank, step=number, at_seconds=0.06 * number, cpu_seconds=used))
    return Observed(Run(place), given)


@pytest.mark.parametrize(
    ("modes", "lacking"),
    [
        ([], "scripts/calibrate"),
        (["none"], "rounds of messages and .*all-reduce and .*gather and scatter"),
        (["ring_all_reduce"], "all-reduce and .*gather and scatter"),
        (["flat_all_reduce", "gather_scatter"], "rounds of messages"),
    ],
)
def test_a_calibration_without_runs_of_each_kind_is_none(tmp_path: Path, modes: Sequence[str], lacking: str) -> None:
    with pytest.raises(LockstepError, match=lacking):
        fitting.fit("made", [observed(tmp_path, each) for each in modes])


def test_a_calibration_has_costs_of_each_kind_of_message(tmp_path: Path) -> None:
    modes = ("ring_all_reduce", "flat_all_reduce", "gather_scatter", "ddp")
    found = fitting.fit("made", [observed(tmp_path, each) for each in modes])
    assert set(found.passing) == {"rounds", "all_reduce", "star", "barrier"}
    assert [each.run for each in found.fits] == [f"{mode}-None" for mode in modes]
    assert found.computing["lenet5"].before.at(64) > 0


@pytest.mark.parametrize("exposed", [0.005, 0.02])
def test_what_bytes_behind_backward_cost_is_told_by_whole_steps(tmp_path: Path, exposed: float) -> None:
    """How much of a step is recorded as exposed swings from run to run; the step does not."""
    runs = [observed(tmp_path, each) for each in ("ring_all_reduce", "flat_all_reduce", "gather_scatter")]
    behind = observed(tmp_path, "ddp", seconds=0.076, sync_seconds=exposed)
    found = fitting.fit("made", [*runs, behind])
    assert simulate(behind.setup, replace(found, hidden_byte=0.0)).means["step"] < 0.07
    assert simulate(behind.setup, found).means["step"] == pytest.approx(0.076, rel=0.02)


def test_what_the_renewal_of_a_quota_costs_is_told_by_runs_that_have_fewer(tmp_path: Path) -> None:
    """2 ms each: of a quarter of a core, 25 ms in each 100 ms, computing has 23 ms."""
    modes = ("ring_all_reduce", "flat_all_reduce", "gather_scatter")
    plain = [observed(tmp_path, each) for each in modes]
    with_quota = [observed(tmp_path, "none", quota, quota / (quota - 0.02)) for quota in (0.25, 0.5)]
    found = fitting.fit("made", [*plain, *with_quota]).computing["lenet5"]
    assert found.renewal == pytest.approx(0.002)
    for run in (*plain, *with_quota):
        forward, backward, _ = found.work(run.setup)
        assert forward == pytest.approx(float(run.cpu("forward").mean()))
        assert backward == pytest.approx(float(run.cpu("backward").mean()))
    assert fitting.fit("made", plain).computing["lenet5"].renewal == 0.0


def test_what_exchanges_do_not_get_of_a_quota_is_told_by_their_seconds(tmp_path: Path) -> None:
    """5 ms of each 25 ms, or a little more of it and less of the wait for a core: seconds alone tell."""
    modes = ("ring_all_reduce", "flat_all_reduce", "gather_scatter")
    plain = [observed(tmp_path, each, exchanging=0.1, sync_seconds=0.2, seconds=0.24) for each in modes]
    free = fitting.fit("made", plain)
    assert free.lost == 0.0
    limited = observed(tmp_path, "ring_all_reduce", 0.25, exchanging=0.1)
    seconds = [simulate(limited.setup, replace(free, lost=each)).means["sync"] for each in (0.0, 0.005)]
    assert seconds[1] > 1.1 * seconds[0]
    (tmp_path / "longer").mkdir()
    longer = observed(tmp_path / "longer", "ring_all_reduce", 0.25, exchanging=0.1, sync_seconds=seconds[1])
    found = fitting.fit("made", [*plain, longer])
    assert found.lost == pytest.approx(0.005, abs=0.002)
    assert simulate(longer.setup, found).means["sync"] == pytest.approx(seconds[1], rel=0.03)
