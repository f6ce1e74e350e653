"""The parts of a step by what they need, and which of them bounds it: the one that outweighs all others together."""

from dataclasses import dataclass
from statistics import median
from typing import Self

from app.analysis import measures
from app.analysis.figures import Figures
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
        if figures[measures.SHARES["forward"]] is None:
            return None
        step = figures[measures.STEP.mean] or 1.0

        def on_a_core(*phases: str) -> float:
            delayed = figures.sum(
                *(account[phase] for account in (measures.NO_CORE_SECONDS, measures.QUOTA_SECONDS) for phase in phases)
            )
            return figures.sum(*(measures.SHARES[phase] for phase in phases)) - delayed / step

        return cls(
            computing=on_a_core(*measures.COMPUTING),
            no_core=figures[measures.NO_CORE] or 0.0,
            quota=figures[measures.QUOTA] or 0.0,
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
    if most == "straggler" and parts.waiting >= MUCH and summary.run[measures.STRAGGLER] is not None:
        return most
    if parts.wants_cpu > OUTWEIGHS:
        return "cpu" if parts.no_core >= max(MUCH, parts.quota) else "compute"
    if most != "data" and others[most] >= parts.wants_cpu and _lacks_cpu(summary):
        return "compute"
    return most if others[most] > OUTWEIGHS else MIXED


def held_back(summary: Summary) -> list[float]:
    """Seconds per second for which a quota throttled each rank, summed over CPUs."""
    throttled = [(rank[measures.USAGE["throttled_seconds"]], rank[measures.USAGE["seconds"]]) for rank in summary.ranks]
    return [lost / seconds for lost, seconds in throttled if lost is not None and seconds]


def _lacks_cpu(summary: Summary) -> bool:
    """Whether a quota throttles most ranks for much of the time, while their links are hardly used."""
    used, throttled = summary.run[measures.UTILISATION], held_back(summary)
    return bool(throttled) and median(throttled) > MUCH and not (used and used > HARDLY_USED)
