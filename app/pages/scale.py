"""Scales of charts: nice ticks, and numbers written for people, with the unit that suits them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from app.pages.canvas import LINE, Canvas, fitted, text_width

MOST_EVEN = 6.0  # times the smallest value; values further apart need a logarithmic scale
LOG_COUNT = 1.5  # ticks of a logarithmic scale for each of a linear one, since they are not evenly apart
ABOVE = 1 + 1e-9  # for numbers that are equal but for their last digit
GAP = 14.0  # pixels between the labels of two ticks
SUBUNITS = {
    "": ((1.0, ""),),
    "count": ((1.0, ""), (1e6, "M"), (1e9, "G")),
    "share": ((0.01, "%"),),
    "s": ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")),
    "B": ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
}
SUBUNITS["B/s"] = tuple((size, f"{name}/s") for size, name in SUBUNITS["B"])
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """What an axis shows."""

    title: str
    unit: str = ""  # a key of SUBUNITS, or a word that is shown as it is
    log: bool | None = False  # None: where the largest value is more than MOST_EVEN times the smallest
    labels: Sequence[tuple[float, str]] = ()  # instead of numbers
    zero: bool = True  # whether a linear axis includes it
    most: float | None = None  # the end of a linear axis at least


@dataclass(frozen=True)
class Tick:
    """A value of an axis and its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Ruler:
    """Values from low to high on pixels from begin to end."""

    low: float
    high: float
    log: bool
    title: str
    ticks: tuple[Tick, ...] = ()
    begin: float = 0.0
    end: float = 1.0

    def at(self, value: float) -> float:
        low, high, value = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.begin + (self.end - self.begin) * (value - low) / (high - low)

    def between(self, begin: float, end: float) -> "Ruler":
        return replace(self, begin=begin, end=end)


def usable(value: float) -> bool:
    """Whether a value can be drawn: NaN, infinity and what is beyond any measurement are gaps."""
    return math.isfinite(value) and (value == 0 or 1e-100 < abs(value) < 1e100)


def written(value: float, unit: str) -> str:
    """A number of three digits with the unit that suits it: 17.7 s, 350 ms or 1.2 GB."""
    size, name = _subunit(value, unit)
    return f"{digits(value / size)} {name}".rstrip()


def written_alike(values: Sequence[float | None], unit: str) -> list[str]:
    """Numbers below each other, in one unit and with as many places, unless that leaves nothing of a small one."""
    largest = max((abs(each) for each in values if each is not None), default=0.0) or 1.0
    size, name = _subunit(largest, unit)
    places = 2 - math.floor(math.log10(largest / size))
    return ["" if each is None else f"{_rounded(each / size, places)} {name}".rstrip() for each in values]


def _rounded(value: float, places: int) -> str:
    if -9 < places < 5 and (value == 0 or abs(value) >= 10.0 ** (1 - max(places, 0))):
        return f"{value:,.{max(places, 0)}f}"
    return digits(value)


def digits(value: float) -> str:
    """Three digits, without an exponent unless there is no other way."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 12:
        words = f"{value:,.{max(0, 2 - exponent)}f}"
        return words.rstrip("0").rstrip(".") if "." in words else words
    mantissa = f"{value / 10**exponent:.3g}"
    return f"{mantissa}·10{str(exponent).translate(SUPERSCRIPTS)}"


def _subunit(value: float, unit: str) -> tuple[float, str]:
    known = SUBUNITS.get(unit, ((1.0, unit),))
    return next((each for each in reversed(known) if abs(value) >= each[0] * 0.9995), known[0])


def ruler(axis: Axis, values: Iterable[float], count: int, *, cover: bool = False, like: float | None = None) -> Ruler:
    """A scale of some ticks, in the unit that suits a value like this; one that covers begins and ends at a tick."""
    found = [each for each in values if usable(each)]
    positive = [each for each in found if each > 0]
    uneven = bool(found) and found == positive and max(found) > MOST_EVEN * min(found)
    log = uneven if axis.log is None else axis.log
    low, high = _ends(axis, positive if log else found, log=log)
    if axis.labels:
        shown = tuple(Tick(at, label) for at, label in axis.labels if low <= at <= high)
        return Ruler(low, high, log, axis.title, shown)
    if cover and log:
        low, high = _log_marks(low / 10, low)[-1], _log_marks(high, high * 10)[0]
    marks = _log_places(low, high, count) if log else _linear_places(low, high, count, outwards=cover)
    if cover and not log:
        low, high = marks[0], marks[-1]
    title, label = _labels(axis, marks, like, log=log)
    return Ruler(low, high, log, title, tuple(Tick(each, label(each)) for each in marks))


def spaced(scale: Callable[[int], Ruler], count: int, begin: float, end: float, room: tuple[float, float]) -> Ruler:
    """As many ticks as have their labels side by side, within the room."""
    for fewer in range(count, 0, -1):
        found = scale(fewer).between(begin, end)
        if _clear(found, found.ticks, room):
            return found
    kept: list[Tick] = []
    for tick in reversed(found.ticks):  # the last one in any case: most often it is the largest
        if _clear(found, [tick, *kept], room):
            kept.insert(0, tick)
    return replace(found, ticks=tuple(kept))


def label_span(scale: Ruler, tick: Tick, room: tuple[float, float]) -> tuple[float, float]:
    """Where the label of a tick begins and ends: in its middle, or as far aside as the room demands."""
    half = text_width(tick.label) / 2
    middle = max(room[0] + half, min(room[1] - half, scale.at(tick.value)))
    return middle - half, middle + half


def draw_ticks(canvas: Canvas, scale: Ruler, bottom: float, room: tuple[float, float], title: str = "") -> float:
    """Labels below a horizontal axis, and under them its title; returns where the next thing may begin."""
    for tick in scale.ticks:
        begin, _ = label_span(scale, tick, room)
        canvas.text(begin, bottom + LINE + 2, tick.label, role="muted")
    if not title:
        return bottom + LINE + 8
    shown = fitted(title, canvas.width)
    canvas.text(max(scale.end, text_width(shown)), bottom + 2 * LINE + 3, shown, anchor="end", role="muted", full=title)
    return bottom + 2 * LINE + 9


def _clear(scale: Ruler, ticks: Sequence[Tick], room: tuple[float, float]) -> bool:
    spans = [label_span(scale, tick, room) for tick in ticks]
    inside = all(begin >= room[0] - 0.01 and end <= room[1] + 0.01 for begin, end in spans)
    return inside and all(one[1] + GAP <= other[0] for one, other in pairwise(spans))


def _ends(axis: Axis, values: Sequence[float], *, log: bool) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (1.0, 2.0)
    if log:
        return (low, high) if high > low * 1.0001 else (low / 2, high * 2)
    if axis.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    high = max(high, axis.most) if axis.most is not None else high
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = abs(high) / 2 or 1.0
    return (low, high + margin) if axis.zero else (low - margin, high + margin)


def nice_step(span: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, of which there are no more than a count in a span."""
    power = 10.0 ** math.floor(math.log10(span / count))
    return next(each * power for each in (1, 2, 5, 10) if each * power * count >= span * (1 - 1e-9))


def _linear_places(low: float, high: float, count: int, *, outwards: bool = False) -> list[float]:
    step = nice_step(high - low, count)
    first, last = low / step, high / step
    if outwards:
        begin, end = math.floor(first + 1e-6), math.ceil(last - 1e-6)
    else:
        begin, end = math.ceil(first - 1e-6), math.floor(last + 1e-6)
    return [float(f"{each * step:.12g}") for each in range(begin, end + 1)]


def _log_marks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times all powers of ten."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    marks = (float(f"{each}e{power}") for power in powers for each in (1, 2, 5))
    return [each for each in marks if low <= each * ABOVE and each <= high * ABOVE]


def _log_places(low: float, high: float, count: int) -> list[float]:
    """At 1, 2 and 5; at powers of ten where those are too many; as on a linear scale where they are too few."""
    marks = _log_marks(low, high)
    powers = [each for each in marks if f"{each:e}".startswith("1.0")]
    for some in (marks, *(powers[::every] for every in range(1, len(powers)))):
        if 2 <= len(some) <= LOG_COUNT * count:
            return some
    if len(marks) > 1:
        return [marks[0], marks[-1]]
    return [each for each in _linear_places(low, high, max(count, 3)) if each > 0]


def _labels(axis: Axis, marks: Sequence[float], like: float | None, *, log: bool) -> tuple[str, Callable[[float], str]]:
    """The title with the unit in it, and how a mark is written; on scales over many powers each has its unit."""
    most, least = max(map(abs, marks), default=1.0), min((abs(each) for each in marks if each), default=1.0)
    if log and most > 999 * least and len(SUBUNITS.get(axis.unit, ())) > 1:
        return axis.title, lambda value: written(value, axis.unit)
    size, name = _subunit(like or most, axis.unit)
    title = f"{axis.title}, {name}" if name and axis.title else axis.title or name
    step = min((b - a for a, b in pairwise(marks)), default=most) / size or 1.0
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    if log or most / size >= 1e12 or places > 5:
        return title, lambda value: digits(value / size)
    return title, lambda value: f"{value / size:,.{places}f}"
