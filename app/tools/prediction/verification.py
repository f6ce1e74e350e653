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
from app.tools.experiment.results import Results
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.drift import Timed, anchor, timed
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast

FOLDER, PREDICTIONS = "verifications", "predictions.json"
MOST_MEDIAN_ERROR, MOST_P90_ERROR = 0.10, 0.20  # of predictions that hold
CLEAR = 2.0  # two cells count as different if they are this many standard deviations apart


def name_of(grid: str) -> str:
    """Of the plan of runs, which lies beside those of the experiments."""
    return f"verify-{grid}"


def interleaved(grid: Grid) -> Grid:
    """The grid's cells, each with an anchor before and after it."""
    cells: list[Cell] = []
    for number, cell in enumerate(grid.cells):
        cells += [anchor(number), cell]
    return replace(grid, name=name_of(grid.name), cells=[*cells, anchor(len(grid.cells))], keeps_order=True)


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
class Measured:
    """A cell's runs: mean seconds by phase in each, and how slow the machine was."""

    runs: list[dict[str, float]]
    drifts: list[float]  # by the anchors around each
    hidden: float = 0.0  # seconds of synchronisation behind backward
    disturbed: int = 0  # runs of which the anchors around them tell nothing

    @classmethod
    def of(cls, runs: Sequence[Timed]) -> "Measured":
        return cls(
            [each.run.seconds for each in runs],
            [each.drift for each in runs],
            median(each.run.hidden for each in runs),
            sum(each.disturbed for each in runs),
        )

    def seconds(self, phase: str = "step") -> float:
        return median(run[phase] for run in self.runs)

    def corrected(self, least_sync: float) -> float:
        """The step as on a machine as fast as in the calibration: links do not drift, processors do."""
        found = []
        for run, drift in zip(self.runs, self.drifts, strict=True):
            on_links = min(run["sync"], least_sync)
            found.append((run["step"] - on_links) / drift + on_links)
        return median(found)

    @property
    def noise(self) -> float | None:
        """The standard deviation of the repeats' logarithms; None for a single run."""
        steps = np.log([run["step"] for run in self.runs])
        return float(steps.std(ddof=1)) if len(steps) > 1 else None


@dataclass(frozen=True)
class Checked:
    """A cell, predicted and measured."""

    forecast: Forecast
    measured: Measured

    @property
    def corrected(self) -> float:
        """The seconds of a measured step with the machine's drift taken out."""
        return self.measured.corrected(self.forecast.least_sync)

    @property
    def error(self) -> float:
        return self.forecast.seconds / self.corrected - 1

    @property
    def raw_error(self) -> float:
        return self.forecast.seconds / self.measured.seconds() - 1

    @property
    def held(self) -> bool:
        low, high = self.forecast.interval
        return low <= self.corrected <= high


def checked(forecasts: Sequence[Forecast], results: Results, calibration: Calibration) -> list[Checked]:
    """Every cell of which a run is finished, with anchors before and after it."""
    runs: dict[str, list[Timed]] = {}
    found = timed(results, calibration)
    for trial in results.plan.trials:
        if trial.name in found:
            runs.setdefault(trial.cell, []).append(found[trial.name])
    return [Checked(each, Measured.of(runs[each.name])) for each in forecasts if each.name in runs]


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


def judged(checked: Sequence[Checked]) -> list[Checked]:
    """The cells that a score is of: beyond so many ranks, predictions are shown beside runs, and promise nothing."""
    return [each for each in checked if each.forecast.setup.ranks <= VERIFIED_RANKS] or list(checked)


def score(checked: Sequence[Checked]) -> PredictionScore:
    """Over the judged cells."""
    checked = judged(checked)
    errors = [abs(each.error) for each in checked]
    pairs = [float(_in_order(*pair)) for pair in combinations(checked, 2) if _comparable(*pair)]
    return PredictionScore(
        len(checked),
        sum(len(each.measured.runs) for each in checked),
        sum(each.measured.disturbed for each in checked),
        median(errors),
        float(np.percentile(errors, 90)),
        median(abs(each.raw_error) for each in checked),
        mean(float(each.held) for each in checked),
        mean(pairs) if pairs else None,
        len(pairs),
    )


def _comparable(one: Checked, other: Checked) -> bool:
    """The same cell but for the way to synchronise, and apart by more than their noise."""
    setups = [each.forecast.setup for each in (one, other)]
    settings = [(setup.ranks, setup.settings.values(but={"sync_mode", *OF_AVERAGING})) for setup in setups]
    noises = [each.measured.noise for each in (one, other)]
    if settings[0] != settings[1] or None in noises:
        return False
    apart = abs(math.log(one.corrected / other.corrected))
    return apart > CLEAR * math.hypot(*(noise or 0.0 for noise in noises))


def _in_order(one: Checked, other: Checked) -> bool:
    return bool((one.corrected < other.corrected) == (one.forecast.seconds < other.forecast.seconds))


def folder_of(name: str) -> Path:
    return folders.RESULTS / FOLDER / name
