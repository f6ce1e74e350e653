"""The names of lines at their ends, where they cover nothing."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import hypot

from app.pages.canvas import LINE, Box, box_of
from app.pages.scale import Ruler

SAME_END = 0.03  # of the width: lines that end no farther from the edge have their names beside the panel
CLEAR = 4.0  # pixels beside a name
MOST_NUDGE = 28.0  # pixels from the end of a line to its name

type Pixel = tuple[float, float]
type Names = Mapping[str, tuple[Pixel, Pixel]]  # where its line ends, and where the name begins


def names_at_ends(lines: Mapping[str, Sequence[Pixel]], across: Ruler, bottom: float, right: float) -> Names:
    """Names at the ends of all lines, in pixels; none if one of them would cover a line or another name."""
    ends = {name: points[-1] for name, points in lines.items() if points}
    edge = across.end - SAME_END * (across.end - across.begin)
    beside = [name for name, (x, _) in ends.items() if x >= edge]
    if LINE * len(beside) > bottom:
        return {}
    places = spread([ends[name][1] for name in beside], LINE - 2, 4, bottom - 2)
    found = {name: (ends[name], (across.end + 10, at)) for name, at in zip(beside, places, strict=True)}
    if any(abs(at - end) > MOST_NUDGE for (_, end), (_, at) in found.values()):
        return {}
    for name, (x, y) in ends.items():
        if name not in found:
            box = _box(x + 9, y, name)
            others = [_box(*at, other) for other, (_, at) in found.items()]
            if box[2] > right or any(_overlap(box, other) for other in others) or is_crossed(box, lines.values()):
                return {}
            found[name] = (x, y), (x + 9, y)
    return found


def spread(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places near those wanted, in their order and apart: halfway between all pushed down and all pushed up."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    down, up = (
        _pushed([wanted[place] for place in order], least, low),
        [-each for each in _pushed([-wanted[place] for place in reversed(order)], least, -high)],
    )
    found = [0.0] * len(wanted)
    for rank, place in enumerate(order):
        middle = (down[rank] + up[-1 - rank]) / 2
        found[place] = max(low + rank * least, min(high - (len(order) - 1 - rank) * least, middle))
    return found


def _pushed(wanted: Sequence[float], least: float, low: float) -> list[float]:
    found: list[float] = []
    for each in wanted:
        found.append(max(each, found[-1] + least if found else low))
    return found


def _box(x: float, y: float, name: str) -> Box:
    return box_of(x, y + 4, name, bold=True)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def is_crossed(box: Box, lines: Iterable[Sequence[Pixel]]) -> bool:
    """Whether a line goes through a box, as far as a look every four pixels tells."""
    for line in lines:
        for (x, y), (right, low) in pairwise(line):
            steps = 1 + int(hypot(right - x, low - y) / 4)
            for step in range(steps + 1):
                at = x + (right - x) * step / steps, y + (low - y) * step / steps
                if box[0] - CLEAR < at[0] < box[2] + CLEAR and box[1] < at[1] < box[3]:
                    return True
    return False
