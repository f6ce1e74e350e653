"""Where each row of a table stands when it is sorted by a column, worked out beforehand: pages have no scripts."""

from app.analysis.units import Value
from app.pages.table import Table

LAST = 100_000  # more than any table has rows


def places(table: Table) -> list[str]:
    """Of each row, as style: its place by each column, the smallest value first; what was not measured comes last."""
    by_column = [_places([row[n] for row in table.rows]) for n in range(len(table.columns))]
    return [
        ";".join(f"--m{n}:{LAST}" if place is None else f"--o{n}:{place}" for n, place in enumerate(row))
        for row in zip(*by_column, strict=True)
    ]


def _places(values: list[Value]) -> list[int | None]:
    known = sorted({_key(value) for value in values if value is not None})
    return [None if value is None else known.index(_key(value)) for value in values]


def _key(value: str | float) -> tuple[float, str]:
    """Numbers by size, and before words; words by the alphabet."""
    return (float("inf"), value.casefold()) if isinstance(value, str) else (value, "")
