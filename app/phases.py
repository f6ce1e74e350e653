"""A step's time, cut into phases by one monotonic clock."""

import time


class PhaseClock:
    """Each mark ends a phase and begins the next, so that the phases add up to the step."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """End the phase that has run since the last mark."""
        now = time.monotonic()
        self._seconds[phase] = now - self._last
        self._last = now

    def seconds(self, phase: str) -> float:
        """How long a phase took."""
        return self._seconds[phase]

    def measured(self, phase: str) -> float | None:
        """How long a phase took, or None where the step had no such phase."""
        return self._seconds.get(phase)

    @property
    def total(self) -> float:
        """From the beginning to the last mark."""
        return self._last - self._began
