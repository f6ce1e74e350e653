"""What drawings have in common: bars, lines with intervals, courses over steps, and what captions add."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import nan
from types import MappingProxyType

import numpy as np

from app.analysis.statistics import Interval, Numbers
from app.pages import palette
from app.pages.drawing import Missing
from app.pages.findings import listed
from app.pages.plot import Plot
from app.pages.rows import Bars, Row, Span, stacked
from app.pages.scale import Axis, written
from app.pages.series import Series, left_out, thinned
from app.pages.traces import Panel, Trace

MOST_LINES = 10  # what a drawing can keep apart
MOST_PANELS = 12
COLOURS = ("backward", "sync", "wait")  # of parts that are no phases: computing, the network, waiting
MOST_MARKS = 20  # of a line; one of more points has none
SINCE_START = Axis("since the start of the run", "s")
NO_SAMPLES = "there are no samples, or the interface is shared with others."
VISIBLE = 0.01  # of a line's rise, below which two lines are one to the eye


def bars(title: str, x: Axis, rows: Sequence[Row]) -> Bars:
    if not rows:
        raise Missing("no run is finished.")
    return Bars(f"{title}: {x.title} of {listed([row.name for row in rows])}", x, rows)


def bar(
    name: str,
    found: Interval | None,
    unit: str,
    published: float | None = None,
    parts: Sequence[tuple[str, float]] = (),
) -> Row:
    """A bar with its interval, in one piece or of parts end to end."""
    if found is None:
        return Row(name, [])
    whole = Span(0.0, found.value, palette.series(0), name, f"{name}: {written(found.value, unit)}")
    coloured = [(part, length, role) for (part, length), role in zip(parts, cycle(COLOURS), strict=False)]
    spans = stacked(coloured) if parts else [whole]
    return Row(name, spans, value=found.value, low=found.low, high=found.high, published=published)


def plot(title: str, x: Axis, y: Axis, traces: Sequence[Trace], levels: Sequence[tuple[float, str]] = ()) -> Plot:
    words = f"{title}: {y.title} by {x.title} of {listed([trace.name for trace in traces])}"
    return Plot(words, x, y, [Panel(traces, levels=levels)])


def interval_line(name: str, points: Sequence[tuple[float, Interval]]) -> Trace:
    found = [each for _, each in points]
    low = [nan if each.low is None else each.low for each in found]
    high = [nan if each.high is None else each.high for each in found]
    return Trace(name, [at for at, _ in points], [each.value for each in found], low, high)


def curve(name: str, *lines: Series, role: str = "") -> Trace:
    """A line with its band, or several of one name with gaps between them; few points have marks."""
    low, high = (
        _joined([getattr(each.band, end) if each.band else each.values for each in lines])
        if any(each.band for each in lines)
        else ()
        for end in ("least", "most")
    )
    at, values = _joined([each.at for each in lines]), _joined([each.values for each in lines])
    few = all(len(each.values) <= MOST_MARKS for each in lines)
    return Trace(name, at, values, low, high, "line" if few else "curve", role=role)


def _joined(parts: Sequence[Numbers]) -> list[float]:
    return [float(value) for part in parts for value in (*part, nan)]


def curves(
    title: str,
    x: str,
    y: Axis,
    lines: Sequence[Series],
    missing: str = "nothing was measured.",
    levels: Sequence[tuple[float, str]] = (),
) -> Plot:
    """The first lines, as far as they can be kept apart."""
    if all(each.empty for each in lines):
        raise Missing(missing)
    shown = lines[:MOST_LINES]
    return plot(title, whole(x, shown), y, [curve(each.name, each) for each in shown], levels)


def panels(
    words: str,
    x: Axis,
    y: Axis,
    found: Mapping[str, Mapping[str, Sequence[Series]]],
    whose: str,
    what: str,
    missing: str,
    roles: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Plot, str]:
    """A panel for each cell or rank with its lines by name, and what the caption says of what is left out."""
    shown = [*found.items()][:MOST_PANELS]
    every = [each for _, lines in shown for own in lines.values() for each in own]
    if all(each.empty for each in every):
        raise Missing(missing)
    made = [
        Panel([curve(name, *own, role=roles.get(name, "")) for name, own in lines.items()], title)
        for title, lines in shown
    ]
    return Plot(words, x, y, made), f"{left_out(len(found), MOST_PANELS, whose)}{thinned(every, what)}"


def whole(title: str, lines: Sequence[Series]) -> Axis:
    """An axis of whole numbers, with no tick between two of them."""
    numbers = sorted({float(at) for each in lines for at in each.at})
    return Axis(title, "count", labels=[(at, f"{at:g}") for at in numbers] if len(numbers) <= MOST_MARKS else ())


def remarks(lines: Sequence[Series], what: str = "steps", whose: str = "cells") -> str:
    """What a caption says of lines that are thinned, that hide each other, or that are left out."""
    groups: list[list[Series]] = []
    for each in lines[:MOST_LINES]:
        alike = next((group for group in groups if _coincide(group[0], each)), None)
        if alike is None:
            groups.append([each])
        else:
            alike.append(each)
    hidden = (f" The lines of {listed([each.name for each in group])} coincide." for group in groups if group[1:])
    return f"{''.join(hidden)}{left_out(len(lines), MOST_LINES, whose)}{thinned(lines, what)}"


def _coincide(one: Series, other: Series) -> bool:
    if len(one.values) != len(other.values) or one.empty:
        return False
    return bool(np.all(np.abs(one.values - other.values) <= VISIBLE * np.ptp(one.values)))
