"""Figures that are worked out where they are asked for by name, beside those of every summary.json.

A name may have a number in brackets: `seconds_to_loss(0.5)`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from app.analysis import measures, statistics
from app.analysis.averaging import averages, every
from app.analysis.figures import Measure
from app.analysis.run_records import together
from app.analysis.scores import losses
from app.analysis.statistics import Numbers
from app.analysis.straggler import OWN_WORK
from app.analysis.table import Rows
from app.analysis.units import COUNT, DIGITS, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT
from app.cluster.wire.bandwidth import all_reduce_share

SMOOTHED = 10  # steps
COMMUNICATION = ("wait", "sync")  # as far as it delays the step

Value = Callable[[Rows], float | None]


def mean_seconds(*phases: str) -> Value:
    """Of these phases together in a step; phases that a step lacks take none."""

    def of(rows: Rows) -> float | None:
        means = [mean for phase in phases if (mean := measures.STEP_TIMES[phase].mean.of(rows)) is not None]
        return sum(means) if means else None

    return of


def ratio(value: Value, other: Value) -> Value:
    def of(rows: Rows) -> float | None:
        own, base = value(rows), other(rows)
        return own / base if own is not None and base else None

    return of


def mean_of_ranks(value: Value) -> Value:
    """None where a rank lacks it."""

    def of(rows: Rows) -> float | None:
        amount = statistics.total([value(each) for each in rows.each])
        return None if amount is None else amount / len(rows.ranks)

    return of


# Of a step


def _mean_seconds_to(count: float, rows: Rows) -> float | None:
    """Of steps 2 to `count`, as documents count; None if there are fewer."""
    steps = [each.column("seconds")[: int(count)] for each in rows.each]
    return float(np.mean([each[1:] for each in steps])) if all(len(each) == count for each in steps) else None


def _seconds_to_loss(loss: float, rows: Rows) -> float | None:
    """By wall clock, with all that lies between steps. None if the run does not come to it."""
    paired = together([rank.steps for rank in rows.ranks])
    reached = losses(rows)[: len(paired)]
    for count in range(SMOOTHED, len(reached) + 1):
        if float(np.mean(reached[count - SMOOTHED : count])) <= loss:
            began, ended = (
                [rank.on_common_clock(step.at_seconds) for rank, step in zip(rows.ranks, paired[place], strict=True)]
                for place in (0, count - 1)
            )
            return max(at + step.seconds for at, step in zip(ended, paired[count - 1], strict=True)) - min(began)
    return None


def _training_seconds(rows: Rows) -> float | None:
    finished = [rank.finished.seconds for rank in rows.ranks if rank.finished]
    return max(finished) if len(finished) == len(rows.ranks) else None


def _first_step(rows: Rows) -> float | None:
    return max((first for each in rows.each if (first := measures.FIRST_STEP["seconds"].of(each))), default=None)


# Bytes and speeds


def _sent_by_each(rows: Rows) -> list[float]:
    """Empty where a rank did not count."""
    counted = [measures.BYTES_SENT.of(each) for each in rows.each]
    known = [each for each in counted if each is not None]
    return known if len(known) == len(counted) else []


def _busiest_rank(rows: Rows) -> str | None:
    counted = _sent_by_each(rows)
    if len(counted) < 2 or not max(counted):
        return None
    busiest = [rank for rank, sent in enumerate(counted) if max(counted) - sent <= 1]
    return "all alike" if len(busiest) == len(counted) else f"rank {', '.join(map(str, busiest))}"


def _gradients(rows: Rows) -> int:
    return rows.manifest.gradient_bytes


def _sent_in_all(rows: Rows) -> float | None:
    return sum(_sent_by_each(rows)) if _sent_by_each(rows) else None


def _sent_by_busiest(rows: Rows) -> float | None:
    return max(_sent_by_each(rows), default=None)


def _payload_rate(rows: Rows) -> float | None:
    total, seconds = _sent_in_all(rows), measures.STEP.mean.of(rows)
    return total / len(rows.ranks) / seconds if total and seconds else None


def _interface_rate(way: str, rows: Rows) -> float | None:
    passed, seconds = rows.warm(f"interface_bytes_{way}"), float(rows.warm("seconds").sum())
    return float(passed.sum()) / seconds if len(passed) and not np.isnan(passed).any() else None


def _all_links_rate(rows: Rows) -> float | None:
    rate = measures.ALGORITHM_BANDWIDTH.of(rows)
    return None if rate is None else 2 * (rows.manifest.world_size - 1) * rate


def _ring_bytes(rows: Rows) -> float:
    return all_reduce_share(_gradients(rows), rows.manifest.world_size)


def _tree_bytes(rows: Rows) -> float:
    return math.log2(rows.manifest.world_size) * _gradients(rows)


# CPUs while a rank trains


def _while_training(field: str, rows: Rows) -> float | None:
    """Each sample of usage counts for as long as it shares with the steps but the first."""
    began, taken, sampled = rows.warm("at_seconds"), rows.warm("seconds"), rows.rank.sampled
    if not len(began):
        return None
    moments = np.stack([began, began + taken], 1).ravel()
    trained = np.stack([np.zeros(len(taken)), taken], 1).cumsum()  # until each moment
    ends, seconds = sampled["at_seconds"], sampled["seconds"]
    weights = np.interp(ends, moments, trained) - np.interp(ends - seconds, moments, trained)
    total = float(weights.sum())
    return float(weights @ sampled[field]) / total if total > 0 else None


def _cpus(rows: Rows) -> float:
    return rows.manifest.ranks[rows.rank.rank].fair_share_cpus


# With SYNC_EVERY


def _averaging_of(rows: Rows) -> Numbers:
    """Seconds of each step in wait and sync."""
    return rows.warm("wait_seconds") + rows.warm("sync_seconds")


def _whole_mean(seconds: Numbers) -> float | None:
    """None if a step was not measured."""
    return float(seconds.mean()) if len(seconds) and not np.isnan(seconds).any() else None


def _computing(rows: Rows) -> float | None:
    return _whole_mean(rows.warm("seconds") - _averaging_of(rows))


def _averaging(rows: Rows) -> float | None:
    return _whole_mean(_averaging_of(rows)[averages(rows.manifest, rows.warm("step"))])


def _averaging_share(rows: Rows) -> float | None:
    averaging = _averaging(rows)
    return None if averaging is None else averaging / every(rows.manifest)


def _long_run(rows: Rows) -> float | None:
    """Runs end with an averaging, so that their own mean would count too many."""
    computing, averaging = _computing(rows), _averaging_share(rows)
    return None if computing is None or averaging is None else computing + averaging


# Of an epoch


def _by_epoch(value: Value) -> Value:
    """Of as many steps as an epoch has, as planned, where the value is of one."""

    def of(rows: Rows) -> float | None:
        own = value(rows)
        return None if own is None else own * rows.manifest.plan.steps_per_epoch

    return of


_communication = _by_epoch(mean_seconds(*COMMUNICATION))
_LINK = measures.SLOWEST_LINK.of

ON_REQUEST: tuple[Measure[Any], ...] = tuple(
    Measure(name, unit, meaning, of)
    for name, unit, meaning, of in (
        ("warm_steps", COUNT, "steps without the first", lambda rows: min(len(rank.warm) for rank in rows.ranks)),
        ("first_step_seconds", SECONDS, "the first step of the slowest rank, which includes setup", _first_step),
        ("training_seconds", SECONDS, "the whole training of the last rank to finish", _training_seconds),
        ("communication_share", PERCENT, "share of the step in wait and sync",
         ratio(mean_seconds(*COMMUNICATION), measures.STEP.mean.of)),
        ("hidden_share", PERCENT, "share of the synchronisation that backward hides",
         ratio(mean_seconds("hidden_sync"), mean_seconds("hidden_sync", "sync"))),
        ("gradient_bytes", MEGABYTES, "S: all gradients of one rank, once", _gradients),
        ("bytes_sent_in_all", MEGABYTES, "payload that all ranks send in a step", _sent_in_all),
        ("sent_in_gradients", DIGITS, "payload that all ranks send in a step, in S", ratio(_sent_in_all, _gradients)),
        ("busiest_rank", TEXT, "the rank that sends most", _busiest_rank),
        ("busiest_bytes_sent", MEGABYTES, "payload that the busiest rank sends in a step", _sent_by_busiest),
        ("busiest_in_gradients", DIGITS, "payload that the busiest rank sends in a step, in S",
         ratio(_sent_by_busiest, _gradients)),
        ("bytes_sent_per_second", MEGABYTES_PER_SECOND, "payload of a rank by the seconds of its steps", _payload_rate),
        *(
            (f"interface_bytes_{way}_per_second", MEGABYTES_PER_SECOND,
             f"{way} by a rank in its steps by the kernel's count, headers included",
             mean_of_ranks(partial(_interface_rate, way)))
            for way in ("sent", "received")
        ),
        ("sync_over_least", DIGITS, "synchronisation, as a multiple of the minimum that the links allow",
         ratio(measures.TRANSFER.of, measures.LEAST_TRANSFER.of)),
        ("bus_of_link", PERCENT, "2(N-1)/N S/t, as a share of the slowest link",
         ratio(measures.BUS_BANDWIDTH.of, _LINK)),
        ("all_links_bytes_per_second", MEGABYTES_PER_SECOND,
         "2(N-1) S/t: what all ranks of a ring send together in the synchronisation time t",
         _all_links_rate),
        ("all_links_of_link", PERCENT, "2(N-1) S/t, as a share of the slowest link", ratio(_all_links_rate, _LINK)),
        ("ring_seconds", SECONDS, "2(N-1)/N S at the speed of the slowest link", ratio(_ring_bytes, _LINK)),
        ("tree_seconds", SECONDS, "log2(N) S at the speed of the slowest link", ratio(_tree_bytes, _LINK)),
        ("cpus", DIGITS, "CPUs that a rank can count on: its quota, or its part of the cores", mean_of_ranks(_cpus)),
        *(
            measure
            for way in ("user", "system")
            for field in (f"cpu_{way}_percent",)
            for measure in (
                (field, DIGITS, f"CPU time in {way} mode while it trains, in percent of one CPU",
                 mean_of_ranks(partial(_while_training, field))),
                (f"node_{way}_percent", DIGITS, f"CPU time in {way} mode while it trains, in percent of its CPUs",
                 mean_of_ranks(ratio(partial(_while_training, field), _cpus))),
            )
        ),
        ("long_run_seconds", SECONDS, "computing, and an averaging divided by SYNC_EVERY", _long_run),
        ("computing_seconds", SECONDS, "a step without waiting and synchronisation", _computing),
        ("averaging_seconds", SECONDS, "wait and sync of a step that averages", _averaging),
        ("averaging_share_seconds", SECONDS, "an averaging divided by SYNC_EVERY", _averaging_share),
        ("computing_share", PERCENT, "computing, as a share of a step in the long run", ratio(_computing, _long_run)),
        ("steps_per_epoch", COUNT, "steps of an epoch", _by_epoch(lambda _: 1)),
        ("epoch_seconds", SECONDS, "the median step times the steps of an epoch, not measured as a whole",
         _by_epoch(measures.STEP.median.of)),
        ("epoch_computing_seconds", SECONDS, "data, forward, backward and optimiser of an epoch's steps",
         _by_epoch(mean_seconds(*OWN_WORK))),
        ("epoch_communication_seconds", SECONDS, "wait and sync of an epoch's steps", _communication),
        ("epoch_hidden_seconds", SECONDS, "synchronisation that backward hides in an epoch's steps",
         _by_epoch(mean_seconds("hidden_sync"))),
        ("epoch_bytes_per_second", MEGABYTES_PER_SECOND,
         "S divided by an epoch's communication time, as some reports compute it",
         ratio(_gradients, _communication)),
    )
)  # fmt: skip
WITH_A_NUMBER: dict[str, tuple[str, Callable[[float, Rows], float | None]]] = {
    "mean_seconds_to": ("mean of steps 2 to {0}", _mean_seconds_to),
    "seconds_to_loss": (f"time until the mean loss of {SMOOTHED} steps is at most {{0}}", _seconds_to_loss),
}
