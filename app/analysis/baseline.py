"""How a run differs from a baseline: each part of a step, with the noise within the two runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from app.analysis import throughput
from app.analysis.measures import IMAGES_PER_SECOND
from app.analysis.measures import TIMES as TIMINGS
from app.analysis.run import Run
from app.analysis.run_records import RankRecords, together
from app.analysis.statistics import TAIL, Interval, StepEstimate, compared, steps_to_settle
from app.records.lines import PHASES, Step

STEP = "step"
TIMES = (STEP, *PHASES, "hidden_sync")
SPEED = "images_per_second"

MOST_BATCHES = 40  # batches of consecutive steps; a shorter run has one step per batch
OF_SENDING = ("wait", "sync", "hidden_sync")
NOTHING = StepEstimate(0.0, error=0.0, degrees=1e4, spread=0.0)  # without doubt
PART_TAIL = TAIL / len(TIMES)  # the intervals of all parts hold together


@dataclass(frozen=True)
class PartDifference:
    """One part of a step, in a run and in the baseline."""

    part: str
    own: float | None
    base: float | None
    difference: Interval | None  # of the run and the baseline; None if one of them was not measured
    ratio: Interval | None  # the run divided by the baseline; None also if the baseline is 0

    @property
    def known(self) -> bool:
        """Whether one of them has the part at all."""
        return self.own is not None or self.base is not None

    @property
    def noise(self) -> float | None:
        """How far the end of the difference's interval that is nearer to 0 lies from the difference."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return None
        return found.value - found.low if found.value > 0 else found.high - found.value

    @property
    def beyond_noise(self) -> bool | None:
        """Whether there is a difference. None if the noise is unknown."""
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
    """A figure, whose noise shows in the same figure of consecutive batches."""
    return None if value is None else StepEstimate.of(value, of_batches)


def batches(count: int) -> list[slice]:
    """Consecutive steps that count as one observation."""
    number = min(MOST_BATCHES, count)
    edges = [count * n // number for n in range(number + 1)] if number else []
    return [slice(begin, end) for begin, end in pairwise(edges)]


def difference(part: str, own: StepEstimate | None, base: StepEstimate | None) -> PartDifference:
    """Step time and speed with 95 % confidence each, the parts of the step with 95 % confidence together."""
    values = own.value if own else None, base.value if base else None
    if own is None or base is None:
        return PartDifference(part, *values, None, None)
    return PartDifference(part, *values, *compared(own, base, TAIL if part in (STEP, SPEED) else PART_TAIL))


def enough_steps(run: Run, base: Run) -> int | None:
    """How many steps in each run would tell their step times apart, if that is more than there are."""
    own, other = (_estimates(each)[STEP] for each in (run, base))
    needed = steps_to_settle(own, other) if own and other else None
    return needed if needed and needed > min(measured_steps(run), measured_steps(base)) else None


def _estimates(run: Run) -> dict[str, StepEstimate | None]:
    """Means over all ranks and steps but the first, and images per second by wall clock: the run's own figures."""
    figures = run.summary.run
    steps = _whole_batches(run)
    means = {timing.name: figures[timing.mean] for timing in TIMINGS}
    found = {part: estimate(means[_field(part)], _batch_means(steps, part)) for part in TIMES}
    if not run.sends:
        found |= {part: found[part] or NOTHING for part in OF_SENDING}
    return found | {SPEED: _speed(run)}


def _speed(run: Run) -> StepEstimate | None:
    return estimate(run.summary.run[IMAGES_PER_SECOND], _batch_speeds(run.ranks, _whole_batches(run)))


def _whole_batches(run: Run) -> list[tuple[Step, ...]]:
    """All ranks' steps whose spread is noise: a smaller batch at the end of an epoch is shorter for a reason."""
    steps = together([rank.warm for rank in run.ranks])
    most = max((sum(step.samples for step in each) for each in steps), default=0)
    return [each for each in steps if sum(step.samples for step in each) == most]


def _field(part: str) -> str:
    return "seconds" if part == STEP else f"{part}_seconds"


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
