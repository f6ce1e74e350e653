"""What ranks have learned: losses and accuracies by step and by epoch, out of their records."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.records.lines import Evaluation, Step, training_score
from app.summary.run_records import RankRecords


def losses(ranks: Sequence[RankRecords]) -> list[float]:
    """The loss of each step over the global batch: the ranks' means, weighted by their samples."""
    together = zip(*(rank.steps for rank in ranks), strict=False)
    return [score.loss for steps in together if (score := training_score(steps))]


def epochs(ranks: Sequence[RankRecords]) -> list[dict[str, Any]]:
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


def last(ranks: Sequence[RankRecords]) -> dict[str, float | None]:
    """The training scores of the last epoch, and the test scores of the last evaluation."""
    last_epoch = max((rank.steps[-1].epoch for rank in ranks if rank.steps), default=None)
    return {
        **_training_scores([step for rank in ranks for step in rank.steps if step.epoch == last_epoch]),
        **_test_scores([rank.evaluations[-1] if rank.evaluations else None for rank in ranks]),
    }


def _evaluation(rank: RankRecords, epoch: int) -> Evaluation | None:
    return next((each for each in rank.evaluations if each.epoch == epoch), None)
