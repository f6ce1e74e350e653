"""Measures of a finished run: one number each, None where it was not measured."""

import numpy as np

from app.analysis import figures, measures
from app.analysis.run import Run
from app.analysis.run_records import together
from app.analysis.units import TEXT
from app.tools.experiment.reading.results import Measure

COMPUTING = ("data", "forward", "backward", "optimiser")
COMMUNICATION = ("wait", "sync")  # as far as it delays the step
HIDDEN = "hidden_sync"
SMOOTHED = 10  # steps
TIMINGS = {**measures.PHASE_TIMES, HIDDEN: measures.HIDDEN_SYNC}


def ratio(measure: Measure, other: Measure) -> Measure:
    """The first by the second."""

    def measured(run: Run) -> float | None:
        value, base = measure(run), other(run)
        return value / base if value is not None and base else None

    return measured


def of_run(measure: figures.Measure[float]) -> Measure:
    """A figure of all ranks together."""
    return lambda run: run.summary.run[measure]


step_seconds = of_run(measures.STEP.median)
mean_step_seconds = of_run(measures.STEP.mean)  # what the phases add up to
sync_seconds = of_run(measures.TRANSFER)
least_sync_seconds = of_run(measures.LEAST_TRANSFER)
images_per_second = of_run(measures.IMAGES_PER_SECOND)
training_loss = of_run(measures.TRAINING_LOSS)  # of the last epoch
training_accuracy = of_run(measures.TRAINING_ACCURACY)
test_accuracy = of_run(measures.ACCURACY)  # of the last evaluation


def first_step_seconds(run: Run) -> float | None:
    """Of the slowest rank."""
    return max((first for rank in run.summary.ranks if (first := rank[measures.FIRST_STEP["seconds"]])), default=None)


def mean_to(count: int) -> Measure:
    """The mean over the first so many steps without the very first, as documents count; None where there are fewer."""

    def measure(run: Run) -> float | None:
        counted = [step.seconds for rank in run.ranks for step in rank.steps[1:count]]
        whole = all(len(rank.steps) >= count for rank in run.ranks)
        return float(np.mean(counted)) if counted and whole else None

    return measure


def phase_seconds(*phases: str) -> Measure:
    """Seconds of these phases together in a step, the mean over ranks and steps; phases that a step lacks take none."""

    def measure(run: Run) -> float | None:
        timings = [TIMINGS[phase].mean for phase in phases]
        means = [mean for timing in timings if (mean := run.summary.run[timing]) is not None]
        return sum(means) if means else None

    return measure


def share(*phases: str) -> Measure:
    """What part of a step's time these phases are."""
    return ratio(phase_seconds(*phases), mean_step_seconds)


def seconds_to(loss: float) -> Measure:
    """From the start of the first step to the end of the one from which on the last ten steps' mean loss is no more.

    By wall clock, with all that lies between steps. None if the run does not come to it.
    """

    def measure(run: Run) -> float | None:
        paired = together([rank.steps for rank in run.ranks])
        losses = run.summary.losses[: len(paired)]
        for count in range(SMOOTHED, len(losses) + 1):
            if float(np.mean(losses[count - SMOOTHED : count])) <= loss:
                began, ended = (
                    [rank.on_common_clock(step.at_seconds) for rank, step in zip(run.ranks, paired[place], strict=True)]
                    for place in (0, count - 1)
                )
                return max(at + step.seconds for at, step in zip(ended, paired[count - 1], strict=True)) - min(began)
        return None

    return measure


def of_summary(name: str) -> figures.Measure[float] | None:
    """A figure of all ranks together, by its name in summary.json."""
    return next((each for each in measures.OF_RUN if each.name == name), None)


def names_of_summary() -> list[str]:
    return [each.name for each in measures.OF_RUN if each.unit != TEXT]


def by_epoch(measure: Measure) -> Measure:
    """Of as many steps as an epoch has, as planned, where the measure is of one."""

    def of_epoch(run: Run) -> float | None:
        value = measure(run)
        return None if value is None else value * run.manifest.plan.steps_per_epoch

    return of_epoch


epoch_seconds = by_epoch(step_seconds)


def gradient_bytes(run: Run) -> int:
    """All gradients of a rank once: S."""
    return run.manifest.gradient_bytes


def sent_by_rank(run: Run) -> list[float]:
    """Payload that each rank sent in a step, as counted; empty where one of them did not count."""
    counted = [rank[measures.BYTES_SENT] for rank in run.summary.ranks]
    known = [each for each in counted if each is not None]
    return known if len(known) == len(counted) else []


def sent_in_all(run: Run) -> float | None:
    """Payload of all ranks together in a step."""
    return sum(sent_by_rank(run)) if sent_by_rank(run) else None


def payload_rate(run: Run) -> float | None:
    """Payload bytes that a rank sends in a second of its steps, the mean over ranks; None where nothing is sent."""
    total, seconds = sent_in_all(run), mean_step_seconds(run)
    return total / len(run.summary.ranks) / seconds if total and seconds else None


def interface_rate(run: Run) -> float | None:
    """The same by the kernel's counters of the rank's interface, headers and all."""
    sent, seconds = run.summary.run[measures.INTERFACE_BYTES_SENT], mean_step_seconds(run)
    return sent / seconds if sent and seconds and run.summary.world_size > 1 else None
