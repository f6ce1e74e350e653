"""What rounds allow to say: the middle of paired ratios, and an interval around it that assumes no distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

CONFIDENCE = 0.90
FEWEST_ROUNDS = 5  # for an interval; the least and the most of five miss the median in 1 case of 16


@dataclass(frozen=True)
class Middle:
    """A median, and where that of ever more rounds lies with 90 % confidence; without ends for too few rounds."""

    value: float
    low: float | None
    high: float | None
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The ends are measured values, because each round falls on either side of the median with equal chances."""
        ordered, outside = sorted(values), values_outside(len(values))
        if outside is None:
            return cls(median(ordered), None, None, len(ordered))
        return cls(median(ordered), ordered[outside], ordered[-1 - outside], len(ordered))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], others: Sequence[float]) -> Self:
        """One contender by another, round by round: what slows a whole round down drops out."""
        return cls.of([mine / other for mine, other in zip(ours, others, strict=True)])

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def values_outside(rounds: int) -> int | None:
    """How many of the sorted values may lie outside the interval on each side; None where even all are too few."""
    missed, outside = 0.0, None
    for number in range(rounds // 2):
        missed += 2 * math.comb(rounds, number) / 2**rounds
        if missed > 1 - CONFIDENCE:
            break
        outside = number
    return outside
