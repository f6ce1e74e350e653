"""The order of several cells, slowest first, as far as it is more than noise; and where it changes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.experiment.reading.statistics import Blocks
from app.experiment.views.view import ranked


@dataclass(frozen=True)
class Order:
    """At one point of an axis: names, slowest first, and what comparisons of two of them say."""

    label: str
    names: list[str]
    slower: dict[tuple[str, str], bool | None]  # the first than the second, beyond the noise; None where not known

    @property
    def words(self) -> str:
        """The names in their order; neighbours that do not differ beyond the noise are equal."""
        text = self.names[0]
        for one, other in itertools.pairwise(self.names):
            slower = self.slower[one, other]
            text += f" {'?' if slower is None else '>' if slower else '='} {other}"
        return f"{self.label}: {text}"


def of(label: str, cells: Mapping[str, str], blocks: Blocks, slowest_is_largest: bool) -> Order:
    """The order of these cells, given by the names to use for them."""
    names = {cell: name for name, cell in cells.items()}
    in_order = ranked(blocks, list(names))
    in_order = in_order if slowest_is_largest else in_order[::-1]
    slower: dict[tuple[str, str], bool | None] = {}
    for one, other in itertools.permutations(in_order, 2):
        comparison = blocks.compare(one, other)
        if comparison is None or comparison.beyond_noise is None:
            slower[names[one], names[other]] = None
        else:
            larger = comparison.value > comparison.neutral
            slower[names[one], names[other]] = comparison.beyond_noise and larger == slowest_is_largest
    return Order(label, [names[cell] for cell in in_order], slower)


def changes(points: Sequence[Order]) -> Iterator[str]:
    """Where one is slower than another, and further along faster, both beyond the noise."""
    if any(slower is None for point in points for slower in point.slower.values()):
        yield "One round does not tell an order: no difference is called one (?)."
        return
    found: dict[tuple[str, str], list[str]] = {}
    for one, other in itertools.combinations(dict.fromkeys(name for point in points for name in point.names), 2):
        told = [
            (point.label, bool(point.slower[one, other]))
            for point in points
            if point.slower.get((one, other)) or point.slower.get((other, one))
        ]
        for (before, slower), (after, still_slower) in itertools.pairwise(told):
            if slower and not still_slower:
                found.setdefault((before, after), []).append(f"{one} is slower than {other} before, and faster after")
            elif still_slower and not slower:
                found.setdefault((before, after), []).append(f"{other} is slower than {one} before, and faster after")
    for (before, after), pairs in found.items():
        yield f"Between {before} and {after} the order changes: {'; '.join(pairs)}."
    if not found and len(points) > 1:
        yield "The order changes nowhere beyond the noise: where two differ at several points, they differ alike."


def about(name: str, points: Sequence[Order]) -> str:
    """Where one is the slowest of all."""
    there = [point for point in points if name in point.names]
    slowest = [
        point.label for point in there if all(point.slower[name, other] for other in point.names if other != name)
    ]
    if not there:
        return f"{name} was not measured beside another."
    if len(slowest) == len(there):
        return f"{name} is slower than every other at each of these points, beyond the noise."
    others = [point.label for point in there if point.label not in slowest]
    only = (
        f"is slower than every other, beyond the noise, at {', '.join(slowest)}, but not at "
        if slowest
        else ("is slower than every other, beyond the noise, at none of these points: ")
    )
    return f"{name} {only}{', '.join(others)}."
