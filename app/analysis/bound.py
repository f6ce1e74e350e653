"""The parts of a step by what they need, and which of them bounds it: the one that outweighs all others together."""

from dataclasses import dataclass
from statistics import median
from typing import Self

from app.records.summary import Figures, Summary

COMPUTING = ("forward", "backward", "optimiser")
BOUNDS = ("compute", "cpu", "communication", "straggler", "data")
MIXED = "mixed"  # no part outweighs all others together
OUTWEIGHS = 0.5  # of the step
HARDLY_USED = 0.3  # of what the links allow
MUCH = 0.2


@dataclass(frozen=True)
class Parts:
    """Shares of the step. Time without a CPU in which a rank was ready to run is apart from the phase it lies in."""

    computing: float
    no_core: float
    quota: float
    synchronising: float
    waiting: float
    data: float

    @classmethod
    def of(cls, figures: Figures) -> Self | None:
        """None where there is no step after the first."""
        shares, processor = figures.shares, figures.processor
        if shares is None:
            return None
        accounts = [] if processor is None else [processor.no_core_seconds, processor.quota_seconds]
        step = figures.seconds.mean if figures.seconds else 1.0

        def on_a_core(*phases: str) -> float:
            return shares.of(*phases) - sum(account.of(*phases) for account in accounts if account) / step

        return cls(
            computing=on_a_core(*COMPUTING),
            no_core=(processor.no_core or 0.0) if processor else 0.0,
            quota=(processor.quota or 0.0) if processor else 0.0,
            synchronising=on_a_core("sync"),
            waiting=on_a_core("wait"),
            data=on_a_core("data"),
        )

    @property
    def computes(self) -> float:
        """With what the quota took of it: a rank with a quota stands for a slower processor."""
        return self.computing + self.quota

    @property
    def wants_cpu(self) -> float:
        """Computing, and being ready to."""
        return self.computes + self.no_core

    def largest_first(self) -> list[tuple[float, str]]:
        """All parts in words."""
        words = {
            "computation": self.computing,
            "waiting for a free CPU core": self.no_core,
            "throttled by the CPU quota": self.quota,
            "exposed synchronisation": self.synchronising,
            "waiting for other ranks": self.waiting,
            "batch preparation": self.data,
        }
        return sorted(((part, name) for name, part in words.items()), reverse=True)


def bound_of(summary: Summary) -> str | None:
    """What outweighs the rest of the step together. Computing, and being ready to compute, count as one."""
    parts = Parts.of(summary.run)
    if parts is None:
        return None
    others = {"communication": parts.synchronising, "straggler": parts.waiting, "data": parts.data}
    most = max(others, key=lambda bound: others[bound])
    if parts.wants_cpu > OUTWEIGHS:
        return "cpu" if parts.no_core >= max(MUCH, parts.quota) else "compute"
    if most != "data" and others[most] >= parts.wants_cpu and _lacks_cpu(summary):
        return "compute"
    return most if others[most] > OUTWEIGHS else MIXED


def held_back(summary: Summary) -> list[float]:
    """Seconds per second for which a quota throttled each rank, summed over CPUs."""
    return [
        rank.usage.throttled_seconds / rank.usage.seconds
        for rank in summary.ranks
        if rank.usage and rank.usage.throttled_seconds is not None
    ]


def utilisation(summary: Summary) -> float | None:
    """The least time that the links allow, by the time taken."""
    return summary.run.bandwidth.utilisation if summary.run.bandwidth else None


def _lacks_cpu(summary: Summary) -> bool:
    """Whether a quota throttles most ranks for much of the time, while their links are hardly used."""
    used, throttled = utilisation(summary), held_back(summary)
    return bool(throttled) and median(throttled) > MUCH and not (used and used > HARDLY_USED)
