"""How far each cell's losses are from a reference's of the same round: within rounding, or further with every step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from app.analysis.units import COUNT, DIGITS, TEXT, digits
from app.pages.findings import listed
from app.pages.table import Column, Table
from app.tools.experiment.results import MeasuredCell, Results

UPDATES = 5  # after which the table compares again


@dataclass(frozen=True)
class Distance:
    """The differences of a cell's losses from a reference's, by the latter."""

    cell: str
    identical: bool | None  # whether the cell's replicas end alike; of one rank, None
    rounds: dict[int, list[float]]  # by round, those of all steps

    @classmethod
    def of(cls, results: Results, cell: MeasuredCell, reference: str) -> Self:
        """Of the rounds in which both cells have a finished run."""
        rounds = {}
        for number, runs in results.together(cell.name, reference).items():
            pairs = zip(*(run.summary.losses for run in runs), strict=False)
            rounds[number] = [abs(a - b) / (b or a) if a != b else 0.0 for a, b in pairs]
        identical = all(run.summary.replicas_identical for run in cell.runs)
        return cls(cell.name, identical if cell.world_size > 1 else None, rounds)

    @property
    def largest(self) -> float:
        """Over all steps and rounds."""
        return max(map(max, self.rounds.values()))

    def first_from(self, distance: float) -> int:
        """The first step with at least this distance in any round."""
        return min(step for each in self.rounds.values() for step, apart in enumerate(each) if apart >= distance)

    def worst(self, step: int) -> float | None:
        """The largest over the rounds at one step, -1 being the last; None where a run is shorter."""
        if any(step >= len(distances) for distances in self.rounds.values()):
            return None
        return max(distances[step] for distances in self.rounds.values())


def sentences(known: Sequence[Distance], reference: str, rounding: float) -> Iterator[str]:
    """Which cells stay within rounding of the reference, and from which step on the others part from it."""
    if not known:
        yield f"No other cell has a finished run in a round of {reference}, so nothing is compared."
    if within := [each for each in known if each.largest <= rounding]:
        most = digits(max(each.largest for each in within))
        yield f"Within rounding of {reference} at every step, at most {most} off: {listed([e.cell for e in within])}."
    for each in known:
        if each not in within:
            begins, ends = each.first_from(rounding), each.first_from(each.largest)
            yield (
                f"{each.cell} departs from {reference}: by more than rounding from step {begins} on, the most at step "
                f"{ends}, with {digits(each.largest)}."
            )


def table(found: Sequence[Distance], name: str, title: str) -> Table:
    """A row for each cell that the reference shares a round with."""
    columns: list[Column[Any]] = [
        Column("", "cell", TEXT, lambda each: each.cell),
        Column("first step", "distance_first", DIGITS, lambda each: each.worst(0)),
        Column(f"after {UPDATES} updates", f"distance_after_{UPDATES}", DIGITS, lambda each: each.worst(UPDATES)),
        Column("last step", "distance_last", DIGITS, lambda each: each.worst(-1)),
        Column("largest", "distance_largest", DIGITS, lambda each: each.largest),
        Column("replicas identical", "replicas_identical", TEXT, lambda each: each.identical),
        Column("rounds", "rounds", COUNT, lambda each: len(each.rounds)),
    ]
    note = (
        "|loss - loss of the reference| by the latter, at the same step of the same round; where there are several "
        "rounds, the largest of them."
    )
    return Table.of(name, title, columns, found, note)
