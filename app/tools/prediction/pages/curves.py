"""Curves of predicted cells: seconds of a step and efficiency, by ranks or by the rate of the links."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from app.pages import theme
from app.pages.series import Band, Series
from app.tools.experiment.views.drawn import LEGEND_LETTERS, in_powers, panels
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.limits import HALF
from app.tools.prediction.names import RANKS, RATE, value_of
from app.tools.prediction.pages.lines import PredictedLine, lines, position, unverified

MOST_LINES = 8  # of a panel
MOST_PANELS = 6
DECADE = 10.0  # from there on a scale is logarithmic
CLOSEST = 0.055  # of the axis, between two of its marks
NOT_VERIFIED = f" Dashed: simulated, not verified beyond {VERIFIED_RANKS} ranks."
ACROSS = {RANKS: "ranks", RATE: "rate of each rank's link"}


@dataclass(frozen=True)
class PredictedCurves:
    """A figure of predicted cells along an axis."""

    found: Sequence[Forecast]
    axis: str
    up: str
    value: Callable[[Forecast], float]
    interval: bool = False  # whether lines have a band

    def panels(self) -> dict[str, list[PredictedLine]]:
        """Lines by the panel that they are in: all in one as long as they can be kept apart."""
        whole = [each for each in lines(self.found, self.axis) if len(each.cells) > 1]
        if len(whole) <= MOST_LINES:
            return {"": [PredictedLine(each.name, "", each.cells) for each in whole]}
        by_place: dict[str, list[PredictedLine]] = {}
        for each in whole:
            place, way = (each.place, each.way) if each.way else ("", each.place)
            by_place.setdefault(place, []).append(PredictedLine(way, place, each.cells))
        return by_place


def seconds(found: Sequence[Forecast], axis: str) -> tuple[Figure, str]:
    """Seconds of a step, within their intervals."""
    figure, caption = draw(PredictedCurves(found, axis, "s/step", lambda each: each.seconds, interval=True))
    words = "Bands: four of five measured steps lie there, if they are as well predicted as the calibration's own runs."
    if axis == RATE:
        domain = found[0].calibration.domain
        for axes in figure.axes:
            axes.axvspan(domain.least_rate, domain.most_rate, color=theme.GRID, alpha=0.6, linewidth=0, zorder=0)
        words += " Grey: the rates of the calibration."
    return figure, words + caption


def efficiency(found: Sequence[Forecast]) -> tuple[Figure, str]:
    """Speedup by ranks, and where half of what was added is lost."""
    figure, caption = draw(PredictedCurves(found, RANKS, "efficiency", lambda each: each.efficiency))
    for axes in figure.axes:
        axes.axhline(HALF, color=theme.MUTED, linewidth=1.0, linestyle=":")
        axes.set_ylim(0, max(1.05, *(each.efficiency for each in found)))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    words = "Speedup by ranks; one rank with the same global batch is 100 %. Dotted: a half."
    shared = [each.setup.ranks for each in found if each.setup.cpus.shared_cores is not None and each.setup.ranks > 1]
    if shared and len(shared) < sum(each.setup.ranks > 1 for each in found):
        words += f" Up to {max(shared)} ranks share one host; more have one each."
    return figure, words + caption


def draw(curves: PredictedCurves) -> tuple[Figure, str]:
    """The figure, and what its caption says of what is dashed or left out."""
    by_panel = curves.panels()
    names = list(dict.fromkeys(each.way for panel in by_panel.values() for each in panel))
    figure, shown, cut = panels(
        list(by_panel), most=MOST_PANELS, across=min(2, len(by_panel)), height=2.3 if len(by_panel) > 1 else 2.6,
        up=curves.up,
    )  # fmt: skip
    drawn: dict[str, int] = {}
    cells: list[Forecast] = []
    for number, (axes, panel) in enumerate(zip(shown, by_panel.values(), strict=False)):
        fastest = sorted(range(len(panel)), key=lambda each: panel[each].last.seconds)[:MOST_LINES]
        kept = [panel[each] for each in sorted(fastest)]
        for line in kept:
            drawn[line.way] = names.index(line.way)
            _draw_line(axes, line, curves, drawn[line.way], number)
        own = [each for line in kept for each in line.cells]
        _scale_across(axes, own, curves.axis)
        cells += own
    _scale_up(shown[0], cells, curves)
    if len(names) > 1:
        _legend(shown[0], drawn)
    caption = cut.replace("cells", "groups of cells")
    if any(len(each) > MOST_LINES for each in by_panel.values()):
        caption += f" Of {max(map(len, by_panel.values()))} lines, the {MOST_LINES} that end fastest are drawn."
    return figure, caption + (NOT_VERIFIED if any(map(unverified, curves.found)) else "")


def _draw_line(axes: Axes, line: PredictedLine, curves: PredictedCurves, colour: int, panel: int) -> None:
    """What has been verified is a line with dots, the rest is dashed with rings."""
    at = np.array([position(each, curves.axis) for each in line.cells], dtype=float)
    values = np.array([curves.value(each) for each in line.cells])
    far = [unverified(each) for each in line.cells]
    near = far.count(False)
    style: dict[str, Any] = {"color": theme.colour(colour), "marker": "o", "markersize": 4}
    axes.plot(at[:near], values[:near], **style)
    begin = max(near - 1, 0)
    rings = [number for number in range(len(far) - begin) if far[begin + number]]
    if rings:
        axes.plot(at[begin:], values[begin:], **style, linestyle="--", markerfacecolor=theme.PANEL, markevery=rings)
    if curves.interval:
        low, high = np.array([each.interval for each in line.cells]).T
        # Parts of a drawing need names of their own, and colours repeat after all of them.
        theme.band(axes, Series(line.name, at, values, Band(1, low, high)), colour + panel * len(theme.SERIES))


def _scale_across(axes: Axes, cells: Sequence[Forecast], axis: str) -> None:
    places = {position(each, axis) or 0.0: each for each in cells}
    logarithmic = axis == RATE or max(places) > DECADE * min(places)
    if logarithmic:
        axes.set_xscale("log")
    panels_across = axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]  # it is one of several
    marks = _apart(sorted(places), logarithmic=logarithmic, closest=CLOSEST * panels_across)
    labels = [f"{at:,.0f}" if axis == RANKS else value_of(places[at], RATE) for at in marks]
    axes.set_xticks(marks, labels, fontsize=9)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(ACROSS[axis])


def _scale_up(axes: Axes, cells: Sequence[Forecast], curves: PredictedCurves) -> None:
    """All panels alike, as they share the scale."""
    ends = [each.interval if curves.interval else (curves.value(each),) * 2 for each in cells]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if curves.interval and high > DECADE * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.1, high * 1.1)
        in_powers(axes.yaxis)
    else:
        axes.set_ylim(0, high * 1.05)


def _apart(places: Sequence[float], *, logarithmic: bool, closest: float) -> list[float]:
    """The marks that have room beside each other; the last one in any case."""
    at = np.log(places) if logarithmic else np.array(places)
    room = closest * max(float(np.ptp(at)), 1e-9)
    kept = [len(places) - 1]
    for number in range(len(places) - 2, -1, -1):
        if at[kept[-1]] - at[number] >= room:
            kept.append(number)
    return [places[number] for number in reversed(kept)]


def _legend(axes: Axes, drawn: dict[str, int]) -> None:
    """Of all panels, above them."""
    for name, colour in drawn.items():
        axes.plot([], [], color=theme.colour(colour), marker="o", markersize=4, label=name)
    theme.legend_above(axes, max(1, LEGEND_LETTERS // (max(map(len, drawn)) + 5)))
