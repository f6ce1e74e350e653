"""A few steps as they happened on all ranks: who waits for whom."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.report import theme
from app.report.drawing import Missing
from app.report.pieces import UNDIVIDED, buffers_given, pieces
from app.summary.run import Run
from app.summary.run_records import together

STEPS_SHOWN = 3


def timeline(run: Run) -> tuple[Figure, str]:
    """The figure and its caption."""
    paired = together([rank.steps for rank in run.ranks])
    if not paired:
        raise Missing("no step is there from all ranks.")
    middle = min(max(1, len(paired) // 2), max(0, len(paired) - STEPS_SHOWN))
    shown = paired[middle : middle + STEPS_SHOWN]
    first, last = shown[0][0].step, shown[-1][0].step
    zero = min(rank.on_common_clock(step.at_seconds) for rank, step in zip(run.ranks, shown[0], strict=True))
    figure = theme.new_figure(1.3 + 0.42 * len(run.ranks))
    axes = figure.subplots()
    given = buffers_given(run.ranks[0], [steps[0] for steps in shown])
    for steps in shown:
        for rank, step in zip(run.ranks, steps, strict=True):
            began = rank.on_common_clock(step.at_seconds) - zero
            moments = [moment - zero - began for moment in given.get(step.step, ())]
            for phase, begin, end in pieces(step, moments):
                colour = theme.PHASES["sync" if phase == UNDIVIDED else phase]
                axes.barh(rank.rank, end - begin, left=began + begin, height=0.5, color=colour)
            for bucket in step.buckets or ():
                length = bucket.end_seconds - bucket.ready_seconds
                axes.barh(rank.rank + 0.36, length, left=began + bucket.ready_seconds, height=0.14, color=theme.HIDDEN)
    _phase_legend(axes, hidden=any(step.buckets for steps in shown for step in steps))
    axes.set_yticks(range(len(run.ranks)), [f"rank {rank.rank}" for rank in run.ranks])
    axes.invert_yaxis()
    axes.set_xlabel("seconds, on one clock for all ranks")
    axes.grid(visible=False, axis="y")
    numbers = f"Step {first}" if len(shown) == 1 else f"Steps {first} to {last}"
    return figure, f"{numbers}, as they happened on every rank."


def _phase_legend(axes: Axes, *, hidden: bool) -> None:
    for phase, colour in theme.PHASES.items():
        axes.barh(0, 0, color=colour, label=phase)
    if hidden:
        axes.barh(0, 0, color=theme.HIDDEN, label="hidden messages")
    theme.legend_above(axes, 4 if hidden else len(theme.PHASES))
