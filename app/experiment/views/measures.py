"""Figures of a finished run: one number each, None where it was not measured."""

from app.experiment.reading.results import Figure, Measured
from app.records.summary import PHASES

COMPUTING = ("data", "forward", "backward", "optimiser")
COMMUNICATION = ("wait", "sync")  # as far as it delays the step


def mean_seconds(*phases: str) -> Figure:
    """Seconds of these phases together in a step, the mean over ranks and steps; phases that a step lacks take none."""

    def figure(run: Measured) -> float | None:
        spreads = [run.summary.run.seconds_of(phase) for phase in phases]
        means = [spread.mean for spread in spreads if spread is not None]
        return sum(means) if means else None

    return figure


def mean_step_seconds(run: Measured) -> float | None:
    """The mean over all ranks and steps but the first: what the phases add up to."""
    spread = run.summary.run.seconds
    return None if spread is None else spread.mean


def share(*phases: str) -> Figure:
    """What part of a step's time these phases are."""
    seconds = mean_seconds(*phases)

    def figure(run: Measured) -> float | None:
        part, whole = seconds(run), mean_step_seconds(run)
        return None if part is None or not whole else part / whole

    return figure


def hidden_share(run: Measured) -> float | None:
    """What part of the synchronisation hides behind backward; None where nothing can."""
    hidden, exposed = mean_seconds("hidden_sync")(run), mean_seconds("sync")(run)
    return hidden / (hidden + exposed) if hidden is not None and exposed is not None and hidden + exposed else None


def longest_phase(run: Measured) -> str | None:
    """Of those that a step is made of."""
    known = {phase: seconds for phase in PHASES if (seconds := mean_seconds(phase)(run)) is not None}
    return max(known, key=lambda phase: known[phase]) if known else None


def images_per_second(run: Measured) -> float | None:
    """Of all ranks together."""
    return run.summary.run.images_per_second


def steps_per_epoch(run: Measured) -> int:
    """As planned, whether or not the run went so far."""
    return run.manifest.plan.steps_per_epoch


def gradient_bytes(run: Measured) -> int:
    """All gradients of a rank once: S."""
    return run.manifest.gradient_bytes


def sent_by_rank(run: Measured) -> list[float] | None:
    """Payload that each rank sent in a step, as counted."""
    counted = [rank.bytes_sent_per_step for rank in run.summary.ranks]
    known = [each for each in counted if each is not None]
    return known if len(known) == len(counted) else None


def sent_in_all(run: Measured) -> float | None:
    """Payload of all ranks together in a step."""
    counted = sent_by_rank(run)
    return None if counted is None else sum(counted)


def payload_rate(run: Measured) -> float | None:
    """Payload bytes that a rank sends in a second of its steps, the mean over ranks; None where nothing is sent."""
    total, seconds = sent_in_all(run), mean_step_seconds(run)
    return total / len(run.summary.ranks) / seconds if total and seconds else None


def interface_rate(run: Measured) -> float | None:
    """The same by the kernel's counters of the rank's interface, headers and all."""
    sent, seconds = run.summary.run.interface_bytes_sent_per_step, mean_step_seconds(run)
    return sent / seconds if sent and seconds and run.summary.world_size > 1 else None
