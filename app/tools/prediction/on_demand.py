"""Fits calibrations, predicts cells and verifies predictions, as scripts/calibrate, predict and verify ask."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from app.errors import LockstepError
from app.machine import folders
from app.machine.command_line import by_name
from app.machine.say import Say
from app.pages.written import on_terminal
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid import Grid
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.experiment.results import Results
from app.tools.prediction import calibration, cells, drift, fitting, predicted, verification, verified
from app.tools.prediction.calibration import Calibration, Check
from app.tools.prediction.findings import limits_of, outside
from app.tools.prediction.forecast import work_out
from app.tools.prediction.observed import Observed

RUNS, MODEL_RUNS = "runs", "model"  # the grids of a calibration, and of a model that is added to one
PREDICTIONS = "predictions"


def settle_calibration(name: str, say: Say) -> None:
    """Open the runs of a calibration again that the machine disturbed, each once."""
    plan = ExperimentPlan.read(RUNS, quick=False)
    if moved := drift.put_aside_of_calibration(plan, _of_calibration(plan)):
        on_host = folders.RESULTS / calibration.FOLDER / name / plan.folder.relative_to(folders.RESULTS)
        _say_made_again(moved, "the other runs", on_host, say)


def _of_calibration(plan: ExperimentPlan) -> list[Observed]:
    settings = {trial.name: trial.settings for trial in plan.trials}
    return [Observed.of(run, settings[run.folder.name]) for run in Results(grid.read(RUNS), plan).all_runs]


def _say_made_again(runs: Sequence[str], compared_with: str, folder: Path, say: Say) -> None:
    say(
        f"Repeating {', '.join(runs)}: the machine was over {drift.MOST_APART - 1:.0%} slower or faster than during "
        f"{compared_with}. The first measurements are in {folder / drift.ASIDE}"
    )


def calibrate(name: str, say: Say) -> int:
    """Fit the costs to the finished runs; the exit code says whether all are finished."""
    plan = ExperimentPlan.read(RUNS, quick=False)
    made = fitting.fit(name, _of_calibration(plan))
    made.write(folders.RESULTS)
    say(on_terminal(made.fit_table()))
    say(f"Simulated steps differ from measured ones by {made.error:.1%} (root mean square).")
    missing = [trial.name for trial in plan.trials if not plan.is_finished(trial)]
    for each in missing:
        say(f"warning: {each} did not finish, so the calibration lacks it.")
    return 1 if missing else 0


def add_model(name: str, model: str, say: Say) -> int:
    """Add to a calibration what a model's own work takes, by the finished runs of one rank."""
    plan = ExperimentPlan.read(MODEL_RUNS, quick=False)
    results = Results(grid.read(MODEL_RUNS, given={"MODEL": model}), plan)
    settings = {trial.name: trial.settings for trial in plan.trials}
    runs = [Observed.of(run, settings[run.folder.name]) for run in results.all_runs]
    if len(runs) < len(plan.trials):
        raise LockstepError(
            f"MODEL={model} not added: {len(runs)} of {len(plan.trials)} runs finished. Repeat the command.",
            "run-failed",
        )
    made = fitting.with_model(calibration.parse((folders.RESULTS / calibration.FILE).read_bytes()), runs)
    made.write(folders.RESULTS)
    say(f"Added MODEL={model} to calibration '{name}': {made.computing[model].in_words}.")
    return 0


def print_lacking(words: Sequence[str], say: Say, *, name: str | None) -> None:
    """A line for each model that has to be measured before these cells can be predicted."""
    _, asked = cells.asked(words)
    _print_lacking(asked, say, calibration.read(name))


def print_lacking_of_grid(name: str, given: Sequence[str], say: Say, *, quick: bool, model: str | None) -> None:
    """The same for the cells of a verification, which needs an anchor as well."""
    read, used = _read(name, given, quick=quick), calibration.read(model)
    drift.reference(used)
    _print_lacking(read.cells, say, used)


def _print_lacking(asked: Sequence[Cell], say: Say, model: Calibration) -> None:
    """Print the calibration and the models that it lacks, for scripts/predict to measure."""
    for each in dict.fromkeys(cells.settings_of(cell).training.model for cell in asked):
        if each not in model.computing:
            say(f"{model.name} {each}")


def predict(words: Sequence[str], say: Say, *, name: str | None, one_host: bool | None) -> None:
    """Print and write down what the cells would take."""
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
    content = {
        "made_at": _now(),
        "calibration": model.name,
        "calibrated_at": model.provenance.made_at,
        "cells": [each.as_json() for each in found],
    }
    folders.replace_file(folder / "predictions.json", json.dumps(content, indent=1) + "\n")
    say(f"Predictions: {folder}/predictions.json, and as tables in {folder}/tables")
    say(f"Report: {page}")


def plan_verification(
    name: str, given: Sequence[str], say: Say, *, quick: bool, fresh: bool, model: str | None
) -> None:
    """Write the predictions of a grid's cells down, then the list of runs, each between two anchors."""
    from app.tools.experiment.plan.estimate import expected_seconds

    read = _read(name, given, quick=quick)
    used = calibration.read(model)
    found = work_out(cells.forecasts(read.cells, used, one_host=True))
    folders.check_writable(folders.RESULTS)
    if fresh:
        shutil.rmtree(verification.folder_of(name), ignore_errors=True)
    content = {"calibration": used.name, "cells": [each.as_json() for each in found]}
    number = verification.seal(name, content)
    plan = ExperimentPlan.make(verification.interleaved(read), expected_seconds, fresh=fresh)
    plan.write(fresh=fresh)
    minutes = sum(trial.expected_seconds for trial in plan.open()) / 60
    say(f"{len(found)} cells predicted. SHA-256 of the predictions: {number}")
    say(f"{len(plan.open())} of {len(plan.trials)} runs to go, including reference runs: about {minutes:.0f} min.")


def settle(name: str, given: Sequence[str], say: Say, *, quick: bool, model: str | None) -> None:
    """Open the runs again that the machine disturbed, each once."""
    read = _read(name, given, quick=quick)
    plan = ExperimentPlan.read(verification.name_of(name), quick=quick)
    results = Results(verification.interleaved(read), plan)
    if moved := drift.put_aside(results, calibration.read(model)):
        _say_made_again(moved, "the reference runs around them", plan.folder, say)


def verify(name: str, given: Sequence[str], say: Say, *, quick: bool, model: str | None) -> int:
    """Lay what was measured beside what was predicted; the exit code says whether predictions hold."""
    read = _read(name, given, quick=quick)
    used = calibration.read(model)
    forecasts = work_out(cells.forecasts(read.cells, used, one_host=True))
    plan = ExperimentPlan.read(verification.name_of(name), quick=quick)
    results = Results(verification.interleaved(read), plan)
    checked = verification.checked(forecasts, results, used)
    if not checked:
        raise LockstepError(
            "no cell ran between two reference runs, so nothing can be verified. Repeat the command.", "run-failed"
        )
    score = verification.score(checked)
    say(on_terminal(verified.table(checked)))
    for line in verified.verdict(score):
        say(line)
    folder = verification.folder_of(name)
    number = sha256((folder / verification.PREDICTIONS).read_bytes()).hexdigest()
    missing = [trial.name for trial in plan.trials if not plan.is_finished(trial)]
    page = verified.write(name, checked, score, results, folder, quick=quick)
    content = {
        "calibration": used.name,
        "predictions_sha256": number,
        **asdict(score),
        "made_again": drift.made_again(plan),
    }
    folders.replace_file(folder / "verification.json", json.dumps(content, indent=1) + "\n")
    check = Check(name, _now(), number, score.cells, score.median_error, score.p90_error, score.held)
    others = [each for each in used.checks if each.name != name]
    replace(used, checks=[*others, check]).write(folders.RESULTS / calibration.FOLDER / used.name)
    say(f"Verification: {folder}/verification.json, and as a table in {folder}/tables")
    say(f"Report: {page}")
    for run in missing:
        say(f"warning: {run} did not finish.")
    return 0 if score.holds and not missing else 1


def _read(name: str, given: Sequence[str], *, quick: bool) -> Grid:
    return grid.read(name, quick=quick, given=by_name(given))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
