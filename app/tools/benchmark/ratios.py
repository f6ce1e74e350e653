"""Medians of paired ratios over rounds, with intervals that assume no distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

CONFIDENCE = 0.90


@dataclass(frozen=True)
class Middle:
    """A median with its 90 % confidence interval. Too few rounds have no interval."""

    value: float
    low: float | None
    high: float | None
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The ends are order statistics: each round falls on either side of the true median with equal chances."""
        ordered, outside = sorted(values), values_outside(len(values))
        if outside is None:
            return cls(median(ordered), None, None, len(ordered))
        return cls(median(ordered), ordered[outside], ordered[-1 - outside], len(ordered))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], others: Sequence[float]) -> Self:
        """Paired by round: a disturbance of a whole round cancels out."""
        return cls.of([mine / other for mine, other in zip(ours, others, strict=True)])

    def __str__(self) -> str:
        return f"{self.value:.2f}{self.shown_interval}"

    @property
    def shown_interval(self) -> str:
        return "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"


def values_outside(rounds: int) -> int | None:
    """How many sorted values lie outside the interval on each side; None if all of them are too few for one."""
    missed, outside = 0.0, None
    for number in range(rounds // 2):
        missed += 2 * math.comb(rounds, number) / 2**rounds
        if missed > 1 - CONFIDENCE:
            break
        outside = number
    return outside
