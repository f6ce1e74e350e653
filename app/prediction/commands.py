"""What the image does for scripts/calibrate and scripts/predict."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from app.experiment.plan import grid
from app.experiment.plan.trials import Plan
from app.experiment.reading.results import Results
from app.machine import folders
from app.machine.say import Say
from app.prediction import calibration, cells, fitting
from app.prediction.forecast import Forecast
from app.prediction.observed import Observed
from app.prediction.tables import PHASES, fits, limits_of, predicted
from app.report import files
from app.report.written import on_terminal

RUNS = "runs"  # the grid of a calibration
PREDICTIONS = "predictions"


def calibrate(name: str, say: Say) -> int:
    """Fit the costs to the finished runs; the exit code says whether all are finished."""
    read, plan = grid.read(RUNS), Plan.read(RUNS, quick=False)
    finished = Results(read, plan)
    settings = {trial.name: trial.settings for trial in plan.trials}
    runs = [Observed.of(run, settings[run.folder.name]) for run in finished.all_runs]
    made = fitting.fit(name, runs)
    made.write(folders.RESULTS)
    say(on_terminal(fits(made)))
    say(f"Simulated steps are {made.error_of(''):.1%} from measured ones (root of the mean square).")
    missing = [trial.name for trial in plan.trials if not plan.is_finished(trial)]
    for each in missing:
        say(f"warning: {each} is not finished, so the calibration is without it.")
    return 1 if missing else 0


def predict(words: Sequence[str], say: Say, *, name: str | None, one_host: bool | None) -> None:
    """Print and write down what the cells would take."""
    model = calibration.read(name)
    asked = cells.asked(words)
    found = cells.forecasts(asked, model, one_host=one_host)
    folders.check_writable(folders.RESULTS)
    for number, each in enumerate(found, 1):
        print(f"[{number}/{len(found)}] {each.name}", file=sys.stderr, flush=True)
        _ = each.simulated, each.speedup  # which takes the time, and is kept
    table = predicted(found)
    say(on_terminal(table))
    for line in limits_of(found):
        say(line)
    folder = folders.RESULTS / PREDICTIONS / asked.name
    files.write_parts(folder, [table], [])
    content = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "calibration": model.name,
        "calibrated_at": model.provenance.made_at,
        "cells": [_as_json(each, cell.given) for each, cell in zip(found, asked.cells, strict=True)],
    }
    folders.replace_file(folder / "predictions.json", json.dumps(content, indent=1) + "\n")
    say(f"Predictions: {folder}/predictions.json, and as tables in {folder}/tables")


def _as_json(each: Forecast, given: dict[str, str]) -> dict[str, object]:
    low, high = each.interval
    return {
        "cell": each.name,
        "settings": given,
        "world_size": each.setup.ranks,
        "one_host": each.setup.cpus.shared_cores is not None,
        "seconds": each.seconds,
        "seconds_low": low,
        "seconds_high": high,
        "phases": {phase: each.simulated.mean(phase) for phase in PHASES},
        "hidden_sync_seconds": float(each.simulated.hidden.mean()),
        "sync_seconds_at_least": each.least_sync,
        "images_per_second": each.images_per_second,
        "speedup": each.speedup,
        "efficiency": each.efficiency,
        "bound": each.bound,
        "outside": each.outside,
    }
