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
from app.experiment.plan.cells import Cell
from app.experiment.plan.grid import Grid
from app.experiment.reading.results import Results
from app.machine import folders
from app.prediction.calibration import Calibration
from app.prediction.forecast import VERIFIED_RANKS, Forecast
from app.prediction.observed import Observed
from app.prediction.traffic import overlaps

FOLDER, PREDICTIONS = "verifications", "predictions.json"
ANCHOR = {  # as a run of every calibration: its computation says how fast the machine is at the moment
    "MODEL": "vgg11",
    "SYNC_MODE": "none",
    "WORKERS": "3",
    "RANK_CPUS": "0.5",
    "GLOBAL_BATCH_SIZE": "64",
    "MAX_STEPS": "9",
    "WARMUP_STEPS": "0",
    "EVALUATE": "never",
    "LINK_RATE": "1gbit",
}
MOST_MEDIAN_ERROR, MOST_P90_ERROR = 0.10, 0.20  # of predictions that hold
CLEAR = 2.0  # two cells count as different if they are this many standard deviations apart


def name_of(grid: str) -> str:
    """Of the plan of runs, which lies beside those of the experiments."""
    return f"verify-{grid}"


def interleaved(grid: Grid) -> Grid:
    """The grid's cells, each with an anchor before and after it."""
    cells: list[Cell] = []
    for number, cell in enumerate(grid.cells):
        cells += [_anchor(number), cell]
    return replace(grid, name=name_of(grid.name), cells=[*cells, _anchor(len(grid.cells))])


def _anchor(number: int) -> Cell:
    return Cell(f"anchor {number}", dict(ANCHOR), {})


def seal(name: str, content: object) -> str:
    """Write predictions down before any run, and return their SHA-256; those that are there are never changed."""
    path = folders.RESULTS / FOLDER / name / PREDICTIONS
    text = json.dumps(content, indent=1) + "\n"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.replace_file(path, text)
    elif path.read_text() != text:
        raise SettingError(
            f"{path} has other predictions than this calibration makes now. --fresh discards them and their runs."
        )
    return sha256(path.read_bytes()).hexdigest()


def reference(calibration: Calibration) -> float:
    """Seconds that the anchor's computation took in the calibration."""
    found = [fit.measured["computing"] for fit in calibration.fits if fit.asked.sync_mode == ANCHOR["SYNC_MODE"]]
    if not found:
        raise SettingError(f"calibration '{calibration.name}' has no run of the anchor. Run scripts/calibrate again.")
    return found[0]


@dataclass(frozen=True)
class Measured:
    """A cell's runs: mean seconds by phase in each, and how slow the machine was by the anchors around it."""

    runs: list[dict[str, float]]
    drifts: list[float]
    own_drifts: list[float]  # by the CPU time of each run's own forward passes
    hidden: float = 0.0  # seconds of synchronisation behind backward

    @classmethod
    def of(
        cls, runs: Sequence[Observed], anchors: Sequence[tuple[Observed, Observed]], calibration: Calibration
    ) -> "Measured":
        """With the anchors before and after each run."""
        usual, forward = reference(calibration), calibration.computing[runs[0].settings.model].before
        return cls(
            [each.seconds for each in runs],
            [mean(anchor.seconds["computing"] for anchor in pair) / usual for pair in anchors],
            [float(each.cpu("data", "forward").mean()) / forward.at(each.setup.images) for each in runs],
            median(each.hidden for each in runs),
        )

    def seconds(self, phase: str = "step") -> float:
        """As they were measured: the median over the runs."""
        return median(run[phase] for run in self.runs)

    def corrected(self, least_sync: float) -> float:
        """The step as on a machine as fast as in the calibration: links do not drift, processors do."""
        return self._without(self.drifts, least_sync)

    def corrected_by_itself(self, least_sync: float) -> float:
        """The same where each run says itself how fast the machine was."""
        return self._without(self.own_drifts, least_sync)

    def _without(self, drifts: Sequence[float], least_sync: float) -> float:
        found = []
        for run, drift in zip(self.runs, drifts, strict=True):
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
        """Of the predicted step, relative to that."""
        return self.forecast.seconds / self.corrected - 1

    @property
    def own_error(self) -> float:
        """The same with the drift that each run shows by itself: anchors miss what lasts shorter than a run."""
        return self.forecast.seconds / self.measured.corrected_by_itself(self.forecast.least_sync) - 1

    @property
    def raw_error(self) -> float:
        """With the drift."""
        return self.forecast.seconds / self.measured.seconds() - 1

    @property
    def held(self) -> bool:
        """Whether the interval holds what was measured."""
        low, high = self.forecast.interval
        return low <= self.corrected <= high

    @property
    def overlap_error(self) -> float:
        """Of what backward hides and of what it leaves, whichever is more, by the measured step."""
        hidden = self.forecast.hidden - self.measured.hidden
        exposed = self.forecast.simulated.mean("sync") - self.measured.seconds("sync")
        return max(abs(hidden), abs(exposed)) / self.measured.seconds()

    @property
    def wait_error(self) -> float:
        """Of the wait, relative to what was measured."""
        return abs(self.forecast.simulated.mean("wait") / self.measured.seconds("wait") - 1)

    @property
    def mostly_sync(self) -> bool:
        """Whether synchronisation is over half of the step."""
        return self.measured.seconds("sync") > self.measured.seconds() / 2


def checked(forecasts: Sequence[Forecast], results: Results, calibration: Calibration) -> list[Checked]:
    """Every cell of which a run is finished, with the anchors around it."""
    cells, found = results.grid.cells, []
    observed = {
        (trial.cell, trial.round): Observed.of(run, trial.settings)
        for trial in results.plan.finished()
        if (run := results.run(trial.cell, trial.round))
    }
    for number, forecast in enumerate(forecasts):
        before, own, after = (cell.name for cell in cells[2 * number : 2 * number + 3])
        whole = [
            (observed[own, turn], (observed[before, turn], observed[after, turn]))
            for turn in range(1, results.grid.repeats + 1)
            if all((name, turn) in observed for name in (before, own, after))
        ]
        if whole:
            runs, anchors = zip(*whole, strict=True)
            found.append(Checked(forecast, Measured.of(runs, anchors, calibration)))
    return found


@dataclass(frozen=True)
class Score:
    """How good predictions were."""

    cells: int
    median_error: float
    p90_error: float
    median_error_mostly_sync: float | None
    median_raw_error: float
    median_own_error: float  # where each run's own forward passes say how fast the machine was
    p90_own_error: float
    held: float  # share of the cells whose interval holds what was measured
    order_right: float | None  # of the pairs of cells that differ beyond the noise in nothing but how they synchronise
    pairs: int
    overlap_error: float | None  # of the hidden or the exposed part, whichever is more, by the step: the median
    slow_wait_error: float | None  # of the wait for a rank that is slowed down on purpose: the median

    @property
    def holds(self) -> bool:
        """Whether predictions are as near to the runs as they are meant to be."""
        return self.median_error <= MOST_MEDIAN_ERROR and self.p90_error <= MOST_P90_ERROR


def judged(checked: Sequence[Checked]) -> list[Checked]:
    """The cells that a score is of: beyond so many ranks, predictions are shown beside runs, and promise nothing."""
    return [each for each in checked if each.forecast.setup.ranks <= VERIFIED_RANKS] or list(checked)


def score(checked: Sequence[Checked]) -> Score:
    """Over all cells that are judged."""
    checked = judged(checked)
    errors = [abs(each.error) for each in checked]
    own_errors = [abs(each.own_error) for each in checked]
    mostly = [abs(each.error) for each in checked if each.mostly_sync]
    pairs = [float(_in_order(*pair)) for pair in combinations(checked, 2) if _comparable(*pair)]
    return Score(
        len(checked),
        median(errors),
        float(np.percentile(errors, 90)),
        median(mostly) if mostly else None,
        median(abs(each.raw_error) for each in checked),
        median(own_errors),
        float(np.percentile(own_errors, 90)),
        mean(float(each.held) for each in checked),
        mean(pairs) if pairs else None,
        len(pairs),
        _middle([each.overlap_error for each in checked if overlaps(each.forecast.setup.settings)]),
        _middle([each.wait_error for each in checked if each.forecast.setup.settings.slow_rank is not None]),
    )


def _middle(errors: Sequence[float]) -> float | None:
    return median(errors) if errors else None


OF_SYNCHRONISATION = {"sync_mode", "compression", "compression_ratio", "compression_rank", "group_size", "shards"}


def _comparable(one: Checked, other: Checked) -> bool:
    """The same cell but for the way to synchronise, and apart by more than their noise."""
    setups = [each.forecast.setup for each in (one, other)]
    settings = [(setup.ranks, setup.settings.model_dump(exclude=OF_SYNCHRONISATION)) for setup in setups]
    noises = [each.measured.noise for each in (one, other)]
    if settings[0] != settings[1] or None in noises:
        return False
    apart = abs(math.log(one.corrected / other.corrected))
    return apart > CLEAR * math.hypot(*(noise or 0.0 for noise in noises))


def _in_order(one: Checked, other: Checked) -> bool:
    return bool((one.corrected < other.corrected) == (one.forecast.seconds < other.forecast.seconds))


def folder_of(name: str) -> Path:
    """Where a verification's page and figures lie."""
    return folders.RESULTS / FOLDER / name
