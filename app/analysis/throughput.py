"""Images per second by wall clock. The ranks' steps overlap, so no sum of their steps is a time that passed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from app.analysis.run_records import RankRecords, Span, together
from app.records.lines import Step
from app.records.spans import covered


def of(ranks: Sequence[RankRecords]) -> float | None:
    """Samples per second from the start of the first step that counts to the end of the last one, on these ranks.

    What lies between steps belongs to it, but for evaluations, saving, and what was lost between attempts: those are no
    training.
    """
    steps = together([rank.warm for rank in ranks])
    if not steps:
        return None
    began, ended = _outer(ranks, steps[0])[0], _outer(ranks, steps[-1])[1]
    apart = [*_evaluations(ranks, steps[-1][0].epoch), *_between_steps(ranks, steps)]
    taken = ended - began - covered((max(begin, began), min(end, ended)) for begin, end in apart)
    return sum(step.samples for each in steps for step in each) / taken if taken > 0 else None


def _between_steps(ranks: Sequence[RankRecords], steps: Sequence[Sequence[Step]]) -> Iterator[Span]:
    """When all of these ranks saved their states; and from the last step of an attempt to the next one that counts."""
    saved = [{(each.step, each.attempt): each for each in rank.checkpoints} for rank in ranks]
    for before, after in pairwise(steps):
        key = after[0].step, after[0].attempt
        if before[0].attempt != after[0].attempt:
            yield _outer(ranks, before)[1], _outer(ranks, after)[0]
        elif all(key in own for own in saved):
            yield _common(
                rank.span(own[key].at_seconds, own[key].seconds) for rank, own in zip(ranks, saved, strict=True)
            )


def _outer(ranks: Sequence[RankRecords], steps: Sequence[Step]) -> Span:
    """From the first rank's beginning of a step to the last one's end."""
    spans = [rank.span(step.at_seconds, step.seconds) for rank, step in zip(ranks, steps, strict=True)]
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _common(spans: Iterable[Span]) -> Span:
    """What all of them have in common."""
    begins, ends = zip(*spans, strict=True)
    return max(begins), min(ends)


def _evaluations(ranks: Sequence[RankRecords], last_epoch: int) -> Iterator[Span]:
    """When all of these ranks were evaluating, after each epoch until the last one."""
    for epoch in sorted({each.epoch for rank in ranks for each in rank.evaluations if each.epoch <= last_epoch}):
        known = [span for rank in ranks if (span := _evaluation(rank, epoch))]
        if len(known) == len(ranks):
            yield _common(known)


def _evaluation(rank: RankRecords, epoch: int) -> Span | None:
    """A rank's evaluation after an epoch; where its time was not recorded, all that lies between the epochs."""
    made = rank.evaluation(epoch)
    if made is None:
        return None
    if made.at_seconds is not None and made.seconds is not None:
        return rank.span(made.at_seconds, made.seconds)
    before = [step for step in rank.steps if step.epoch == epoch]
    after = [step for step in rank.steps if step.epoch == epoch + 1]
    if not before or not after:
        return None
    return rank.span(before[-1].at_seconds, before[-1].seconds)[1], rank.on_common_clock(after[0].at_seconds)
