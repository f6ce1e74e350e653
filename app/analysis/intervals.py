"""A value with its confidence interval."""

from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value, and where the true one lies with 95 % confidence; without ends where nothing tells the noise."""

    value: float
    low: float | None
    high: float | None
