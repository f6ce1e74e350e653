"""Every figure of a run, once: its name in summary.json, its unit, its meaning, and its function of the run's rows.

A new figure of a step takes a field in `Step`, the line in the meter that fills it, and a line in `TIMES`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from app.analysis import averaging, scores, statistics, throughput
from app.analysis.figures import Figures, Measure, StepTime
from app.analysis.run_records import transfer_seconds
from app.analysis.straggler import Straggler, find, own_work
from app.analysis.table import Mask, Rows, RunTable
from app.analysis.units import COUNT, DIGITS, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT, YES_OR_NO
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


def _account(name: str, phase: str, rows: Rows) -> float | None:
    return statistics.mean(rows.warm(f"{name}.{phase}")[_accounted(rows)])


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
    return {
        phase: Measure(f"processor.{name}.{phase}", SECONDS, f"{meaning} in {phase}", partial(_account, name, phase))
        for phase in PHASES
    }


CPU_SECONDS = _accounts("cpu_seconds", "CPU time of all threads")
NO_CORE_SECONDS = _accounts("no_core_seconds", "ready to run while others had the cores,")
QUOTA_SECONDS = _accounts("quota_seconds", "ready to run while the CPU quota was used up,")
NO_CORE = Measure(
    "processor.no_core", PERCENT, "share of the step without a free core", partial(_share_of_step, "no_core_seconds")
)
QUOTA = Measure(
    "processor.quota", PERCENT, "share of the step throttled by the quota", partial(_share_of_step, "quota_seconds")
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


def _mean_of(name: str, rows: Rows) -> float | None:
    return statistics.mean(rows.column(name))


def _warm_mean_of(name: str, rows: Rows) -> float | None:
    """In the first step, the kernel's count may include traffic that set up the run."""
    return statistics.mean(rows.warm(name))


def _formula(rows: Rows) -> float:
    formulas = [rows.manifest.ranks[rank.rank].formula_bytes_sent_per_step for rank in rows.ranks]
    return float(np.mean(formulas)) * averaging.share_of_steps(rows.manifest, rows.steps)


IMAGES_PER_SECOND = Measure(
    "images_per_second",
    DIGITS,
    "samples by wall clock from the second step's start to the last one's end, without evaluations",
    lambda rows: throughput.of(rows.ranks),
)
BYTES_SENT = Measure(
    "bytes_sent_per_step", MEGABYTES, "payload that a rank sends in a step", partial(_mean_of, "bytes_sent")
)
BYTES_RECEIVED = Measure(
    "bytes_received_per_step", MEGABYTES, "payload that a rank receives in a step", partial(_mean_of, "bytes_received")
)
BATCH_NORM_BYTES_SENT = Measure(
    "batch_norm_bytes_sent_per_step",
    MEGABYTES,
    "statistics of batch normalisation that a rank sends in a step",
    partial(_mean_of, "batch_norm_bytes_sent"),
)
INTERFACE_BYTES_SENT = Measure(
    "interface_bytes_sent_per_step",
    MEGABYTES,
    "sent in a step by the kernel's count, headers included",
    partial(_warm_mean_of, "interface_bytes_sent"),
)
INTERFACE_BYTES_RECEIVED = Measure(
    "interface_bytes_received_per_step",
    MEGABYTES,
    "received in a step by the kernel's count, headers included",
    partial(_warm_mean_of, "interface_bytes_received"),
)
FORMULA_BYTES_SENT = Measure("formula_bytes_sent_per_step", MEGABYTES, "payload by the mode's formula", _formula)
SENT_EXCESS = Measure[float](
    "sent_kernel_over_counted",
    PERCENT,
    "headers and answers relative to the payload",
    lambda rows: _excess(INTERFACE_BYTES_SENT.of(rows), BYTES_SENT.of(rows)),
)


def _excess(seen: float | None, counted: float | None) -> float | None:
    return seen / counted - 1 if counted and seen is not None else None


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


def _score(name: str, rows: Rows) -> Any:
    return rows.once("scores", lambda: scores.last(rows))[name]


LOSS = Measure("loss", DIGITS, "loss of the last step, of the global batch or of a rank's part of it", _last_loss)
TRAINING_SAMPLES = Measure[int](
    "training_samples", COUNT, "samples of the last epoch", partial(_score, "training_samples")
)
TRAINING_LOSS = Measure[float](
    "training_loss",
    DIGITS,
    "mean loss over the last epoch's samples, each at its step",
    partial(_score, "training_loss"),
)
TRAINING_ACCURACY = Measure[float](
    "training_accuracy", PERCENT, "accuracy over the last epoch's samples", partial(_score, "training_accuracy")
)
TEST_LOSS = Measure[float](
    "test_loss", DIGITS, "loss on the test set at the last evaluation", partial(_score, "test_loss")
)
ACCURACY = Measure[float](
    "accuracy", PERCENT, "accuracy on the test set at the last evaluation", partial(_score, "accuracy")
)
EPOCH = Measure[int]("epoch", COUNT, "number of the epoch, from 0", lambda _: None)  # of `Figures.epochs`
SCORES = (LOSS, TRAINING_SAMPLES, TRAINING_LOSS, TRAINING_ACCURACY, TEST_LOSS, ACCURACY)


# All ranks together


def _straggler(rows: Rows) -> tuple[Straggler | None, bool]:
    return rows.once("straggler", lambda: find(rows.ranks))


def _of_straggler(name: str, rows: Rows) -> Any:
    straggler, _ = _straggler(rows)
    return getattr(straggler, name) if straggler else None


STRAGGLER = Measure[int]("straggler.rank", COUNT, "the rank that delays the others", partial(_of_straggler, "rank"))
STRAGGLER_LAST_IN = Measure[float](
    "straggler.last_in", PERCENT, "share of the steps that it finishes last", partial(_of_straggler, "last_in")
)
STRAGGLER_RATIO, STRAGGLER_RATIO_LOW, STRAGGLER_RATIO_HIGH = (
    Measure[float](f"straggler.{name}", DIGITS, meaning, partial(_of_straggler, name))
    for name, meaning in (
        ("work_ratio", "its own work divided by the others'"),
        ("work_ratio_low", "lower end of the ratio's confidence interval"),
        ("work_ratio_high", "upper end of the ratio's confidence interval"),
    )
)
STRAGGLER_WAIT, STRAGGLER_OTHERS_WAIT = (
    Measure[float](f"straggler.{name}", SECONDS, meaning, partial(_of_straggler, name))
    for name, meaning in (("wait_seconds", "its own wait in a step"), ("others_wait_seconds", "the others' wait"))
)
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


def _utilisation(rows: Rows) -> float | None:
    taken, least = TRANSFER.of(rows), rows.manifest.sync_seconds_at_least
    return least / taken if taken and least is not None else None


def _per_transfer(size: Callable[[Rows], float], rows: Rows) -> float | None:
    taken = TRANSFER.of(rows)
    return size(rows) / taken if taken else None


def _slowest_link(rows: Rows) -> float | None:
    links = [rank.link for rank in rows.manifest.ranks if rank.link]
    speeds = [link.direction(way).measured_bytes_per_second for link in links for way in WAYS]
    return min(speeds, default=None) if TRANSFER.of(rows) else None


TRANSFER = Measure(
    "bandwidth.sync_seconds",
    SECONDS,
    "seconds in which a step's gradients were in flight on the slowest rank, median over steps",
    lambda rows: rows.once("transfer", lambda: _transfer(rows)),
)
LEAST_TRANSFER = Measure(
    "bandwidth.sync_seconds_at_least",
    SECONDS,
    "minimum of these seconds on the measured links",
    lambda rows: rows.manifest.sync_seconds_at_least if TRANSFER.of(rows) else None,
)
ALGORITHM_BANDWIDTH = Measure(
    "bandwidth.algorithm_bytes_per_second",
    MEGABYTES_PER_SECOND,
    "gradient bytes divided by these seconds",
    partial(_per_transfer, lambda rows: rows.manifest.gradient_bytes),
)
BUS_BANDWIDTH = Measure(
    "bandwidth.bus_bytes_per_second",
    MEGABYTES_PER_SECOND,
    "the same times 2(N-1)/N",
    partial(_per_transfer, lambda rows: all_reduce_share(rows.manifest.gradient_bytes, rows.manifest.world_size)),
)
SLOWEST_LINK = Measure(
    "bandwidth.link_bytes_per_second", MEGABYTES_PER_SECOND, "the slowest link, as measured", _slowest_link
)
UTILISATION = Measure(
    "bandwidth.utilisation", PERCENT, "minimum seconds that the links allow, divided by the seconds taken", _utilisation
)
BANDWIDTH = (TRANSFER, LEAST_TRANSFER, ALGORITHM_BANDWIDTH, BUS_BANDWIDTH, SLOWEST_LINK, UTILISATION)
LAST_BATCH = Measure(
    "last_batch_samples",
    COUNT,
    "samples of the last step on all ranks",
    scores.last_batch,
)
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
    partial(_mean_of, "wire_rounding_error"),
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
    """The share of a rank's measured link speed that its gradients used while they were synchronised."""
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
WORK = Measure(
    "work_seconds",
    SECONDS,
    "a rank's own work in a step, median",
    lambda rows: statistics.median(map(own_work, rows.rank.warm)),
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
    *(RANK, STEPS, FINISHED, PARAMETERS),
    *FIRST_STEP.values(),
    *(WORK, PEAK_MEMORY),
    *USAGE.values(),
    *LINK_UTILISATION.values(),
)


def of_run(table: RunTable) -> tuple[Figures, list[Figures]]:
    """The figures of all ranks together, and of each rank."""
    every = Figures.of(table.all, OF_RUN, scores.epochs(table.all))
    each = [Figures.of(rows, (*OF_ONE_RANK, *OF_ANY_RANKS), scores.epochs(rows)) for rows in table.ranks]
    return every, each
