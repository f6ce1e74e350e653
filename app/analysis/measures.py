"""Every figure of a run, once: its name in summary.json, its unit, its meaning, and its function of the run's rows.

A new figure of a step takes a field in `Step`, the line in the meter that fills it, and a line in `TIMES`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from app.analysis import averaging, scores, statistics, throughput
from app.analysis.figures import Figures, Measure, StepTime
from app.analysis.run_records import transfer_seconds
from app.analysis.statistics import Mask
from app.analysis.straggler import Straggler, find, own_work
from app.analysis.table import Rows, RunTable
from app.analysis.units import COUNT, DIGITS, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT, YES_OR_NO, Unit
from app.cluster.wire.bandwidth import all_reduce_share
from app.records.lines import PHASES
from app.records.manifest import WAYS

COMPUTING = ("forward", "backward", "optimiser")

STEP = StepTime("seconds", "step", "a whole step")
DATA = StepTime("data_seconds", "data", "preparing the batch")
FORWARD = StepTime("forward_seconds", "forward", "the forward pass")
BACKWARD = StepTime("backward_seconds", "backward", "the backward pass")
WAIT = StepTime("wait_seconds", "wait", "waiting until the slowest rank has arrived")
SYNC = StepTime("sync_seconds", "sync", "exposed synchronisation, without waiting")
HIDDEN_SYNC = StepTime("hidden_sync_seconds", "hidden sync", "synchronisation that overlaps with backward")
EXPOSED_SYNC = StepTime("exposed_sync_seconds", "exposed sync", "wait and sync in a mode with overlap")
OPTIMISER = StepTime("optimiser_seconds", "optimiser", "the parameter update")
COMMUNICATION = StepTime("communication_seconds", "communication", "with any payload in flight")
BATCH_NORM = StepTime("batch_norm_seconds", "batch norm", "exchanging the statistics of batch normalisation")
THROTTLED = StepTime("throttled_seconds", "throttled", "throttled by a CPU quota, summed over CPUs")

TIMES = (
    *(STEP, DATA, FORWARD, BACKWARD, WAIT, SYNC, HIDDEN_SYNC, EXPOSED_SYNC, OPTIMISER),
    *(COMMUNICATION, BATCH_NORM, THROTTLED),
)
PHASE_TIMES = {phase: each for phase in PHASES for each in TIMES if each.name == f"{phase}_seconds"}
STEP_TIMES = {**PHASE_TIMES, "hidden_sync": HIDDEN_SYNC}


# CPU time and scheduling delay by phase. The delays are part of the phases.


def _accounted(rows: Rows) -> Mask:
    """Which warm steps have an account of their CPU time."""
    return rows.once("accounted", lambda: ~np.isnan(rows.warm("cpu_seconds.data")))


def _share_of_step(name: str, rows: Rows) -> float | None:
    known = _accounted(rows)
    by_phase = np.array([rows.warm(f"{name}.{phase}")[known] for phase in PHASES])
    measured = ~np.isnan(by_phase).all(0)
    taken = float(rows.warm("seconds")[known][measured].sum())
    return float(np.nansum(by_phase[:, measured])) / taken if taken else None


def _accounts(name: str, meaning: str) -> dict[str, Measure[float]]:
    def mean(phase: str, rows: Rows) -> float | None:
        return statistics.mean(rows.warm(f"{name}.{phase}")[_accounted(rows)])

    return {
        phase: Measure(f"processor.{name}.{phase}", SECONDS, f"{meaning} in {phase}", partial(mean, phase))
        for phase in PHASES
    }


CPU_SECONDS = _accounts("cpu_seconds", "CPU time of all threads")
NO_CORE_SECONDS = _accounts("no_core_seconds", "ready to run while others had the cores,")
QUOTA_SECONDS = _accounts("quota_seconds", "ready to run while the CPU quota was used up,")
NO_CORE, QUOTA = (
    Measure(f"processor.{name}", PERCENT, f"share of the step {meaning}", partial(_share_of_step, f"{name}_seconds"))
    for name, meaning in (("no_core", "without a free core"), ("quota", "throttled by the quota"))
)


# Each phase's share of the step. The shares add up to 1.


def _share(phase: str, rows: Rows) -> float | None:
    seconds, wait = rows.warm("seconds"), rows.warm("wait_seconds")
    # If a run broke off, some ranks may lack its last steps; waiting and synchronisation then cannot be separated.
    counted = ~np.isnan(wait) if not np.isnan(wait).all() else np.full(len(wait), True)
    part, whole = rows.warm(f"{phase}_seconds")[counted], float(seconds[counted].sum())
    return None if not whole or np.isnan(part).all() else float(np.nansum(part)) / whole


SHARES = {
    phase: Measure(f"shares.{phase}", PERCENT, f"share of the step in {phase}", partial(_share, phase))
    for phase in PHASES
}

# Payload and speed


def _mean(name: str, rows: Rows) -> float | None:
    return statistics.mean(rows.column(name))


def _warm_mean(name: str, rows: Rows) -> float | None:
    """In the first step, the kernel's count may include traffic that set up the run."""
    return statistics.mean(rows.warm(name))


def _formula(rows: Rows) -> float:
    formulas = [rows.manifest.ranks[rank.rank].formula_bytes_sent_per_step for rank in rows.ranks]
    share = averaging.averages(rows.manifest, rows.column("step")).mean() if len(rows.steps) else 1.0
    return float(np.mean(formulas) * share)


def _excess(rows: Rows) -> float | None:
    seen, counted = INTERFACE_BYTES_SENT.of(rows), BYTES_SENT.of(rows)
    return seen / counted - 1 if counted and seen is not None else None


def _bytes(field: str, meaning: str, of: Callable[[str, Rows], float | None]) -> Measure[float]:
    return Measure(f"{field}_per_step", MEGABYTES, meaning, partial(of, field))


IMAGES_PER_SECOND = Measure(
    "images_per_second",
    DIGITS,
    "samples by wall clock from the second step's start to the last one's end, without evaluations",
    lambda rows: throughput.of(rows.ranks),
)
BYTES_SENT = _bytes("bytes_sent", "payload that a rank sends in a step", _mean)
BYTES_RECEIVED = _bytes("bytes_received", "payload that a rank receives in a step", _mean)
BATCH_NORM_BYTES_SENT = _bytes(
    "batch_norm_bytes_sent", "statistics of batch normalisation that a rank sends in a step", _mean
)
INTERFACE_BYTES_SENT, INTERFACE_BYTES_RECEIVED = (
    _bytes(f"interface_bytes_{way}", f"{way} in a step by the kernel's count, headers included", _warm_mean)
    for way in WAYS
)
FORMULA_BYTES_SENT = Measure("formula_bytes_sent_per_step", MEGABYTES, "payload by the mode's formula", _formula)
SENT_EXCESS = Measure("sent_kernel_over_counted", PERCENT, "headers and answers relative to the payload", _excess)

PER_STEP = (
    *(IMAGES_PER_SECOND, BYTES_SENT, BYTES_RECEIVED, BATCH_NORM_BYTES_SENT),
    *(INTERFACE_BYTES_SENT, INTERFACE_BYTES_RECEIVED, FORMULA_BYTES_SENT, SENT_EXCESS),
)


# Learning


def _last_loss(rows: Rows) -> float | None:
    """The loss of the last global batch; for a single rank, of its own part."""
    if len(rows.ranks) == 1 and len(rows.table.ranks) > 1:
        return rows.rank.steps[-1].loss if rows.rank.steps else None
    losses = scores.losses(rows)
    return losses[-1] if losses else None


def _score[Value](name: str, unit: Unit, meaning: str) -> Measure[Value]:
    return Measure(
        name, unit, meaning, lambda rows: cast("Value", rows.once("scores", lambda: scores.last(rows))[name])
    )


LOSS = Measure("loss", DIGITS, "loss of the last step, of the global batch or of a rank's part of it", _last_loss)
TRAINING_SAMPLES: Measure[int] = _score("training_samples", COUNT, "samples of the last epoch")
TRAINING_LOSS: Measure[float] = _score(
    "training_loss", DIGITS, "mean loss over the last epoch's samples, each at its step"
)
TRAINING_ACCURACY: Measure[float] = _score("training_accuracy", PERCENT, "accuracy over the last epoch's samples")
TEST_LOSS: Measure[float] = _score("test_loss", DIGITS, "loss on the test set at the last evaluation")
ACCURACY: Measure[float] = _score("accuracy", PERCENT, "accuracy on the test set at the last evaluation")
EPOCH = Measure[int]("epoch", COUNT, "number of the epoch, from 0", lambda _: None)  # of `Figures.epochs`
SCORES = (LOSS, TRAINING_SAMPLES, TRAINING_LOSS, TRAINING_ACCURACY, TEST_LOSS, ACCURACY)


# All ranks together


def _of_straggler[Value](name: str, unit: Unit, meaning: str) -> Measure[Value]:
    """Of the straggler, None where no rank is one."""
    return Measure(f"straggler.{name}", unit, meaning, lambda rows: getattr(_straggler(rows)[0], name, None))


def _straggler(rows: Rows) -> tuple[Straggler | None, bool]:
    return rows.once("straggler", lambda: find(rows))


STRAGGLER: Measure[int] = _of_straggler("rank", COUNT, "the rank that delays the others")
STRAGGLER_LAST_IN: Measure[float] = _of_straggler("last_in", PERCENT, "share of the steps that it finishes last")
STRAGGLER_RATIO: Measure[float] = _of_straggler("work_ratio", DIGITS, "its own work divided by the others'")
STRAGGLER_RATIO_LOW: Measure[float] = _of_straggler(
    "work_ratio_low", DIGITS, "lower end of the ratio's confidence interval"
)
STRAGGLER_RATIO_HIGH: Measure[float] = _of_straggler(
    "work_ratio_high", DIGITS, "upper end of the ratio's confidence interval"
)
STRAGGLER_WAIT: Measure[float] = _of_straggler("wait_seconds", SECONDS, "its own wait in a step")
STRAGGLER_OTHERS_WAIT: Measure[float] = _of_straggler("others_wait_seconds", SECONDS, "the others' wait")
STRAGGLER_UNDECIDED = Measure(
    "straggler_undecided",
    YES_OR_NO,
    "whether there are too few steps to identify one",
    lambda rows: _straggler(rows)[1],
)
CLOCK_UNCERTAINTY = Measure(
    "clock_uncertainty_seconds",
    SECONDS,
    "uncertainty of the ranks' clock offsets",
    lambda rows: max((each.uncertainty_seconds for rank in rows.ranks[1:] for each in rank.clocks), default=None),
)


def _transfer(rows: Rows) -> float | None:
    """Median over steps of the slowest rank's transfer."""
    if not (rows.warm("bytes_sent") > 0).any():
        return None
    return statistics.median(transfer_seconds(rows.ranks)) or None


def _of_transfer(name: str, unit: Unit, meaning: str, of: Callable[[Rows, float], float | None]) -> Measure[float]:
    """A function of the seconds of a transfer, None where there was none."""

    def value(rows: Rows) -> float | None:
        taken = TRANSFER.of(rows)
        return of(rows, taken) if taken else None

    return Measure(f"bandwidth.{name}", unit, meaning, value)


def _slowest_link(rows: Rows, _: float) -> float | None:
    links = [rank.link for rank in rows.manifest.ranks if rank.link]
    return min((link.direction(way).measured_bytes_per_second for link in links for way in WAYS), default=None)


def _utilisation(rows: Rows, taken: float) -> float | None:
    least = rows.manifest.sync_seconds_at_least
    return None if least is None else least / taken


TRANSFER = Measure(
    "bandwidth.sync_seconds",
    SECONDS,
    "seconds in which a step's gradients were in flight on the slowest rank, median over steps",
    lambda rows: rows.once("transfer", lambda: _transfer(rows)),
)
LEAST_TRANSFER = _of_transfer(
    "sync_seconds_at_least",
    SECONDS,
    "minimum of these seconds on the measured links",
    lambda rows, _: rows.manifest.sync_seconds_at_least,
)
ALGORITHM_BANDWIDTH = _of_transfer(
    "algorithm_bytes_per_second",
    MEGABYTES_PER_SECOND,
    "gradient bytes divided by these seconds",
    lambda rows, taken: rows.manifest.gradient_bytes / taken,
)
BUS_BANDWIDTH = _of_transfer(
    "bus_bytes_per_second",
    MEGABYTES_PER_SECOND,
    "the same times 2(N-1)/N",
    lambda rows, taken: all_reduce_share(rows.manifest.gradient_bytes, rows.manifest.world_size) / taken,
)
SLOWEST_LINK = _of_transfer(
    "link_bytes_per_second", MEGABYTES_PER_SECOND, "the slowest link, as measured", _slowest_link
)
UTILISATION = _of_transfer(
    "utilisation", PERCENT, "minimum seconds that the links allow, divided by the seconds taken", _utilisation
)
BANDWIDTH = (TRANSFER, LEAST_TRANSFER, ALGORITHM_BANDWIDTH, BUS_BANDWIDTH, SLOWEST_LINK, UTILISATION)
LAST_BATCH = Measure("last_batch_samples", COUNT, "samples of the last step on all ranks", scores.last_batch)
BUCKETS = Measure(
    "buckets_per_step",
    DIGITS,
    "buckets of gradients in a step, in a mode with overlap",
    lambda rows: statistics.mean(len(step.buckets) for step in rows.steps if step.buckets),
)
ROUNDING_ERROR = Measure(
    "wire_rounding_error",
    PERCENT,
    "norm of the rounding error of what is sent, divided by the gradient's norm",
    partial(_mean, "wire_rounding_error"),
)


# One rank


def _first_step(name: str, rows: Rows) -> float | None:
    return getattr(rows.rank.steps[0], name) if rows.rank.steps else None


FIRST_STEP = {
    name: Measure(f"first_step.{name}", SECONDS, "of the first step, which includes setup", partial(_first_step, name))
    for name in ("seconds", *(f"{phase}_seconds" for phase in PHASES))
}


def _usage(name: str, rows: Rows) -> float | None:
    samples = rows.rank.sampled
    seconds = float(samples["seconds"].sum())
    if not seconds:
        return None
    match name:
        case "seconds":
            return seconds
        case "throttled_seconds":
            return statistics.total(samples[name])
        case "most_memory_bytes":
            return int(samples["memory_bytes"].max())
        case "cpu_user_percent" | "cpu_system_percent":
            return float(samples[name] @ samples["seconds"]) / seconds
        case _:  # network_sent_bytes_per_second
            amount = statistics.total(samples[name.removesuffix("_per_second")])
            return None if amount is None else amount / seconds


USAGE = {
    name: Measure(f"usage.{name}", unit, meaning, partial(_usage, name))
    for name, unit, meaning in (
        ("seconds", SECONDS, "how long the rank's use of resources was sampled"),
        ("cpu_user_percent", DIGITS, "CPU time in the program, in percent of one CPU"),
        ("cpu_system_percent", DIGITS, "CPU time in the kernel, in percent of one CPU"),
        ("throttled_seconds", SECONDS, "throttled by a CPU quota, summed over CPUs"),
        ("most_memory_bytes", MEGABYTES, "most resident memory of the samples"),
        ("network_sent_bytes_per_second", MEGABYTES_PER_SECOND, "sent by the kernel's count"),
        ("network_received_bytes_per_second", MEGABYTES_PER_SECOND, "received by the kernel's count"),
    )
}


def _link_utilisation(way: str, rows: Rows) -> float | None:
    taken, link = TRANSFER.of(rows.table.all), rows.manifest.ranks[rows.rank.rank].link
    sent, received = rows.column("bytes_sent"), rows.column("bytes_received")
    payload = statistics.mean((sent if way == "sent" else received)[(sent > 0) | (received > 0)])
    if link is None or not taken or payload is None:
        return None
    return payload / taken / link.direction(way).measured_bytes_per_second


LINK_UTILISATION = {
    way: Measure(
        f"link.{way}_utilisation", PERCENT, f"share of the link's speed, {way}", partial(_link_utilisation, way)
    )
    for way in WAYS
}
RANK = Measure("rank", COUNT, "number of the rank", lambda rows: rows.rank.rank)
STEPS = Measure("steps", COUNT, "recorded steps", lambda rows: len(rows.rank.steps))
FINISHED = Measure("finished", YES_OR_NO, "whether it finished", lambda rows: rows.rank.finished is not None)
PARAMETERS = Measure(
    "parameters_sha256",
    TEXT,
    "checksum of its parameters at the end",
    lambda rows: rows.rank.finished.parameters_sha256 if rows.rank.finished else None,
)
BUFFERS = Measure(
    "buffers_sha256",
    TEXT,
    "checksum of its model's buffers at the end",
    lambda rows: rows.rank.finished.buffers_sha256 if rows.rank.finished else None,
)
WORK = Measure(
    "work_seconds",
    SECONDS,
    "a rank's own work in a step, median",
    lambda rows: statistics.median(own_work(rows.warm)),
)
PEAK_MEMORY = Measure(
    "peak_memory_bytes",
    MEGABYTES,
    "most resident memory by the kernel's count",
    lambda rows: rows.rank.finished.peak_memory_bytes if rows.rank.finished else None,
)


OF_ANY_RANKS: tuple[Measure[Any], ...] = (
    *(each for timing in TIMES for each in timing.statistics),
    *(*CPU_SECONDS.values(), *NO_CORE_SECONDS.values(), *QUOTA_SECONDS.values(), NO_CORE, QUOTA),
    *SHARES.values(),
    *PER_STEP,
    *SCORES,
)
OF_ALL_RANKS: tuple[Measure[Any], ...] = (
    *(STRAGGLER, STRAGGLER_LAST_IN, STRAGGLER_RATIO, STRAGGLER_RATIO_LOW, STRAGGLER_RATIO_HIGH),
    *(STRAGGLER_WAIT, STRAGGLER_OTHERS_WAIT, STRAGGLER_UNDECIDED, CLOCK_UNCERTAINTY),
    *BANDWIDTH,
    *(LAST_BATCH, BUCKETS, ROUNDING_ERROR),
)
OF_RUN = (*OF_ANY_RANKS, *OF_ALL_RANKS)  # of all ranks together
OF_ONE_RANK: tuple[Measure[Any], ...] = (
    *(RANK, STEPS, FINISHED, PARAMETERS, BUFFERS),
    *FIRST_STEP.values(),
    *(WORK, PEAK_MEMORY),
    *USAGE.values(),
    *LINK_UTILISATION.values(),
)


def of_run(table: RunTable) -> tuple[Figures, list[Figures]]:
    every = Figures.of(table.all, OF_RUN, scores.epochs(table.all))
    each = [Figures.of(rows, (*OF_ONE_RANK, *OF_ANY_RANKS), scores.epochs(rows)) for rows in table.ranks]
    return every, each
