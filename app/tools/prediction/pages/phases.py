"""What a predicted step is made of: shares along an axis for each line of cells, or a bar for each cell."""

from collections.abc import Sequence
from functools import partial

from app.pages import definitions
from app.pages.plot import Plot
from app.pages.rows import Bars, Row, stacked
from app.pages.scale import Axis
from app.pages.series import left_out
from app.pages.traces import Panel, Trace
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.names import in_words, telling
from app.tools.prediction.pages.lines import PredictedLine, across, lines, unverified

# Computing has data, forward and backward in it, of which backward is the longest.
ROLES = {"computing": "backward", "wait": "wait", "sync": "sync", "optimiser": "optimiser"}
MOST_PANELS = 12
MOST_ROWS = 24


def along(found: Sequence[Forecast], axis: str) -> tuple[Plot, str]:
    """Shares of the step, a panel for each line, so that it shows what grows."""
    whole = [each for each in lines(found, axis) if len(each.cells) > 1]
    panels = [Panel(_shares(each, axis), _title(each) if len(whole) > 1 else "") for each in whole[:MOST_PANELS]]
    x, cut = across(found, axis), left_out(len(whole), MOST_PANELS, "lines")
    far = f" Dashed: simulated, not verified beyond {VERIFIED_RANKS} ranks." if any(map(unverified, found)) else ""
    chart = Plot(f"Shares of a predicted step by {x.title}", x, Axis("share of the step", "share", most=1.0), panels)
    return chart, f"Shares of the mean step, which add up to 100 %. {definitions.WAIT_AND_SYNC}{cut}{far}"


def _title(line: PredictedLine) -> str:
    """Its name from the end that tells it from its neighbours, where panels have no room for all of it."""
    return ", ".join(each for each in (line.place, line.way) if each)


def _shares(line: PredictedLine, axis: str) -> list[Trace]:
    return [line.trace(axis, partial(_share, phase), name=phase, role=role) for phase, role in ROLES.items()]


def _share(phase: str, cell: Forecast) -> float:
    return cell.simulated.mean(phase) / cell.seconds


def by_cell(found: Sequence[Forecast]) -> tuple[Bars, str]:
    """A bar for each cell, with the interval of the whole step."""
    names, shown = telling(found), found[:MOST_ROWS]
    rows = [_row(in_words(each, names) or each.name, each) for each in shown]
    hidden = definitions.HIDDEN_BAR if any(each.hidden for each in shown) else ""
    caption = f"Mean seconds. {definitions.WAIT_AND_SYNC} Lines: the 80 % interval of the step.{hidden}"
    chart = Bars("Phases of a predicted step by cell", Axis("time per step", "s"), rows)
    return chart, caption + left_out(len(found), MOST_ROWS, "cells")


def _row(name: str, cell: Forecast) -> Row:
    spans = stacked([(phase, cell.simulated.mean(phase), role) for phase, role in ROLES.items()])
    return Row(name, spans, stacked([("hidden sync", cell.hidden, "hidden")]), cell.seconds, *cell.interval)
