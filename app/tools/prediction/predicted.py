"""The page of predictions: sentences, curves by ranks and by rate, phases of each cell, the table."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app.analysis.units import COUNT, DIGITS, PERCENT, SECONDS, TEXT, YES_OR_NO
from app.machine.say import counted
from app.pages import definitions
from app.pages.drawing import Drawing, draw
from app.pages.plot import Plot
from app.pages.rows import Bars, Row, stacked
from app.pages.scale import Axis
from app.pages.section import Section, write_page
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.pages.traces import Panel, Trace
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.findings import RANKS, RATE, lines, outside, position, reading
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.simulation import PHASES

MOST_LINES = 8  # of a panel
MOST_PANELS = 6
MOST_ROWS = 24
# Computing consists of data, forward and backward. It has the colour of backward, the longest of them.
ROLES = {"computing": "backward", "wait": "wait", "sync": "sync", "optimiser": "optimiser"}


def table(found: Sequence[Forecast]) -> Table:
    in_file = partial(Column[Forecast], only_in_file=True)
    columns = [
        Column[Forecast]("cell", "cell", TEXT, lambda each: each.name),
        Column[Forecast]("ranks", "world_size", COUNT, lambda each: each.ranks),
        in_file("one host", "one_host", YES_OR_NO, lambda each: each.one_host),
        Column[Forecast]("step", "seconds", SECONDS, lambda each: each.seconds),
        Column[Forecast]("80 % from", "seconds_low", SECONDS, lambda each: each.interval[0]),
        Column[Forecast]("to", "seconds_high", SECONDS, lambda each: each.interval[1]),
        *(
            Column[Forecast](phase, f"{phase}_seconds", SECONDS, partial(Forecast.mean, phase=phase))
            for phase in PHASES
        ),
        in_file("hidden", "hidden_sync_seconds", SECONDS, lambda each: each.mean("hidden_sync")),
        in_file("sync at least", "sync_seconds_at_least", SECONDS, lambda each: each.least_sync),
        Column[Forecast]("images/s", "images_per_second", DIGITS, lambda each: each.images_per_second),
        Column[Forecast]("speedup", "speedup", DIGITS, lambda each: each.speedup),
        Column[Forecast]("efficiency", "efficiency", PERCENT, lambda each: each.efficiency),
        Column[Forecast]("bound by", "bound", TEXT, lambda each: each.bound),
        in_file("extrapolation", "outside", TEXT, lambda each: "; ".join(each.outside()) or None),
    ]
    note = (
        "Step: the mean over steps and ranks, with the interval in which four of five measured steps lie, if these are "
        "as well predicted as the calibration's own runs. Speedup: against one such rank with the same global batch. "
        "The CSV has what of each cell lies outside the calibration."
    )
    return Table.of("predictions", "Predicted", columns, found, note)


def as_json(found: Sequence[Forecast]) -> dict[str, object]:
    """The calibration's name, and the table's rows by the names of its columns, each with what was asked."""
    whole = table(found)
    names = [column.name for column in whole.columns]
    cells = [
        {**dict(zip(names, row, strict=True)), "outside": [*each.outside()], "settings": each.cell.settings}
        for each, row in zip(found, whole.rows, strict=True)
    ]
    return {"calibration": found[0].calibration.name, "cells": cells}


def write(title: str, found: Sequence[Forecast], limits: Sequence[str], own: Table, folder: Path) -> Path:
    model, one_host = found[0].calibration, sum(each.one_host for each in found)
    cells = f"{counted(len(found), 'cell')}, {one_host} with all ranks on one host"
    content = {
        "title": title,
        "kind": "Predicted, not run",
        "about": f"{cells} · {model.origin}",
        "reading": list(reading(found)),
        "warnings": [f"Outside the calibration: {each}" for each in outside(found)],
        "made_from": "a calibration, without a run",
    }
    sections = [
        Section("Predicted cells", list(limits), drawings=drawings(found), tables=[own]),
        Section("How far to trust it", _trust(model)),
    ]
    return write_page(folder, "sections.html", sections, content)


def _trust(model: Calibration) -> list[str]:
    own = (
        f"Simulated steps of the calibration's own runs are {model.error:.1%} from measured ones (root of the mean "
        "square). Intervals follow from that, and do not cover what lies outside the calibration."
    )
    checks = [
        f"Verified: {check.name}, {check.made_at}, {check.cells} cells. {check.median_error:.1%} off in the median, "
        f"{check.p90_error:.1%} at the 90th percentile; {check.held:.0%} of the intervals held."
        for check in model.checks
    ]
    return [own, *(checks or ["This calibration was never verified: scripts/verify cells --quick does so."])]


def drawings(found: Sequence[Forecast]) -> list[Drawing]:
    curves = [
        draw(f"seconds-by-{name}", f"Seconds of a step by {name}", partial(seconds, axis=axis), found)
        for axis, name in ((RANKS, "ranks"), (RATE, "rate"))
        if lines(found, axis)
    ]
    return [*curves, draw("phases", "What a step is made of, by cell", phases, found)]


def seconds(found: Sequence[Forecast], axis: str) -> tuple[Plot, str]:
    """A line for each way to synchronise, in a panel for each place, within the intervals."""
    panels, shaded = lines(found, axis), None
    caption = "Upright lines: four of five measured steps, if they are as well predicted as the calibration's own runs."
    if axis == RATE:
        shaded = (*found[0].calibration.rates, "calibrated rates")
        caption += " Grey: the rates of the calibration."
    if any(each.unverified for each in found):
        caption += f" Dashed: simulated, not verified beyond {VERIFIED_RANKS} ranks."
    caption += left_out(len(panels), MOST_PANELS, "groups of cells")
    caption += left_out(max(map(len, panels.values())), MOST_LINES, "lines of a group, the fastest,")
    shown = []
    for place, ways in list(panels.items())[:MOST_PANELS]:
        fastest = sorted(ways, key=lambda way: ways[way][-1].seconds)[:MOST_LINES]
        shown.append(Panel([_trace(way, ways[way], axis) for way in fastest], place, shaded=shaded))
    x = _across(found, axis)
    return Plot(f"Time per step by {x.title}, predicted", x, Axis("time per step", "s", log=None), shown), caption


def _trace(way: str, cells: Sequence[Forecast], axis: str) -> Trace:
    low, high = zip(*(each.interval for each in cells), strict=True)
    at = [position(each, axis) or 0.0 for each in cells]
    return Trace(way, at, [each.seconds for each in cells], low, high, hollow=[each.unverified for each in cells])


def _across(found: Sequence[Forecast], axis: str) -> Axis:
    """Each cell's place has a label."""
    labels = {
        at: f"{at:,.0f}" if axis == RANKS else each.settings.links.link_rate or ""
        for each in found
        if (at := position(each, axis)) is not None
    }
    title, log = ("ranks", None) if axis == RANKS else ("link rate of a rank", True)
    return Axis(title, log=log, labels=sorted(labels.items()))


def phases(found: Sequence[Forecast]) -> tuple[Bars, str]:
    hidden = definitions.HIDDEN_BAR if any(each.mean("hidden_sync") for each in found[:MOST_ROWS]) else ""
    caption = f"Mean seconds. {definitions.WAIT_AND_SYNC} Lines: the 80 % interval of the step.{hidden}"
    rows = [
        Row(
            each.name,
            stacked([(phase, each.mean(phase), role) for phase, role in ROLES.items()]),
            stacked([("hidden sync", each.mean("hidden_sync"), "hidden")]),
            each.seconds,
            *each.interval,
        )
        for each in found[:MOST_ROWS]
    ]
    chart = Bars("Phases of a predicted step by cell", Axis("time per step", "s"), rows)
    return chart, caption + left_out(len(found), MOST_ROWS, "cells")
