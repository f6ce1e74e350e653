"""What an experiment has measured so far: its finished runs, by cell and round."""

from collections.abc import Callable, Sequence
from pathlib import Path

from app.experiment.plan.cells import Cell
from app.experiment.plan.grid import Grid
from app.experiment.plan.trials import Plan, Trial
from app.experiment.reading.statistics import Blocks
from app.summary.run import Run


class Measured(Run):
    """A finished run of a cell."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        super().__init__(folder)
        self.trial = trial


Figure = Callable[[Measured], float | None]


class Results:
    """The finished runs of a grid."""

    def __init__(self, grid: Grid, plan: Plan) -> None:
        self.grid, self.plan = grid, plan
        self._runs = {(trial.cell, trial.round): Measured(trial, plan.folder / trial.name) for trial in plan.finished()}

    @property
    def cells(self) -> list[Cell]:
        """Those that have a finished run."""
        return [cell for cell in self.grid.cells if self.runs(cell.name)]

    @property
    def all_runs(self) -> list[Measured]:
        """Every finished run."""
        return list(self._runs.values())

    def run(self, cell: str, number: int) -> Measured | None:
        """A cell's run in a round, from 1."""
        return self._runs.get((cell, number))

    def runs(self, cell: str) -> list[Measured]:
        """A cell's finished runs, by round."""
        return [run for number in range(1, self.grid.repeats + 1) if (run := self.run(cell, number))]

    def first(self, cell: str) -> Measured:
        """The run that stands for a cell where only one can be shown: the first that is finished."""
        return self.runs(cell)[0]

    def blocks(self, figure: Figure, cells: Sequence[Cell] | None = None, *, ratios: bool = True) -> Blocks:
        """A figure of all runs, for comparisons between cells."""
        numbers = range(1, self.grid.repeats + 1)
        return Blocks(
            {
                cell.name: [figure(run) if (run := self.run(cell.name, number)) else None for number in numbers]
                for cell in (self.cells if cells is None else cells)
            },
            ratios=ratios,
        )
