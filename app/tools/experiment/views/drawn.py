"""What the drawings of several views have in common: rows, lines with intervals, panels."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from app.analysis.figures import Measure
from app.analysis.statistics import Interval
from app.pages import theme
from app.pages.drawing import Missing
from app.pages.series import Series, series
from app.tools.experiment.reading.results import Results

MOST_LINES = 10  # what a drawing can keep apart
LEGEND_LETTERS = 96  # in a row of it
NARROWEST = 1.4  # points
WIDE = 100.0  # from the smallest value to the largest: from there on, powers of ten are marks enough
VISIBLE = 0.01  # of a line's rise, below which two lines are one to the eye


def rows_of(count: int, height: float = 1.2) -> Figure:
    """Room for a row for each cell."""
    if not count:
        raise Missing("no run is finished.")
    return theme.new_figure(height + 0.42 * count)


def name_rows(axes: Axes, names: Sequence[str], across: str) -> None:
    """The cells' names, the first on top."""
    axes.set_yticks(np.arange(len(names)), theme.shorten(names))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(across)


def draw_interval(axes: Axes, place: float, found: Interval) -> None:
    """A line across a row, as far as the interval goes."""
    if found.low is not None and found.high is not None and found.low < found.high:
        axes.plot([found.low, found.high], [place, place], color=theme.INK, linewidth=1.2)


def draw_lines(axes: Axes, lines: Mapping[str, Sequence[tuple[float, Interval]]]) -> None:
    """Lines by name, of values and where they stand, with an upright interval at each."""
    for number, (name, points) in enumerate(lines.items()):
        colour = theme.colour(number)
        at = [place for place, _ in points]
        axes.plot(at, [each.value for _, each in points], color=colour, label=name, marker="o", markersize=4)
        for place, each in points:
            if each.low is not None and each.high is not None and each.low < each.high:
                axes.plot([place, place], [each.low, each.high], color=colour, linewidth=1.0)


def panels(titles: Sequence[str], *, most: int, across: int, height: float, up: str) -> tuple[Figure, list[Axes], str]:
    """A small panel for each cell, with what a caption says where there are more cells than panels."""
    shown = theme.shorten(titles[:most], 72 // across)
    across = min(across, len(shown))
    down = math.ceil(len(shown) / across)
    figure = theme.new_figure(0.9 + height * down)
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    for axes, title in zip(grid.flat, shown, strict=False):
        axes.set_title(title)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel(up)
    cut = f" The first {most} of {len(titles)} cells are drawn." if len(titles) > most else ""
    return figure, list(grid.flat[: len(shown)]), cut


def draw_series(
    lines: Sequence[Series], across: str, up: str, missing: str, marker: str | None = None
) -> tuple[Figure, Axes]:
    """One line for each cell, as far as they can be kept apart."""
    if all(line.empty for line in lines):
        raise Missing(missing)
    shown = lines[:MOST_LINES]
    columns = max(1, LEGEND_LETTERS // (max(len(line.name) for line in shown) + 5))
    figure = theme.new_figure(theme.HEIGHT + 0.2 * ((len(shown) - 1) // columns))
    axes = figure.subplots()
    for number, line in enumerate(shown):
        if not line.empty:
            theme.plot(axes, line, number, marker)
            # So that of lines that coincide none hides another.
            axes.lines[-1].set_linewidth(NARROWEST + 2 * sum(_coincide(line, later) for later in shown[number + 1 :]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    theme.legend_above(axes, columns)
    return figure, axes


def epoch_lines(results: Results, measure: Measure[float]) -> list[Series]:
    """A score of each epoch by cell, the median over rounds; no point where a round lacks it."""
    lines = []
    for cell in results.cells:
        rounds = [[epoch[measure] for epoch in run.summary.run.epochs] for run in cell.runs]
        values = []
        for epoch in zip(*rounds, strict=False):
            known = [each for each in epoch if each is not None]
            values.append(median(known) if len(known) == len(epoch) else None)
        lines.append(series(cell.name, range(1, len(values) + 1), values))
    return lines


def _coincide(one: Series, other: Series) -> bool:
    if len(one.values) != len(other.values) or one.empty:
        return False
    return bool(np.all(np.abs(one.values - other.values) <= VISIBLE * np.ptp(one.values)))


def left_out(lines: Sequence[Series]) -> str:
    """What a caption says where there are more cells than lines."""
    return f" The first {MOST_LINES} of {len(lines)} cells." if len(lines) > MOST_LINES else ""


def in_percent(axis: Axis) -> None:
    """Mark an axis of accuracies, which go from 0 to 1."""
    axis.set_major_formatter(PercentFormatter(1, decimals=0))


def in_powers(axis: Axis) -> None:
    """Mark a logarithmic axis; at 1, 2 and 5 as well where it has too few powers of ten to be read by them."""
    low, high = axis.get_data_interval()
    if low > 0 and high / low < WIDE:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
