"""What runs have learned, out of their summaries and records, and figures of it over steps or epochs."""

from collections.abc import Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from app.experiment.reading.results import Measured, Results
from app.report import theme
from app.report.drawing import Missing
from app.report.series import Series
from app.report.table import MISSING, Value

MOST_LINES = 10  # what a figure can keep apart
LEGEND_LETTERS = 96  # in a row of it
NARROWEST = 1.4  # points
VISIBLE = 0.01  # of a line's rise, below which two lines are one to the eye


def losses(run: Measured) -> list[float]:
    """Of the global batch, step by step."""
    return run.summary.losses


def training_loss(run: Measured) -> float | None:
    """Of the last epoch, each sample as the model took it at its step."""
    return _last(run, "training_loss")


def training_accuracy(run: Measured) -> float | None:
    """Of the last epoch, in the same way."""
    return _last(run, "training_accuracy")


def test_loss(run: Measured) -> float | None:
    """Of the last evaluation, the mean over the ranks; None where the run was not to evaluate."""
    return _last(run, "test_loss")


def test_accuracy(run: Measured) -> float | None:
    """Of the last evaluation, in the same way."""
    return _last(run, "accuracy")


def _last(run: Measured, field: str) -> float | None:
    value: float | None = getattr(run.summary.run, field)
    return value


def by_epoch(results: Results, cell: str, field: str) -> list[float | None]:
    """A figure of each epoch, the median over rounds; None where a round lacks it."""
    rounds = [[getattr(epoch, field) for epoch in run.summary.run.epochs] for run in results.runs(cell)]
    return [None if any(value is None for value in values) else median(values) for values in zip(*rounds, strict=False)]


def line_figure(
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


def _coincide(one: Series, other: Series) -> bool:
    if len(one.values) != len(other.values) or one.empty:
        return False
    return bool(np.all(np.abs(one.values - other.values) <= VISIBLE * np.ptp(one.values)))


def in_percent(axis: Axis) -> None:
    """Mark an axis of accuracies, which go from 0 to 1."""
    axis.set_major_formatter(PercentFormatter(1, decimals=0))


def in_powers(axis: Axis) -> None:
    """Mark an axis of powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def left_out(lines: Sequence[Series]) -> str:
    """What a caption says where there are more cells than lines."""
    return f" The first {MOST_LINES} of {len(lines)} cells." if len(lines) > MOST_LINES else ""


def listed(cells: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join([", ".join(cells[:-1]), cells[-1]]) if len(cells) > 1 else "".join(cells)


def as_printed(value: Value) -> str:
    """A loss as a console prints it."""
    return MISSING if value is None else f"{float(value):.4f}"


def in_words(share: float) -> str:
    """A share in a sentence."""
    return f"{100 * share:.1f} %"


def points(value: float) -> str:
    """A difference of accuracies, without its sign."""
    return f"{100 * abs(value):.1f} percentage points"
