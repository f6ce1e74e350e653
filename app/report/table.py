"""What a table is: columns, each with its heading, its unit and where its value comes from."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

Value = str | float | bool | None

MISSING = "-"


@dataclass(frozen=True)
class Unit:
    """How a value reads, and on which side of its column it stands."""

    words: Callable[[Any], str]  # of a value that was measured
    right: bool = True


@dataclass(frozen=True)
class Column[Subject]:
    """A heading, the name in CSV, the unit, and the value that a row's subject has."""

    heading: str
    name: str
    unit: Unit
    value: Callable[[Subject], Value]


@dataclass(frozen=True)
class Table:
    """Values as they were measured; only the page rounds them."""

    name: str
    title: str
    columns: list[Column[Any]]
    rows: list[list[Value]]
    note: str

    @classmethod
    def of[Subject](
        cls, name: str, title: str, columns: Sequence[Column[Subject]], subjects: Iterable[Subject], note: str = ""
    ) -> Self:
        """A row for each subject."""
        rows = [[column.value(subject) for column in columns] for subject in subjects]
        return cls(name, title, list(columns), rows, note)

    def csv(self) -> str:
        """All digits; a value that was not measured is an empty field."""
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows([["" if value is None else value for value in row] for row in self.rows])
        return target.getvalue()

    def on_page(self) -> Self:
        """Without columns for what was published where nothing was; the file has them in any case."""
        return self.only([not column.name.startswith("published") for column in self.columns])

    def on_terminal(self) -> Self:
        """Without columns for what no row has."""
        return self.only([False for _ in self.columns])

    def only(self, always: Sequence[bool]) -> Self:
        """Without the columns that have no value, but for those that are always there."""
        shown = [n for n, needed in enumerate(always) if needed or any(row[n] is not None for row in self.rows)]
        rows = [[row[n] for n in shown] for row in self.rows]
        return replace(self, columns=[self.columns[n] for n in shown], rows=rows)

    def cells(self) -> list[list[tuple[Value, str]]]:
        """Each value beside its words."""
        return [
            [
                (value, MISSING if value is None else column.unit.words(value))
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]


def plain(value: str | float) -> str:
    """As it is."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def digits(value: float) -> str:
    """Three or four that count."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"  # above, that would be an exponent


TEXT = Unit(plain, right=False)
COUNT = Unit(plain)
DIGITS = Unit(digits)
MEGABYTES = Unit(lambda size: f"{size / 1e6:.2f}")
PERCENT = Unit(lambda share: f"{share:.1%}")
EXACT = Unit(lambda value: f"{value:g}" if isinstance(value, float) else plain(value))
