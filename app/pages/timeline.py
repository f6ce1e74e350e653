"""A few steps as they happened on all ranks: who waits for whom."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from app.analysis import averaging
from app.analysis.run import Run
from app.analysis.run_records import RankRecords, together
from app.analysis.units import digits
from app.pages import theme
from app.pages.drawing import Missing
from app.pages.pieces import UNDIVIDED, buffers_given, pieces
from app.pages.tooltips import explain
from app.records.lines import OverlappedMessage, Step

THICK, THIN = 0.5, 0.14  # of a row
BELOW = 0.36  # from the middle of a row to the messages under it
UNDIVIDED_LOOK = {"facecolor": theme.PHASES["wait"], "edgecolor": theme.PHASES["sync"], "hatch": "xxx"}  # either one


def timeline(run: Run) -> tuple[Figure, str]:
    """The figure and its caption."""
    chosen = choose(together([rank.steps for rank in run.ranks]))
    if not chosen:
        raise Missing("no step is there from all ranks.")
    given = buffers_given(run.ranks[0], [steps[0] for steps in chosen.values()])
    moves = averaging.moves_parameters(run.manifest)
    panels = [_Panel(name, run.ranks, steps, given[steps[0].step], moves) for name, steps in chosen.items()]
    unit, scale = ("ms", 1e3) if min(panel.seconds for panel in panels) < 1 else ("s", 1.0)
    figure = theme.new_figure(1.7 + 0.34 * len(run.ranks))
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
        panel.draw(axes, unit, scale)
    every = [step for steps in chosen.values() for step in steps]
    hidden = any(True for step in every for _ in _hidden(step))
    _legend(figure.axes[0], hidden=hidden, undivided=any(map(_is_undivided, every)))
    figure.axes[0].set_yticks(range(len(run.ranks)), [f"rank {rank.rank}" for rank in run.ranks])
    figure.axes[0].invert_yaxis()
    figure.supxlabel(f"{unit} since the first rank began the step, on one clock for all ranks", fontsize=10)
    return figure, _caption(list(chosen), hidden=hidden)


def choose(paired: Sequence[tuple[Step, ...]]) -> dict[str, tuple[Step, ...]]:
    """The median step, the worst and the first one, by the time on the slowest rank; none of them twice."""
    warm = sorted((steps for steps in paired if steps[0].step > 0), key=_seconds)
    chosen = {"median": warm[(len(warm) - 1) // 2], "worst": warm[-1]} if warm else {}
    if len(warm) == 1:
        del chosen["worst"]
    if paired and paired[0][0].step == 0:
        chosen["first"] = paired[0]
    return chosen


@dataclass(frozen=True)
class _Panel:
    """One step on all ranks."""

    name: str
    ranks: Sequence[RankRecords]
    steps: tuple[Step, ...]
    given: Sequence[float]  # when rank 0 had its buffers ready
    moves_parameters: bool

    @property
    def seconds(self) -> float:
        return _seconds(self.steps)

    def draw(self, axes: Axes, unit: str, scale: float) -> None:
        """Rows of phases, in this unit of time since the first rank began."""
        begun = [rank.on_common_clock(step.at_seconds) for rank, step in zip(self.ranks, self.steps, strict=True)]
        for row, (began, step) in enumerate(zip(begun, self.steps, strict=True)):
            parts = pieces(step, [moment - began for moment in self.given], moves_parameters=self.moves_parameters)
            _StepRow(axes, row, step, began - min(begun), unit, scale).draw(parts)
        starts = scale * (np.array(begun) - min(begun))
        ends = starts + scale * np.array([step.seconds for step in self.steps])
        for edges in (starts, ends):
            rows = np.arange(len(edges))
            axes.vlines(edges, rows - 0.62 * THICK, rows + 0.62 * THICK, color=theme.INK, linewidth=1.0)
        axes.set_xlim(0, 1.02 * ends.max())
        axes.set_ylim(-0.5, len(self.steps) - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(f"{self.name}: step {self.steps[0].step}\n{digits(scale * self.seconds)} {unit}")
        axes.grid(visible=False, axis="y")


@dataclass(frozen=True)
class _StepRow:
    """A step of a rank, begun so many seconds after the first rank's."""

    axes: Axes
    row: int
    step: Step
    late: float
    unit: str
    scale: float

    def draw(self, parts: Iterable[tuple[str, float, float]]) -> None:
        """Its phases, and under them the messages while backward hides them."""
        for phase, begin, end in parts:
            look = UNDIVIDED_LOOK if phase == UNDIVIDED else {"facecolor": theme.PHASES[phase]}
            self._bar(begin, end, THICK, 0.0, self._told(phase, begin, end), **look)
        for number, bucket, until in _hidden(self.step):
            name = f"bucket {number} of {digits(bucket.bytes / 1e6)} MB"
            words = self._told(name, bucket.ready_seconds, bucket.end_seconds)
            self._bar(bucket.ready_seconds, until, THIN, BELOW, words, facecolor=theme.HIDDEN)

    def _bar(self, begin: float, end: float, height: float, lower: float, words: str, **look: str) -> None:
        place = self.scale * (self.late + begin), self.row + lower - height / 2
        bar = Rectangle(place, self.scale * (end - begin), height, linewidth=0)
        bar.set(**look)
        explain(bar, words)
        self.axes.add_patch(bar)

    def _told(self, what: str, begin: float, end: float) -> str:
        taken, since, until = (digits(self.scale * each) for each in (end - begin, self.late + begin, self.late + end))
        return (
            f"rank {self.step.rank}, step {self.step.step}: {what}, {taken} {self.unit}, from {since} to {until} "
            f"{self.unit}"
        )


def _seconds(steps: Sequence[Step]) -> float:
    return max(step.seconds for step in steps)


def _hidden(step: Step) -> Iterator[tuple[int, OverlappedMessage, float]]:
    """The messages behind backward, each with its number and the moment until which it was hidden."""
    ended = max((end for phase, _, end in pieces(step) if phase == "backward"), default=0.0)
    for number, bucket in enumerate(step.buckets or ()):
        if bucket.ready_seconds < min(bucket.end_seconds, ended):
            yield number, bucket, min(bucket.end_seconds, ended)


def _is_undivided(step: Step) -> bool:
    return any(phase == UNDIVIDED for phase, _, _ in pieces(step))


def _legend(axes: Axes, *, hidden: bool, undivided: bool) -> None:
    looks = {phase: {"facecolor": colour} for phase, colour in theme.PHASES.items()}
    looks |= {UNDIVIDED: UNDIVIDED_LOOK} if undivided else {}
    looks |= {"hidden messages": {"facecolor": theme.HIDDEN}} if hidden else {}
    for name, look in looks.items():
        axes.add_patch(Rectangle((0, 0), 0, 0, linewidth=0, label=name)).set(**look)
    theme.legend_above(axes, len(looks) if len(looks) <= len(theme.PHASES) else 4)


def _caption(names: Sequence[str], *, hidden: bool) -> str:
    shown = f"The {', the '.join(names)} step" if len(names) < 3 else "The median, the worst and the first step"
    messages = " Thin bars: messages, as long as backward hides them." if hidden else ""
    return (
        f"{shown}, as they happened on every rank; the time above is the slowest rank's. Upright lines: where a rank's "
        f"step begins and ends.{messages} Point at a bar to read its times."
    )
