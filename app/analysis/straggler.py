"""Which rank the others have to wait for. It is named on evidence, and not because some rank must be the slowest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.run_records import RankRecords, together
from app.analysis.statistics import Numbers, mean, student
from app.records.lines import Step

WORTH_NAMING = 1.1  # times as much own work as the others
FALSE_ALARMS = 0.005  # how often equal ranks have one of them named; noise that is not normal may double it
BATCHES = 10  # neighbouring steps share what disturbs them, so that their means, and not they, count as independent


@dataclass(frozen=True)
class Straggler:
    """The rank that delays the others."""

    rank: int
    last_in: float  # share of the steps
    work_ratio: float
    work_ratio_low: float | None  # confidence interval of the ratio
    work_ratio_high: float | None
    wait_seconds: float | None
    others_wait_seconds: float | None


@dataclass(frozen=True)
class Ratio:
    """How many times the others' work the slowest rank's is; the ends of the interval are null where nothing tells."""

    rank: int
    value: float
    low: float | None
    high: float | None

    @property
    def proven(self) -> bool:
        """Whether this rank is slower than the others, and by enough to name it."""
        return self.low is not None and self.low > 1 and self.value >= WORTH_NAMING

    @property
    def open(self) -> bool:
        """Whether the steps do not suffice to tell a slow rank from equal ones."""
        return not self.proven and (self.high is None or self.high >= WORTH_NAMING)


def own_work(step: Step) -> float:
    """Seconds of a rank's own work, without the exchange of statistics, in which it may wait for others."""
    computing = step.data_seconds + step.forward_seconds + step.backward_seconds + step.optimiser_seconds
    return computing - (step.batch_norm_seconds or 0.0)


def find(ranks: Sequence[RankRecords]) -> tuple[Straggler | None, bool]:
    """The straggler, None where no rank is one; and whether there are too few steps to say."""
    paired = together([rank.warm for rank in ranks])
    if len(ranks) == 1 or not paired:
        return None, False
    work = np.array([[max(own_work(step), 1e-9) for step in steps] for steps in paired])
    ratio = compare(work)
    waits = [mean([steps[rank].wait_seconds for steps in paired]) for rank in range(len(ranks))]
    own, others = waits[ratio.rank], mean([each for rank, each in enumerate(waits) if rank != ratio.rank])
    waited_for = own is None or others is None or others > own
    if not (ratio.proven and waited_for):
        return None, ratio.open and waited_for
    last = np.bincount(work.argmax(1), minlength=len(ranks)) / len(paired)
    straggler = Straggler(ratio.rank, float(last[ratio.rank]), ratio.value, ratio.low, ratio.high, own, others)
    return straggler, False


def compare(work: Numbers) -> Ratio:
    """The rank with the most work against the mean of the others, from the seconds of each step (row) and rank.

    What a whole step has in common drops out, because each step holds every rank once. What is left is the noise. The
    interval is wide enough for the largest of so many ranks to exceed 1 by chance as rarely as that.
    """
    logarithms = np.log(work)
    means = np.array([part.mean(0) for part in np.array_split(logarithms, min(BATCHES, len(work)))])
    batches, ranks = means.shape
    effects = means.mean(0) - means.mean()
    slowest = int(effects.argmax())
    value = float(effects[slowest]) * ranks / (ranks - 1)  # against the mean of the others, not of all
    degrees = (batches - 1) * (ranks - 1)
    if not degrees:
        return Ratio(slowest, math.exp(value), None, None)
    noise = float(((means - means.mean(1, keepdims=True) - effects) ** 2).sum()) / degrees
    margin = student(FALSE_ALARMS / ranks, degrees) * math.sqrt(noise / batches * ranks / (ranks - 1))
    return Ratio(slowest, math.exp(value), math.exp(value - margin), math.exp(value + margin))
