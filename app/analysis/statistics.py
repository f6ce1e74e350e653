"""One set of statistics: spreads over steps, differences of two runs, and comparisons of repeated runs.

By hand, because scipy would add 74 MB to the image for two functions: Student's t and a least-squares fit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
ROUNDING = 1e-9  # a difference that is none
FEWEST_STEPS = 3  # for any interval
MOST_STEPS_TO_SETTLE = 10_000
FOUR_OF_FIVE = 0.84  # standard deviations of a normal distribution below which 80 % lie

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Spread(NamedTuple):
    """Statistics of measured values."""

    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval. Without ends, the noise is unknown."""

    value: float
    low: float | None
    high: float | None

    def excludes(self, value: float) -> bool | None:
        """None where the noise is not known."""
        return None if self.low is None or self.high is None else not self.low <= value <= self.high


def spread(values: Iterable[float | None] | Numbers) -> Spread | None:
    array = measured(values)
    if not len(array):
        return None
    return Spread(float(array.mean()), float(np.median(array)), float(np.percentile(array, 95)), float(array.max()))


def measured(values: Iterable[float | None] | Numbers) -> Numbers:
    array: Numbers = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=float)
    known: Numbers = array[~np.isnan(array)]
    return known


def mean(values: Iterable[float | None] | Numbers) -> float | None:
    found = measured(values)
    return float(found.mean()) if len(found) else None


def median(values: Iterable[float | None] | Numbers) -> float | None:
    found = measured(values)
    return float(np.median(found)) if len(found) else None


def total(amounts: Sequence[float | None] | Numbers) -> float | None:
    """The sum, or None if one of the amounts was not measured."""
    found = float(np.array(amounts, dtype=float).sum())
    return None if math.isnan(found) else found


@cache
def student(tail: float, degrees: float) -> float:
    """The value that Student's t exceeds with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, degrees) > tail else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _tail(angle: float, degrees: float) -> float:
    """The probability that t exceeds tan(angle) times the root of the degrees: an integral over a power of cosine."""
    angles = np.linspace(angle, math.pi / 2, 2001)
    area = float(np.trapezoid(np.cos(angles) ** (degrees - 1), angles))
    return area * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)


# Neighbouring steps share what disturbs them. Of few steps, how much cannot be measured: then the usual amount counts.
USUAL_MEMORY = 0.5  # correlation of a step with the next one
USUAL_WEIGHT = 12  # in steps
MOST_MEMORY = 0.9


@dataclass(frozen=True)
class StepEstimate:
    """A figure of a run, and how surely its steps give it."""

    value: float
    error: float | None  # standard error; None for fewer than FEWEST_STEPS
    degrees: float
    spread: float  # standard deviation of a step

    @classmethod
    def of(cls, value: float, steps: Sequence[float]) -> "StepEstimate":
        """From the same figure of single steps, in their order, as a first-order autoregressive process."""
        array, number = np.array(steps, dtype=float), len(steps)
        if number < 2:
            return cls(value, None, 0.0, 0.0)
        deviations = array - array.mean()
        squares = float(deviations @ deviations)
        spread = math.sqrt(squares / (number - 1))
        if number < FEWEST_STEPS:
            return cls(value, None, number - 1, spread)
        return cls(value, None, 0.0, spread).after(number, memory=_memory(deviations, squares))

    def after(self, number: int, doubt: float = 1.0, memory: float = USUAL_MEMORY) -> "StepEstimate":
        """The same value with the error that this many steps of the same spread have, scaled by `doubt`."""
        independent = number * (1 - memory) / (1 + memory)
        error = doubt * self.spread / math.sqrt(independent)
        degrees = number * (1 - memory**2) / (1 + memory**2) - 1  # of the variance, which suffers less than the mean
        return StepEstimate(self.value, error, max(degrees, 0.5), self.spread)


def _memory(deviations: Numbers, squares: float) -> float:
    number = len(deviations)
    measured, weight = 0.0, max(number - 4, 0)
    if squares and weight:
        measured = (float(deviations[1:] @ deviations[:-1]) / squares * number + 1) / (number - 3)  # without its bias
    memory = (weight * measured + USUAL_WEIGHT * USUAL_MEMORY) / (weight + USUAL_WEIGHT)
    return min(max(memory, 0.0), MOST_MEMORY)


def compared(own: StepEstimate, base: StepEstimate, tail: float) -> tuple[Interval, Interval | None]:
    """The difference and the ratio of two runs. The ratio is None if the baseline is 0.

    Both follow from relative errors, because longer steps vary more. So the difference excludes 0 exactly if the ratio
    excludes 1.
    """
    plain = own.value - base.value
    ratio = own.value / base.value if base.value else None
    if own.error is None or base.error is None:
        return Interval(plain, None, None), None if ratio is None else Interval(ratio, None, None)
    if ratio is None or ratio <= 0:
        margin = student(tail, _welch_degrees(own, base)) * math.hypot(own.error, base.error)
        return Interval(plain, plain - margin, plain + margin), None if ratio is None else Interval(ratio, None, None)
    margin = math.exp(_relative_margin(own, base, tail))
    low, high = ratio / margin, ratio * margin
    return Interval(plain, base.value * (low - 1), base.value * (high - 1)), Interval(ratio, low, high)


def _relative_margin(own: StepEstimate, base: StepEstimate, tail: float) -> float:
    """Of the logarithm of the ratio."""
    relative = [replace(each, error=(each.error or 0.0) / abs(each.value)) for each in (own, base)]
    return student(tail, _welch_degrees(*relative)) * math.hypot(*(each.error or 0.0 for each in relative))


def steps_to_settle(own: StepEstimate, base: StepEstimate) -> int | None:
    """How many steps in each run would tell these values apart in four of five cases.

    None if they hardly differ, or where two steps of each run do not show a spread.
    """
    known = max(1.0, own.degrees + base.degrees)
    cube = 1 - 2 / (9 * known) - FOUR_OF_FIVE * math.sqrt(2 / (9 * known))
    doubt = cube**-1.5  # few steps often show too little of the noise
    if not own.value > 0 < base.value or not own.spread or not base.spread:
        return None
    number = FEWEST_STEPS
    while number < MOST_STEPS_TO_SETTLE:
        one, other = own.after(number, doubt), base.after(number, doubt)
        error = math.hypot(*((each.error or 0.0) / each.value for each in (one, other)))
        if _relative_margin(one, other, TAIL) + FOUR_OF_FIVE * error < abs(math.log(own.value / base.value)):
            return number
        number = max(number + 1, number * 11 // 10)
    return None


def _welch_degrees(own: StepEstimate, base: StepEstimate) -> float:
    """Degrees of freedom for two means with unequal variances, by Welch and Satterthwaite."""
    variances = [(each.error or 0.0) ** 2 for each in (own, base)]
    parts = sum(variance**2 / each.degrees for variance, each in zip(variances, (own, base), strict=True))
    return round(max(1.0, sum(variances) ** 2 / parts if parts else own.degrees + base.degrees), 1)


@dataclass(frozen=True)
class Comparison(Interval):
    """One cell against another: a ratio, or a difference where values can be 0."""

    neutral: float  # the value of no difference

    @property
    def beyond_noise(self) -> bool | None:
        """Whether there is a difference; None where the noise is not known."""
        same = math.isclose(self.value, self.neutral, rel_tol=ROUNDING, abs_tol=ROUNDING)  # where runs repeat exactly
        return self.excludes(self.neutral) and not same


class Blocks:
    """One measure of cells, by round; None where a run is missing."""

    def __init__(self, measured: Mapping[str, Sequence[float | None]], *, ratios: bool) -> None:
        self._ratios = ratios
        self._measured = [
            (cell, number, math.log(value) if ratios else value)
            for cell, values in measured.items()
            for number, value in enumerate(values)
            if value is not None and (value > 0 or not ratios)
        ]
        self.cells = list(dict.fromkeys(cell for cell, _, _ in self._measured))
        self._rounds = sorted({number for _, number, _ in self._measured})
        self._within, self._within_degrees = self._spread_within_cells()
        self._effects, self._covariance, self._residual, self._degrees = self._fit()

    @property
    def noise(self) -> float | None:
        """By how much a cell's repeats differ when what a whole round has in common is taken out.

        It is a standard deviation: relative where cells are compared by ratio. None where nothing tells.
        """
        return None if self._residual is None else math.sqrt(self._residual)

    def estimate(self, cell: str) -> Interval | None:
        """The median over the cell's rounds; the spread of repeats is taken over all cells together."""
        values = [value for name, _, value in self._measured if name == cell]
        if not values:
            return None
        middle = float(np.median([self._back(value) for value in values]))
        if self._within is None:
            return Interval(middle, None, None)
        margin = student(TAIL, self._within_degrees) * math.sqrt(self._within / len(values))
        mean = float(np.mean(values))
        low, high = self._back(mean - margin), self._back(mean + margin)
        return Interval(middle, min(middle, low), max(middle, high))

    def ranked(self, cells: Iterable[str]) -> list[str]:
        """Those of the cells that were measured, the largest first: as they compare, even if rounds are missing."""
        found = [(float(self._effects[self.cells.index(cell)]), cell) for cell in cells if cell in self.cells]
        return [cell for _, cell in sorted(found, reverse=True)]

    def compare(self, cell: str | None, other: str | None) -> Comparison | None:
        """The first cell by the second, or less it; None where one of them is not there."""
        if cell is None or other is None or not {cell, other} <= set(self.cells):
            return None
        contrast = np.zeros(len(self._effects))
        contrast[self.cells.index(cell)] += 1
        contrast[self.cells.index(other)] -= 1
        value = float(contrast @ self._effects)
        neutral = self._back(0.0)
        if self._residual is None:
            return Comparison(self._back(value), None, None, neutral)
        margin = student(TAIL, self._degrees) * math.sqrt(
            self._residual * float(contrast @ self._covariance @ contrast)
        )
        return Comparison(self._back(value), self._back(value - margin), self._back(value + margin), neutral)

    def _back(self, value: float) -> float:
        return math.exp(value) if self._ratios else value

    def _spread_within_cells(self) -> tuple[float | None, int]:
        """Variance of the repeats of a cell, rounds and all, and its degrees of freedom."""
        by_cell = [[value for name, _, value in self._measured if name == cell] for cell in self.cells]
        degrees = len(self._measured) - len(self.cells)
        squares = sum(float(np.sum((np.array(values) - np.mean(values)) ** 2)) for values in by_cell)
        return (squares / degrees if degrees else None), degrees

    def _fit(self) -> tuple[Numbers, Numbers, float | None, int]:
        """Least squares of cells and rounds: effects, their covariance by unit of variance, variance, degrees."""
        columns = len(self.cells) + max(len(self._rounds) - 1, 0)
        design = np.zeros((len(self._measured), columns))
        for row, (cell, number, _) in enumerate(self._measured):
            design[row, self.cells.index(cell)] = 1
            if place := self._rounds.index(number):
                design[row, len(self.cells) + place - 1] = 1
        values = np.array([value for _, _, value in self._measured])
        if not len(values):
            return np.zeros(0), np.zeros((0, 0)), None, 0
        inverse: Numbers = np.linalg.pinv(design.T @ design).astype(np.float64)
        effects: Numbers = inverse @ design.T @ values
        degrees = len(values) - int(np.linalg.matrix_rank(design))
        left_over = float(np.sum((values - design @ effects) ** 2))
        return effects, inverse, (left_over / degrees if degrees else None), degrees
