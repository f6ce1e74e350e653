"""Predictions held against runs: written first, then each cell is run between two runs of an anchor."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from statistics import mean, median

import numpy as np

from app.errors import SettingError
from app.machine import folders
from app.settings.averaging import OF_AVERAGING
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid import Grid
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.drift import Timed, anchor, timed
from app.tools.prediction.forecast import Forecast

FOLDER, PREDICTIONS = "verifications", "predictions.json"
MOST_MEDIAN_ERROR, MOST_P90_ERROR = 0.10, 0.20  # of predictions that hold
CLEAR = 2.0  # two cells count as different if they are this many standard deviations apart


def interleaved(grid: Grid) -> Grid:
    """The grid's cells, each with an anchor before and after it; their runs lie beside those of the experiments."""
    cells: list[Cell] = []
    for number, cell in enumerate(grid.cells):
        cells += [anchor(number), cell]
    return replace(grid, name=f"verify-{grid.name}", cells=[*cells, anchor(len(grid.cells))], keeps_order=True)


def seal(name: str, content: object) -> str:
    """Write predictions down before any run, and return their SHA-256; those that are there are never changed."""
    path = folders.RESULTS / FOLDER / name / PREDICTIONS
    text = json.dumps(content, indent=1) + "\n"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.replace_file(path, text)
    elif path.read_text() != text:
        raise SettingError(
            f"{path} differs from this calibration's predictions. Use --fresh to discard it and its runs.",
            "cannot-resume",
        )
    return sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Checked:
    """A cell, predicted and measured."""

    forecast: Forecast
    runs: list[dict[str, float]]  # mean seconds by phase
    drifts: list[float]  # how slow the machine was, by the anchors around each run
    disturbed: int = 0  # runs of which the anchors around them tell nothing

    def seconds(self, phase: str = "step") -> float:
        return median(run[phase] for run in self.runs)

    @property
    def corrected(self) -> float:
        """The step as on a machine as fast as in the calibration: links do not drift, processors do."""
        found = []
        for run, drift in zip(self.runs, self.drifts, strict=True):
            on_links = min(run["sync"], self.forecast.least_sync)
            found.append((run["step"] - on_links) / drift + on_links)
        return median(found)

    @property
    def noise(self) -> float | None:
        """The standard deviation of the repeats' logarithms; None for a single run."""
        steps = np.log([run["step"] for run in self.runs])
        return float(steps.std(ddof=1)) if len(steps) > 1 else None

    @property
    def error(self) -> float:
        return self.forecast.seconds / self.corrected - 1

    @property
    def raw_error(self) -> float:
        return self.forecast.seconds / self.seconds() - 1

    @property
    def held(self) -> bool:
        low, high = self.forecast.interval
        return low <= self.corrected <= high


def checked(forecasts: Sequence[Forecast], plan: ExperimentPlan, calibration: Calibration) -> list[Checked]:
    """Every cell of which a run is finished, with anchors before and after it."""
    runs: dict[str, list[Timed]] = {}
    found = timed(plan, calibration)
    for trial in plan.trials:
        if trial.name in found:
            runs.setdefault(trial.cell, []).append(found[trial.name])
    return [
        Checked(each, [run.run.seconds for run in own], [run.drift for run in own], sum(run.disturbed for run in own))
        for each in forecasts
        if (own := runs.get(each.name))
    ]


@dataclass(frozen=True)
class PredictionScore:
    """How good predictions were."""

    cells: int
    runs: int
    disturbed: int  # of them: the machine was much slower or faster during it than around it
    median_error: float
    p90_error: float
    median_raw_error: float
    held: float  # share of the cells whose interval holds what was measured
    order_right: float | None  # of the pairs of cells that differ beyond the noise in nothing but how they synchronise
    pairs: int

    @property
    def holds(self) -> bool:
        return self.median_error <= MOST_MEDIAN_ERROR and self.p90_error <= MOST_P90_ERROR


def score(checked: Sequence[Checked]) -> PredictionScore:
    """Cells with more ranks than were ever verified do not count, unless there are no others."""
    checked = [each for each in checked if not each.forecast.unverified] or checked
    errors = [abs(each.error) for each in checked]
    pairs = [_in_order(*pair) for pair in combinations(checked, 2) if _comparable(*pair)]
    return PredictionScore(
        len(checked),
        sum(len(each.runs) for each in checked),
        sum(each.disturbed for each in checked),
        median(errors),
        float(np.percentile(errors, 90)),
        median(abs(each.raw_error) for each in checked),
        mean(float(each.held) for each in checked),
        mean(map(float, pairs)) if pairs else None,
        len(pairs),
    )


def _comparable(one: Checked, other: Checked) -> bool:
    """The same cell but for the way to synchronise, and apart by more than their noise."""
    asked = [
        (own.ranks, own.settings.values(but={"sync_mode", *OF_AVERAGING})) for own in (one.forecast, other.forecast)
    ]
    if asked[0] != asked[1] or one.noise is None or other.noise is None:
        return False
    return abs(math.log(one.corrected / other.corrected)) > CLEAR * math.hypot(one.noise, other.noise)


def _in_order(one: Checked, other: Checked) -> bool:
    return (one.corrected < other.corrected) == (one.forecast.seconds < other.forecast.seconds)


def folder_of(name: str) -> Path:
    return folders.RESULTS / FOLDER / name
