"""What an experiment has measured so far: its finished runs, by cell and round."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from statistics import median

from app.analysis.run import Run
from app.analysis.statistics import Blocks
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid import Grid
from app.tools.experiment.plan.trials import ExperimentPlan

Measure = Callable[[Run], float | None]  # one number of a run; None where it was not measured


@dataclass(frozen=True)
class MeasuredCell(Cell):
    """A cell with its finished runs, by round."""

    runs: Sequence[Run] = ()

    @property
    def first(self) -> Run:
        """The run that stands for the cell where only one can be shown."""
        return self.runs[0]

    def middle(self, measure: Measure) -> float | None:
        """The median of a measure over the rounds; None where one of them lacks it."""
        measured = [value for run in self.runs if (value := measure(run)) is not None]
        return median(measured) if measured and len(measured) == len(self.runs) else None


class Results:
    """The finished runs of a grid."""

    def __init__(self, grid: Grid, plan: ExperimentPlan) -> None:
        self.grid, self.plan = grid, plan
        self._runs = {(trial.cell, trial.round): Run(plan.folder / trial.name) for trial in plan.finished()}
        self.cells = [MeasuredCell(**vars(cell), runs=runs) for cell in grid.cells if (runs := self.runs(cell))]

    def where(self, settings: Mapping[str, str]) -> "Results":
        """Only those of the cells that have these settings."""
        found = copy(self)
        found.grid = replace(self.grid, cells=[cell for cell in self.grid.cells if cell.has(settings)])
        found.cells = [cell for cell in self.cells if cell.has(settings)]
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

    def blocks(self, measure: Measure, cells: Sequence[Cell] | None = None, *, ratios: bool = True) -> Blocks:
        """A measure of all runs, for comparisons between cells."""
        numbers = range(1, self.grid.repeats + 1)
        return Blocks(
            {
                cell.name: [measure(run) if (run := self.run(cell.name, number)) else None for number in numbers]
                for cell in (self.cells if cells is None else cells)
            },
            ratios=ratios,
        )
