"""A table: columns, each with its heading, its unit and the source of its values."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from app.analysis.figures import Figures, Measure
from app.analysis.units import Scale, Unit, Value
from app.machine.say import as_csv


@dataclass(frozen=True)
class Column[Subject]:
    """A heading, the name in CSV, the unit, and the value that a row's subject has."""

    heading: str
    name: str
    unit: Unit
    value: Callable[[Subject], Value]
    only_in_file: bool = False  # not on the page, which would be too wide


def measured(heading: str, measure: Measure[Any], name: str | None = None) -> Column[Figures]:
    return Column(heading, name or measure.name.replace(".", "_"), measure.unit, lambda figures: figures[measure])


@dataclass(frozen=True)
class Table:
    """Values as they were measured; only words round them."""

    name: str
    title: str
    columns: list[Column[Any]]
    rows: list[list[Value]]
    note: str

    @classmethod
    def of[Subject](
        cls, name: str, title: str, columns: Sequence[Column[Subject]], subjects: Iterable[Subject], note: str = ""
    ) -> Self:
        rows = [[column.value(subject) for column in columns] for subject in subjects]
        return cls(name, title, list(columns), rows, note)

    def csv(self) -> str:
        """All digits; a value that was not measured is an empty field."""
        return as_csv([[column.name for column in self.columns], *self.rows])

    def shown(self) -> Self:
        """Without columns for what no row has, or for files alone. The file has them in any case."""
        known = [n for n in range(len(self.columns)) if any(row[n] is not None for row in self.rows)]
        shown = [n for n in known if not self.columns[n].only_in_file]
        rows = [[row[n] for n in shown] for row in self.rows]
        return replace(self, columns=[self.columns[n] for n in shown], rows=rows)

    def labels(self) -> list[str]:
        """What the values of each column are in; empty where that goes without saying."""
        return [self._scale(column.unit).label for column in self.columns]

    def cells(self) -> list[list[tuple[Value, str]]]:
        """Each value beside its words."""
        columns = [[row[n] for row in self.rows] for n in range(len(self.columns))]
        words = [
            column.unit.aligned(values, self._scale(column.unit))
            for column, values in zip(self.columns, columns, strict=True)
        ]
        return [
            list(zip(row, each, strict=True)) for row, each in zip(self.rows, zip(*words, strict=True), strict=True)
        ]

    def _scale(self, unit: Unit) -> Scale:
        """One for all columns of a unit, which are there to be compared."""
        same = [n for n, column in enumerate(self.columns) if column.unit == unit]
        return unit.scale(row[n] for row in self.rows for n in same)
