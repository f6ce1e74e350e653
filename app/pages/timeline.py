"""A few steps as they happened on all ranks: who waits for whom."""

from collections.abc import Iterator, Sequence

from app.analysis import averaging
from app.analysis.run import Run
from app.analysis.run_records import RankRecords, together
from app.analysis.words import duration
from app.pages.drawing import Missing
from app.pages.pieces import UNDIVIDED, buffers_given, pieces
from app.pages.rows import Moment, Row, Span, Timeline
from app.pages.scale import Axis, written
from app.records.lines import OverlappedMessage, Step


def timeline(run: Run) -> tuple[Timeline, str]:
    chosen = choose(together([rank.steps for rank in run.ranks]))
    if not chosen:
        raise Missing("no step was recorded by all ranks.")
    given = buffers_given(run.ranks[0], [steps[0] for steps in chosen.values()])
    moves = averaging.moves_parameters(run.manifest)
    moments = [
        _moment(name, run.ranks, steps, given[steps[0].step], moves_parameters=moves) for name, steps in chosen.items()
    ]
    words = "Phases of a few steps on all ranks, on one clock"
    hidden = any(row.below for moment in moments for row in moment.rows)
    return Timeline(words, Axis("since the first rank began the step", "s"), moments), _caption(
        [*chosen], hidden=hidden
    )


def choose(paired: Sequence[tuple[Step, ...]]) -> dict[str, tuple[Step, ...]]:
    """The median step, the worst and the first one, by the time on the slowest rank; none of them twice."""
    warm = sorted((steps for steps in paired if steps[0].step > 0), key=_seconds)
    chosen = {"median": warm[(len(warm) - 1) // 2], "worst": warm[-1]} if warm else {}
    if len(warm) == 1:
        del chosen["worst"]
    if paired and paired[0][0].step == 0:
        chosen["first"] = paired[0]
    return chosen


def _moment(
    name: str, ranks: Sequence[RankRecords], steps: tuple[Step, ...], given: Sequence[float], *, moves_parameters: bool
) -> Moment:
    """One step on all ranks; `given` has the moments at which rank 0 had its buffers ready."""
    begun = [rank.on_common_clock(step.at_seconds) for rank, step in zip(ranks, steps, strict=True)]
    first = min(begun)
    rows = []
    for began, step in zip(begun, steps, strict=True):
        late = began - first
        parts = pieces(step, [moment - began for moment in given], moves_parameters=moves_parameters)
        spans = [_span(step, phase, late + begin, late + end) for phase, begin, end in parts]
        below = [_message(step, number, bucket, late, late + until) for number, bucket, until in _hidden(step)]
        rows.append(Row(f"rank {step.rank}", spans, below))
    return Moment(f"{name}: step {steps[0].step}, {duration(_seconds(steps))}", rows)


def _span(step: Step, phase: str, begin: float, end: float) -> Span:
    return Span(begin, end, "undivided" if phase == UNDIVIDED else phase, phase, _note(step, phase, begin, end))


def _message(step: Step, number: int, bucket: OverlappedMessage, late: float, until: float) -> Span:
    """As long as backward hides it."""
    begin, end = late + bucket.ready_seconds, late + bucket.end_seconds
    name = f"bucket {number} of {written(bucket.bytes, 'B')}"
    return Span(begin, until, "hidden", "hidden messages", _note(step, name, begin, end))


def _note(step: Step, what: str, begin: float, end: float) -> str:
    when = f"{duration(end - begin)}, from {duration(begin)} to {duration(end)}"
    return f"rank {step.rank}, step {step.step}: {what}, {when}"


def _seconds(steps: Sequence[Step]) -> float:
    return max(step.seconds for step in steps)


def _hidden(step: Step) -> Iterator[tuple[int, OverlappedMessage, float]]:
    """The messages behind backward, each with its number and the moment until which it was hidden."""
    ended = max((end for phase, _, end in pieces(step) if phase == "backward"), default=0.0)
    for number, bucket in enumerate(step.buckets or ()):
        if bucket.ready_seconds < min(bucket.end_seconds, ended):
            yield number, bucket, min(bucket.end_seconds, ended)


def _caption(names: Sequence[str], *, hidden: bool) -> str:
    shown = f"The {', the '.join(names)} step" if len(names) < 3 else "The median, the worst and the first step"
    messages = " Thin bars: messages while backward hides them." if hidden else ""
    return f"{shown}, on one clock for all ranks. The time is the slowest rank's.{messages}"
