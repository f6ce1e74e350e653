"""How a run differs from a baseline: each part of a step, with the noise within the two runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from app.analysis import throughput
from app.analysis.measures import IMAGES_PER_SECOND
from app.analysis.measures import TIMES as TIMINGS
from app.analysis.run import Run
from app.analysis.run_records import RankRecords, together
from app.analysis.statistics import CONFIDENCE, Interval, student
from app.records.lines import PHASES, Step

TIMES = ("step", *PHASES, "hidden_sync")
SPEED = "images_per_second"

# Neighbouring steps share what disturbs them, so the means of batches, and not the steps, count as independent.
MOST_BATCHES = 10
LEAST_STEPS = 4  # of a batch; shorter ones would still resemble their neighbours
ENOUGH_STEPS = 2 * LEAST_STEPS  # for any interval

# The intervals of all parts hold together: each may miss the true value that many times more rarely.
TAIL = (1 - CONFIDENCE) / 2 / (len(TIMES) + 1)


@dataclass(frozen=True)
class StepEstimate:
    """A figure of a run, and how surely its steps give it."""

    value: float
    error: float | None  # standard error; null where there are too few steps
    degrees: int


@dataclass(frozen=True)
class PartDifference:
    """One part of a step, in a run and in the baseline."""

    part: str
    own: float | None
    base: float | None
    difference: Interval | None  # the run less the baseline; null where one of them was not measured
    ratio: Interval | None  # the run by the baseline; null also where the baseline is 0

    @property
    def known(self) -> bool:
        """Whether one of them has the part at all."""
        return self.own is not None or self.base is not None

    @property
    def noise(self) -> float | None:
        """What a difference has to exceed; None where it was not measured, or too few steps tell."""
        found = self.difference
        return found.high - found.value if found and found.high is not None else None

    @property
    def beyond_noise(self) -> bool | None:
        """Whether there is a difference; None where the noise is not known."""
        if self.difference is None or self.noise is None:
            return None
        return abs(self.difference.value) > self.noise


def compare(run: Run, base: Run) -> list[PartDifference]:
    """The whole step, its phases, hidden synchronisation, and images per second."""
    own, other = _estimates(run), _estimates(base)
    return [difference(part, own[part], other[part]) for part in (*TIMES, SPEED)]


def speed(run: Run, base: Run) -> PartDifference:
    """Images per second alone."""
    own, other = (_speed(each) for each in (run, base))
    return difference(SPEED, own, other)


def measured_steps(run: Run) -> int:
    """How many steps an interval can be based on."""
    return len(together([rank.warm for rank in run.ranks]))


def estimate(value: float | None, of_batches: Sequence[float]) -> StepEstimate | None:
    """A figure, whose noise shows in the same figure of each batch."""
    if value is None:
        return None
    number = len(of_batches)
    if number < 2:
        return StepEstimate(value, None, 0)
    return StepEstimate(value, float(np.std(of_batches, ddof=1)) / math.sqrt(number), number - 1)


def batches(count: int) -> list[slice]:
    """Which of so many steps make a batch of neighbours; at most one batch where there are too few."""
    number = min(MOST_BATCHES, count // LEAST_STEPS)
    edges = [count * n // number for n in range(number + 1)] if number else []
    return [slice(begin, end) for begin, end in pairwise(edges)]


def difference(part: str, own: StepEstimate | None, base: StepEstimate | None) -> PartDifference:
    """With 95 % confidence for all parts of two runs together."""
    values = own.value if own else None, base.value if base else None
    if own is None or base is None:
        return PartDifference(part, *values, None, None)
    plain = own.value - base.value
    ratio = own.value / base.value if base.value else None
    if own.error is None or base.error is None:
        unknown = None if ratio is None else Interval(ratio, None, None)
        return PartDifference(part, *values, Interval(plain, None, None), unknown)
    t = student(TAIL, _degrees(own, base))
    margin = t * math.hypot(own.error, base.error)
    ends = None if ratio is None else _ratios(own.value, t * own.error, base.value, t * base.error)
    return PartDifference(
        part,
        *values,
        Interval(plain, plain - margin, plain + margin),
        Interval(ratio, *ends) if ratio is not None and ends else None,
    )


def _estimates(run: Run) -> dict[str, StepEstimate | None]:
    """Means over all ranks and steps but the first, and images per second by wall clock: the run's own figures."""
    figures = run.summary.run
    steps = together([rank.warm for rank in run.ranks])
    found = {}
    means = {timing.name: figures[timing.mean] for timing in TIMINGS}
    for part in TIMES:
        found[part] = estimate(means[_field(part)], _batch_means(steps, part))
    return found | {SPEED: _speed(run)}


def _speed(run: Run) -> StepEstimate | None:
    steps = together([rank.warm for rank in run.ranks])
    return estimate(run.summary.run[IMAGES_PER_SECOND], _batch_speeds(run.ranks, steps))


def _field(part: str) -> str:
    return "seconds" if part == "step" else f"{part}_seconds"


def _batch_means(steps: Sequence[Sequence[Step]], part: str) -> list[float]:
    """Of each batch, the mean over its steps and all ranks."""
    field = _field(part)
    ranks = [[getattr(step, field) for step in each] for each in steps]
    means = [float(np.mean(each)) for each in ranks if None not in each]
    return [float(np.mean(means[batch])) for batch in batches(len(means))]


def _batch_speeds(ranks: Sequence[RankRecords], steps: Sequence[Sequence[Step]]) -> list[float]:
    """Images per second of each batch."""
    speeds = []
    for batch in batches(len(steps)):
        speeds.append(
            throughput.of([replace(rank, steps=[step[n] for step in steps[batch]]) for n, rank in enumerate(ranks)])
        )
    return [speed for speed in speeds if speed is not None]


def _degrees(own: StepEstimate, base: StepEstimate) -> int:
    """Of the difference of two means with unequal variances, by Welch and Satterthwaite."""
    variances = [(each.error or 0.0) ** 2 for each in (own, base)]
    parts = sum(variance**2 / each.degrees for variance, each in zip(variances, (own, base), strict=True))
    return max(1, int(sum(variances) ** 2 / parts)) if parts else own.degrees + base.degrees


def _ratios(own: float, own_margin: float, base: float, base_margin: float) -> tuple[float | None, float | None]:
    """The ends of the ratio's interval by Fieller: it holds 1 exactly where the difference's interval holds 0."""
    square, product = base**2 - base_margin**2, own * base
    if square <= 0:
        return None, None  # the baseline itself may be 0
    root = math.sqrt(max(0.0, product**2 - square * (own**2 - own_margin**2)))
    return max(0.0, (product - root) / square), (product + root) / square
