"""What the CPUs of the host gave to a rank in each phase of a step, and how long it had none."""

import time
from dataclasses import dataclass

from app.machine.cpus import Throttling
from app.machine.scheduler import Threads
from app.records.lines import PhaseSeconds

TALKS = ("wait", "sync")  # phases in which the thread that trains waits for those that communicate
EXACT_TO = 6  # decimals: the scheduler's account is no finer than a microsecond


@dataclass(frozen=True)
class Lost:
    """What a rank lost in a phase, in seconds, while it was ready to run."""

    to_others: float | None  # another thread had the CPU
    to_quota: float | None  # its quota had run out


class PhaseProcessor:
    """Marked with the clock of the phases, at the same moments.

    While the training thread computes, its own delay lengthens the phase. While it sleeps, in wait and sync, the
    longest delay of any thread counts: the phase took at least that much longer.
    """

    def __init__(self, threads: Threads, throttling: Throttling, before: str) -> None:
        """`before` is the phase before the threads talk."""
        self._threads, self._throttling, self._before = threads, throttling, before
        self._used: dict[str, float] = {}
        self._lost: dict[str, Lost] = {}
        self._everyones: dict[int, float] = {}
        self._own, self._throttled, self._cpu = threads.own_delay(), throttling.seconds(), time.process_time()

    def mark(self, phase: str) -> None:
        """End the phase that has run since the last mark."""
        own, throttled, cpu = self._threads.own_delay(), self._throttling.seconds(), time.process_time()
        everyones: dict[int, float] = {}
        if phase == self._before:
            everyones = self._threads.delays()
        elif phase in TALKS:
            everyones = self._threads.delays_of_known()
        delay = None if own is None or self._own is None else own - self._own
        if delay is not None and phase in TALKS:
            delay = max(now - self._everyones.get(thread, 0.0) for thread, now in everyones.items())
        quota = None if throttled is None or self._throttled is None else throttled - self._throttled
        self._used[phase] = cpu - self._cpu
        self._lost[phase] = lost(delay, quota)
        self._own, self._throttled, self._cpu, self._everyones = own, throttled, cpu, everyones

    def used(self) -> PhaseSeconds:
        """CPU time of all threads of the rank."""
        return _by_phase(self._used)

    def lost_to_others(self) -> PhaseSeconds | None:
        """None where the kernel does not say."""
        return _where_measured({phase: each.to_others for phase, each in self._lost.items()})

    def lost_to_quota(self) -> PhaseSeconds | None:
        """None where the kernel does not say."""
        return _where_measured({phase: each.to_quota for phase, each in self._lost.items()})


def lost(delay: float | None, throttled: float | None) -> Lost:
    """Divide a thread's delay. The kernel sums the quota's part over CPUs, so it may exceed one thread's delay."""
    if delay is None:
        return Lost(None, None)
    to_quota = None if throttled is None else min(delay, throttled)
    return Lost(delay - (to_quota or 0.0), to_quota)


def _where_measured(seconds: dict[str, float | None]) -> PhaseSeconds | None:
    measured = {phase: each for phase, each in seconds.items() if each is not None}
    return _by_phase(measured) if len(measured) == len(seconds) else None


def _by_phase(seconds: dict[str, float]) -> PhaseSeconds:
    return PhaseSeconds(**{phase: round(each, EXACT_TO) for phase, each in seconds.items()})
