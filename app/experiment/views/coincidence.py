"""How far two cells' losses lie apart, step by step, in all rounds that have both."""

from dataclasses import dataclass
from typing import Self

from app.experiment.reading.results import Results
from app.experiment.views.learned import losses
from app.report.table import digits


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
        for number in range(1, results.grid.repeats + 1):
            first, second = results.run(one, number), results.run(other, number)
            if first and second:
                pairs = zip(losses(first), losses(second), strict=False)
                rounds[number] = [abs(a - b) / (b or a) if a != b else 0.0 for a, b in pairs]
                epochs = min(len(run.summary.run.epochs) for run in (first, second))
        return cls(one, other, rounds, epochs)

    @property
    def largest(self) -> float:
        """Over all steps and rounds."""
        return max(map(max, self.rounds.values()))

    @property
    def at_largest(self) -> int:
        """The step of the largest."""
        return next(each.index(self.largest) for each in self.rounds.values() if self.largest in each)

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
        step, number = min(
            (step, number)
            for number, distances in self.rounds.items()
            for step, distance in enumerate(distances)
            if distance >= tolerance
        )
        return (
            f"{self.one} and {self.other} part: at step {step} (round {number}) their losses differ by "
            f"{digits(tolerance)} of their size or more for the first time, {over} by {digits(self.largest)} at most."
        )
