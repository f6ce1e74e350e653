"""Phases over the course of a run, by block of steps, as the documents print them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from app.experiment.reading.results import Measured, Results
from app.experiment.views.view import cell_column
from app.records.lines import Step
from app.report import theme
from app.report.drawing import Missing
from app.report.table import Column, Table, Value, digits

PARTS = {  # what a block's seconds are told apart into, and in which phase's colour
    "forward": "forward",
    "backward": "backward",
    "communication": "sync",
    "optimiser": "optimiser",
}
MOST_PANELS = 12
PANELS_ACROSS = 3

Seconds = dict[str, float | None]


@dataclass(frozen=True)
class BlockOfSteps:
    """Some steps of a cell, one after another; the first is number 1."""

    cell: str
    first: int
    last: int
    seconds: Seconds  # of a step by part: the mean over ranks and steps, the median over rounds
    rounds: int


def of_cells(results: Results, size: int) -> list[BlockOfSteps]:
    """Every cell's blocks; the first step of a run is in none, because it sets everything up."""
    return [
        _together(cell.name, blocks)
        for cell in results.cells
        for blocks in _by_first_step([_of_run(run, size) for run in results.runs(cell.name)])
    ]


def table(blocks: Sequence[BlockOfSteps], name: str, title: str) -> Table:
    """A row for each block of each cell."""
    columns = [
        cell_column(),
        Column("from step", "first_step", digits),
        Column("to", "last_step", digits),
        *(Column(part, f"{part}_seconds", digits) for part in PARTS),
        Column("rounds", "rounds", digits),
    ]
    rows: list[list[Value]] = [
        [block.cell, block.first, block.last, *(block.seconds[part] for part in PARTS), block.rounds]
        for block in blocks
    ]
    note = (
        "Seconds per step: the mean over the block's steps and all ranks, then the median over rounds. Communication: "
        "wait and sync. The very first step is left out, because it sets everything up."
    )
    return Table(name, title, columns, rows, note)


def figure(blocks: Sequence[BlockOfSteps]) -> tuple[Figure, str]:
    """A panel for each cell, a bar for each block."""
    if not blocks:
        raise Missing("no step but the first is there.")
    cells = list(dict.fromkeys(block.cell for block in blocks))
    shown = cells[:MOST_PANELS]
    across = min(PANELS_ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    drawing = theme.new_figure(0.9 + 1.9 * down)
    panels = drawing.subplots(down, across, sharey=True, squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(shown):
            axes.set_visible(False)
            continue
        own = [block for block in blocks if block.cell == shown[number]]
        bottom = np.zeros(len(own))
        for part, phase in PARTS.items():
            heights = np.array([block.seconds[part] or 0.0 for block in own])
            axes.bar(range(len(own)), heights, 0.8, bottom=bottom, color=theme.PHASES[phase], label=part)
            bottom += heights
        step = math.ceil(len(own) / 4)
        axes.set_xticks(range(0, len(own), step), [str(block.last) for block in own[::step]])
        middle, half = (len(own) - 1) / 2, max(len(own), 3) / 2
        axes.set_xlim(middle - half - 0.2, middle + half + 0.2)
        axes.set_title(theme.shorten([shown[number]], 24)[0])
        axes.grid(visible=False, axis="x")
    for axes in panels[:, 0]:
        axes.set_ylabel("s/step")
    theme.legend_above(panels[0, 0], len(PARTS))
    caption = "Mean seconds per step of each block, by the number of its last step; medians over rounds."
    if len(cells) > len(shown):
        caption += f" The first {len(shown)} of {len(cells)} cells are drawn."
    return drawing, caption


def _of_run(run: Measured, size: int) -> dict[int, BlockOfSteps]:
    """A run's blocks by the number of their first step."""
    found = {}
    last = min((len(rank.steps) for rank in run.ranks), default=0)
    for begin in range(0, last, size):
        first, end = max(begin, 1), min(begin + size, last)  # of the list, in which the first step has number 0
        steps = [step for rank in run.ranks for step in rank.steps[first:end]]
        if steps:
            seconds: Seconds = {
                "forward": _mean([step.forward_seconds for step in steps]),
                "backward": _mean([step.backward_seconds for step in steps]),
                "communication": _mean([_communication(step) for step in steps]),
                "optimiser": _mean([step.optimiser_seconds for step in steps]),
            }
            found[first + 1] = BlockOfSteps(run.trial.cell, first + 1, end, seconds, 1)
    return found


def _by_first_step(runs: Sequence[dict[int, BlockOfSteps]]) -> list[list[BlockOfSteps]]:
    firsts = sorted({first for run in runs for first in run})
    return [[run[first] for run in runs if first in run] for first in firsts]


def _together(cell: str, rounds: Sequence[BlockOfSteps]) -> BlockOfSteps:
    seconds: Seconds = {}
    for part in PARTS:
        measured = [value for block in rounds if (value := block.seconds[part]) is not None]
        seconds[part] = median(measured) if measured else None
    return BlockOfSteps(cell, rounds[0].first, max(block.last for block in rounds), seconds, len(rounds))


def _communication(step: Step) -> float | None:
    known = [seconds for seconds in (step.wait_seconds, step.sync_seconds) if seconds is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return float(np.mean(measured)) if measured else None
