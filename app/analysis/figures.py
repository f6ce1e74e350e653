"""What a measure is, and the values of measures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from app.analysis import statistics
from app.analysis.statistics import Spread
from app.analysis.table import Rows
from app.analysis.units import SECONDS, Unit


class Measure[Value]:
    """One figure of some ranks, None if it was not measured. Dots in a name are levels of summary.json."""

    def __init__(self, name: str, unit: Unit, meaning: str, of: Callable[[Rows], Value | None]) -> None:
        self.name, self.unit, self.meaning, self._of = name, unit, meaning, of

    def of(self, rows: Rows) -> Value | None:
        return self._of(rows)


class Figures:
    """The values of measures."""

    def __init__(self, values: Mapping[str, object], epochs: Sequence["Figures"] = ()) -> None:
        self._values, self.epochs = values, epochs

    @classmethod
    def of(cls, rows: Rows, measures: Iterable[Measure[Any]], epochs: Iterable[Mapping[str, object]] = ()) -> "Figures":
        return cls({measure.name: measure.of(rows) for measure in measures}, [cls(epoch) for epoch in epochs])

    def __getitem__[Value](self, measure: Measure[Value]) -> Value | None:
        return cast("Value | None", self._values.get(measure.name))

    def sum(self, *measures: Measure[float]) -> float:
        """The sum of these figures. One that was not measured counts as 0."""
        return float(sum(self[measure] or 0.0 for measure in measures))

    def nested(self) -> dict[str, Any]:
        """For JSON: a level without any value is null, but for `ALWAYS_AN_OBJECT`."""
        tree: dict[str, Any] = {}
        for name, value in self._values.items():
            *levels, leaf = name.split(".")
            place = tree
            for level in levels:
                place = place.setdefault(level, {})
            place[leaf] = value
        return {name: value if name in ALWAYS_AN_OBJECT else _or_null(value) for name, value in tree.items()}


ALWAYS_AN_OBJECT = ("link",)


def _or_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inside = {name: _or_null(each) for name, each in value.items()}
    return None if all(each is None for each in inside.values()) else inside


class StepTime:
    """Seconds of every step but the first, with their statistics over steps."""

    def __init__(self, name: str, label: str, meaning: str) -> None:
        self.name, self.label, self.meaning = name, label, meaning
        self.mean, self.median, self.p95, self.most = (self._statistic(which) for which in Spread._fields)

    @property
    def statistics(self) -> tuple[Measure[float], ...]:
        return self.mean, self.median, self.p95, self.most

    def _statistic(self, which: str) -> Measure[float]:
        return Measure(f"{self.name}.{which}", SECONDS, f"{self.meaning}, {which}", partial(self._value, which))

    def _value(self, which: str, rows: Rows) -> float | None:
        found = rows.once(("spread", self.name), lambda: statistics.spread(rows.warm(self.name)))
        return None if found is None else cast("float", getattr(found, which))
