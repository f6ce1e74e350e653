"""How fast the machine was while runs were made: from records of runs that never were, in the folders of a plan."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import SettingError
from app.machine import folders
from app.records.journal import Recorder
from app.records.lines import PhaseSeconds
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.prediction import calibration, drift, verification
from app.tools.prediction.calibration import Calibration, Fit
from app.tools.prediction.drift import (
    ANCHOR,
    ASIDE,
    MOST_APART,
    is_anchor,
    made_again,
    put_aside,
    timed,
    unlike_the_others,
)
from app.tools.prediction.on_demand import GridVerification
from tests import runs
from tests.unit.test_records import STEP

ROOT = Path(__file__).parents[2]
KNOWN = calibration.parse((ROOT / "tests/calibrations/known.json").read_bytes())
USUAL = 2.0  # seconds that the anchor computes in the calibration
CALIBRATION: Calibration = replace(KNOWN, fits=[Fit("anchor", ANCHOR, 4, {"computing": USUAL, "step": USUAL}, USUAL)])
IMAGES, CELLS = 16, 6
USUAL_CPU = IMAGES * 0.001  # of a run's forward pass, by the calibration

GRID = f"""\
title = "Made"
question = "?"

[settings]
MODEL = "vgg11"
SYNC_MODE = "none"
BATCH_SIZE_PER_RANK = {IMAGES}
WORKERS = 0

[[grid]]
SEED = [{", ".join(map(str, range(1, CELLS + 1)))}]
"""


class Machine:
    """Makes runs that the machine slows down as it is told, one each minute."""

    def __init__(self) -> None:
        self.minute = 0

    def make(self, plan: ExperimentPlan, speed: Callable[[Trial], float]) -> None:
        """All runs that are open: their computation takes so many times as long as in the calibration."""
        for trial in iter(lambda: next(iter(plan.next()), None), None):
            slower = speed(trial)
            self._write(plan.folder / trial.name, USUAL * slower, USUAL_CPU * slower, trial.settings)
            plan.note(trial.name, 0, 1.0)

    def _write(self, folder: Path, seconds: float, cpu: float, settings: Mapping[str, str]) -> None:
        folder.mkdir()
        began = f"2026-01-01T{self.minute // 60:02}:{self.minute % 60:02}:00Z"
        self.minute += 1
        content = runs.MANIFEST | {"world_size": 1, "ranks": [runs.participant(0)], "started_at": began}
        (folder / "manifest.json").write_text(json.dumps(content))
        (folder / "summary.json").write_text(json.dumps({"complete": True}))
        used = PhaseSeconds(**dict.fromkeys(("data", "backward", "wait", "sync", "optimiser"), 0.0), forward=cpu)
        step = replace(STEP, seconds=seconds, wait_seconds=None, sync_seconds=None, optimiser_seconds=0.0)
        with Recorder(folder, 0) as recorder:
            for number in range(3):
                recorder.write(replace(step, rank=0, step=number, cpu_seconds=used))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentPlan:
    (tmp_path / "made.toml").write_text(GRID)
    monkeypatch.setattr(grid, "GRIDS", tmp_path)
    monkeypatch.setattr(folders, "RESULTS", tmp_path / "results")
    made = ExperimentPlan.make(verification.interleaved(grid.read("made")), lambda _: 1.0, fresh=True)
    made.write(fresh=True)
    return made


def put_disturbed_aside(plan: ExperimentPlan) -> list[str]:
    return put_aside(plan, [name for name, run in timed(plan, CALIBRATION).items() if run.disturbed])


def names(plan: ExperimentPlan, cell: int) -> tuple[str, str, str]:
    """Of a cell's run, from 0, between those of its anchors."""
    before, own, after = (each.name for each in plan.trials[2 * cell : 2 * cell + 3])
    return before, own, after


def test_the_middle_of_the_anchors_around_a_run_is_its_drift(plan: ExperimentPlan) -> None:
    """The machine is a fifth slower throughout; one anchor is disturbed, and moves no drift."""
    single = names(plan, 3)[0]
    Machine().make(plan, lambda trial: 3.0 if trial.name == single else 1.2)
    found = timed(plan, CALIBRATION)
    assert len(found) == CELLS
    for each in found.values():
        assert each.drift == pytest.approx(1.2)
        assert each.own_drift == pytest.approx(1.2)
        assert not each.disturbed


def test_a_machine_that_changes_for_good_changes_the_drift(plan: ExperimentPlan) -> None:
    later = {each.name for each in plan.trials[7:]}
    Machine().make(plan, lambda trial: 1.4 if trial.name in later else 1.0)
    found = timed(plan, CALIBRATION)
    assert found[names(plan, 0)[1]].drift == pytest.approx(1.0)
    assert found[names(plan, 5)[1]].drift == pytest.approx(1.4)


@pytest.mark.parametrize("speed", [MOST_APART * 1.01, 1 / MOST_APART / 1.01])
def test_a_disturbed_run_is_made_once_more_with_an_anchor_on_each_side(plan: ExperimentPlan, speed: float) -> None:
    machine, (_, disturbed, after) = Machine(), names(plan, 2)
    machine.make(plan, lambda trial: speed if trial.name == disturbed else 1.0)
    assert put_disturbed_aside(plan) == [disturbed]
    assert [each.name for each in plan.open()] == [disturbed, after]
    assert {each.name for each in (plan.folder / ASIDE).iterdir()} == {disturbed, after}

    machine.make(plan, lambda trial: 1.0)
    found = timed(plan, CALIBRATION)
    assert found[disturbed].own_drift == pytest.approx(1.0)
    assert len(found) == CELLS
    assert put_disturbed_aside(plan) == []
    assert made_again(plan) == [disturbed]


def test_a_run_that_is_disturbed_again_counts_and_is_told_of(plan: ExperimentPlan) -> None:
    machine, disturbed = Machine(), names(plan, 5)[1]
    for _ in range(2):
        machine.make(plan, lambda trial: 1.5 if trial.name == disturbed else 1.0)
        put_disturbed_aside(plan)
    assert not plan.open()
    assert timed(plan, CALIBRATION)[disturbed].disturbed


def test_what_was_cut_off_while_runs_were_put_aside_is_gone_on_with(plan: ExperimentPlan) -> None:
    """Its anchor was moved already, and made again; the run was not."""
    machine, (_, disturbed, after) = Machine(), names(plan, 2)
    machine.make(plan, lambda trial: 1.5 if trial.name == disturbed else 1.0)
    (plan.folder / ASIDE).mkdir()
    (plan.folder / after).rename(plan.folder / ASIDE / after)
    machine.make(plan, lambda trial: 1.0)
    assert put_disturbed_aside(plan) == [disturbed]
    assert {each.name for each in plan.open()} == {disturbed, after}


def test_runs_without_an_anchor_after_them_are_not_timed(plan: ExperimentPlan) -> None:
    Machine().make(plan, lambda trial: 1.0)
    last = plan.trials[-1]
    assert is_anchor(last)
    (plan.folder / last.name / "summary.json").unlink()
    found = timed(plan, CALIBRATION)
    assert names(plan, CELLS - 1)[1] not in found
    assert len(found) == CELLS - 1


def test_the_anchor_s_usual_seconds_are_those_of_the_calibration() -> None:
    assert drift.reference(CALIBRATION) == USUAL


def of_a_calibration() -> ExperimentPlan:
    """Without anchors between its runs, which all have as many images."""
    made = ExperimentPlan.make(grid.read("made"), lambda _: 1.0, fresh=True)
    made.write(fresh=True)
    return made


@pytest.mark.usefixtures("plan")
def test_a_run_of_a_calibration_that_is_unlike_the_others_is_made_once_more() -> None:
    """It is slower than the others, by its own forward passes."""
    plan = of_a_calibration()
    machine, disturbed = Machine(), plan.trials[3].name
    for moved in ([disturbed], []):
        machine.make(plan, lambda trial: 1.2 * MOST_APART if trial.name == disturbed else 1.0)
        assert put_aside(plan, unlike_the_others(plan)) == [each.name for each in plan.open()] == moved
    assert made_again(plan) == [disturbed]


@pytest.mark.usefixtures("plan")
def test_of_two_runs_nobody_can_tell_which_was_disturbed() -> None:
    plan = of_a_calibration()
    few = ExperimentPlan(plan.folder, plan.trials[:2])
    Machine().make(few, lambda trial: 2.0 if trial is few.trials[1] else 1.0)
    assert unlike_the_others(few) == []


@pytest.mark.usefixtures("plan")
def test_a_grid_is_verified_from_its_predictions_to_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """And a calibration that has changed since is refused: it did not make the predictions that were sealed."""
    kept = folders.RESULTS / calibration.FOLDER / CALIBRATION.name
    kept.mkdir(parents=True)
    CALIBRATION.write(kept)
    GridVerification("made", [], quick=False, model=None).plan(fresh=True)
    Machine().make(ExperimentPlan.read("verify-made", quick=False), lambda trial: 1.0)
    GridVerification("made", [], quick=False, model=None).settle()
    assert GridVerification("made", [], quick=False, model=None).report() == 1, "runs took many times as long"
    found = json.loads((verification.folder_of("made") / "verification.json").read_text())
    assert (found["cells"], found["runs"], found["disturbed"]) == (CELLS, CELLS, 0)
    assert found["median_error"] > 0.9
    assert capsys.readouterr().out.count(found["predictions_sha256"]) == 1
    assert [each.name for each in calibration.read().checks] == ["made"]

    replace(CALIBRATION, between=1.0).write(kept)
    with pytest.raises(SettingError, match="--fresh"):
        GridVerification("made", [], quick=False, model=None).report()
