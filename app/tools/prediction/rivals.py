"""Two simpler models of a step, from the same calibration. A simulation is worth its trouble only if it is better."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from app.tools.prediction.calibration import Calibration, Fit
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.least_squares import non_negative
from app.tools.prediction.setup import setup_of
from app.tools.prediction.verification import Checked, judged, near_enough

EXPONENTS = tuple(1 + number / 2 for number in range(19))  # 1 to 10, as Pollux bounds them
LEAST_PART = 1e-6  # of a step that synchronisation can take


@dataclass(frozen=True)
class Rated:
    """How far a model's steps are from measured ones, the machine's drift taken out."""

    name: str
    median_error: float
    p90_error: float
    holds: bool

    @classmethod
    def of(cls, name: str, checked: Sequence[Checked], seconds: Sequence[float]) -> "Rated":
        """A model that says so many seconds of a step, cell by cell."""
        errors = [abs(own / each.corrected - 1) for own, each in zip(seconds, checked, strict=True)]
        middle, most = float(median(errors)), float(np.percentile(errors, 90))  # numpy knows other types, JSON does not
        return cls(name, middle, most, near_enough(middle, most))


def rated(checked: Sequence[Checked]) -> list[Rated]:
    """The simulation, and both rivals, on the same cells."""
    checked = judged(checked)
    cells = [each.forecast for each in checked]
    curves = curves_of(cells[0].calibration)
    return [
        Rated.of("simulation", checked, [cell.seconds for cell in cells]),
        Rated.of("computation plus least time", checked, [least_time(cell) for cell in cells]),
        Rated.of(
            "Pollux's curve", checked, [curves[cell.setup.settings.training.model].seconds(cell) for cell in cells]
        ),
    ]


def least_time(cell: Forecast) -> float:
    """Seconds of a step: a rank's computation with its part of the processor, plus the least time of its messages."""
    return computing(cell) + cell.least_sync


def computing(cell: Forecast) -> float:
    """The CPU time of a rank's step at its part of the processor."""
    cpus, work = cell.setup.cpus, sum(cell.calibration.computing[cell.setup.settings.training.model].work(cell.setup))
    share = 1.0 if cpus.shared_cores is None else cpus.shared_cores / cell.setup.ranks
    return work / min(1.0, share, cpus.quota or 1.0)


@dataclass(frozen=True)
class Curve:
    """Pollux's: T = (Tc^g + Tn^g)^(1/g), where g says how much computation and synchronisation overlap; 1: nothing.

    Tn has a fixed part and one for each rank beyond the second, as there, and one that goes with the least time.
    """

    fixed: float
    each_rank: float
    links: float
    exponent: float

    def seconds(self, cell: Forecast) -> float:
        """Of a step."""
        if cell.setup.ranks == 1:
            return computing(cell)
        sync = self.fixed + self.each_rank * (cell.setup.ranks - 2) + self.links * cell.least_sync
        parts = np.array([computing(cell), sync])
        return float(parts.max() * ((parts / parts.max()) ** self.exponent).sum() ** (1 / self.exponent))


def curves_of(calibration: Calibration) -> dict[str, Curve]:
    """For each model, the one that is nearest to the calibration's runs."""
    by_model: dict[str, list[tuple[Forecast, float]]] = {model: [] for model in calibration.computing}
    for fit in calibration.fits:
        if fit.ranks > 1:
            by_model[fit.asked.training.model].append((_cell(fit, calibration), fit.measured["step"]))
    return {model: min(_curves(runs), key=lambda curve: _missed(curve, runs)) for model, runs in by_model.items()}


def _cell(fit: Fit, calibration: Calibration) -> Forecast:
    setup = setup_of(fit.asked, fit.ranks, cores=calibration.provenance.cores, one_host=True)
    return Forecast(fit.run, setup, calibration)


def _curves(runs: Sequence[tuple[Forecast, float]]) -> Iterator[Curve]:
    """The best for each exponent: what a step has beyond its computation is what synchronisation takes."""
    if not runs:
        yield Curve(0.0, 0.0, 1.0, 1.0)
        return
    rows = [{"fixed": 1.0, "each": cell.setup.ranks - 2.0, "links": cell.least_sync} for cell, _ in runs]
    for exponent in EXPONENTS:
        rest = [max(LEAST_PART, 1 - (computing(cell) / step) ** exponent) for cell, step in runs]
        totals = [step * part ** (1 / exponent) for (_, step), part in zip(runs, rest, strict=True)]
        fixed, each_rank, links = non_negative(rows, totals)
        yield Curve(fixed, each_rank, links, exponent)


def _missed(curve: Curve, runs: Sequence[tuple[Forecast, float]]) -> float:
    return sum(math.log(curve.seconds(cell) / step) ** 2 for cell, step in runs)
