"""The names of lines beside their ends, where there is room."""

from collections.abc import Mapping, Sequence

from app.pages.canvas import LINE
from app.pages.scale import Ruler

SAME_END = 0.03  # of the width: lines that end no farther from the edge have their names beside the panel
MOST_NUDGE = 28.0  # pixels from the end of a line to its name

type Pixel = tuple[float, float]
type Names = Mapping[str, tuple[Pixel, Pixel]]  # where its line ends, and where the name begins


def names_at_ends(lines: Mapping[str, Sequence[Pixel]], across: Ruler, bottom: float) -> Names:
    """Names beside the ends of all lines, in pixels; none if a line ends before the edge, or too near another."""
    ends = {name: points[-1] for name, points in lines.items() if points}
    edge = across.end - SAME_END * (across.end - across.begin)
    if any(x < edge for x, _ in ends.values()) or LINE * len(ends) > bottom:
        return {}
    places = spread([y for _, y in ends.values()], LINE - 2, 4, bottom - 2)
    found = {name: (ends[name], (across.end + 10, at)) for name, at in zip(ends, places, strict=True)}
    return {} if any(abs(at - y) > MOST_NUDGE for (_, y), (_, at) in found.values()) else found


def spread(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places near those wanted, in their order and apart: pushed down, and up again as far as the end demands."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    found = list(wanted)
    for place in order:
        found[place] = low = max(found[place], low)
        low += least
    for place in reversed(order):
        found[place] = high = min(found[place], high)
        high -= least
    return found
