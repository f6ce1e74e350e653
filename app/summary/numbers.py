"""A run in figures: summary.json, made from the manifest and the records alone."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from app.costs.bandwidth import all_reduce_share
from app.records.lines import Step
from app.summary import scores, verdict
from app.summary.run_records import RankRecords, RunRecords, transfer_seconds

TIMES = (
    "seconds",
    "data_seconds",
    "forward_seconds",
    "backward_seconds",
    "wait_seconds",
    "sync_seconds",
    "hidden_sync_seconds",
    "exposed_sync_seconds",
    "optimiser_seconds",
    "communication_seconds",
    "batch_norm_seconds",
    "throttled_seconds",
)

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")  # they add up to the step

PAYLOAD_BYTES = ("bytes_sent", "bytes_received", "batch_norm_bytes_sent")
WAYS = ("sent", "received")  # the directions of a link
INTERFACE_BYTES = ("interface_bytes_sent", "interface_bytes_received")

# A straggler needs so many times as long for its own work as the others, and is the last so many times as often as
# ranks that take turns would be.
SLOWER_BY = 1.2
LAST_MORE_OFTEN = 1.5


def summarise(run: RunRecords) -> dict[str, Any]:
    """The summary of a run that has ended, well or not."""
    manifest, ranks = run.manifest, run.ranks
    hashes = [rank.finished.parameters_sha256 if rank.finished else None for rank in ranks]
    planned = manifest["plan"]["steps"]
    formulas = [rank["formula_bytes_sent_per_step"] for rank in manifest["ranks"]]
    losses = scores.losses(ranks)
    sync_seconds = _sync_seconds(ranks)
    content: dict[str, Any] = {
        "run_name": manifest["run"],
        "sync_mode": manifest["settings"]["sync_mode"],
        "model": manifest["settings"]["model"],
        "dataset": manifest["settings"]["dataset"],
        "world_size": manifest["world_size"],
        "global_batch_size": manifest["plan"]["global_batch_size"],
        "steps_planned": planned,
        "steps": min(len(rank.steps) for rank in ranks),
        "complete": all(rank.finished is not None and rank.finished.steps == planned for rank in ranks),
        "replicas_identical": None if None in hashes else len(set(hashes)) == 1,
        "run": {
            **_times([step for rank in ranks for step in rank.warm]),
            "shares": _shares([step for rank in ranks for step in rank.warm]),
            "straggler": _straggler(ranks),
            "clock_uncertainty_seconds": max(
                (clock.uncertainty_seconds for rank in ranks[1:] for clock in rank.clocks), default=None
            ),
            "images_per_second": _group_speed(ranks),
            **_bytes(ranks, float(np.mean(formulas))),
            "bandwidth": _bandwidth(sync_seconds, manifest),
            "loss": losses[-1] if losses else None,
            **scores.last(ranks),
            "epochs": scores.epochs(ranks),
        },
        "ranks": [
            {
                "rank": rank.rank,
                "steps": len(rank.steps),
                "finished": rank.finished is not None,
                "parameters_sha256": hashes[rank.rank],
                "first_step": _first_step(rank),
                **_times(rank.warm),
                "shares": _shares(rank.warm),
                "work_seconds": _median(map(own_work, rank.warm)),
                "usage": _usage(rank),
                "images_per_second": _speed(sum(s.samples for s in rank.warm), sum(s.seconds for s in rank.warm)),
                **_bytes([rank], formulas[rank.rank]),
                "link": _link_use(rank, sync_seconds, manifest["ranks"][rank.rank]["link"]),
                "loss": rank.steps[-1].loss if rank.steps else None,
                **scores.last([rank]),
                "epochs": scores.epochs([rank]),
            }
            for rank in ranks
        ],
        "losses": losses,
    }
    return content | {
        "warnings": [*manifest["warnings"], *verdict.warnings(content, manifest)],
        "verdict": verdict.reach(content, manifest),
    }


def _times(steps: Sequence[Step]) -> dict[str, dict[str, float] | None]:
    return {name: _spread(getattr(step, name) for step in steps) for name in TIMES}


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Mean, median and 95th percentile; None where a value was not measured, or there are none."""
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    array = np.array(measured)
    return {
        "mean": float(array.mean()),
        "median": float(np.median(array)),
        "p95": float(np.percentile(array, 95)),
    }


def _first_step(rank: RankRecords) -> dict[str, float | None] | None:
    """The step that is left out of the times, because it sets everything up."""
    if not rank.steps:
        return None
    return {name: getattr(rank.steps[0], name) for name in ("seconds", *(f"{phase}_seconds" for phase in PHASES))}


def _shares(steps: Sequence[Step]) -> dict[str, float | None] | None:
    """What part of the steps' time each phase is; they add up to 1."""
    if any(step.wait_seconds is not None for step in steps):
        # The last steps of a run that broke off may be there from some ranks only, with waiting not told apart.
        steps = [step for step in steps if step.wait_seconds is not None]
    total = sum(step.seconds for step in steps)
    if not total:
        return None
    shares: dict[str, float | None] = {}
    for phase in PHASES:
        measured = [seconds for step in steps if (seconds := getattr(step, f"{phase}_seconds")) is not None]
        shares[phase] = sum(measured) / total if measured else None
    return shares


def own_work(step: Step) -> float:
    """What a rank needs for itself; while statistics are exchanged it may be waiting for others."""
    computing = step.data_seconds + step.forward_seconds + step.backward_seconds + step.optimiser_seconds
    return computing - (step.batch_norm_seconds or 0.0)


def _straggler(ranks: Sequence[RankRecords]) -> dict[str, Any] | None:
    """The rank that the others have to wait for; None where all take about as long, or take turns."""
    together = list(zip(*(rank.warm for rank in ranks), strict=False))
    if len(ranks) == 1 or not together:
        return None
    work = np.array([[own_work(step) for step in steps] for steps in together])
    last = np.bincount(work.argmax(1), minlength=len(ranks)) / len(together)
    slowest = int(last.argmax())
    others = [rank for rank in range(len(ranks)) if rank != slowest]
    ratio = float(work[:, slowest].mean() / work[:, others].mean())
    if last[slowest] < LAST_MORE_OFTEN / len(ranks) or ratio < SLOWER_BY:
        return None
    waits = {rank: _mean(steps[rank].wait_seconds for steps in together) for rank in range(len(ranks))}
    return {
        "rank": slowest,
        "last_in": float(last[slowest]),  # this part of the steps
        "work_ratio": ratio,
        "wait_seconds": waits[slowest],
        "others_wait_seconds": _mean(waits[rank] for rank in others),
    }


def _usage(rank: RankRecords) -> dict[str, float | None] | None:
    """Means over the run, and the most memory."""
    seconds = sum(sample.seconds for sample in rank.usage)
    if not seconds:
        return None
    return {
        "seconds": seconds,
        **{
            name: sum(getattr(sample, name) * sample.seconds for sample in rank.usage) / seconds
            for name in ("cpu_user_percent", "cpu_system_percent")
        },
        "throttled_seconds": _total([sample.throttled_seconds for sample in rank.usage]),
        "most_memory_bytes": max(sample.memory_bytes for sample in rank.usage),
        **{
            f"network_{way}_bytes_per_second": None if total is None else total / seconds
            for way in WAYS
            for total in [_total([getattr(sample, f"network_{way}_bytes") for sample in rank.usage])]
        },
    }


def _total(amounts: Sequence[float | None]) -> float | None:
    measured = [amount for amount in amounts if amount is not None]
    return sum(measured) if len(measured) == len(amounts) else None


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.median(found)) if found else None


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return float(np.mean(measured)) if measured else None


def _bytes(ranks: Sequence[RankRecords], formula: float) -> dict[str, float | None]:
    """A rank's bytes in a step: the payload counted and by formula, and all that the kernel saw pass."""
    # In the first step the kernel may still see what was sent to set the run up.
    steps = {name: [step for rank in ranks for step in rank.steps] for name in PAYLOAD_BYTES}
    steps |= {name: [step for rank in ranks for step in rank.warm] for name in INTERFACE_BYTES}
    return {
        **{f"{name}_per_step": _mean(getattr(step, name) for step in chosen) for name, chosen in steps.items()},
        "formula_bytes_sent_per_step": formula,
    }


def _sync_seconds(ranks: Sequence[RankRecords]) -> float | None:
    """The median over the steps of the time in which gradients were on their way; None where none were."""
    if not any(step.bytes_sent for rank in ranks for step in rank.warm):
        return None
    taken = list(transfer_seconds(ranks))
    return float(np.median(taken)) if taken else None


def _bandwidth(sync_seconds: float | None, manifest: dict[str, Any]) -> dict[str, float | None] | None:
    """A step's gradients by the time of their synchronisation, as the field counts; None where nothing was sent."""
    if sync_seconds is None:
        return None
    size, world_size = manifest["gradient_bytes"], manifest["world_size"]
    bus = all_reduce_share(size, world_size) / sync_seconds
    links = [rank["link"] for rank in manifest["ranks"] if rank["link"]]
    slowest = min((link[way]["measured_bytes_per_second"] for link in links for way in WAYS), default=None)
    return {
        "sync_seconds": sync_seconds,
        "sync_seconds_at_least": manifest["sync_seconds_at_least"],
        "algorithm_bytes_per_second": size / sync_seconds,
        "bus_bytes_per_second": bus,
        "link_bytes_per_second": slowest,
        "utilisation": bus / slowest if slowest else None,
    }


def _link_use(rank: RankRecords, sync_seconds: float | None, link: dict[str, Any] | None) -> dict[str, float | None]:
    """How much of what a rank's link was measured to carry its gradients took, while they were synchronised."""
    use: dict[str, float | None] = {}
    for way in WAYS:
        payload = _mean(getattr(step, f"bytes_{way}") for step in rank.steps)
        if link is None or sync_seconds is None or payload is None:
            use[f"{way}_utilisation"] = None
        else:
            use[f"{way}_utilisation"] = payload / sync_seconds / link[way]["measured_bytes_per_second"]
    return use


def _group_speed(ranks: Sequence[RankRecords]) -> float | None:
    """Samples of all ranks by the time of the steps, each as long as its slowest rank took."""
    together = list(zip(*(rank.warm for rank in ranks), strict=False))
    samples = sum(step.samples for steps in together for step in steps)
    return _speed(samples, sum(max(step.seconds for step in steps) for steps in together))


def _speed(samples: int, seconds: float) -> float | None:
    return samples / seconds if seconds > 0 else None
