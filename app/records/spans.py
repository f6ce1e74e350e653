"""Spans of time."""

from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much of the time lies within at least one of these spans, each from its beginning to its end."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
