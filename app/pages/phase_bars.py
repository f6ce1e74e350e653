"""Bars that show the phases of a step, one above the other."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.analysis.figures import Figures
from app.analysis.measures import HIDDEN_SYNC, PHASE_TIMES, STEP
from app.analysis.words import duration
from app.pages import theme
from app.pages.drawing import Missing

# Of each phase, of `hidden_sync`, and of the whole `step`; where that has an interval, its ends `low` and `high`.
MeanSeconds = Mapping[str, float | None]


def mean_seconds(figures: Figures) -> MeanSeconds:
    """The means of a summary."""
    timings = {**PHASE_TIMES, "hidden_sync": HIDDEN_SYNC, "step": STEP}
    return {name: figures[timing.mean] for name, timing in timings.items()}


def stacked_phases(rows: Sequence[tuple[str, MeanSeconds]], colours: Mapping[str, str] = theme.PHASES) -> Figure:
    """A figure of bars, as high as they need."""
    if not any(row["step"] for _, row in rows):
        raise Missing("no step but the first is there.")
    figure = theme.new_figure(1.3 + 0.36 * len(rows))
    draw_phases(figure.subplots(), rows, colours)
    return figure


def draw_phases(axes: Axes, rows: Sequence[tuple[str, MeanSeconds]], colours: Mapping[str, str] = theme.PHASES) -> None:
    """A bar for each name, made of the mean seconds of its phases; under it another one, of what backward hides."""
    places = np.arange(len(rows))
    left = np.zeros(len(rows))
    for phase, colour in colours.items():
        means = np.array([_number(row[phase]) for _, row in rows])
        if not np.isnan(means).all():
            axes.barh(places, np.nan_to_num(means), left=left, height=0.56, color=colour, label=phase)
            left += np.nan_to_num(means)
    ends = left.copy()
    for place, (_, row) in enumerate(rows):
        hidden = _number(row["hidden_sync"])
        backward_begins = sum(_number(row[phase]) for phase in ("data", "forward") if phase in row)
        if hidden > 0:
            axes.barh(place + 0.38, hidden, left=backward_begins, height=0.16, color=theme.HIDDEN)
        low, high = row.get("low"), row.get("high")
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=theme.INK, linewidth=1.2)
            ends[place] = max(left[place], high)
        if left[place]:
            text = duration(_number(row["step"]))
            axes.annotate(text, (ends[place], place), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, theme.shorten([name for name, _ in rows]))
    axes.invert_yaxis()
    axes.set_xlim(0, ends.max() * 1.12)
    axes.set_xlabel("seconds per step")
    axes.grid(visible=False, axis="y")
    if any(_number(row["hidden_sync"]) > 0 for _, row in rows):
        axes.barh(0, 0, color=theme.HIDDEN, label="hidden sync")
    theme.legend_above(axes, 4)


def _number(value: float | None) -> float:
    """What was not measured is no number."""
    return float("nan") if value is None else value
