"""What a step is made of in blocks of steps, one after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any

from app.analysis.units import COUNT, SECONDS, TEXT
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.drawn import curve, whole
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.series import left_out, series, thinned
from app.pages.table import Column, Table
from app.pages.traces import Panel
from app.records.lines import Step
from app.tools.experiment.results import MeasuredCell

MOST_PANELS = 12
PARTS: dict[str, tuple[str, ...]] = {  # the phases of a block's parts; the last one gives the colour
    "forward": ("forward",),
    "backward": ("backward",),
    "communication": ("wait", "sync"),
    "optimiser": ("optimiser",),
}


@dataclass(frozen=True)
class BlockOfSteps:
    """Some steps of a cell, one after another; the first step of a run is number 1."""

    cell: str
    first: int
    last: int
    rounds: list[list[Step]]  # the steps of all ranks, by round

    def seconds(self, part: str) -> float | None:
        """Of a step: the mean over ranks and steps, then the median over rounds."""
        taken = [[each for step in steps if (each := _taken(step, PARTS[part])) is not None] for steps in self.rounds]
        means = [mean(known) for known in taken if known]
        return median(means) if means else None


def of(cells: Sequence[MeasuredCell], size: int) -> list[BlockOfSteps]:
    return [block for cell in cells for block in _of_cell(cell, size)]


def _taken(step: Step, phases: Sequence[str]) -> float | None:
    measured = [each for phase in phases if (each := getattr(step, f"{phase}_seconds")) is not None]
    return sum(measured) if measured else None


def _of_cell(cell: MeasuredCell, size: int) -> list[BlockOfSteps]:
    """A cell's blocks; the first step of a run is in none, because it sets everything up."""
    lengths = [min(len(rank.steps) for rank in run.ranks) for run in cell.runs]
    found = []
    for begin in range(0, max(lengths), size):
        first, end = max(begin, 1), begin + size
        rounds = [
            [step for rank in run.ranks for step in rank.steps[first : min(end, length)]]
            for run, length in zip(cell.runs, lengths, strict=True)
        ]
        if there := [steps for steps in rounds if steps]:
            found.append(BlockOfSteps(cell.name, first + 1, min(end, max(lengths)), there))
    return found


def _seconds_of(part: str, block: BlockOfSteps) -> float | None:
    return block.seconds(part)


def table(blocks: Sequence[BlockOfSteps], name: str, title: str) -> Table:
    """A row for each block of each cell."""
    columns: list[Column[Any]] = [
        Column("", "cell", TEXT, lambda block: block.cell),
        Column("from step", "first_step", COUNT, lambda block: block.first),
        Column("to", "last_step", COUNT, lambda block: block.last),
        *(Column(part, f"{part}_seconds", SECONDS, partial(_seconds_of, part)) for part in PARTS),
        Column("rounds", "rounds", COUNT, lambda block: len(block.rounds)),
    ]
    note = (
        "Per step: the mean over the block's steps and all ranks, then the median over rounds. Communication: wait and "
        "sync. The very first step is left out, because it sets everything up."
    )
    return Table.of(name, title, columns, blocks, note)


def figure(blocks: Sequence[BlockOfSteps]) -> tuple[Chart, str]:
    """A panel for each cell, a line for each part of a step."""
    if not blocks:
        raise Missing("no step but the first is there.")
    cells = list(dict.fromkeys(block.cell for block in blocks))
    panels, lines = [], []
    for cell in cells[:MOST_PANELS]:
        own = [block for block in blocks if block.cell == cell]
        last = [block.last for block in own]
        parts = [series(part, last, [block.seconds(part) for block in own]) for part in PARTS]
        panels.append(Panel([curve(each.name, each, role=PARTS[each.name][-1]) for each in parts], cell))
        lines += parts
    x, y = whole("last step of the block", lines), Axis("time per step", "s")
    words = f"Phases by block of steps: {y.title} of {', '.join(PARTS)}, by cell"
    return Plot(words, x, y, panels), (
        "Mean seconds per step of each block, by the number of its last step; medians over rounds."
        f"{left_out(len(cells), MOST_PANELS, 'cells')}{thinned(lines, 'blocks')}"
    )
