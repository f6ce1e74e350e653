"""What an experiment has measured so far: its finished runs, by cell and round."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from app.experiment.plan.cells import Cell
from app.experiment.plan.grid import Grid
from app.experiment.plan.trials import Plan, Trial
from app.experiment.reading.statistics import Blocks
from app.summary import run_records
from app.summary.run_records import RankRecords


@dataclass(frozen=True)
class Measured:
    """A finished run."""

    trial: Trial
    folder: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Its summary.json."""
        content: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return content

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Its manifest.json."""
        content: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return content

    @cached_property
    def ranks(self) -> list[RankRecords]:
        """Its records."""
        return run_records.read(self.folder).ranks


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
