"""Which rank the others have to wait for. It is named on evidence, and not because some rank must be the slowest."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.analysis.statistics import Interval, Numbers, mean, student
from app.analysis.table import Rows

OWN_WORK = ("data", "forward", "backward", "optimiser")
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
class Ratio(Interval):
    """How many times the others' work the slowest rank's is."""

    rank: int

    @property
    def proven(self) -> bool:
        return self.low is not None and self.low > 1 and self.value >= WORTH_NAMING

    @property
    def open(self) -> bool:
        """Whether the steps do not suffice to tell a slow rank from equal ones."""
        return not self.proven and (self.high is None or self.high >= WORTH_NAMING)


def own_work(seconds: Callable[[str], Numbers]) -> Numbers:
    """A rank's own work in each step, without the exchange of statistics, in which it may wait for others."""
    data, forward, backward, optimiser = (seconds(f"{phase}_seconds") for phase in OWN_WORK)
    return data + forward + backward + optimiser - np.nan_to_num(seconds("batch_norm_seconds"))


def find(rows: Rows) -> tuple[Straggler | None, bool]:
    """The straggler, None where no rank is one; and whether there are too few steps to say."""
    work = np.ascontiguousarray(np.maximum(own_work(rows.warm_by_rank), 1e-9).T)
    steps, ranks = work.shape
    if ranks == 1 or not steps:
        return None, False
    ratio = compare(work)
    waits = [mean(each) for each in rows.warm_by_rank("wait_seconds")]
    own, others = waits[ratio.rank], mean([each for rank, each in enumerate(waits) if rank != ratio.rank])
    waited_for = own is None or others is None or others > own
    if not (ratio.proven and waited_for):
        return None, ratio.open and waited_for
    last = np.bincount(work.argmax(1), minlength=ranks) / steps
    return Straggler(ratio.rank, float(last[ratio.rank]), ratio.value, ratio.low, ratio.high, own, others), False


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
        return Ratio(math.exp(value), None, None, slowest)
    noise = float(((means - means.mean(1, keepdims=True) - effects) ** 2).sum()) / degrees
    margin = student(FALSE_ALARMS / ranks, degrees) * math.sqrt(noise / batches * ranks / (ranks - 1))
    return Ratio(math.exp(value), math.exp(value - margin), math.exp(value + margin), slowest)
