"""Sentences about figures of several cells: how large a difference is, and whether it is one."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.statistics import Blocks, Comparison, Interval
from app.analysis.units import MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, Unit, digits
from app.analysis.words import percent
from app.pages.definitions import INTERVALS
from app.pages.intervals import NO_DIFFERENCE, interval
from app.pages.scale import written

AXES = {"s": SECONDS, "B": MEGABYTES, "B/s": MEGABYTES_PER_SECOND, "share": PERCENT}
NEAR = 0.1  # of a published value
MOST_BESIDE = 8  # cells that are put beside each other one by one
MOST_LISTED = 12
EXPLANATION = "There, = means no difference beyond the noise. The factor compares the first with the last."


def axis_of(unit: Unit) -> str:
    """The unit of a chart's axis for values of this one."""
    return next((name for name, each in AXES.items() if each == unit), "count")


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def listing(lead: str, parts: Iterable[str]) -> Iterator[str]:
    """A sentence of all parts, where there are any."""
    if together := "; ".join(parts):
        yield f"{lead}: {together}."


def times(comparison: Interval) -> str:
    """A ratio in words."""
    return f"{digits(comparison.value)} times{interval(comparison)}"


@dataclass(frozen=True)
class Judged:
    """A figure of cells: shares compare by their difference, all else by ratio; times and speeds have a direction."""

    title: str
    unit: Unit
    blocks: Blocks
    slowest_is_largest: bool | None  # None: neither end is the better one

    @property
    def capital(self) -> str:
        return f"{self.title[0].upper()}{self.title[1:]}"

    def words(self, value: float) -> str:
        return written(value, axis_of(self.unit))

    def fastest_first(self, cells: Iterable[str]) -> list[str]:
        """The smallest value first, where no end is the better one."""
        ranked = self.blocks.ranked(cells)
        return ranked if self.slowest_is_largest is False else ranked[::-1]

    def speed(self, cell: str | None, other: str | None) -> Comparison | None:
        """How many times as fast the first is as the other."""
        return self.blocks.compare(*((cell, other) if self.slowest_is_largest is False else (other, cell)))

    def noise(self) -> str:
        """How far repeats differ, which is what a difference has to exceed."""
        if self.blocks.noise is None:
            return "Noise is unknown: it takes two cells with two rounds in common. No difference is called one."
        unit = "percentage points" if self.unit == PERCENT else "%"
        return (
            f"Repeats of a cell differ by {100 * self.blocks.noise:.1f} {unit} in {self.title} (standard deviation, "
            f"with what all cells of a round have in common taken out). Numbers in brackets are {INTERVALS}."
        )

    def extent(self) -> Iterator[str]:
        """The least and the most of all cells."""
        known = [(cell, own.value) for cell in self.blocks.cells if (own := self.blocks.estimate(cell))]
        if known:
            ends = [end(known, key=lambda each: each[1]) for end in (min, max)]
            values = [self.words(value) for _, value in ends]
            cells = [f"{value} ({cell})" for value, (cell, _) in zip(values, ends, strict=True)]
            alike = len(set(values)) == 1 and len(known) > 1
            yield f"{self.capital}: {f'{values[0]} in every cell' if alike else ' to '.join(dict.fromkeys(cells))}."

    def against(self, cell: str, other: str | None) -> str | None:
        """What a cell is beside another; a difference within the noise is called none."""
        found = self.blocks.compare(cell, other)
        if found is None:
            return None
        if self.unit == PERCENT:
            ends = "" if found.low is None or found.high is None else f" ({signed(found.low)} to {signed(found.high)})"
            how = f"{signed(found.value)} percentage points{ends}"
        else:
            less = found.value < 1
            found = self.blocks.compare(other, cell) if less else found
            how = f"{times(found)} {self._as_much(less=less)}" if found else ""
        return NO_DIFFERENCE if found and found.beyond_noise is False else how

    def _as_much(self, *, less: bool) -> str:
        if self.slowest_is_largest is None:
            return "less" if less else "as much"
        return "as fast" if less == self.slowest_is_largest else "as slow"

    def all_against(self, base: str, cells: Iterable[str]) -> Iterator[str]:
        """The same of several cells."""
        found = {cell: how for cell in cells if cell != base and (how := self.against(cell, base))}
        parts = [f"{cell} {how}" for cell, how in found.items() if how != NO_DIFFERENCE]
        more = [f"and {len(parts) - MOST_LISTED} more"] if len(parts) > MOST_LISTED else []
        alike = [cell for cell, how in found.items() if how == NO_DIFFERENCE]
        same = [f"{NO_DIFFERENCE} for {listed(alike)}"] if alike else []
        yield from listing(f"{self.capital}, compared with {base}", [*parts[:MOST_LISTED], *more, *same])

    def fastest(self, cells: Sequence[str]) -> Iterator[str]:
        """The fastest, with those that the noise does not tell from it; then each beside the next slower one."""
        order = self.fastest_first(cells)
        if len(order) < 2:
            return
        first, every = order[0], ", ".join(sorted(order)) if len(order) <= MOST_LISTED else f"{len(order)} cells"
        against = {cell: found for cell in order[1:] if (found := self.speed(first, cell))}
        alike = [cell for cell, each in against.items() if not (each.beyond_noise and each.value > 1)]
        slower = [cell for cell in against if cell not in alike]
        if self.blocks.noise is None:
            yield f"{self.capital}: {first} was the fastest of {every}, as far as one round tells."
        elif not slower:
            yield f"{self.capital}: between {every} there is {NO_DIFFERENCE}."
        else:
            lead = f"{times(against[slower[0]])} as fast as the next, {slower[0]}"
            yield (
                f"{self.capital}: {listed([first, *alike])} are the fastest of {every}, with {NO_DIFFERENCE} between "
                f"them; {first} is {lead}."
                if alike
                else f"{self.capital}: {first} is the fastest of {every}, {lead}."
            )
        for one, other in itertools.pairwise(order[len(alike) + 1 :] if len(order) <= MOST_BESIDE else ()):
            if found := self.speed(one, other):
                if found.beyond_noise is False:
                    yield f"Between {one} and {other} there is {NO_DIFFERENCE}: {times(found)} as fast."
                else:
                    yield f"{one} is {times(found)} as fast as {other}."

    def published_order(self, cells: Sequence[str], theirs: Mapping[str, float]) -> Iterator[str]:
        """Of each pair of cells that a document puts in order, whether it is ours as well."""
        least_first = self.slowest_is_largest is not False
        order = sorted(
            (cell for cell in cells if cell in theirs), key=lambda cell: theirs[cell] * (1 if least_first else -1)
        )
        if len(order) < 2:
            return
        verdicts: dict[str, list[str]] = {"found here as well": [], "the other way round here": [], "undecided": []}
        for faster, slower in itertools.combinations(order, 2):
            found = self.speed(faster, slower)
            if found and theirs[slower] != theirs[faster]:
                ours = "found here as well" if found.value > 1 else "the other way round here"
                verdicts[ours if found.beyond_noise else "undecided"].append(f"{faster} before {slower}")
        judged = [f"{verdict}: {', '.join(pairs)}" for verdict, pairs in verdicts.items() if pairs]
        if judged:
            yield f"Published, the fastest first: {', '.join(order)}. Compared with these runs: {'; '.join(judged)}."

    def beside_published(self, theirs: Mapping[str, float]) -> Iterator[str]:
        """Each published value beside ours; where those are far apart, which other cell ends there."""
        ours = {cell: own.value for cell in self.blocks.cells if (own := self.blocks.estimate(cell))}
        pairs = [(cell, value, ours[cell]) for cell, value in theirs.items() if cell in ours]
        yield from listing(
            f"{self.capital}, published and measured",
            (f"{self.words(value)} and {self.words(own)} ({cell})" for cell, value, own in pairs),
        )
        others = {cell: own for cell, own in ours.items() if cell not in theirs}
        for cell, value, measured in pairs:
            if abs(measured - value) > NEAR * abs(value) and others:
                near = [name for name, each in others.items() if abs(each - value) <= NEAR * abs(value)]
                nearest = min(others, key=lambda name: abs(others[name] - value))
                names = listed([f"{name} ({self.words(others[name])})" for name in near or [nearest]])
                published = f"the published {self.words(value)} of {cell}"
                yield (
                    f"Within {100 * NEAR:.0f} % of {published}: {names}."
                    if near
                    else f"No other cell is within {100 * NEAR:.0f} % of {published}; the nearest is {names}."
                )


def signed(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:+.1f}"


# Along an axis


@dataclass(frozen=True)
class Order:
    """At one place of an axis: names, slowest first, and what comparisons of two of them say."""

    label: str
    names: list[str]
    slower: dict[tuple[str, str], bool | None]  # the first than the second, beyond the noise; None where not known
    factor: str = ""  # of the first to the last, if they differ

    @classmethod
    def of(cls, label: str, cells: Mapping[str, str], judged: Judged) -> "Order":
        """The order of these cells, given by the names to use for them."""
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
        """Whether it is slower than every other, beyond the noise."""
        return all(self.slower[name, other] for other in self.names if other != name)


def changes(orders: Sequence[Order]) -> Iterator[str]:
    """Where one is slower than another, and further along faster, both beyond the noise."""
    if any(slower is None for order in orders for slower in order.slower.values()):
        yield "One round does not tell an order, which ? stands for."
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
    """Where one is the slowest of all."""
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
        yield f"One round does not tell from which {setting} on more of it does not help."
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
                verdict = NO_DIFFERENCE if apart.beyond_noise is False else f"{verdict}, in one round,"
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
        return f"{one} against {other}: {where}, in one round, which does not tell whether that is noise."
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
