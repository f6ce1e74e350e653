"""A value with its confidence interval, in columns of a table and in words."""

from collections.abc import Callable
from functools import partial

from app.analysis.statistics import Interval
from app.analysis.units import DIGITS, Unit, Value, digits
from app.pages.table import Column

NO_DIFFERENCE = "no difference beyond the noise"


def with_interval[Subject](
    heading: str, name: str, find: Callable[[Subject], Interval | None], unit: Unit = DIGITS
) -> list[Column[Subject]]:
    def end(which: str, subject: Subject) -> Value:
        found = find(subject)
        return getattr(found, which) if found else None

    return [
        Column(heading, name, unit, partial(end, "value")),
        Column("95 % from", f"{name}_low", unit, partial(end, "low")),
        Column("to", f"{name}_high", unit, partial(end, "high")),
    ]


def interval(found: Interval) -> str:
    return "" if found.low is None or found.high is None else f" ({digits(found.low)} to {digits(found.high)})"
