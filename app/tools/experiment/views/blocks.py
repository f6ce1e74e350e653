"""What a step is made of in blocks of steps, one after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.analysis.statistics import mean, median
from app.analysis.units import COUNT, SECONDS, TEXT
from app.pages.chart import Chart
from app.pages.drawn import panels, whole
from app.pages.scale import Axis
from app.pages.series import series
from app.pages.table import Column, Table
from app.records.lines import Step
from app.tools.experiment.results import MeasuredCell

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
    rounds: int
    seconds: dict[str, float | None]  # of each part of a step: the mean over ranks and steps, the median over rounds


def of(cells: Sequence[MeasuredCell], size: int) -> list[BlockOfSteps]:
    """The blocks of all cells; the first step of a run is in none, because it sets everything up."""
    found = []
    for cell in cells:
        length = max(len(rank.steps) for run in cell.runs for rank in run.ranks)
        for begin in range(0, length, size):
            first, end = max(begin, 1), min(begin + size, length)
            every = [[step for rank in run.ranks for step in rank.steps[first:end]] for run in cell.runs]
            if rounds := [steps for steps in every if steps]:
                seconds = {
                    part: median(mean(_taken(step, phases) for step in steps) for steps in rounds)
                    for part, phases in PARTS.items()
                }
                found.append(BlockOfSteps(cell.name, first + 1, end, len(rounds), seconds))
    return found


def _taken(step: Step, phases: Sequence[str]) -> float | None:
    measured = [each for phase in phases if (each := getattr(step, f"{phase}_seconds")) is not None]
    return sum(measured) if measured else None


def _seconds_of(part: str, block: BlockOfSteps) -> float | None:
    return block.seconds[part]


def table(blocks: Sequence[BlockOfSteps], name: str, title: str) -> Table:
    """A row for each block of each cell."""
    columns: list[Column[Any]] = [
        Column("", "cell", TEXT, lambda block: block.cell),
        Column("from step", "first_step", COUNT, lambda block: block.first),
        Column("to", "last_step", COUNT, lambda block: block.last),
        *(Column(part, f"{part}_seconds", SECONDS, partial(_seconds_of, part)) for part in PARTS),
        Column("rounds", "rounds", COUNT, lambda block: block.rounds),
    ]
    note = (
        "Per step: the mean over the block's steps and all ranks, then the median over rounds. Communication: wait and "
        "sync. The very first step is left out, because it sets everything up."
    )
    return Table.of(name, title, columns, blocks, note)


def figure(blocks: Sequence[BlockOfSteps]) -> tuple[Chart, str]:
    """A panel for each cell, a line for each part of a step."""
    found = {}
    for cell in dict.fromkeys(block.cell for block in blocks):
        own = [block for block in blocks if block.cell == cell]
        found[cell] = {part: [series(part, [b.last for b in own], [b.seconds[part] for b in own])] for part in PARTS}
    lines = [line for parts in found.values() for each in parts.values() for line in each]
    y, roles = Axis("time per step", "s"), {part: phases[-1] for part, phases in PARTS.items()}
    words = f"Phases by block of steps: {y.title} of {', '.join(PARTS)}, by cell"
    missing = "no step but the first is there."
    chart, cut = panels(words, whole("last step of the block", lines), y, found, "cells", "blocks", missing, roles)
    return chart, f"Mean seconds per step of each block, by the number of its last step; medians over rounds.{cut}"
