"""Figures of a run by the epoch, and the bandwidth of its synchronisation as the field and as a document counts it."""

import math

from app.costs.bandwidth import all_reduce_share
from app.experiment.reading.results import Figure, Measured
from app.experiment.views.measures import COMMUNICATION, COMPUTING, gradient_bytes, mean_seconds, steps_per_epoch
from app.experiment.views.times import step_seconds


def epoch_seconds(run: Measured) -> float | None:
    """As many median steps as an epoch has."""
    step = step_seconds(run)
    return None if step is None else step * steps_per_epoch(run)


def compute(run: Measured) -> float | None:
    """Seconds of an epoch that are a rank's own work."""
    return _by_epoch(run, mean_seconds(*COMPUTING))


def communication(run: Measured) -> float | None:
    """Seconds of an epoch in which steps wait and synchronise."""
    return _by_epoch(run, mean_seconds(*COMMUNICATION))


def hidden(run: Measured) -> float | None:
    """Seconds of an epoch in which gradients travel behind backward."""
    return _by_epoch(run, mean_seconds("hidden_sync"))


def bandwidth(name: str) -> Figure:
    """What the summary says of the synchronisation."""

    def figure(run: Measured) -> float | None:
        value: float | None = getattr(run.summary.run.bandwidth, name, None)
        return value

    return figure


def document_rate(run: Measured) -> float | None:
    """2(N-1) S by the seconds of a synchronisation."""
    algorithm = bandwidth("algorithm_bytes_per_second")(run)
    return None if algorithm is None else 2 * (run.summary.world_size - 1) * algorithm


def document_utilisation(run: Measured) -> float | None:
    """That by what the slowest link carries."""
    rate, link = document_rate(run), bandwidth("link_bytes_per_second")(run)
    return rate / link if rate is not None and link else None


def ring_seconds(run: Measured) -> float | None:
    """The least time of a ring on the slowest link."""
    link = bandwidth("link_bytes_per_second")(run)
    return all_reduce_share(gradient_bytes(run), run.summary.world_size) / link if link else None


def document_seconds(run: Measured) -> float | None:
    """log2(N) S by the slowest link."""
    link = bandwidth("link_bytes_per_second")(run)
    return math.log2(run.summary.world_size) * gradient_bytes(run) / link if link else None


def epoch_rate(run: Measured) -> float | None:
    """S by a whole epoch's seconds of communication, which is how the document's own figures come out."""
    seconds = communication(run)
    return gradient_bytes(run) / seconds if seconds else None


def _by_epoch(run: Measured, figure: Figure) -> float | None:
    seconds = figure(run)
    return None if seconds is None else seconds * steps_per_epoch(run)
