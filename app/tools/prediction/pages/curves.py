"""Curves of predicted cells: seconds of a step and efficiency, by ranks or by the rate of the links."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.series import left_out
from app.pages.traces import Panel, Trace
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.limits import HALF
from app.tools.prediction.names import RANKS, RATE
from app.tools.prediction.pages.lines import PredictedLine, across, lines, unverified

MOST_LINES = 8  # of a panel
MOST_PANELS = 6


def by_panel(found: Sequence[Forecast], axis: str) -> dict[str, list[PredictedLine]]:
    """Lines by the panel that they are in: all in one as long as they can be kept apart."""
    whole = [each for each in lines(found, axis) if len(each.cells) > 1]
    if len(whole) <= MOST_LINES:
        return {"": [PredictedLine(each.name, "", each.cells) for each in whole]}
    by_place: dict[str, list[PredictedLine]] = {}
    for each in whole:
        place, way = (each.place, each.way) if each.way else ("", each.place)
        by_place.setdefault(place, []).append(PredictedLine(way, place, each.cells))
    return by_place


def seconds(found: Sequence[Forecast], axis: str) -> tuple[Plot, str]:
    """Seconds of a step, within their intervals."""

    def trace(line: PredictedLine) -> Trace:
        low, high = zip(*(each.interval for each in line.cells), strict=True)
        return replace(line.trace(axis, lambda each: each.seconds), low=low, high=high)

    plot, caption = _plot(found, axis, Axis("time per step", "s", log=None), trace)
    words = "Upright lines: four of five measured steps lie there, if they are as well predicted as the calibration's "
    words += "own runs."
    if axis == RATE:
        domain = found[0].calibration.domain
        shaded = (domain.least_rate, domain.most_rate, "calibrated rates")
        plot = replace(plot, panels=[replace(panel, shaded=shaded) for panel in plot.panels])
        words += " Grey: the rates of the calibration."
    return plot, words + caption


def efficiency(found: Sequence[Forecast]) -> tuple[Plot, str]:
    """Speedup by ranks, and where half of what was added is lost."""
    up = Axis("efficiency", "share", most=1.0)
    plot, caption = _plot(found, RANKS, up, lambda line: line.trace(RANKS, lambda each: each.efficiency))
    plot = replace(plot, panels=[replace(panel, levels=[(HALF, "a half")]) for panel in plot.panels])
    words = "Speedup divided by ranks. One rank with the same global batch is 100 %. Dotted: a half."
    shared = [each.setup.ranks for each in found if each.setup.cpus.shared_cores is not None and each.setup.ranks > 1]
    if shared and len(shared) < sum(each.setup.ranks > 1 for each in found):
        words += f" Up to {max(shared)} ranks share one host; more have one each."
    return plot, words + caption


def _plot(found: Sequence[Forecast], axis: str, up: Axis, trace: Callable[[PredictedLine], Trace]) -> tuple[Plot, str]:
    """The figure, and what its caption says of what is dashed or left out."""
    panels = by_panel(found, axis)
    shown = []
    for place, whole in [*panels.items()][:MOST_PANELS]:
        fastest = sorted(whole, key=lambda line: line.last.seconds)[:MOST_LINES]
        shown.append(Panel([trace(line) for line in whole if line in fastest], place))
    caption = left_out(len(panels), MOST_PANELS, "groups of cells")
    if (most := max(map(len, panels.values()))) > MOST_LINES:
        caption += f" Of {most} lines, the {MOST_LINES} that end fastest are drawn."
    if any(map(unverified, found)):
        caption += f" Dashed: simulated, not verified beyond {VERIFIED_RANKS} ranks."
    x = across(found, axis)
    return Plot(f"{up.title.capitalize()} by {x.title}, predicted", x, up, shown), caption
