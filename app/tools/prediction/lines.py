"""Cells along an axis that differ in nothing else, and what they are called beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.settings.averaging import OF_AVERAGING
from app.settings.link_rates import read_rate
from app.tools.experiment.plan.cells import conditions
from app.tools.prediction.forecast import Forecast

RANKS, RATE = "WORKERS", "LINK_RATE"  # the axes
AVERAGING = [name.upper() for name in ("sync_mode", *OF_AVERAGING)]


@dataclass(frozen=True)
class PredictedLine:
    """Cells in the order of the axis."""

    way: str  # to synchronise
    place: str  # everything else that other lines have otherwise
    cells: list[Forecast]


def position(cell: Forecast, axis: str) -> float | None:
    """Ranks, or bits per second: None for links without a rate."""
    rate = cell.setup.settings.links.link_rate
    return cell.setup.ranks if axis == RANKS else read_rate(rate) if rate else None


def ways_of(found: Sequence[Forecast]) -> dict[str, str]:
    """By cell, how it synchronises, as far as others do otherwise."""
    others = {name for each in found for name in each.cell.varied if name not in AVERAGING}
    return conditions([each.cell for each in found], *others)


def places_of(found: Sequence[Forecast], *without: str) -> dict[str, str]:
    """By cell, in what other than averaging it differs from others."""
    return conditions([each.cell for each in found], *AVERAGING, *without)


def lines(found: Sequence[Forecast], axis: str) -> list[PredictedLine]:
    """Those of at least two places on the axis."""
    placed = [each for each in found if position(each, axis) is not None]
    ways, places = ways_of(placed), places_of(placed, axis)
    groups: dict[tuple[str, str], list[Forecast]] = {}
    for each in sorted(placed, key=lambda each: position(each, axis) or 0.0):
        groups.setdefault((ways[each.name], places[each.name]), []).append(each)
    return [
        PredictedLine(*names, cells)
        for names, cells in groups.items()
        if position(cells[0], axis) != position(cells[-1], axis)
    ]
