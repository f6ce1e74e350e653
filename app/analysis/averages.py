"""Averages of measured values, and Student's t for their margins of error."""

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from app.records.summary import Spread


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean, median, 95th percentile and most; None where nothing was measured."""
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    array = np.array(measured)
    return Spread(float(array.mean()), float(np.median(array)), float(np.percentile(array, 95)), float(array.max()))


def total(amounts: Sequence[float | None]) -> float | None:
    """The sum; None if one of them was not measured."""
    measured = [amount for amount in amounts if amount is not None]
    return sum(measured) if len(measured) == len(amounts) else None


def median(values: Iterable[float]) -> float | None:
    """The middle value; None if there are no values."""
    found = list(values)
    return float(np.median(found)) if found else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those measured; None where nothing was."""
    measured = [value for value in values if value is not None]
    return float(np.mean(measured)) if measured else None


@cache
def student(tail: float, degrees: int) -> float:
    """The value that Student's t exceeds with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, degrees) > tail else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _tail(angle: float, degrees: int) -> float:
    """The probability that t exceeds tan(angle) times the root of the degrees: an integral over a power of cosine."""
    angles = np.linspace(angle, math.pi / 2, 2001)
    area = float(np.trapezoid(np.cos(angles) ** (degrees - 1), angles))
    return area * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
