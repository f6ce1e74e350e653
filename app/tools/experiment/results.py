"""What an experiment has measured so far: its finished runs, by cell and round."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from app.analysis.catalogue import rank_rows, value
from app.analysis.figures import Measure
from app.analysis.run import Run
from app.analysis.statistics import Blocks
from app.analysis.units import PERCENT
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid import Grid
from app.tools.experiment.plan.trials import ExperimentPlan


@dataclass(frozen=True)
class MeasuredCell(Cell):
    """A cell with its finished runs, by round, or a rank of it."""

    runs: Sequence[Run] = ()
    rank: int | None = None  # None: all of them together

    @property
    def first(self) -> Run:
        """The run that stands for the cell where only one can be shown."""
        return self.runs[0]

    def value(self, run: Run, measure: Measure[Any]) -> Any:
        """A measure of one of the runs."""
        return value(measure, rank_rows(self.rank, run.table.all))

    def middle(self, measure: Measure[Any]) -> float | None:
        """The median of a measure over the rounds; None where one of them lacks it."""
        measured = [found for run in self.runs if (found := self.value(run, measure)) is not None]
        return median(measured) if measured and len(measured) == len(self.runs) else None

    def by_rank(self) -> list["MeasuredCell"]:
        """Each of its ranks, then all of them together where there are several."""
        ranks = [replace(self, rank=rank) for rank in range(self.world_size)]
        return [*ranks, self] if len(ranks) > 1 else ranks


class Results:
    """The finished runs of a grid."""

    def __init__(self, grid: Grid, plan: ExperimentPlan) -> None:
        self.grid = grid
        self._runs = {(trial.cell, trial.round): Run(plan.folder / trial.name) for trial in plan.finished()}
        self.cells = [MeasuredCell(**vars(cell), runs=runs) for cell in grid.cells if (runs := self.runs(cell))]

    def where(self, settings: Mapping[str, str]) -> "Results":
        """Only those of the cells that have these settings."""
        found = copy(self)
        found.grid = replace(self.grid, cells=[cell for cell in self.grid.cells if cell.matches(settings)])
        found.cells = [cell for cell in self.cells if cell.matches(settings)]
        return found

    @property
    def all_runs(self) -> list[Run]:
        """Every finished run."""
        return list(self._runs.values())

    def run(self, cell: str, number: int) -> Run | None:
        """A cell's run in a round, from 1."""
        return self._runs.get((cell, number))

    def runs(self, cell: Cell) -> list[Run]:
        """A cell's finished runs, by round."""
        return [run for number in range(1, self.grid.repeats + 1) if (run := self.run(cell.name, number))]

    def together(self, cell: str, other: str) -> dict[int, tuple[Run, Run]]:
        """The runs of two cells in the rounds that both have finished."""
        both = {number: (self.run(cell, number), self.run(other, number)) for number in range(1, self.grid.repeats + 1)}
        return {number: (one, two) for number, (one, two) in both.items() if one and two}

    def blocks(self, measure: Measure[Any]) -> Blocks:
        """A measure of those cells that have it in all of their runs, for comparisons; a 0 has no ratio."""
        numbers, share = range(1, self.grid.repeats + 1), measure.unit == PERCENT
        measured = {
            cell.name: [
                cell.value(run, measure) if (run := self.run(cell.name, number)) else None for number in numbers
            ]
            for cell in self.cells
            if cell.middle(measure) is not None and (share or all(cell.value(run, measure) > 0 for run in cell.runs))
        }
        return Blocks(measured, ratios=not share)
