"""What a table is: values as they were measured, and how they read on the page and on the terminal."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

Value = str | float | bool | None
Words = Callable[[Value], str]

MISSING = "-"


@dataclass(frozen=True)
class Column:
    """A heading, the name in CSV, and how a value reads."""

    heading: str
    name: str
    words: Words


@dataclass(frozen=True)
class Table:
    """Values as they were measured; only the page rounds them."""

    name: str
    title: str
    columns: list[Column]
    rows: list[list[Value]]
    note: str = ""

    def csv(self) -> str:
        """All digits; a value that was not measured is an empty field."""
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows([["" if value is None else value for value in row] for row in self.rows])
        return target.getvalue()

    def on_page(self) -> Self:
        """Without columns for what was published where nothing was; the file has them in any case."""
        shown = [
            place
            for place, column in enumerate(self.columns)
            if not column.name.startswith("published") or any(row[place] is not None for row in self.rows)
        ]
        rows = [[row[place] for place in shown] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in shown], rows=rows)

    def cells(self) -> list[list[tuple[Value, str]]]:
        """Each value beside its words."""
        return [
            [
                (value, MISSING if value is None else column.words(value))
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]


def plain(value: Value) -> str:
    """As it is."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def digits(value: Value) -> str:
    """Three or four that count."""
    number = float(value or 0)
    return f"{number:.0f}" if abs(number) >= 999.5 else f"{number:.3g}"  # above, that would be an exponent


def megabytes(value: Value) -> str:
    """Bytes in millions."""
    return f"{float(value or 0) / 1e6:.2f}"


def percent(value: Value) -> str:
    """Of one."""
    return f"{float(value or 0):.1%}"
