"""What ranks used in the time of their training steps, from samples that know nothing of steps."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from app.experiment.reading.results import Figure, Measured
from app.records.lines import Step
from app.summary.run_records import RankRecords

Kind = Literal["user", "system"]
Way = Literal["sent", "received"]


def cpu_percent(kind: Kind, rank: int | None = None, *, of_node: bool = False) -> Figure:
    """A rank's CPU time, or the mean over ranks: in percent of one CPU, or of those that the rank can count on."""

    def figure(run: Measured) -> float | None:
        found = []
        for each in _chosen(run, rank):
            used = while_training(each, f"cpu_{kind}_percent")
            cpus = cpus_of(each.rank)(run) if of_node else 1.0
            found.append(None if used is None or not cpus else used / cpus)
        return _mean(found)

    return figure


def cpus_of(rank: int | None) -> Figure:
    """CPUs that a rank can count on, or the mean over ranks: its quota, or its part of the cores that it shares."""

    def figure(run: Measured) -> float | None:
        ranks = run.manifest.ranks
        return _mean([each.fair_share_cpus for each in (ranks if rank is None else [ranks[rank]])])

    return figure


def rate_of(way: Way, rank: int | None) -> Figure:
    """Bytes by the second that the kernel saw on a rank's interface in its steps, or the mean over ranks."""

    def figure(run: Measured) -> float | None:
        return _mean([_rate(each.warm, way) for each in _chosen(run, rank)])

    return figure


def while_training(rank: RankRecords, field: str) -> float | None:
    """The mean of a figure of usage samples, each counted for as long as it shares with the steps but the first."""
    if not rank.warm:
        return None
    moments = np.array([moment for step in rank.warm for moment in (step.at_seconds, step.at_seconds + step.seconds)])
    trained = np.array([part for step in rank.warm for part in (0.0, step.seconds)]).cumsum()  # until each moment
    weights = [
        float(np.interp(sample.at_seconds, moments, trained))
        - float(np.interp(sample.at_seconds - sample.seconds, moments, trained))
        for sample in rank.usage
    ]
    total = sum(weights)
    values = [getattr(sample, field) for sample in rank.usage]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / total if total > 0 else None


def _rate(steps: Sequence[Step], way: Way) -> float | None:
    passed = [getattr(step, f"interface_bytes_{way}") for step in steps]
    return None if not steps or None in passed else sum(passed) / sum(step.seconds for step in steps)


def _chosen(run: Measured, rank: int | None) -> list[RankRecords]:
    return run.ranks if rank is None else [run.ranks[rank]]


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return float(np.mean(measured)) if measured and len(measured) == len(values) else None
