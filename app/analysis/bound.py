"""The parts of a step by what they need, and which of them bounds it: the one that outweighs all others together."""

from dataclasses import dataclass
from statistics import median
from typing import Self

from app.analysis.figures import Figures
from app.analysis.measures import (
    COMPUTING,
    NO_CORE,
    NO_CORE_SECONDS,
    QUOTA,
    QUOTA_SECONDS,
    SHARES,
    STEP,
    STRAGGLER,
    USAGE,
    UTILISATION,
)
from app.analysis.summary import Summary

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
        """None if only the first step was recorded."""
        if figures[SHARES["forward"]] is None:
            return None
        step = figures[STEP.mean] or 1.0

        def on_a_core(*phases: str) -> float:
            delayed = figures.sum(*(account[phase] for account in (NO_CORE_SECONDS, QUOTA_SECONDS) for phase in phases))
            return figures.sum(*(SHARES[phase] for phase in phases)) - delayed / step

        return cls(
            computing=on_a_core(*COMPUTING),
            no_core=figures[NO_CORE] or 0.0,
            quota=figures[QUOTA] or 0.0,
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


def bound_of(summary: Summary) -> str | None:
    """What outweighs the rest of the step together. Computing, and being ready to compute, count as one.

    While others wait for a straggler, only the straggler computes usefully: much waiting is enough.
    """
    parts = Parts.of(summary.run)
    if parts is None:
        return None
    others = {"communication": parts.synchronising, "straggler": parts.waiting, "data": parts.data}
    most = max(others, key=lambda bound: others[bound])
    if most == "straggler" and parts.waiting >= MUCH and summary.run[STRAGGLER] is not None:
        return most
    if parts.wants_cpu > OUTWEIGHS:
        return "cpu" if parts.no_core >= max(MUCH, parts.quota) else "compute"
    if most != "data" and others[most] >= parts.wants_cpu and _lacks_cpu(summary):
        return "compute"
    return most if others[most] > OUTWEIGHS else MIXED


def held_back(summary: Summary) -> list[float]:
    """Seconds per second for which a quota throttled each rank, summed over CPUs."""
    throttled = [(rank[USAGE["throttled_seconds"]], rank[USAGE["seconds"]]) for rank in summary.ranks]
    return [lost / seconds for lost, seconds in throttled if lost is not None and seconds]


def utilisation(summary: Summary) -> float | None:
    """The minimum time that the links allow, divided by the time taken."""
    return summary.run[UTILISATION]


def _lacks_cpu(summary: Summary) -> bool:
    """Whether a quota throttles most ranks for much of the time, while their links are hardly used."""
    used, throttled = utilisation(summary), held_back(summary)
    return bool(throttled) and median(throttled) > MUCH and not (used and used > HARDLY_USED)
