"""How far each cell's losses are from a reference's of the same round: within rounding, or further with every step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from app.analysis.measures import TEST_LOSS
from app.analysis.units import DIGITS, PERCENT, TEXT, digits
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.scale import Axis
from app.pages.series import series
from app.pages.table import Column, Table
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, PRINTED, ROUNDS, measured
from app.tools.experiment.views.drawn import curves, remarks
from app.tools.experiment.views.measures import test_accuracy
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import listed

UPDATES = 5  # after which the table looks again


@dataclass(frozen=True)
class Coincidence:
    """The differences of a cell's losses from another's, by the latter."""

    one: str
    other: str
    rounds: dict[int, list[float]]  # by round, those of all steps
    epochs: int

    @classmethod
    def of(cls, results: Results, one: str, other: str) -> Self:
        """Of the rounds in which both cells have a finished run."""
        rounds, epochs = {}, 0
        for number, runs in results.together(one, other).items():
            pairs = zip(*(run.summary.losses for run in runs), strict=False)
            rounds[number] = [abs(a - b) / (b or a) if a != b else 0.0 for a, b in pairs]
            epochs = min(len(run.summary.run.epochs) for run in runs)
        return cls(one, other, rounds, epochs)

    @property
    def largest(self) -> float:
        """Over all steps and rounds."""
        return max(map(max, self.rounds.values()))

    def first_from(self, distance: float) -> tuple[int, int]:
        """The first step, and its round, at which they lie so far apart."""
        return min(
            (step, number)
            for number, distances in self.rounds.items()
            for step, each in enumerate(distances)
            if each >= distance
        )

    def worst(self, step: int) -> float | None:
        """The largest over the rounds at one step, -1 being the last; None where a run is shorter."""
        if any(step >= len(distances) for distances in self.rounds.values()):
            return None
        return max(distances[step] for distances in self.rounds.values())

    def sentence(self, tolerance: float) -> str:
        """Whether they coincide, which is said only below the tolerance."""
        if not self.rounds:
            return f"Whether {self.one} and {self.other} coincide is not known: no round has both."
        over = f"over {self.epochs} epoch{'s' if self.epochs > 1 else ''}"
        over += f" and {len(self.rounds)} rounds" if len(self.rounds) > 1 else ""
        if not self.largest:
            return f"{self.one} and {self.other} coincide: their losses are the same to the last digit, {over}."
        if self.largest < tolerance:
            return (
                f"{self.one} and {self.other} coincide: their losses differ by at most "
                f"{digits(self.largest)} of their size, {over}."
            )
        step, number = self.first_from(tolerance)
        return (
            f"{self.one} and {self.other} part: at step {step} (round {number}) their losses differ by "
            f"{digits(tolerance)} of their size or more for the first time, {over} by {digits(self.largest)} at most."
        )


class Distance(View):
    """The distance of losses from a reference."""

    reference: str = Field(description="the cell that the others are laid beside")
    among: list[str] | None = Field(None, description="the cells that are shown [all]")
    rounding: float = Field(1e-6, gt=0, description="relative difference of losses that rounding explains")

    def _planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return [each for each in cells if self.among is None or each.name in (*self.among, self.reference)]

    def _shown(self, results: Results) -> list[MeasuredCell]:
        planned = [cell.name for cell in self._planned(results.grid.cells)]
        return [cell for cell in results.cells if cell.name in planned]

    def _others(self, results: Results) -> list[Coincidence]:
        """Each shown cell beside the reference."""
        names = [cell.name for cell in self._shown(results) if cell.name != self.reference]
        return [Coincidence.of(results, name, self.reference) for name in names]

    def _sentences(self, results: Results) -> Iterator[str]:
        others = self._others(results)
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
                f"{each.first_from(each.largest)[0]}, by {digits(each.largest)} of the reference's."
            )
        if unknown := [each.one for each in others if not each.rounds]:
            yield f"In no round beside {self.reference}, and so not compared: {listed(unknown)}."
        compared = [cell for cell in self._shown(results) if cell.name in [each.one for each in known]]
        split = [c.name for c in compared if any(run.summary.replicas_identical is False for run in c.runs)]
        if split:
            yield f"The replicas of {listed(split)} do not end with the same parameters."

    def _start(self, first: float | None) -> str:
        if not first:
            return "its losses are the same at the first step, to the last digit"
        if first <= self.rounding:
            return f"its losses differ at the first step by no more than rounding ({digits(first)})"
        return f"its losses differ already at the first step, by {digits(first)}"

    def _tables(self, results: Results, name: str) -> list[Table]:
        distances = {each.one: each for each in self._others(results) if each.rounds}

        def of(heading: str, name: str, find: Callable[[Coincidence], float | None]) -> Column[MeasuredCell]:
            return Column(heading, name, DIGITS, lambda cell: find(d) if (d := distances.get(cell.name)) else None)

        def identical(cell: MeasuredCell) -> bool | None:
            return all(run.summary.replicas_identical for run in cell.runs) if cell.world_size > 1 else None

        columns = [
            CELL,
            of("first step", "distance_first", lambda each: each.worst(0)),
            of(f"after {UPDATES} updates", f"distance_after_{UPDATES}", lambda each: each.worst(UPDATES)),
            of("last step", "distance_last", lambda each: each.worst(-1)),
            of("largest", "distance_largest", lambda each: each.largest),
            measured("test loss", "test_loss", lambda run: run.summary.run[TEST_LOSS], PRINTED),
            measured("test accuracy", "test_accuracy", test_accuracy, PERCENT),
            Column("replicas identical", "replicas_identical", TEXT, identical),
            ROUNDS,
        ]
        note = (
            f"|loss - loss of {self.reference}| by the latter, at the same step of the same round; where there are "
            "several rounds, the largest of them. Scores are medians over rounds."
        )
        return [Table.of(name, self.title, columns, self._shown(results), note)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        lines = []
        for each in self._others(results):
            distances = next(iter(each.rounds.values()), [])
            lines.append(series(each.one, range(len(distances)), [distance or None for distance in distances]))
        if not lines:
            raise Missing("there is no other cell.")
        none = f"no loss differs from that of {self.reference}, or no round has both."
        up = Axis("relative difference of the loss", log=True)
        return curves(self.title, "step", up, lines, none, [(self.rounding, "rounding")]), (
            f"From {self.reference}, in the first round that has both; dotted: what rounding explains. "
            f"Losses that are the same to the last digit have no place on this axis.{remarks(lines)}"
        )
