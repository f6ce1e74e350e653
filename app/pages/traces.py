"""What plots show: values by place under names, with their intervals, bands and references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.pages import palette
from app.pages.scale import usable


@dataclass(frozen=True)
class Trace:
    """Values by place under a name; with `low` and `high`, each within an interval."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: Literal["line", "curve", "dot", "diamond"] = "line"  # a curve has a band and no marks
    hollow: Sequence[bool] = ()  # what is not verified: dashed, with rings
    notes: Sequence[str] = ()  # instead of the words that each mark has by itself
    role: str = ""  # its colour, unless it is that of its place among all names

    @property
    def is_line(self) -> bool:
        return self.look in ("line", "curve")

    def interval(self, place: int) -> tuple[float, float] | None:
        if not (len(self.low) and len(self.high)):
            return None
        low, high = self.low[place], self.high[place]
        return (low, high) if usable(low) and usable(high) and low < high else None


@dataclass(frozen=True)
class Panel:
    """Traces on common axes."""

    traces: Sequence[Trace]
    title: str = ""
    levels: Sequence[tuple[float, str]] = ()  # references across the panel, with their names
    shaded: tuple[float, float, str] | None = None  # a range of x, and its name

    @property
    def shade(self) -> tuple[float, float] | None:
        """The range, unless it cannot be drawn."""
        low, high, _ = self.shaded or (0.0, 0.0, "")
        return (low, high) if usable(low) and usable(high) and low < high else None


def roles_of(panels: Sequence[Panel]) -> dict[str, str]:
    """The colour of each name, which is the same in all panels."""
    roles: dict[str, str] = {}
    for panel in panels:
        names = [trace.name for trace in panel.traces]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two lines of a chart have the name {min(twice)!r}")
        for trace in panel.traces:
            roles.setdefault(trace.name, trace.role or palette.series(len(roles)))
    return roles


def values_of(panels: Sequence[Panel], *, up: bool) -> Iterator[float]:
    """All that has to be on an axis."""
    for panel in panels:
        for trace in panel.traces:
            for place, point in enumerate(zip(trace.x, trace.y, strict=True)):
                if all(map(usable, point)):
                    yield point[up]
                    yield from (trace.interval(place) or ()) if up else ()
        yield from (value for value, _ in panel.levels if up)
        yield from (panel.shade or ()) if not up else ()
