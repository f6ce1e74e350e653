"""How far each cell's losses are from a reference's of the same round: within rounding, or further with every step."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Results
from app.experiment.views.coincidence import Coincidence
from app.experiment.views.learned import (
    as_printed,
    in_powers,
    left_out,
    line_figure,
    listed,
    test_accuracy,
    test_loss,
)
from app.experiment.views.view import Section, View, cell_column, middle, missing_sentences
from app.report import theme
from app.report.drawing import Missing, draw
from app.report.series import series
from app.report.table import Column, Table, Value, digits, percent, plain

UPDATES = 5  # after which the table looks again


class Distance(View):
    """The distance of losses from a reference."""

    reference: str = Field(description="the cell that the others are laid beside")
    among: list[str] | None = Field(None, description="the cells that are shown [all]")
    rounding: float = Field(1e-6, gt=0, description="relative difference of losses that rounding explains")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        return [self.reference, *(self.among or [])]

    def section(self, results: Results, name: str) -> Section:
        """The distances by step, in a table, and in words."""
        planned = [
            each for each in results.grid.cells if self.among is None or each.name in (*self.among, self.reference)
        ]
        shown = [cell for cell in planned if results.runs(cell.name)]
        missing = missing_sentences(results, planned)
        others = [Coincidence.of(results, cell.name, self.reference) for cell in shown if cell.name != self.reference]
        sentences = [*self._sentences(results, others), *missing, *([self.note] if self.note else [])]
        figure = draw(name, self.title, self._figure, others, png=True)
        return Section(name, self.title, sentences, [figure], [self._table(results, shown, others, name)])

    def _sentences(self, results: Results, others: list[Coincidence]) -> Iterator[str]:
        known = [each for each in others if each.rounds]
        if not known:
            yield f"No cell has a finished run in the same round as {self.reference}: there is no distance."
            return
        within = [each for each in known if each.largest <= self.rounding]
        if within:
            largest = max(each.largest for each in within)
            how_far = f"differ by at most {digits(largest)} of it" if largest else "are the same to the last digit"
            yield (
                f"Within rounding of {self.reference} "
                f"{'stays' if len(within) == 1 else 'stay'} {listed([each.one for each in within])}: the losses of all "
                f"steps {how_far}."
            )
        for each in [each for each in known if each not in within]:
            yield (
                f"{each.one} parts from {self.reference}: {self._start(each.worst(0))}; they differ most at step "
                f"{each.at_largest}, by {digits(each.largest)} of the reference's."
            )
        if unknown := [each.one for each in others if not each.rounds]:
            yield f"In no round beside {self.reference}, and so not compared: {listed(unknown)}."
        split = [
            each.one for each in known if any(run.summary.replicas_identical is False for run in results.runs(each.one))
        ]
        if split:
            yield f"The replicas of {listed(split)} do not end with the same parameters."

    def _start(self, first: float | None) -> str:
        if not first:
            return "its losses are the same at the first step, to the last digit"
        if first <= self.rounding:
            return f"its losses differ at the first step by no more than rounding ({digits(first)})"
        return f"its losses differ already at the first step, by {digits(first)}"

    def _table(self, results: Results, shown: list[Cell], others: list[Coincidence], name: str) -> Table:
        columns = [
            cell_column(),
            Column("first step", "distance_first", digits),
            Column(f"after {UPDATES} updates", f"distance_after_{UPDATES}", digits),
            Column("last step", "distance_last", digits),
            Column("largest", "distance_largest", digits),
            Column("test loss", "test_loss", as_printed),
            Column("test accuracy", "test_accuracy", percent),
            Column("replicas identical", "replicas_identical", plain),
            Column("rounds", "rounds", digits),
        ]
        distances = {each.one: each for each in others if each.rounds}
        rows: list[list[Value]] = []
        for cell in shown:
            runs = results.runs(cell.name)
            row: list[Value] = [cell.name]
            if each := distances.get(cell.name):
                row += [each.worst(0), each.worst(UPDATES), each.worst(-1), each.largest]
            else:
                row += [None, None, None, None]
            identical = cell.world_size > 1 or None
            row += [middle(runs, test_loss), middle(runs, test_accuracy)]
            row += [identical and all(run.summary.replicas_identical for run in runs)]
            rows.append([*row, len(runs)])
        note = (
            f"|loss - loss of {self.reference}| by the latter, at the same step of the same round; where there are "
            "several rounds, the largest of them. Scores are medians over rounds."
        )
        return Table(name, self.title, columns, rows, note)

    def _figure(self, others: list[Coincidence]) -> tuple[Figure, str]:
        lines = []
        for each in others:
            distances = next(iter(each.rounds.values()), [])
            lines.append(series(each.one, range(len(distances)), [distance or None for distance in distances]))
        if not lines:
            raise Missing("there is no other cell.")
        none = f"no loss differs from that of {self.reference}, or no round has both."
        figure, axes = line_figure(lines, "step", "relative difference of the loss", none)
        axes.set_yscale("log")
        in_powers(axes.yaxis)
        highest = max(float(np.max(line.values)) for line in lines if not line.empty)
        axes.axhline(self.rounding, color=theme.MUTED, linewidth=0.8, linestyle=":")
        axes.set_ylim(top=max(highest, self.rounding) * 3)
        return figure, (
            f"From {self.reference}, in the first round that has both; dotted: what rounding explains. "
            f"Losses that are the same to the last digit have no place on this axis.{left_out(lines)}"
        )
