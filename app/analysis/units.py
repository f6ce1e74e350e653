"""Units: how a value is written for people, alone and in a column."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

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
    json: str = "number"  # the type of a value in summary.json
    axis: str = "count"  # the unit of a chart's axis for such values

    @property
    def is_number(self) -> bool:
        return self.json in ("number", "integer")

    def scale(self, values: Iterable[Value]) -> Scale:
        largest = max((abs(value) for value in values if _is_measured(value)), default=0.0)
        return next(scale for scale in (*self.scales, Scale("", 1)) if largest >= scale.least)

    def aligned(self, values: Sequence[Value], scale: Scale) -> list[str]:
        if not self.scales:
            return [MISSING if value is None else self.words(value) for value in values]
        sizes = [value / scale.size for value in values if _is_measured(value)]
        places = decimals(sizes)
        return [MISSING if value is None else _rounded(float(value) / scale.size, places) for value in values]


def plain(value: str | float) -> str:
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


TEXT = Unit(plain, right=False, json="string")
YES_OR_NO = Unit(plain, right=False, json="boolean")
COUNT = Unit(plain, json="integer")
DIGITS = Unit(digits, scales=(Scale("", 1),))
SECONDS = Unit(digits, scales=(Scale("s", 1, 1), Scale("ms", 1e-3)), axis="s")
MEGABYTES = Unit(lambda size: f"{size / 1e6:.2f}", scales=(Scale("GB", 1e9, 1e9), Scale("MB", 1e6)), axis="B")
MEGABYTES_PER_SECOND = Unit(MEGABYTES.words, scales=(Scale("GB/s", 1e9, 1e9), Scale("MB/s", 1e6)), axis="B/s")
PERCENT = Unit(lambda share: f"{share:.1%}", axis="share")
EXACT = Unit(lambda value: f"{value:g}" if isinstance(value, float) else plain(value))
