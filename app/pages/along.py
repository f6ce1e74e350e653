"""Sentences about what changes along an axis: orders, the gain of each step, and where two lines cross."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.statistics import Comparison, Interval
from app.analysis.units import Unit, digits
from app.analysis.words import percent
from app.pages.findings import MOST_BESIDE, Judged, listing, times
from app.pages.intervals import NO_DIFFERENCE, interval

EXPLANATION = "There, = means no difference beyond the noise. The factor compares the first with the last."


@dataclass(frozen=True)
class Order:
    """At one place of an axis: names, slowest first, and what comparisons of two of them say."""

    label: str
    names: list[str]
    slower: dict[tuple[str, str], bool | None]  # the first than the second, beyond the noise; None where not known
    factor: str = ""  # of the first to the last, if they differ

    @classmethod
    def of(cls, label: str, cells: Mapping[str, str], judged: Judged) -> "Order":
        ranked = judged.fastest_first(cells)[::-1]
        slower: dict[tuple[str, str], bool | None] = {}
        for one, other in itertools.permutations(ranked, 2):
            found = judged.speed(other, one)
            known = found is not None and found.beyond_noise is not None
            slower[cells[one], cells[other]] = bool(found and found.beyond_noise and found.value > 1) if known else None
        apart = judged.speed(ranked[-1], ranked[0]) if len(ranked) > 1 else None
        factor = f", {times(apart)}" if apart and apart.beyond_noise else ""
        return cls(label, [cells[cell] for cell in ranked], slower, factor)

    @property
    def words(self) -> str:
        """The names in their order; neighbours that do not differ beyond the noise are equal."""
        text = self.names[0]
        for one, other in itertools.pairwise(self.names):
            slower = self.slower[one, other]
            text += f" {'?' if slower is None else '>' if slower else '='} {other}"
        return f"{self.label}: {text}{self.factor}"

    def is_slowest(self, name: str) -> bool:
        return all(self.slower[name, other] for other in self.names if other != name)


def changes(orders: Sequence[Order]) -> Iterator[str]:
    """Where one is slower than another, and further along faster, both beyond the noise."""
    if any(slower is None for order in orders for slower in order.slower.values()):
        yield "The noise is unknown, so no order is given (?)."
        return
    found: dict[tuple[str, str], list[str]] = {}
    for pair in itertools.combinations(dict.fromkeys(name for order in orders for name in order.names), 2):
        # Of each place where the two differ, which of them is the slower one.
        slower = [
            (order.label, one, other)
            for order in orders
            for one, other in (pair, pair[::-1])
            if order.slower.get((one, other))
        ]
        for (before, one, other), (after, then, _) in itertools.pairwise(slower):
            if one != then:
                found.setdefault((before, after), []).append(f"{one} is slower than {other} before and faster after")
    for (before, after), pairs in found.items():
        more = f"; and of {len(pairs) - MOST_BESIDE} more pairs" if len(pairs) > MOST_BESIDE else ""
        yield f"Between {before} and {after} the order changes: {'; '.join(pairs[:MOST_BESIDE])}{more}."
    if not found and len(orders) > 1:
        yield "The order changes nowhere along the axis beyond the noise."


def orders_within(groups: Mapping[str, Sequence[Order]]) -> Iterator[str]:
    """The orders of several axes: cells of different ones differ in more than their place on an axis."""
    compared = [order for orders in groups.values() for order in orders]
    if not compared:
        yield "No two lines have a point in common."
        return
    yield f"Slowest first: {'; '.join(order.words for order in compared)}."
    yield EXPLANATION
    for group, orders in groups.items():
        yield from (f"{group}: {sentence}" if group else sentence for sentence in changes(orders))


def about(name: str, orders: Sequence[Order]) -> str:
    there = [order for order in orders if name in order.names]
    slowest = [order.label for order in there if order.is_slowest(name)]
    others = [order.label for order in there if not order.is_slowest(name)]
    if not there:
        return f"{name} was not measured together with another."
    if not others:
        return f"{name} is slower than every other at each of these points, beyond the noise."
    where = f"at {', '.join(slowest)}, but not at " if slowest else "at none of these points: "
    return f"{name} is slower than every other, beyond the noise, {where}{', '.join(others)}."


def saturation(setting: str, line: Mapping[str, str], judged: Judged) -> Iterator[str]:
    """The smallest value that no other is faster than, beyond the noise; and what each value brings."""

    def speed(label: str, other: str) -> Comparison | None:
        return judged.speed(line[label], line[other])

    labels = [label for label, cell in line.items() if cell in judged.blocks.cells]
    if len(labels) < 2:
        yield f"Not more than one value of {setting} was measured."
        return
    first, last = labels[0], labels[-1]
    steps = [(one, other, step) for one, other in itertools.pairwise(labels) if (step := speed(other, one))]
    if any(step.beyond_noise is None for *_, step in steps):
        yield f"The noise is unknown, so it is open from which {setting} on more of it does not help."
    else:
        enough = next(label for label in labels if not any(_faster(speed(other, label)) for other in labels))
        faster = f"{times(found)} as fast as {first}" if (found := speed(enough, first)) else ""
        if enough == first:
            yield f"{setting} {first}: no other value is faster than this smallest one beyond the noise."
        elif enough == last:
            yield f"{setting} {enough}: the largest that was measured is faster than any other, {faster}."
        else:
            yield f"{setting} {enough}: no other value is faster than this one beyond the noise; it is {faster}."
    words = (f"from {one} to {other} {times(step)}" for one, other, step in steps)
    yield f"How many times as fast each value is: {'; '.join(words)}."


def _faster(comparison: Comparison | None) -> bool:
    return bool(comparison and comparison.beyond_noise and comparison.value > 1)


def speedups(lines: Mapping[str, tuple[int, Comparison | None]]) -> Iterator[str]:
    """By line, the speedup on its largest number of ranks."""
    parts = []
    for line, (ranks, found) in lines.items():
        if found:
            ends = (
                ""
                if found.low is None or found.high is None
                else f" ({percent(found.low / ranks)} to {percent(found.high / ranks)})"
            )
            alike = f", which is {NO_DIFFERENCE}" if found.beyond_noise is False else ""
            parts.append(
                f"{line} {digits(found.value)}{interval(found)} on {ranks}{alike}, an efficiency of "
                f"{percent(found.value / ranks)}{ends}"
            )
    yield from listing("Speedup on the most ranks, where one rank alone is 1", parts)
    if not parts:
        yield "No speedup can be told: it needs a cell of one rank under the same conditions, with the same measure."


def verdicts(line: str, other: str, judged: Judged, places: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """On which places of an axis, each with both cells, one line is faster than another."""
    found: dict[str, list[str]] = {}
    for place, cell, base in places:
        if apart := judged.speed(cell, base):
            slower = apart.value < 1
            verdict = "slower" if slower else "faster"
            if apart.beyond_noise is not True:
                verdict = NO_DIFFERENCE if apart.beyond_noise is False else f"{verdict}, with the noise unknown,"
            how_much = judged.speed(base, cell) if slower else apart
            found.setdefault(verdict, []).append(f"{place} ({times(how_much or apart)})")
    words = (f"{verdict} at {', '.join(each)}" for verdict, each in found.items())
    yield from listing(f"{line} against {other}", words)


def break_even_in_words(one: str, other: str, ratios: Mapping[float, Interval], unit: Unit) -> str:
    """The place in a sentence, as far as it is beyond the noise."""
    found, pair = break_even(ratios), f"{one} is faster than {other}"
    slowest, fastest = (unit.words(end(ratios)) for end in (min, max))
    if found.low is None or found.high is None:
        where = {EVERYWHERE: "faster at each of these rates", NOWHERE: "slower at each of these rates"}.get(
            found.value, f"faster below {unit.words(found.value)}"
        )
        return f"{one} against {other}: {where}, but the noise is unknown."
    if found.low == EVERYWHERE:
        return f"{pair} at each of these rates, up to {fastest}."
    if found.high == NOWHERE:
        return f"{one} is slower than {other} at each of these rates, down to {slowest}."
    if found.low == NOWHERE and found.high == EVERYWHERE:
        return f"No measured rate shows a difference beyond the noise between {one} and {other}."
    if found.value == EVERYWHERE:
        return f"{pair} up to {unit.words(found.low)}; the upper limit is unknown."
    if found.value == NOWHERE:
        return f"{one} is slower than {other} from {unit.words(found.high)} on, never faster."
    low = f"less than {slowest}" if found.low == NOWHERE else unit.words(found.low)
    high = f"more than {fastest}" if found.high == EVERYWHERE else unit.words(found.high)
    return f"{pair} below {unit.words(found.value)} ({low} to {high})."
