"""The wall clock of a whole run, cut without remainder: start, links, training, evaluation, saving, lost, gaps, end.

Each moment belongs to one part, over all ranks. It is training if any rank is within a step; else evaluation if any
rank evaluates; else saving if any rank saves its state; else lost if any rank is between the last step that counts of
an attempt and the first step of the next one. What remains is the start, before the first step; the gaps, until the
last of all these ends; and the end. The measurement of the links is taken out of the start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from app.analysis.run_records import RankRecords
from app.analysis.words import WORTH_LISTING, duration, percent
from app.records.lines import Checkpoint, Evaluation, Step
from app.records.spans import covered

TICKS = 1 << 20  # in a second: a float holds such fractions exactly, and their sums too

PARTS = {
    "seconds": "the whole run",
    "start_seconds": "start",
    "links_seconds": "links",
    "training_seconds": "training",
    "gaps_seconds": "gaps between steps",
    "evaluation_seconds": "evaluation",
    "saving_seconds": "saving",
    "lost_seconds": "lost",
    "end_seconds": "end",
}

Span = tuple[int, int]  # in ticks, on the common clock


def of(ranks: Sequence[RankRecords]) -> dict[str, float | None] | None:
    """The parts of a run, whether it finished or broke off. None if no rank left a record."""
    steps = [span for rank in ranks for span in _active(rank, rank.steps)]
    evaluated = steps + [span for rank in ranks for span in _active(rank, rank.evaluations)]
    active = evaluated + [span for rank in ranks for span in _active(rank, rank.checkpoints)]
    recorded = [end for _, end in active] + [moment for rank in ranks for moment in _moments(rank)]
    if not recorded:
        return None
    ended = max(recorded)
    first, last = min((begin for begin, _ in active), default=ended), max((end for _, end in active), default=ended)
    clocks = [(rank, clock) for rank in ranks for clock in rank.clocks]
    processes = [_at(rank, at) for rank, clock in clocks if (at := clock.process_at_seconds) is not None]
    began = min(processes, default=None)
    measured = [
        _span(rank, clock.links_at_seconds, clock.links_seconds)
        for rank, clock in clocks
        if clock.links_at_seconds is not None and clock.links_seconds is not None
    ]
    links = covered((begin, min(end, first)) for begin, end in measured if begin < first)
    training, computed, busy = covered(steps), covered(evaluated), covered(active)
    accounted = covered(active + [span for rank in ranks for span in _lost(rank)])
    timed = all(each.at_seconds is not None for rank in ranks for each in rank.evaluations)
    to_the_end = timed and all(rank.finished is None or rank.finished.at_seconds is not None for rank in ranks)
    return {
        "seconds": None if began is None or not to_the_end else (ended - began) / TICKS,
        "start_seconds": None if began is None else (first - began - links) / TICKS,
        "links_seconds": None if began is None else links / TICKS,
        "training_seconds": training / TICKS,
        "gaps_seconds": (last - first - accounted) / TICKS if timed else None,
        "evaluation_seconds": (computed - training) / TICKS if timed else None,
        "saving_seconds": (busy - computed) / TICKS,
        "lost_seconds": (accounted - busy) / TICKS,
        "end_seconds": (ended - last) / TICKS if to_the_end else None,
    }


def in_words(clock: Mapping[str, float | None] | None) -> str | None:
    """The parts in a sentence, largest first, without tiny ones. None if the whole is unknown."""
    whole = clock and clock["seconds"]
    if clock is None or not whole:
        return None
    parts = sorted(((clock[field] or 0.0, name) for field, name in PARTS.items() if field != "seconds"), reverse=True)
    shown = [(seconds, name) for seconds, name in parts if seconds >= WORTH_LISTING * whole]
    words = ", ".join(f"{name} {duration(seconds)} ({percent(seconds / whole)})" for seconds, name in shown)
    return f"The whole run took {duration(whole)} by wall clock: {words}."


def _active(rank: RankRecords, records: Iterable[Step | Evaluation | Checkpoint]) -> Iterator[Span]:
    """From beginning to end of those whose time was recorded."""
    for record in records:
        if record.at_seconds is not None and record.seconds is not None:
            yield _span(rank, record.at_seconds, record.seconds)


def _lost(rank: RankRecords) -> Iterator[Span]:
    """From the last step that counts of an attempt to the first step of the next one."""
    for before, after in pairwise(rank.steps):
        if before.attempt != after.attempt:
            (_, ended), (began, _) = (_span(rank, step.at_seconds, step.seconds) for step in (before, after))
            yield ended, max(began, ended)


def _moments(rank: RankRecords) -> Iterator[int]:
    """Others at which a rank was still there; of the samples of usage, the last."""
    yield from (_at(rank, each.at_seconds) for each in rank.clocks)
    if rank.usage:
        yield round(float(rank.sampled["ends"].max()) * TICKS)
    if rank.finished and rank.finished.at_seconds is not None:
        yield _at(rank, rank.finished.at_seconds)


def _span(rank: RankRecords, at_seconds: float, seconds: float) -> Span:
    began, ended = rank.span(at_seconds, seconds)
    return round(began * TICKS), round(ended * TICKS)


def _at(rank: RankRecords, at_seconds: float) -> int:
    return round(rank.on_common_clock(at_seconds) * TICKS)
