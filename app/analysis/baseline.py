"""How a run differs from a baseline: each part of a step, with the noise within the two runs."""

from dataclasses import dataclass, replace
from itertools import compress, pairwise

import numpy as np

from app.analysis import measures, throughput
from app.analysis.run import Run
from app.analysis.run_records import together
from app.analysis.statistics import TAIL, Interval, Mask, StepEstimate, compared, steps_to_settle
from app.records.lines import PHASES

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
    def noise(self) -> float | None:
        """How far the end of the difference's interval that is nearer to 0 lies from the difference."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return None
        return found.value - found.low if found.value > 0 else found.high - found.value

    @property
    def beyond_noise(self) -> bool | None:
        """Whether there is a difference. None if the noise is unknown."""
        return self.difference.excludes(0) if self.difference else None


def compare(run: Run, base: Run) -> list[PartDifference]:
    own, other = _estimates(run), _estimates(base)
    return [difference(part, own[part], other[part]) for part in (*TIMES, SPEED)]


def speed(run: Run, base: Run) -> PartDifference:
    return difference(SPEED, _speed(run), _speed(base))


def measured_steps(run: Run) -> int:
    return run.table.all.warm_by_rank("step").shape[1]


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
    own, other = (_time(each, STEP) for each in (run, base))
    needed = steps_to_settle(own, other) if own and other else None
    return needed if needed and needed > min(measured_steps(run), measured_steps(base)) else None


def _estimates(run: Run) -> dict[str, StepEstimate | None]:
    """Means over all ranks and steps but the first, and images per second by wall clock: the run's own figures."""
    found = {part: _time(run, part) for part in TIMES}
    if not run.sends:
        found |= {part: found[part] or NOTHING for part in OF_SENDING}
    return found | {SPEED: _speed(run)}


def _time(run: Run, part: str) -> StepEstimate | None:
    """A mean over steps and ranks, whose noise shows in the means of consecutive batches."""
    timing = measures.STEP if part == STEP else measures.STEP_TIMES[part]
    seconds = run.table.all.warm_by_rank(timing.name)[:, _whole(run)]
    means = np.ascontiguousarray(seconds.T).mean(1)
    means = means[~np.isnan(means)]
    value = run.summary.run[timing.mean]
    return (
        None if value is None else StepEstimate.of(value, [float(means[batch].mean()) for batch in batches(len(means))])
    )


def _speed(run: Run) -> StepEstimate | None:
    value = run.summary.run[measures.IMAGES_PER_SECOND]
    steps = list(compress(together([rank.warm for rank in run.ranks]), _whole(run)))
    taken = [
        throughput.of([replace(rank, steps=[step[n] for step in steps[batch]]) for n, rank in enumerate(run.ranks)])
        for batch in batches(len(steps))
    ]
    return None if value is None else StepEstimate.of(value, [each for each in taken if each is not None])


def _whole(run: Run) -> Mask:
    """Which steps' spread is noise: a smaller batch at the end of an epoch is shorter for a reason."""
    samples = run.table.all.warm_by_rank("samples").sum(0)
    whole: Mask = samples == samples.max(initial=0)
    return whole
