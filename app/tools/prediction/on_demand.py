"""Fits calibrations, predicts cells and verifies predictions, as scripts/calibrate, predict and verify ask."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from app.errors import LockstepError
from app.machine import folders
from app.machine.command_line import by_name
from app.machine.say import say
from app.pages.written import on_terminal
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.prediction import calibration, cells, drift, fitting, predicted, verification, verified
from app.tools.prediction.calibration import Calibration, Check
from app.tools.prediction.findings import limits_of, outside
from app.tools.prediction.forecast import Forecast, work_out
from app.tools.prediction.observed import finished

RUNS, MODEL_RUNS = "runs", "model"  # the grids of a calibration, and of a model that is added to one
PREDICTIONS = "predictions"


def settle_calibration(name: str) -> None:
    """Reopen the runs of a calibration that the machine disturbed, each once."""
    plan = ExperimentPlan.read(RUNS, quick=False)
    on_host = folders.RESULTS / calibration.FOLDER / name / plan.folder.relative_to(folders.RESULTS)
    _settle(plan, drift.unlike_the_others(plan), "the other runs", on_host)


def _settle(plan: ExperimentPlan, disturbed: Sequence[str], compared_with: str, folder: Path) -> None:
    if moved := drift.put_aside(plan, disturbed):
        say(
            f"Repeating {', '.join(moved)}: the machine was over {drift.MOST_APART - 1:.0%} slower or faster than "
            f"during {compared_with}. The first measurements are in {folder / drift.ASIDE}"
        )


def calibrate(name: str) -> int:
    """Fit the costs to the finished runs; the exit code says whether all are finished."""
    plan = ExperimentPlan.read(RUNS, quick=False)
    made = fitting.fit(name, [*finished(plan).values()])
    made.write(folders.RESULTS)
    say(f"Simulated steps differ from measured ones by {made.error:.1%} (root mean square).")
    missing = plan.unfinished()
    for each in missing:
        say(f"warning: {each} did not finish, so the calibration lacks it.")
    return 1 if missing else 0


def add_model(name: str, model: str) -> None:
    plan = ExperimentPlan.read(MODEL_RUNS, quick=False)
    runs = finished(plan)
    if len(runs) < len(plan.trials):
        raise LockstepError(
            f"MODEL={model} not added: {len(runs)} of {len(plan.trials)} runs finished. Repeat the command.",
            "run-failed",
        )
    made = fitting.with_model(calibration.parse((folders.RESULTS / calibration.FILE).read_bytes()), [*runs.values()])
    made.write(folders.RESULTS)
    say(f"Added MODEL={model} to calibration '{name}': {made.computing[model].in_words}.")


def print_lacking(asked: Sequence[Cell], model: Calibration) -> None:
    """The calibration and each model that has to be measured before these cells can be predicted, a line each."""
    for each in dict.fromkeys(cells.settings_of(cell).training.model for cell in asked):
        if each not in model.computing:
            say(f"{model.name} {each}")


def predict(words: Sequence[str], *, name: str | None, one_host: bool | None) -> None:
    model = calibration.read(name)
    what, asked = cells.asked(words)
    found = cells.forecasts(asked, model, one_host=one_host)
    folders.check_writable(folders.RESULTS)
    found = work_out(found, lambda line: print(line, file=sys.stderr, flush=True))
    table = predicted.table(found)
    say(on_terminal(table))
    for reason in outside(found):
        say(f"Outside the calibration: {reason}")
    limits = list(limits_of(found))
    for line in limits:
        say(line)
    folder = folders.RESULTS / PREDICTIONS / what
    page = predicted.write(f"scripts/predict {' '.join(words)}", found, limits, table, folder)
    made = {"made_at": _now(), "calibrated_at": model.provenance.made_at}
    _write(folder / "predictions.json", made | predicted.as_json(found))
    say(f"Predictions: {folder}/predictions.json, and as tables in {folder}/tables")
    say(f"Report: {page}")


class GridVerification:
    """The steps of scripts/verify, one after another: a method for each."""

    def __init__(self, name: str, given: Sequence[str], *, quick: bool, model: str | None) -> None:
        self._name, self._quick = name, quick
        self._grid = grid.read(name, quick=quick, given=by_name(given))
        self._calibration = calibration.read(model)

    @cached_property
    def _forecasts(self) -> list[Forecast]:
        return work_out(cells.forecasts(self._grid.cells, self._calibration, one_host=True))

    @cached_property
    def _plan(self) -> ExperimentPlan:
        return ExperimentPlan.read(verification.interleaved(self._grid).name, quick=self._quick)

    def lacking(self) -> None:
        drift.reference(self._calibration)
        print_lacking(self._grid.cells, self._calibration)

    def plan(self, *, fresh: bool) -> None:
        """Write the predictions down, then the list of runs, each between two anchors."""
        from app.tools.experiment.plan.estimate import expected_seconds

        content = predicted.as_json(self._forecasts)
        folders.check_writable(folders.RESULTS)
        if fresh:
            shutil.rmtree(verification.folder_of(self._name), ignore_errors=True)
        number = verification.seal(self._name, content)
        plan = ExperimentPlan.make(verification.interleaved(self._grid), expected_seconds, fresh=fresh)
        plan.write(fresh=fresh)
        minutes = sum(trial.expected_seconds for trial in plan.open()) / 60
        say(f"{len(self._forecasts)} cells predicted. SHA-256 of the predictions: {number}")
        say(f"{len(plan.open())} of {len(plan.trials)} runs to go, including reference runs: about {minutes:.0f} min.")

    def settle(self) -> None:
        """Reopen the runs that the machine disturbed, each once."""
        found = drift.timed(self._plan, self._calibration)
        disturbed = [name for name, run in found.items() if run.disturbed]
        _settle(self._plan, disturbed, "the reference runs around them", self._plan.folder)

    def report(self) -> int:
        """The exit code says whether all runs finished and the predictions, which are the sealed ones, hold."""
        number = verification.seal(self._name, predicted.as_json(self._forecasts))
        checked = verification.checked(self._forecasts, self._plan, self._calibration)
        if not checked:
            raise LockstepError(
                "no cell ran between two reference runs, so nothing can be verified. Repeat the command.", "run-failed"
            )
        score = verification.score(checked)
        say(on_terminal(verified.table(checked)))
        for line in verified.verdict(score):
            say(line)
        folder = verification.folder_of(self._name)
        page = verified.write(self._name, checked, score, self._plan, folder, quick=self._quick)
        made = {"calibration": self._calibration.name, "predictions_sha256": number}
        again = {"made_again": drift.made_again(self._plan)}
        _write(folder / "verification.json", made | asdict(score) | again)
        check = Check(self._name, _now(), number, score.cells, score.median_error, score.p90_error, score.held)
        others = [each for each in self._calibration.checks if each.name != check.name]
        kept = replace(self._calibration, checks=[*others, check])
        kept.write(folders.RESULTS / calibration.FOLDER / kept.name)
        say(f"Verification: {folder}/verification.json, and as a table in {folder}/tables")
        say(f"Report: {page}")
        missing = self._plan.unfinished()
        for run in missing:
            say(f"warning: {run} did not finish.")
        return 0 if score.holds and not missing else 1


def _write(path: Path, content: object) -> None:
    folders.replace_file(path, json.dumps(content, indent=1) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
