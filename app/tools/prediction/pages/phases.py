"""What a predicted step is made of: bars along an axis for each line of cells, or a bar for each cell."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from app.pages import definitions, theme
from app.pages.phase_bars import MeanSeconds, stacked_phases
from app.tools.experiment.views.drawn import panels
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.names import RANKS, RATE, in_words, telling, value_of
from app.tools.prediction.pages.lines import lines, unverified

COLOURS = {  # computing has data, forward and backward in it, of which backward is the longest
    "computing": theme.PHASES["backward"],
    **{phase: theme.PHASES[phase] for phase in ("wait", "sync", "optimiser")},
}
MOST_PANELS = 12
MOST_BARS = 12  # of a panel
MOST_ROWS = 24
LONGEST_ROW, LONGEST_TITLE = 30, 26  # letters


def along(found: Sequence[Forecast], axis: str) -> tuple[Figure, str]:
    """Shares of the step, a panel for each line, so that it shows what grows."""
    whole = [each for each in lines(found, axis) if len(each.cells) > 1]
    names = [each.name for each in whole] if len(whole) > 1 else [""]
    figure, shown, cut = panels(names, most=MOST_PANELS, across=3, height=1.75, up="of the step")
    for axes, name, line in zip(shown, names, whole, strict=False):
        axes.set_title("\n".join(textwrap.wrap(name, LONGEST_TITLE)), fontsize=8)
        _draw_shares(axes, line.cells, axis)
    theme.legend_above(shown[0], len(COLOURS))
    caption = f"Shares of the mean step by {'ranks' if axis == RANKS else 'rate'}. {definitions.WAIT_AND_SYNC}"
    far = f" Pale: simulated, not verified beyond {VERIFIED_RANKS} ranks." if any(map(unverified, found)) else ""
    return figure, caption + cut.replace("cells", "lines") + far


def _draw_shares(axes: Axes, cells: Sequence[Forecast], axis: str) -> None:
    shown = [cells[number] for number in np.unique(np.linspace(0, len(cells) - 1, MOST_BARS).round().astype(int))]
    bottom = np.zeros(len(shown))
    for phase, colour in COLOURS.items():
        shares = np.array([each.simulated.mean(phase) / each.seconds for each in shown])
        bars = axes.bar(range(len(shown)), shares, 0.8, bottom=bottom, color=colour, label=phase)
        for bar, each in zip(bars, shown, strict=True):
            bar.set_alpha(0.55 if unverified(each) else 1.0)
        bottom += shares
    labels = [f"{each.setup.ranks:,}" if axis == RANKS else value_of(each, RATE) for each in shown]
    tight = sum(map(len, labels)) > 16
    axes.set_xticks(range(len(shown)), labels, fontsize=8, rotation=90 if tight else 0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False)


def by_cell(found: Sequence[Forecast]) -> tuple[Figure, str]:
    """A bar for each cell, with the interval of the whole step."""
    names = telling(found)
    shown = found[:MOST_ROWS]
    figure = stacked_phases([(in_words(each, names) or each.name, _seconds_of(each)) for each in shown], COLOURS)
    labels = ["\n".join(textwrap.wrap(in_words(each, names) or each.name, LONGEST_ROW)[:2]) for each in shown]
    figure.axes[0].set_yticks(range(len(shown)), labels, fontsize=8, multialignment="right")
    cut = f" The first {MOST_ROWS} of {len(found)} cells are drawn." if len(found) > MOST_ROWS else ""
    hidden = definitions.HIDDEN_BAR if any(each.hidden for each in shown) else ""
    return figure, f"Mean seconds. {definitions.WAIT_AND_SYNC} Lines: the 80 % interval of the step.{hidden}{cut}"


def _seconds_of(cell: Forecast) -> MeanSeconds:
    low, high = cell.interval
    phases = {phase: cell.simulated.mean(phase) for phase in COLOURS}
    return phases | {"hidden_sync": cell.hidden, "step": cell.seconds, "low": low, "high": high}
