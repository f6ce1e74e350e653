"""The page of predictions: sentences, curves by ranks and by rate, phases of each cell, the table."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app.analysis.units import COUNT, EXACT, PERCENT, SECONDS, TEXT, digits
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
from app.tools.prediction.findings import outside, reading
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.lines import RANKS, RATE, PredictedLine, lines, position
from app.tools.prediction.simulation import PHASES

MOST_LINES = 8  # of a panel
MOST_PANELS = 6
MOST_ROWS = 24
# Computing consists of data, forward and backward. It has the colour of backward, the longest of them.
ROLES = {"computing": "backward", "wait": "wait", "sync": "sync", "optimiser": "optimiser"}


def table(found: Sequence[Forecast]) -> Table:
    columns = [
        Column[Forecast]("cell", "cell", TEXT, lambda each: each.name),
        Column[Forecast]("ranks", "world_size", COUNT, lambda each: each.setup.ranks),
        Column[Forecast]("step", "seconds", SECONDS, lambda each: each.seconds),
        Column[Forecast]("80 % from", "seconds_low", SECONDS, lambda each: each.interval[0]),
        Column[Forecast]("to", "seconds_high", SECONDS, lambda each: each.interval[1]),
        *(
            Column[Forecast](phase, f"{phase}_seconds", SECONDS, partial(Forecast.mean, phase=phase))
            for phase in PHASES
        ),
        Column[Forecast]("images/s", "images_per_second", EXACT, lambda each: float(digits(each.images_per_second))),
        Column[Forecast]("speedup", "speedup", EXACT, lambda each: float(digits(each.speedup))),
        Column[Forecast]("efficiency", "efficiency", PERCENT, lambda each: each.efficiency),
        Column[Forecast]("bound by", "bound", TEXT, lambda each: each.bound),
        Column[Forecast](
            "extrapolation", "outside", TEXT, lambda each: "; ".join(each.outside) or None, only_in_file=True
        ),
    ]
    note = (
        "Step: the mean over steps and ranks, with the interval in which four of five measured steps lie, if these are "
        "as well predicted as the calibration's own runs. Speedup: against one such rank with the same global batch. "
        "The CSV has what of each cell lies outside the calibration."
    )
    return Table.of("predictions", "Predicted", columns, found, note)


def write(title: str, found: Sequence[Forecast], limits: Sequence[str], own: Table, folder: Path) -> Path:
    model, one_host = found[0].calibration, sum(each.setup.cpus.shared_cores is not None for each in found)
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
    panels: dict[str, list[PredictedLine]] = {}
    for line in lines(found, axis):
        panels.setdefault(line.place, []).append(line)
    domain, shaded = found[0].calibration.domain, None
    caption = "Upright lines: four of five measured steps, if they are as well predicted as the calibration's own runs."
    if axis == RATE:
        shaded = (domain.least_rate, domain.most_rate, "calibrated rates")
        caption += " Grey: the rates of the calibration."
    if any(each.unverified for each in found):
        caption += f" Dashed: simulated, not verified beyond {VERIFIED_RANKS} ranks."
    caption += left_out(len(panels), MOST_PANELS, "groups of cells")
    caption += left_out(max(map(len, panels.values())), MOST_LINES, "lines of a group, the fastest,")
    shown = [
        Panel([_trace(line, axis) for line in sorted(own, key=_at_the_end)[:MOST_LINES]], place, shaded=shaded)
        for place, own in list(panels.items())[:MOST_PANELS]
    ]
    x = _across(found, axis)
    return Plot(f"Time per step by {x.title}, predicted", x, Axis("time per step", "s", log=None), shown), caption


def _at_the_end(line: PredictedLine) -> float:
    return line.cells[-1].seconds


def _trace(line: PredictedLine, axis: str) -> Trace:
    low, high = zip(*(each.interval for each in line.cells), strict=True)
    at = [position(each, axis) or 0.0 for each in line.cells]
    hollow = [each.unverified for each in line.cells]
    return Trace(line.way, at, [each.seconds for each in line.cells], low, high, hollow=hollow)


def _across(found: Sequence[Forecast], axis: str) -> Axis:
    """Each cell's place has a label."""
    labels = {
        at: f"{at:,.0f}" if axis == RANKS else each.setup.settings.links.link_rate or ""
        for each in found
        if (at := position(each, axis)) is not None
    }
    title, log = ("ranks", None) if axis == RANKS else ("link rate of a rank", True)
    return Axis(title, log=log, labels=sorted(labels.items()))


def phases(found: Sequence[Forecast]) -> tuple[Bars, str]:
    hidden = definitions.HIDDEN_BAR if any(each.hidden for each in found[:MOST_ROWS]) else ""
    caption = f"Mean seconds. {definitions.WAIT_AND_SYNC} Lines: the 80 % interval of the step.{hidden}"
    rows = [
        Row(
            each.name,
            stacked([(phase, each.mean(phase), role) for phase, role in ROLES.items()]),
            stacked([("hidden sync", each.hidden, "hidden")]),
            each.seconds,
            *each.interval,
        )
        for each in found[:MOST_ROWS]
    ]
    chart = Bars("Phases of a predicted step by cell", Axis("time per step", "s"), rows)
    return chart, caption + left_out(len(found), MOST_ROWS, "cells")
