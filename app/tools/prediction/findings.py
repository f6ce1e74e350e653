"""What predictions say, in sentences, the main point first."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from app.analysis.units import digits
from app.analysis.words import duration
from app.machine.parallel import on_all_cores
from app.pages.findings import listed
from app.settings.averaging import OF_AVERAGING
from app.settings.link_rates import read_rate
from app.tools.experiment.plan.cells import conditions
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.limits import HALF, break_even, ranks_at_half

MOST_REASONS = 12
RANKS, RATE = "WORKERS", "LINK_RATE"  # the axes
AVERAGING = [name.upper() for name in ("sync_mode", *OF_AVERAGING)]

Groups = dict[str, dict[str, list[Forecast]]]  # by what cells have in common, then by how they synchronise


def reading(found: Sequence[Forecast]) -> Iterator[str]:
    """The finding with its number, then what bounds the steps."""
    compared = comparisons(found)
    yield _difference(compared) if compared else _extremes(found)
    if any(each.unverified for each in found):
        yield f"Predictions for more than {VERIFIED_RANKS} ranks are simulated, not verified."
    bounds = Counter(each.bound for each in found).most_common()
    counts = "; ".join(f"{bound} (in {times} of {len(found)} cells)" for bound, times in bounds)
    yield f"What takes most of the step: {counts}."


def groups(found: Sequence[Forecast], *axis: str) -> Groups:
    """As far as others do otherwise."""
    cells = [each.cell for each in found]
    ways = conditions(cells, *{name for cell in cells for name in cell.settings if name not in AVERAGING})
    places = conditions(cells, *AVERAGING, *axis)
    grouped: Groups = {}
    for each in found:
        grouped.setdefault(places[each.name], {}).setdefault(ways[each.name], []).append(each)
    return grouped


def position(cell: Forecast, axis: str) -> float | None:
    """Ranks, or bits per second: None for links without a rate."""
    rate = cell.settings.links.link_rate
    return cell.ranks if axis == RANKS else read_rate(rate) if rate else None


def lines(found: Sequence[Forecast], axis: str) -> Groups:
    """In the order of the axis, those of at least two places on it."""
    placed = [each for each in found if position(each, axis) is not None]
    placed.sort(key=lambda each: position(each, axis) or 0.0)
    several = {
        place: {way: cells for way, cells in ways.items() if position(cells[0], axis) != position(cells[-1], axis)}
        for place, ways in groups(placed, axis).items()
    }
    return {place: ways for place, ways in several.items() if ways}


def comparisons(found: Sequence[Forecast]) -> dict[str, dict[str, Forecast]]:
    """By what they have in common, cells that differ only in how they synchronise, the fastest first."""
    averaged = [each for each in found if each.ranks > 1 and each.settings.averaging.sync_mode != "none"]
    grouped = groups(sorted(averaged, key=lambda each: each.seconds))
    return {place: {way: cells[0] for way, cells in ways.items()} for place, ways in grouped.items() if len(ways) > 1}


def _difference(compared: dict[str, dict[str, Forecast]]) -> str:
    """The largest, among ranks as many as have been verified if there are any."""
    near = {place: cells for place, cells in compared.items() if not any(each.unverified for each in cells.values())}
    gaps = {place: _gap(list(cells.values())) for place, cells in (near or compared).items()}
    widest = max(gaps, key=lambda place: gaps[place])
    (first, fastest), *_, (last, slowest) = compared[widest].items()
    leaders = [way for way, each in compared[widest].items() if not _slower(each, fastest)]
    where = f" ({widest})" if widest else ""
    if last in leaders:
        return (
            f"No mode is slower than another beyond the intervals: {duration(fastest.seconds)} a step with {first}, "
            f"{duration(slowest.seconds)} with {last}{where}."
        )
    return (
        f"{listed(leaders)} {'is' if len(leaders) == 1 else 'are'} the fastest{where}: {duration(fastest.seconds)} a "
        f"step. {last} takes {digits(gaps[widest])} times as long."
    )


def _gap(cells: Sequence[Forecast]) -> float:
    return cells[-1].seconds / cells[0].seconds


def _slower(one: Forecast, other: Forecast) -> bool:
    """Beyond both intervals, as if their errors were independent."""
    wide = math.hypot(*(math.log(each.interval[1] / each.seconds) for each in (one, other)))
    return math.log(one.seconds / other.seconds) > wide


def _extremes(found: Sequence[Forecast]) -> str:
    fastest, slowest = (choose(found, key=lambda each: each.seconds) for choose in (min, max))
    step = f"{duration(fastest.seconds)}, in four of five cases {' to '.join(map(duration, fastest.interval))}"
    if len(found) == 1:
        return f"A step takes {step}."
    return (
        f"{fastest.name} is the fastest of {len(found)} cells: a step takes {step}. {slowest.name} takes "
        f"{digits(slowest.seconds / fastest.seconds)} times as long."
    )


def limits_of(found: Sequence[Forecast]) -> Iterator[str]:
    """Where more ranks stop paying off, and where compression starts to. Lines with the same limit share a sentence."""
    first: dict[str, Forecast] = {}
    for each in found:
        if each.ranks > 1 and each.settings.averaging.sync_mode != "none":
            first.setdefault(json.dumps(each.settings.values(but={"world_size"})), each)
    others = conditions([each.cell for each in found], RANKS, RATE, "SYNC_MODE", "COMPRESSION")
    names: dict[str, list[str]] = {}
    for each, limits in zip(first.values(), on_all_cores(_limits, list(first.values())), strict=True):
        for limit in limits:
            names.setdefault(limit, []).append(_named(each, others[each.name]))
    yield from (f"{'; '.join(own)}: {limit}" for limit, own in names.items())


def _named(cell: Forecast, others: str) -> str:
    averaging, rate = cell.settings.averaging, cell.settings.links.link_rate
    compressor = "" if averaging.compression == "none" else f" with {averaging.compression}"
    return ", ".join(each for each in (f"{averaging.sync_mode}{compressor}", rate or "unshaped", others) if each)


def _limits(cell: Forecast) -> list[str]:
    last = ranks_at_half(cell)
    most = f"stays above 50 % up to {last.ranks:,} ranks, the most simulated"
    half = most if last.efficiency >= HALF else f"falls below 50 % at {last.ranks:,} ranks"
    found = [f"efficiency {half}, if each rank has its own host."]
    if cell.settings.averaging.compression != "none":
        rate = break_even(cell)
        pays = f"below {rate / 1e6:.0f} Mbit/s" if rate else "at every rate from 1 Mbit/s to 100 Gbit/s, or at none"
        found.append(f"faster than without compression {pays}, on {cell.ranks} ranks.")
    return found


def outside(found: Sequence[Forecast]) -> Iterator[str]:
    """What lies outside the calibration, and in how many cells."""
    reasons = Counter(reason for each in found for reason in each.outside()).most_common()
    for reason, cells in reasons[:MOST_REASONS]:
        yield f"{reason} ({cells} of {len(found)} cells)"
    if len(reasons) > MOST_REASONS:
        yield f"{len(reasons) - MOST_REASONS} more reasons are in the table's file."
