"""Sentences about figures of several cells: how large a difference is, and whether it is one."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.statistics import Blocks, Comparison, Interval
from app.analysis.units import PERCENT, Unit, digits
from app.pages.definitions import INTERVALS
from app.pages.intervals import NO_DIFFERENCE, interval
from app.pages.scale import written

NEAR = 0.1  # of a published value
MOST_BESIDE = 8  # cells that are put beside each other one by one
MOST_LISTED = 12


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def listing(lead: str, parts: Iterable[str]) -> Iterator[str]:
    """A sentence of all parts, where there are any."""
    if together := "; ".join(parts):
        yield f"{lead}: {together}."


def times(comparison: Interval) -> str:
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
        return written(value, self.unit.axis)

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
            yield f"{self.capital}: {first} was the fastest of {every}, but the noise is unknown."
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
