"""What a table is: columns, each with its heading, its unit and where its value comes from."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard

from app.machine.say import as_csv

Value = str | float | bool | None

MISSING = "-"
FAITHFUL = 0.05  # a rounded value is at most this share off


@dataclass(frozen=True)
class Scale:
    """What values are divided by, and what then stands beside the heading of their column."""

    label: str
    size: float
    least: float = 0.0  # it fits where the largest value is at least this


@dataclass(frozen=True)
class Unit:
    """How a value reads, and on which side of its column it stands."""

    words: Callable[[Any], str]  # of a value that was measured, by itself
    right: bool = True
    scales: Sequence[Scale] = ()  # the largest first; with them the decimals of a column align

    def scale(self, values: Iterable[Value]) -> Scale:
        """The one that fits them all."""
        largest = max((abs(value) for value in values if _is_measured(value)), default=0.0)
        return next(scale for scale in (*self.scales, Scale("", 1)) if largest >= scale.least)

    def aligned(self, values: Sequence[Value], scale: Scale) -> list[str]:
        """A column's values with the same number of decimals each."""
        if not self.scales:
            return [MISSING if value is None else self.words(value) for value in values]
        sizes = [value / scale.size for value in values if _is_measured(value)]
        places = decimals(sizes)
        return [MISSING if value is None else _rounded(float(value) / scale.size, places) for value in values]


@dataclass(frozen=True)
class Column[Subject]:
    """A heading, the name in CSV, the unit, and the value that a row's subject has."""

    heading: str
    name: str
    unit: Unit
    value: Callable[[Subject], Value]


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
        """A row for each subject."""
        rows = [[column.value(subject) for column in columns] for subject in subjects]
        return cls(name, title, list(columns), rows, note)

    def csv(self) -> str:
        """All digits; a value that was not measured is an empty field."""
        return as_csv([[column.name for column in self.columns], *self.rows])

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


def plain(value: str | float) -> str:
    """As it is."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def digits(value: float) -> str:
    """Three or four that count."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"  # above, that would be an exponent


def decimals(values: Iterable[float]) -> int:
    """How many a column needs: three digits of its smallest value, but not many more than its largest one has."""
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return 0
    smallest, largest = (math.floor(math.log10(size)) for size in (min(sizes), max(sizes)))
    return max(0, min(2 - smallest, max(2, 4 - largest)))


def _rounded(value: float, places: int) -> str:
    """A value that so few decimals would distort keeps its own digits."""
    words = f"{value:.{places}f}"
    return words if math.isfinite(value) and abs(float(words) - value) <= FAITHFUL * abs(value) else digits(value)


def _is_measured(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


TEXT = Unit(plain, right=False)
COUNT = Unit(plain)
DIGITS = Unit(digits, scales=(Scale("", 1),))
SECONDS = Unit(digits, scales=(Scale("s", 1, 1), Scale("ms", 1e-3)))
MEGABYTES = Unit(lambda size: f"{size / 1e6:.2f}", scales=(Scale("GB", 1e9, 1e9), Scale("MB", 1e6)))
MEGABYTES_PER_SECOND = Unit(MEGABYTES.words, scales=(Scale("GB/s", 1e9, 1e9), Scale("MB/s", 1e6)))
PERCENT = Unit(lambda share: f"{share:.1%}")
EXACT = Unit(lambda value: f"{value:g}" if isinstance(value, float) else plain(value))
