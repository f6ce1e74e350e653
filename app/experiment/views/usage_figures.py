"""CPU and network over time, a small panel for each cell."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.experiment.reading.results import Measured, Results
from app.report import theme
from app.report.drawing import Missing
from app.report.figures import usage_line

MOST_PANELS = 8
PANELS_ACROSS = 2


def cpu(results: Results) -> tuple[Figure, str]:
    """User and system of every rank."""
    runs = _firsts(results)
    if not any(rank.usage for run in runs for rank in run.ranks):
        raise Missing("no sample of usage is there.")
    figure, panels = _panels(runs, "% of one CPU")
    for axes, run in zip(panels, runs, strict=False):
        for number, kind in enumerate(("user", "system")):
            for rank in run.ranks:
                line = usage_line(rank, f"cpu_{kind}_percent", 1)
                axes.plot(
                    line.at, line.values, color=theme.colour(number), linewidth=0.9, label=None if rank.rank else kind
                )
    panels[0].set_ylim(bottom=0)  # of all, which share it
    theme.legend_above(panels[0], 2)
    return figure, _caption("Each rank's CPU time in its program and in the kernel, by sample", runs, results)


def network(results: Results) -> tuple[Figure, str]:
    """What each rank sends."""
    runs = [run for run in _firsts(results) if _has_network(run)]
    if not runs:
        raise Missing("the interface is shared with others, or no sample is there.")
    figure, panels = _panels(runs, "MB/s sent")
    for axes, run in zip(panels, runs, strict=False):
        for rank in run.ranks:
            line = usage_line(rank, "network_sent_bytes", 1e-6)
            axes.plot(line.at, line.values, color=theme.colour(rank.rank), linewidth=0.9, label=line.name)
    panels[0].set_ylim(bottom=0)
    most = max(range(min(len(runs), MOST_PANELS)), key=lambda number: len(runs[number].ranks))
    theme.legend_above(panels[most], len(runs[most].ranks))
    return figure, _caption("What each rank's interface sends, headers and all, by sample", runs, results)


def _has_network(run: Measured) -> bool:
    samples = [sample for rank in run.ranks for sample in rank.usage]
    return len(run.ranks) > 1 and any(sample.network_sent_bytes is not None for sample in samples)


def _firsts(results: Results) -> list[Measured]:
    return [results.first(cell.name) for cell in results.cells]


def _panels(runs: Sequence[Measured], unit: str) -> tuple[Figure, list[Axes]]:
    shown = runs[:MOST_PANELS]
    across = min(PANELS_ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    figure = theme.new_figure(0.9 + 1.8 * down)
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    panels: list[Axes] = list(np.ravel(grid))
    for axes, run in zip(panels, shown, strict=False):
        axes.set_title(theme.shorten([run.trial.cell], 36)[0])
        axes.margins(x=0.02)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    for number, axes in enumerate(panels[: len(shown)]):
        if number + across >= len(shown):
            axes.set_xlabel("seconds since the run began")
    for axes in grid[:, 0]:
        axes.set_ylabel(unit)
    return figure, panels[: len(shown)]


def _caption(what: str, runs: Sequence[Measured], results: Results) -> str:
    rounds = " of the first finished round" if results.grid.repeats > 1 else ""
    cut = f" The first {MOST_PANELS} of {len(runs)} cells are drawn." if len(runs) > MOST_PANELS else ""
    return f"{what}{rounds}.{cut}"
