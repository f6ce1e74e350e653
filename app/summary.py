"""A run in figures: summary.json, made from the manifest and the records alone."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app import records
from app.bandwidth import all_reduce_share
from app.records import Evaluation, Finished, Step, training_score

TIMES = (
    "seconds",
    "data_seconds",
    "forward_seconds",
    "backward_seconds",
    "wait_seconds",
    "sync_seconds",
    "hidden_sync_seconds",
    "optimiser_seconds",
    "communication_seconds",
    "batch_norm_seconds",
)

PAYLOAD_BYTES = ("bytes_sent", "bytes_received", "batch_norm_bytes_sent")
WAYS = ("sent", "received")  # the directions of a link
INTERFACE_BYTES = ("interface_bytes_sent", "interface_bytes_received")


@dataclass(frozen=True)
class RankRecords:
    """What one rank left behind, which may end anywhere."""

    rank: int
    steps: list[Step]
    evaluations: list[Evaluation]
    finished: Finished | None

    @property
    def warm(self) -> list[Step]:
        """The steps that count for times: all but the first, which also sets everything up."""
        return self.steps[1:]


def write(run_folder: Path) -> None:
    """Make summary.json out of what is there; nothing where the run had not begun."""
    if not (run_folder / "manifest.json").is_file():
        return
    content = summarise(run_folder)
    (run_folder / "summary.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def summarise(run_folder: Path) -> dict[str, Any]:
    """The summary of a run that has ended, well or not."""
    manifest = json.loads((run_folder / "manifest.json").read_text())
    ranks = [_read(run_folder, rank) for rank in range(manifest["world_size"])]
    hashes = [rank.finished.parameters_sha256 if rank.finished else None for rank in ranks]
    planned = manifest["plan"]["steps"]
    formulas = [rank["formula_bytes_sent_per_step"] for rank in manifest["ranks"]]
    losses = _losses(ranks)
    sync_seconds = _sync_seconds(ranks)
    return {
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
        "warnings": manifest["warnings"],
        "run": {
            **_times([step for rank in ranks for step in rank.warm]),
            "images_per_second": _group_speed(ranks),
            **_bytes(ranks, float(np.mean(formulas))),
            "bandwidth": _bandwidth(sync_seconds, manifest),
            "loss": losses[-1] if losses else None,
            **_last_scores(ranks),
            "epochs": _epochs(ranks),
        },
        "ranks": [
            {
                "rank": rank.rank,
                "steps": len(rank.steps),
                "finished": rank.finished is not None,
                "parameters_sha256": hashes[rank.rank],
                **_times(rank.warm),
                "images_per_second": _speed(sum(s.samples for s in rank.warm), sum(s.seconds for s in rank.warm)),
                **_bytes([rank], formulas[rank.rank]),
                "link": _link_use(rank, sync_seconds, manifest["ranks"][rank.rank]["link"]),
                "loss": rank.steps[-1].loss if rank.steps else None,
                **_last_scores([rank]),
                "epochs": _epochs([rank]),
            }
            for rank in ranks
        ],
        "losses": losses,
    }


def _read(run_folder: Path, rank: int) -> RankRecords:
    steps, evaluations, finished = [], [], None
    if records.path_of(run_folder, rank).is_file():
        for record in records.read(run_folder, rank):
            match record:
                case Step():
                    steps.append(record)
                case Evaluation():
                    evaluations.append(record)
                case Finished():
                    finished = record
    return RankRecords(rank, steps, evaluations, finished)


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
    """The median over the steps of the time in which the slowest rank had gradients under way; None where none had.

    It is the synchronisation phase, or, where that hides in backward, the time of the messages themselves.
    """
    together = list(zip(*(rank.warm for rank in ranks), strict=False))
    if not any(step.bytes_sent for steps in together for step in steps):
        return None
    return float(np.median([max(map(_under_way, steps)) for steps in together]))


def _under_way(step: Step) -> float:
    return step.communication_seconds if step.sync_seconds is None else step.sync_seconds


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


def _epochs(ranks: Sequence[RankRecords]) -> list[dict[str, Any]]:
    """The scores of each epoch, over the ranks given."""
    return [
        {
            "epoch": epoch,
            **_training_scores([step for rank in ranks for step in rank.steps if step.epoch == epoch]),
            **_test_scores([_evaluation(rank, epoch) for rank in ranks]),
        }
        for epoch in sorted({step.epoch for rank in ranks for step in rank.steps})
    ]


def _training_scores(steps: Sequence[Step]) -> dict[str, float | None]:
    """Loss and accuracy on the samples of these steps, each as the model took it at that step."""
    score = training_score(steps)
    return {
        "training_samples": score.samples if score else 0,
        "training_loss": score.loss if score else None,
        "training_accuracy": score.accuracy if score else None,
    }


def _test_scores(evaluations: Sequence[Evaluation | None]) -> dict[str, float | None]:
    """Test loss and accuracy, the mean over the ranks given; None where one of them has none."""
    made = [each for each in evaluations if each is not None]
    if not made or len(made) < len(evaluations):
        return {"test_loss": None, "accuracy": None}
    return {
        "test_loss": float(np.mean([each.loss for each in made])),
        "accuracy": float(np.mean([each.accuracy for each in made])),
    }


def _last_scores(ranks: Sequence[RankRecords]) -> dict[str, float | None]:
    """The training scores of the last epoch, and the test scores of the last evaluation."""
    last_epoch = max((rank.steps[-1].epoch for rank in ranks if rank.steps), default=None)
    return {
        **_training_scores([step for rank in ranks for step in rank.steps if step.epoch == last_epoch]),
        **_test_scores([rank.evaluations[-1] if rank.evaluations else None for rank in ranks]),
    }


def _evaluation(rank: RankRecords, epoch: int) -> Evaluation | None:
    return next((each for each in rank.evaluations if each.epoch == epoch), None)


def _group_speed(ranks: Sequence[RankRecords]) -> float | None:
    """Samples of all ranks by the time of the steps, each as long as its slowest rank took."""
    together = list(zip(*(rank.warm for rank in ranks), strict=False))
    samples = sum(step.samples for steps in together for step in steps)
    return _speed(samples, sum(max(step.seconds for step in steps) for steps in together))


def _speed(samples: int, seconds: float) -> float | None:
    return samples / seconds if seconds > 0 else None


def _losses(ranks: Sequence[RankRecords]) -> list[float]:
    """The loss of each step over the global batch: the ranks' means, weighted by their samples."""
    together = zip(*(rank.steps for rank in ranks), strict=False)
    return [score.loss for steps in together if (score := training_score(steps))]
