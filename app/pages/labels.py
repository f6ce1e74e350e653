"""The names of lines: at their ends where they are few and end apart, in a legend above the figure otherwise."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from app.pages import theme
from app.pages.series import Numbers

MOST_LINES = 4
LONGEST_NAME = 12
TEXT_POINTS = 13.0  # the height of a name, with some room around it
MARGIN_POINTS = 60.0  # the part of a panel's height that goes to the words above and below its axes
SAME_END = 0.03  # of the width: behind the end of one line there is no other to cross its name


def name_lines(figure: Figure) -> None:
    """Name the lines of all panels, in the same way in each; a line that is alone needs no name."""
    panels = [(axes, _named(axes)) for axes in figure.axes]
    longest = max((len(str(line.get_label())) for _, lines in panels for line in lines), default=0)
    most = max(len(lines) for _, lines in panels)
    if most < 2:
        return
    points = 72 * figure.get_figheight() / len(panels) - MARGIN_POINTS
    if longest <= LONGEST_NAME and all(_fit(axes, lines, points) for axes, lines in panels):
        for axes, lines in panels:
            for line in lines:
                _name(axes, line)
    else:
        theme.legend_above(figure.axes[0], most if longest < 9 else 2)


def _name(axes: Axes, line: Line2D) -> None:
    end = _points(line)[-1]
    axes.annotate(str(line.get_label()), tuple(end), (6, 0), textcoords="offset points", va="center", fontsize=9)


def _named(axes: Axes) -> list[Line2D]:
    return [line for line in axes.get_lines() if not str(line.get_label()).startswith("_") and len(_points(line))]


def _fit(axes: Axes, lines: Sequence[Line2D], points: float) -> bool:
    """Whether names at the ends of these lines are clear of each other, on axes that are so many points high."""
    if len(lines) > MOST_LINES:
        return False
    ends = np.array([_points(line)[-1] for line in lines])
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    heights = np.sort(points * (ends[:, 1] - bottom) / (top - bottom))
    reach = ends[:, 0].max() - ends[:, 0].min()
    apart = np.all(np.diff(heights) >= TEXT_POINTS)
    return bool(reach <= SAME_END * (right - left) and apart)


def _points(line: Line2D) -> Numbers:
    return np.asarray(line.get_xydata(), dtype=float)
