"""What changes along an axis: the order of several lines, and from where on a single one gets no better."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.statistics import Blocks, Comparison
from app.tools.experiment.views.words import times

EXPLANATION = (
    "There, = is a difference between neighbours that is not beyond the noise. Times compare the first with the last."
)


@dataclass(frozen=True)
class Order:
    """At one place of an axis: names, slowest first, and what comparisons of two of them say."""

    label: str
    names: list[str]
    slower: dict[tuple[str, str], bool | None]  # the first than the second, beyond the noise; None where not known
    factor: str = ""  # of the first to the last, if they differ

    @classmethod
    def of(cls, label: str, cells: Mapping[str, str], blocks: Blocks, slowest_is_largest: bool) -> "Order":
        """The order of these cells, given by the names to use for them."""
        ranked = blocks.ranked(cells)
        ranked = ranked if slowest_is_largest else ranked[::-1]
        slower: dict[tuple[str, str], bool | None] = {}
        for one, other in itertools.permutations(ranked, 2):
            found = blocks.compare(one, other)
            known = found is not None and found.beyond_noise is not None
            larger = found is not None and found.value > found.neutral
            slower[cells[one], cells[other]] = (
                bool(found and found.beyond_noise and larger == slowest_is_largest) if known else None
            )
        ends = (ranked[0], ranked[-1]) if slowest_is_largest else (ranked[-1], ranked[0])
        apart = blocks.compare(*ends) if len(ranked) > 1 else None
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
        yield "One round does not tell an order: no difference is called one (?)."
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
                found.setdefault((before, after), []).append(f"{one} is slower than {other} before, and faster after")
    for (before, after), pairs in found.items():
        yield f"Between {before} and {after} the order changes: {'; '.join(pairs)}."
    if not found and len(orders) > 1:
        yield "The order changes nowhere beyond the noise: where two differ at several points, they differ alike."


def changes_within(groups: Mapping[str, Sequence[Order]]) -> Iterator[str]:
    """The same for several axes: cells of different ones differ in more than their place on an axis."""
    for group, orders in groups.items():
        yield from (f"{group}: {sentence}" if group else sentence for sentence in changes(orders))


def about(name: str, orders: Sequence[Order]) -> str:
    """Where one is the slowest of all."""
    there = [order for order in orders if name in order.names]
    slowest = [order.label for order in there if order.is_slowest(name)]
    others = [order.label for order in there if not order.is_slowest(name)]
    if not there:
        return f"{name} was not measured beside another."
    if not others:
        return f"{name} is slower than every other at each of these points, beyond the noise."
    where = f"at {', '.join(slowest)}, but not at " if slowest else "at none of these points: "
    return f"{name} is slower than every other, beyond the noise, {where}{', '.join(others)}."


def saturation(setting: str, line: Mapping[str, str], blocks: Blocks, slowest_is_largest: bool) -> Iterator[str]:
    """The smallest value that no other is faster than, beyond the noise; and what each value brings."""

    def speed(label: str, other: str) -> Comparison | None:
        """How many times as fast the first is as the other."""
        cells = line[label], line[other]
        return blocks.compare(*(cells[::-1] if slowest_is_largest else cells))

    labels = [label for label, cell in line.items() if cell in blocks.cells]
    if len(labels) < 2:
        yield f"Not more than one value of {setting} was measured."
        return
    first, last = labels[0], labels[-1]
    steps = [(one, other, step) for one, other in itertools.pairwise(labels) if (step := speed(other, one))]
    if any(step.beyond_noise is None for *_, step in steps):
        yield f"One round does not tell from which {setting} on more of it does not help."
    else:
        enough = next(label for label in labels if not any(_faster(speed(other, label)) for other in labels))
        gain = speed(enough, first)
        faster = f"{times(gain)} as fast as {first}" if gain else ""
        if enough == first:
            yield f"More than {setting} {first} does not help: no other value is faster beyond the noise."
        elif enough == last:
            yield f"{setting} {enough}, the largest that was measured, is faster than any other: {faster}."
        else:
            limit = "no other value is faster than that beyond the noise"
            yield f"{setting} helps up to {enough}, which is {faster}; {limit}."
    words = (f"from {one} to {other} {times(step)}" for one, other, step in steps)
    yield f"What each value brings: {'; '.join(words)} as fast."


def _faster(comparison: Comparison | None) -> bool:
    return bool(comparison and comparison.beyond_noise and comparison.value > 1)
