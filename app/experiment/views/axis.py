"""A setting as an axis: where each cell stands on it, and the lines that are drawn over it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from app.experiment.plan.cells import Cell
from app.experiment.reading.statistics import Blocks
from app.report import theme
from app.report.drawing import Missing
from app.settings.link_rates import RATE_UNITS, read_rate

ABSENT = {"LINK_RATE": "unshaped"}  # what a cell without the setting is called
MOST_EVEN = 6  # times the smallest; figures further apart need a logarithmic scale
MOST_LINES = 10


@dataclass
class Point:
    """A value of the setting, and the cells that have it."""

    label: str
    at: float
    cells: list[Cell] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # that the cells belong to

    def by_series(self) -> dict[str, str]:
        """The name of the cell of each line."""
        return {line: cell.name for line, cell in zip(self.lines, self.cells, strict=True)}


class Axis:
    """The values of a setting in their order; where it is absent, it stands at the right end."""

    def __init__(self, setting: str, series: str | None, cells: Sequence[Cell]) -> None:
        self.setting, self._series = setting, series
        values = {cell.name: cell.settings.get(setting) for cell in cells}
        places = _places(setting, list(dict.fromkeys(value for value in values.values() if value is not None)))
        names = {value: value for value in places} | {None: ABSENT.get(setting, "not set")}
        spread = sorted(places.values())
        gaps = [b - a for a, b in pairwise(spread)]
        end = (spread[-1] if spread else 0.0) + (max(gaps) if gaps else 1.0)
        points = {value: Point(names[value], place) for value, place in places.items()}
        points_absent = Point(names[None], end)
        for cell in cells:
            value = values[cell.name]
            point = points_absent if value is None else points[value]
            # Two cells of one line at one point differ in something else: each is a line of its own.
            line = self._line(cell)
            if line in point.lines:
                line = cell.name
            point.cells.append(cell)
            point.lines.append(line)
        self.points = sorted((p for p in (*points.values(), points_absent) if p.cells), key=lambda point: point.at)

    def line_of(self, cell: Cell) -> str:
        """The line that a cell belongs to."""
        return next(line for p in self.points for c, line in zip(p.cells, p.lines, strict=True) if c.name == cell.name)

    def lines(self) -> dict[str, list[tuple[Point, Cell]]]:
        """Each line's points."""
        found: dict[str, list[tuple[Point, Cell]]] = {}
        for point in self.points:
            for line, cell in zip(point.lines, point.cells, strict=True):
                found.setdefault(line, []).append((point, cell))
        return found

    def _line(self, cell: Cell) -> str:
        return "" if self._series is None else cell.settings.get(self._series, "not set")


def figure(axis: Axis, blocks: Blocks, heading: str) -> tuple[Figure, str]:
    """The lines with their intervals."""
    lines = axis.lines()
    drawing = theme.new_figure(3.4)
    axes = drawing.subplots()
    values = []
    for number, (name, points) in enumerate(list(lines.items())[:MOST_LINES]):
        known = [(point.at, estimate) for point, cell in points if (estimate := blocks.estimate(cell.name))]
        if not known:
            continue
        values += [estimate.median for _, estimate in known]
        at, colour = [place for place, _ in known], theme.colour(number)
        axes.plot(at, [each.median for _, each in known], color=colour, label=name, marker="o", markersize=4)
        for place, each in known:
            if each.low is not None and each.high is not None:
                axes.plot([place, place], [each.low, each.high], color=colour, linewidth=1.0)
    if not values:
        raise Missing("no run is finished.")
    if max(values) > MOST_EVEN * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks([point.at for point in axis.points], [point.label for point in axis.points])
    axes.set_xlabel(axis.setting)
    axes.set_ylabel(heading)
    if len(lines) > 1:
        theme.legend_above(axes, 4)
    caption = "Medians over rounds; upright lines are intervals of 95 % confidence."
    if len(lines) > MOST_LINES:
        caption += f" The first {MOST_LINES} of {len(lines)} lines are drawn."
    return drawing, caption + (" The scale is logarithmic." if axes.get_yscale() == "log" else "")


def _places(setting: str, values: Sequence[str]) -> dict[str, float]:
    """Numbers stand where they are, rates by their logarithm, anything else in the order of the grid file."""
    if all(_is_rate(value) for value in values):
        return {value: math.log10(read_rate(value)) for value in values}
    try:
        return {value: float(value) for value in values}
    except ValueError:
        return {value: float(place) for place, value in enumerate(values)}


def _is_rate(value: str) -> bool:
    return re.fullmatch(rf"[0-9.]+({'|'.join(RATE_UNITS)})", value) is not None
