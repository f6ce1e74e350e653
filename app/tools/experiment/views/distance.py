"""How far each cell's losses are from a reference's of the same round: within rounding, or further with every step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from app.analysis.units import COUNT, DIGITS, TEXT, digits
from app.pages.findings import listed
from app.pages.table import Column, Table
from app.tools.experiment.results import Results
from app.tools.experiment.views.view import ROUNDS

UPDATES = 5  # after which the table compares again


@dataclass(frozen=True)
class Distance:
    """The differences of a cell's losses from a reference's, by the latter."""

    cell: str
    rounds: dict[int, list[float]]  # by round, those of all steps

    @classmethod
    def of(cls, results: Results, cell: str, reference: str) -> Self:
        """Of the rounds in which both cells have a finished run."""
        rounds = {}
        for number, runs in results.together(cell, reference).items():
            pairs = zip(*(run.summary.losses for run in runs), strict=False)
            rounds[number] = [abs(a - b) / (b or a) if a != b else 0.0 for a, b in pairs]
        return cls(cell, rounds)

    @property
    def largest(self) -> float:
        """Over all steps and rounds."""
        return max(map(max, self.rounds.values()))

    def first_from(self, distance: float) -> tuple[int, int]:
        """The first step, and its round, with at least this distance."""
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


def sentences(results: Results, others: Sequence[Distance], reference: str, rounding: float) -> Iterator[str]:
    """Which cells stay within rounding of the reference, and from which step on the others part from it."""
    known = [each for each in others if each.rounds]
    if not known:
        yield f"No other cell has a finished run in a round of {reference}, so nothing is compared."
        return
    within = [each for each in known if each.largest <= rounding]
    if within:
        largest = max(each.largest for each in within)
        how_far = f"differ by at most {digits(largest)} of it" if largest else "are the same to the last digit"
        yield (
            f"Within rounding of {reference} {'stays' if len(within) == 1 else 'stay'} "
            f"{listed([each.cell for each in within])}: the losses of all steps {how_far}."
        )
    for each in [each for each in known if each not in within]:
        step, number = each.first_from(rounding)
        first = f" The difference first exceeds rounding at step {step} (round {number})." if step else ""
        yield (
            f"{each.cell} departs from {reference}: {_start(each.worst(0), rounding)}.{first} It is largest at step "
            f"{each.first_from(each.largest)[0]}, with {digits(each.largest)}."
        )
    if unknown := [each.cell for each in others if not each.rounds]:
        yield f"Not compared, because no round has both it and {reference}: {listed(unknown)}."
    compared = [cell for cell in results.cells if cell.name in [each.cell for each in known]]
    split = [c.name for c in compared if any(run.summary.replicas_identical is False for run in c.runs)]
    if split:
        yield f"The replicas of {listed(split)} do not end with the same parameters."


def _start(first: float | None, rounding: float) -> str:
    if not first:
        return "its losses are the same at the first step, to the last digit"
    if first <= rounding:
        return f"its losses differ at the first step by no more than rounding ({digits(first)})"
    return f"its losses differ already at the first step, by {digits(first)}"


def table(results: Results, others: Sequence[Distance], reference: str, name: str, title: str) -> Table:
    """A row for each cell that the reference shares a round with."""
    cells = {cell.name: cell for cell in results.cells}

    def identical(each: Distance) -> bool | None:
        cell = cells[each.cell]
        return all(run.summary.replicas_identical for run in cell.runs) if cell.world_size > 1 else None

    columns = [
        Column[Distance]("", "cell", TEXT, lambda each: each.cell),
        Column[Distance]("first step", "distance_first", DIGITS, lambda each: each.worst(0)),
        Column[Distance](f"after {UPDATES} updates", f"distance_after_{UPDATES}", DIGITS, lambda e: e.worst(UPDATES)),
        Column[Distance]("last step", "distance_last", DIGITS, lambda each: each.worst(-1)),
        Column[Distance]("largest", "distance_largest", DIGITS, lambda each: each.largest),
        Column[Distance]("replicas identical", "replicas_identical", TEXT, identical),
        Column[Distance]("rounds", ROUNDS.name, COUNT, lambda each: len(each.rounds)),
    ]
    note = (
        f"|loss - loss of {reference}| by the latter, at the same step of the same round; where there are several "
        "rounds, the largest of them."
    )
    return Table.of(name, title, columns, [each for each in others if each.rounds], note)
