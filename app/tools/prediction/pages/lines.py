"""The lines of a page's figures: cells along an axis that differ in nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.pages.scale import Axis
from app.pages.traces import Trace
from app.settings.averaging import OF_AVERAGING
from app.settings.link_rates import read_rate
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.names import RANKS, RATE, in_words, telling, value_of

AXES = (RANKS, RATE)  # the settings that a figure can have across


@dataclass(frozen=True)
class PredictedLine:
    """Cells in the order of the axis, with what all of them have and other lines have not."""

    way: str  # to synchronise
    place: str  # everything else
    cells: list[Forecast]

    @property
    def name(self) -> str:
        """All of it."""
        return ", ".join(each for each in (self.way, self.place) if each) or "all cells"

    @property
    def last(self) -> Forecast:
        """The cell at the right end."""
        return self.cells[-1]

    def trace(self, axis: str, value: Callable[[Forecast], float], *, name: str = "", role: str = "") -> Trace:
        """A value of each cell along the axis, dashed where it is not verified."""
        places, values = [position(each, axis) or 0.0 for each in self.cells], list(map(value, self.cells))
        return Trace(name or self.way, places, values, hollow=list(map(unverified, self.cells)), role=role)


def position(cell: Forecast, axis: str) -> float | None:
    """Where a cell stands on the axis; None for links without a rate."""
    rate = cell.setup.settings.links.link_rate
    return cell.setup.ranks if axis == RANKS else read_rate(rate) if rate else None


def ways_and_places(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The settings that say how ranks synchronise, and the others."""
    ways = [name for name in names if name.lower() in {"sync_mode", *OF_AVERAGING}]
    return ways, [name for name in names if name not in ways]


def lines(found: Sequence[Forecast], axis: str) -> list[PredictedLine]:
    """All cells that have a place on the axis."""
    placed = [each for each in found if position(each, axis) is not None]
    ways, places = ways_and_places(telling(placed, axis))
    groups: dict[tuple[str, str], list[Forecast]] = {}
    for each in placed:
        groups.setdefault((in_words(each, ways), in_words(each, places)), []).append(each)
    return [
        PredictedLine(way, place, sorted(cells, key=lambda each: position(each, axis) or 0.0))
        for (way, place), cells in groups.items()
    ]


def axes_of(found: Sequence[Forecast]) -> list[str]:
    """The axes along which some cells differ in nothing else."""
    return [
        axis
        for axis in AXES
        if any(position(each.cells[0], axis) != position(each.last, axis) for each in lines(found, axis))
    ]


def unverified(cell: Forecast) -> bool:
    """Whether it has more ranks than have been held against runs."""
    return cell.setup.ranks > VERIFIED_RANKS


def across(found: Sequence[Forecast], axis: str) -> Axis:
    """The scale along the axis, on which each cell's place has a label."""
    places = {place: each for each in found if (place := position(each, axis)) is not None}
    labels = [(at, f"{at:,.0f}" if axis == RANKS else value_of(places[at], RATE)) for at in sorted(places)]
    title, log = ("ranks", None) if axis == RANKS else ("link rate of a rank", True)
    return Axis(title, log=log, labels=labels)
