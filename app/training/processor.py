"""A rank's CPU time in each phase of a step, and the time that it waited for a CPU."""

import time
from dataclasses import dataclass

from app.machine.cpus import Throttling
from app.machine.scheduler import Threads
from app.records.lines import PhaseSeconds

COMMUNICATION = ("wait", "sync")  # phases in which the training thread waits for the communication threads
DECIMALS = 6  # the scheduler accounts in microseconds


@dataclass(frozen=True)
class Lost:
    """The seconds of a phase in which a rank was ready to run but had no CPU."""

    to_others: float | None  # another thread had the CPU
    to_quota: float | None  # its CPU quota was exhausted


class PhaseProcessor:
    """Measures CPU time and scheduling delay by phase. It is marked together with the PhaseClock.

    While the training thread computes, its own delay lengthens the phase. While it sleeps, in wait and sync, the
    longest scheduling delay of any thread is charged: a lower bound on the slowdown.
    """

    def __init__(self, threads: Threads, throttling: Throttling, before: str) -> None:
        """`before` is the phase before communication."""
        self._threads, self._throttling, self._before = threads, throttling, before
        self._used: dict[str, float] = {}
        self._lost: dict[str, Lost] = {}
        self._delays: dict[int, float] = {}
        self._own, self._throttled, self._cpu = threads.own_delay(), throttling.seconds(), time.process_time()
        self._at = time.monotonic()

    def mark(self, phase: str) -> None:
        """End the phase that has run since the last mark."""
        own, throttled, cpu = self._threads.own_delay(), self._throttling.seconds(), time.process_time()
        at = time.monotonic()
        delays: dict[int, float] = {}
        if phase == self._before:
            delays = self._threads.delays()
        elif phase in COMMUNICATION:
            delays = self._threads.delays_of_known()
        delay = None if own is None or self._own is None else own - self._own
        if delay is not None and phase in COMMUNICATION:
            delay = max(now - self._delays.get(thread, 0.0) for thread, now in delays.items())
        if delay is not None:
            delay = min(delay, at - self._at)  # the kernel counts a delay when it ends, even if it began phases ago
        quota = None if throttled is None or self._throttled is None else throttled - self._throttled
        self._used[phase] = cpu - self._cpu
        self._lost[phase] = lost(delay, quota)
        self._own, self._throttled, self._cpu, self._delays, self._at = own, throttled, cpu, delays, at

    def used(self) -> PhaseSeconds:
        """CPU seconds of all threads of the rank."""
        return _by_phase(self._used)

    def lost_to_others(self) -> PhaseSeconds | None:
        """Seconds ready to run while other threads had the CPU; None if the kernel does not report them."""
        return _where_measured({phase: each.to_others for phase, each in self._lost.items()})

    def lost_to_quota(self) -> PhaseSeconds | None:
        """Seconds ready to run while the CPU quota was exhausted; None if the kernel does not report them."""
        return _where_measured({phase: each.to_quota for phase, each in self._lost.items()})


def lost(delay: float | None, throttled: float | None) -> Lost:
    """Split a thread's delay by cause. The kernel sums throttling over CPUs, so it may exceed one thread's delay."""
    if delay is None:
        return Lost(None, None)
    to_quota = None if throttled is None else min(delay, throttled)
    return Lost(delay - (to_quota or 0.0), to_quota)


def _where_measured(seconds: dict[str, float | None]) -> PhaseSeconds | None:
    measured = {phase: each for phase, each in seconds.items() if each is not None}
    return _by_phase(measured) if len(measured) == len(seconds) else None


def _by_phase(seconds: dict[str, float]) -> PhaseSeconds:
    return PhaseSeconds(**{phase: round(each, DECIMALS) for phase, each in seconds.items()})
