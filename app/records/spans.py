"""Arithmetic with intervals of time."""

from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The total time covered by at least one of these (begin, end) spans."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
