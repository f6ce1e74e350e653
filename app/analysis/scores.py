"""Losses and accuracies by step and by epoch."""

from collections.abc import Sequence

from app.analysis.run_records import RankRecords, together
from app.analysis.statistics import mean
from app.records.lines import Evaluation, training_score


def losses(ranks: Sequence[RankRecords]) -> list[float]:
    """The loss of each step over the global batch: the ranks' means, weighted by their samples."""
    paired = together([rank.steps for rank in ranks])
    return [score.loss for steps in paired if (score := training_score(steps))]


def last_batch(ranks: Sequence[RankRecords]) -> int | None:
    """The samples of the last step that all ranks recorded."""
    paired = together([rank.steps for rank in ranks])
    return sum(step.samples for step in paired[-1]) if paired else None


def epochs(ranks: Sequence[RankRecords]) -> list[dict[str, float | None]]:
    """The scores of each epoch, over the ranks given."""
    return [
        {"epoch": epoch} | _scores(ranks, epoch, [_evaluation(rank, epoch) for rank in ranks])
        for epoch in sorted({step.epoch for rank in ranks for step in rank.steps})
    ]


def last(ranks: Sequence[RankRecords]) -> dict[str, float | None]:
    """The training scores of the last epoch, and the test scores of the last evaluation."""
    last_epoch = max((rank.steps[-1].epoch for rank in ranks if rank.steps), default=None)
    return _scores(ranks, last_epoch, [rank.evaluations[-1] if rank.evaluations else None for rank in ranks])


def _scores(
    ranks: Sequence[RankRecords], epoch: int | None, evaluations: Sequence[Evaluation | None]
) -> dict[str, float | None]:
    """Scores on an epoch's images. On the test set, the mean over these ranks, or None if one of them has none."""
    trained = training_score(step for rank in ranks for step in rank.steps if step.epoch == epoch)
    made = [each for each in evaluations if each is not None]
    tested = made if len(made) == len(evaluations) else []
    return {
        "training_samples": trained.samples if trained else 0,
        "training_loss": trained.loss if trained else None,
        "training_accuracy": trained.accuracy if trained else None,
        "test_loss": mean(each.loss for each in tested),
        "accuracy": mean(each.accuracy for each in tested),
    }


def _evaluation(rank: RankRecords, epoch: int) -> Evaluation | None:
    return next((each for each in rank.evaluations if each.epoch == epoch), None)
