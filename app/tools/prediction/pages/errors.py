"""How far predictions are from runs, in figures and by kind of cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from statistics import mean, median

import numpy as np

from app.analysis.units import COUNT, PERCENT, TEXT
from app.analysis.words import duration
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.pages.traces import Panel, Trace
from app.tools.prediction.names import RANKS, value_of
from app.tools.prediction.verification import MOST_MEDIAN_ERROR, MOST_P90_ERROR, Checked

KINDS = ("MODEL", "SYNC_MODE", RANKS)


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
        by_value = _by(sorted(checked, key=lambda each: each.forecast.setup.ranks if name == RANKS else 0), name)
        if len(by_value) > 1:
            found += [ErrorGroup(heading, value, cells) for value, cells in by_value.items()]
    return found


def _by(checked: Sequence[Checked], name: str) -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = {}
    for each in checked:
        found.setdefault(value_of(each.forecast, name), []).append(each)
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


def scatter(checked: Sequence[Checked]) -> tuple[Plot, str]:
    """Predicted by measured: a panel for each model, and in it a mark for each cell in the colour of its mode."""
    panels = [
        Panel([_marks(name, cells) for name, cells in _by(checked_of_model, "SYNC_MODE").items()], model)
        for model, checked_of_model in _by(checked, "MODEL").items()
    ]
    chart = Plot(
        "Predicted against measured time per step",
        Axis("measured time per step", "s", log=True),
        Axis("predicted time per step", "s", log=True),
        panels,
        tolerances=(MOST_P90_ERROR, MOST_MEDIAN_ERROR),
    )
    return chart, (
        "Measured: the machine's drift taken out. On the line, a prediction is right; grey: up to "
        f"{MOST_MEDIAN_ERROR:.0%} and {MOST_P90_ERROR:.0%} off. Upright lines: the 80 % interval of the prediction."
    )


def _marks(name: str, cells: Sequence[Checked]) -> Trace:
    low, high = zip(*(each.forecast.interval for each in cells), strict=True)
    measured, predicted = [each.corrected for each in cells], [each.forecast.seconds for each in cells]
    return Trace(name, measured, predicted, low, high, "dot", notes=list(map(_note, cells)))


def _note(cell: Checked) -> str:
    times = f"{duration(cell.forecast.seconds)} predicted, {duration(cell.corrected)} measured"
    return f"{cell.forecast.name}: {cell.error:+.1%}, {times}"


def errors_by_kind(checked: Sequence[Checked]) -> tuple[Plot, str]:
    """Each cell's error, in the row of each kind that it is of."""
    by_height = {place + 0.5: kind for place, kind in enumerate(reversed(kinds(checked)))}
    points = [(height, each) for height, kind in by_height.items() for each in kind.cells]
    names = [(height, f"{kind.name} ({len(kind.cells)})") for height, kind in by_height.items()]
    off, top = MOST_P90_ERROR, len(names) + 1.0  # with room for a word above the rows
    traces = [
        Trace(f"{off:.0%} off", [-off, -off, nan, off, off], [0, top, nan, 0, top], look="curve", role="muted"),
        Trace(
            "cell", [each.error for _, each in points], [height for height, _ in points], look="dot", role="series-0",
            notes=[_note(each) for _, each in points],
        ),
        Trace(
            "median", [median(each.error for each in kind.cells) for kind in by_height.values()], [*by_height],
            look="diamond", role="ink",
        ),
    ]  # fmt: skip
    shaded = (-MOST_MEDIAN_ERROR, MOST_MEDIAN_ERROR, f"within {MOST_MEDIAN_ERROR:.0%}")
    up = Axis("kind, with the number of its cells", labels=names, most=top)
    panel = Panel(traces, shaded=shaded)
    chart = Plot("Errors of predictions by kind of cell", Axis("error of the predicted step", "share"), up, [panel])
    return chart, f"Below 0, predictions are too short, above too long. Grey: up to {MOST_MEDIAN_ERROR:.0%} off."
