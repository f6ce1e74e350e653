"""Losses and accuracies by step and by epoch."""

from collections.abc import Sequence

import numpy as np

from app.analysis.statistics import mean
from app.analysis.table import Rows
from app.records.lines import Evaluation


def losses(rows: Rows) -> list[float]:
    """The loss of each step over the global batch: the ranks' means, weighted by their samples."""
    return rows.once("losses", lambda: _losses(rows))


def _losses(rows: Rows) -> list[float]:
    loss = rows.by_rank("loss")
    samples = np.where(np.isnan(loss), 0.0, rows.by_rank("samples"))
    whole, weighted = samples.sum(0), np.nansum(loss * samples, 0)
    known = whole > 0
    found: list[float] = (weighted[known] / whole[known]).tolist()
    return found


def last_batch(rows: Rows) -> int | None:
    """The samples of the last step that all ranks recorded."""
    samples = rows.by_rank("samples")
    return int(samples[:, -1].sum()) if samples.size else None


def epochs(rows: Rows) -> list[dict[str, float | None]]:
    return [
        {"epoch": epoch} | _scores(rows, epoch, [rank.evaluation(epoch) for rank in rows.ranks])
        for epoch in map(int, np.unique(rows.column("epoch")))
    ]


def last(rows: Rows) -> dict[str, float | None]:
    """The training scores of the last epoch, and the test scores of the last evaluation."""
    last_epoch = max((rank.steps[-1].epoch for rank in rows.ranks if rank.steps), default=-1)
    return _scores(rows, last_epoch, [rank.evaluations[-1] if rank.evaluations else None for rank in rows.ranks])


def _scores(rows: Rows, epoch: int, evaluations: Sequence[Evaluation | None]) -> dict[str, float | None]:
    """Scores on an epoch's images. On the test set, the mean over these ranks, or None if one of them has none."""
    counted = (rows.column("epoch") == epoch) & ~np.isnan(rows.column("loss"))
    loss, correct, samples = (rows.column(name)[counted] for name in ("loss", "correct", "samples"))
    whole = int(samples.sum())
    made = [each for each in evaluations if each is not None]
    tested = made if len(made) == len(evaluations) else []
    return {
        "training_samples": whole,
        "training_loss": float(loss @ samples) / whole if whole else None,
        "training_accuracy": float(correct.sum()) / whole if whole else None,
        "test_loss": mean(each.loss for each in tested),
        "accuracy": mean(each.accuracy for each in tested),
    }
