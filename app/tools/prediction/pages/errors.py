"""How far predictions are from runs, in figures and by kind of cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from app.analysis.units import COUNT, PERCENT, TEXT
from app.pages import theme
from app.pages.table import Column, Table
from app.pages.tooltips import explain
from app.tools.experiment.views.drawn import LEGEND_LETTERS, in_powers
from app.tools.prediction.names import RANKS, value_of
from app.tools.prediction.verification import MOST_MEDIAN_ERROR, MOST_P90_ERROR, Checked

MARKERS = "os^Dv"  # by model
KINDS = ("MODEL", "SYNC_MODE", RANKS)
MARGIN = 1.25  # beside the outermost points


@dataclass(frozen=True)
class ErrorGroup:
    """Cells that have a setting in common."""

    by: str
    name: str
    cells: list[Checked]

    @property
    def sizes(self) -> list[float]:
        """Of the errors."""
        return [abs(each.error) for each in self.cells]


def kinds(checked: Sequence[Checked]) -> list[ErrorGroup]:
    """All cells; then those of each model, mode and number of ranks."""
    found = [ErrorGroup("", "all", list(checked))]
    for name, heading in zip(KINDS, ("model", "mode", "ranks"), strict=True):
        by_value: dict[str, list[Checked]] = {}
        for each in sorted(checked, key=lambda each: each.forecast.setup.ranks if name == RANKS else 0):
            by_value.setdefault(value_of(each.forecast, name), []).append(each)
        if len(by_value) > 1:
            found += [ErrorGroup(heading, value, cells) for value, cells in by_value.items()]
    return found


def by_kind(checked: Sequence[Checked]) -> Table:
    """Median and 90th percentile beside the number of cells that they are of."""
    columns = [
        Column[ErrorGroup]("cells", "kind", TEXT, lambda kind: kind.name),
        Column[ErrorGroup]("by", "by", TEXT, lambda kind: kind.by or None),
        Column[ErrorGroup]("n", "cells", COUNT, lambda kind: len(kind.cells)),
        Column[ErrorGroup]("median", "median_error", PERCENT, lambda kind: median(kind.sizes)),
        Column[ErrorGroup]("p90", "p90_error", PERCENT, lambda kind: float(np.percentile(kind.sizes, 90))),
        Column[ErrorGroup]("most", "most_error", PERCENT, lambda kind: max(kind.sizes)),
        Column[ErrorGroup]("mostly too", "direction", TEXT, _direction),
        Column[ErrorGroup](
            "intervals that hold", "held", PERCENT, lambda kind: mean(float(each.held) for each in kind.cells)
        ),
    ]
    note = (
        "Sizes of errors, the machine's drift taken out. Of fewer than ten cells the 90th percentile lies between the "
        "two that are furthest off. Mostly too long or short: as more than half of the predictions are."
    )
    return Table.of("errors", "Errors by kind of cell", columns, kinds(checked), note)


def _direction(kind: ErrorGroup) -> str | None:
    longer = sum(each.error > 0 for each in kind.cells)
    return None if 2 * longer == len(kind.cells) else "long" if 2 * longer > len(kind.cells) else "short"


def scatter(checked: Sequence[Checked]) -> tuple[Figure, str]:
    """Predicted by measured, a mark for each cell."""
    figure = theme.new_figure(4.6)
    axes = figure.subplots()
    ends = [value for each in checked for value in (each.corrected, *each.forecast.interval)]
    low, high = min(ends) / MARGIN, max(ends) * MARGIN
    span = np.array([low, high])
    for share, opacity in ((MOST_P90_ERROR, 0.5), (MOST_MEDIAN_ERROR, 0.9)):
        axes.fill_between(span, span * (1 - share), span * (1 + share), color=theme.GRID, alpha=opacity, linewidth=0)
    axes.plot(span, span, color=theme.MUTED, linewidth=0.8)
    modes = _numbered(checked, lambda each: value_of(each.forecast, "SYNC_MODE"))
    models = _numbered(checked, lambda each: value_of(each.forecast, "MODEL"))
    for each in checked:
        colour = theme.colour(modes[value_of(each.forecast, "SYNC_MODE")])
        marker = MARKERS[models[value_of(each.forecast, "MODEL")] % len(MARKERS)]
        axes.plot([each.corrected] * 2, each.forecast.interval, color=colour, linewidth=0.9)
        (mark,) = axes.plot([each.corrected], [each.forecast.seconds], marker, color=colour, markersize=5)
        explain(mark, f"{each.forecast.name}: {each.error:+.1%}")
    for mode, number in modes.items():
        axes.plot([], [], "o", color=theme.colour(number), label=mode)
    if len(models) > 1:
        for model, number in models.items():
            axes.plot([], [], MARKERS[number % len(MARKERS)], color=theme.MUTED, label=model)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel="measured, s/step", ylabel="predicted, s/step")
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        in_powers(axis)
    longest = max(map(len, (*modes, *models)))
    theme.legend_above(axes, max(1, LEGEND_LETTERS // (longest + 5)))
    return figure, (
        "Measured: the machine's drift taken out. On the line, a prediction is right; grey: up to "
        f"{MOST_MEDIAN_ERROR:.0%} and {MOST_P90_ERROR:.0%} off. Upright lines: the 80 % interval of the prediction."
    )


def errors_by_kind(checked: Sequence[Checked]) -> tuple[Figure, str]:
    """Each cell's error, in the row of each kind that it is of."""
    rows = kinds(checked)
    figure = theme.new_figure(1.2 + 0.27 * len(rows))
    axes = figure.subplots()
    axes.axvspan(-MOST_P90_ERROR, MOST_P90_ERROR, color=theme.GRID, alpha=0.5, linewidth=0)
    axes.axvspan(-MOST_MEDIAN_ERROR, MOST_MEDIAN_ERROR, color=theme.GRID, alpha=0.9, linewidth=0)
    axes.axvline(0, color=theme.MUTED, linewidth=0.8)
    for place, kind in enumerate(rows):
        errors = [each.error for each in kind.cells]
        axes.plot(errors, [place] * len(errors), "o", color=theme.colour(0), markersize=4, alpha=0.6)
        axes.plot([median(errors)] * 2, [place - 0.35, place + 0.35], color=theme.INK, linewidth=1.6)
    labels = [f"{kind.name} ({len(kind.cells)})" for kind in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("error of the predicted step: below 0 too short, above too long")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return figure, "A dot for each cell, an upright line for the median, beside the name the number of cells."


def _numbered(checked: Sequence[Checked], name: Callable[[Checked], str]) -> dict[str, int]:
    return {each: number for number, each in enumerate(dict.fromkeys(map(name, checked)))}
