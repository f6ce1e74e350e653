"""What predictions say, in sentences, the main point first; and what of them is not to be trusted."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.analysis.units import digits
from app.analysis.words import duration
from app.tools.prediction.forecast import VERIFIED_RANKS, Forecast
from app.tools.prediction.limits import HALF
from app.tools.prediction.names import RANKS, in_words, telling
from app.tools.prediction.pages.lines import PredictedLine, lines, position, unverified, ways_and_places

MOST_NAMES = 5  # in a sentence
MOST_OUTSIDE = 12


@dataclass(frozen=True)
class ModeComparison:
    """Cells that differ only in how they synchronise."""

    place: str  # what they have in common
    cells: dict[str, Forecast]  # by that way, the fastest first

    @property
    def fastest(self) -> Forecast:
        """The one with the fewest seconds."""
        return next(iter(self.cells.values()))

    @property
    def leaders(self) -> list[str]:
        """The fastest, and those that their intervals do not tell from it."""
        return [way for way, each in self.cells.items() if not _slower(each, self.fastest)]

    @property
    def gap(self) -> float:
        """The seconds of the slowest by those of the fastest."""
        return list(self.cells.values())[-1].seconds / self.fastest.seconds


def _slower(one: Forecast, other: Forecast) -> bool:
    """Beyond both intervals, as if their errors had nothing to do with each other."""
    wide = math.hypot(*(math.log(each.interval[1] / each.seconds) for each in (one, other)))
    return math.log(one.seconds / other.seconds) > wide


def comparisons(found: Sequence[Forecast]) -> list[ModeComparison]:
    """All of them, without what synchronises nothing."""
    found = [each for each in found if each.setup.ranks > 1 and each.setup.settings.averaging.sync_mode != "none"]
    ways, places = ways_and_places(telling(found))
    if any(position(each, RANKS) != position(found[0], RANKS) for each in found):
        places = [RANKS, *(name for name in places if name != RANKS)]
    groups: dict[str, dict[str, Forecast]] = {}
    for each in sorted(found, key=lambda each: each.seconds):
        groups.setdefault(in_words(each, places), {}).setdefault(in_words(each, ways), each)
    order = dict.fromkeys(in_words(each, places) for each in found)
    return [ModeComparison(place, groups[place]) for place in order if len(groups.get(place, {})) > 1]


def reading(found: Sequence[Forecast]) -> Iterator[str]:
    """The finding with its number; then what else is to be known."""
    compared, along = comparisons(found), [each for each in lines(found, RANKS) if len(each.cells) > 1]
    if compared:
        yield from _compare(compared)
    elif along:
        yield from (_sentence(_scaling(line)) for line in along[:MOST_NAMES])
    else:
        yield _extremes(found)
    if any(map(unverified, found)):
        most = max(each.setup.ranks for each in found)
        yield f"Up to {most:,} ranks are predicted: simulated, not verified beyond {VERIFIED_RANKS} ranks."
    bounds = Counter(each.bound for each in found).most_common()
    told = "; ".join(f"{bound} (in {times} of {len(found)} cells)" for bound, times in bounds)
    yield f"What takes most of the step: {told}."


def _compare(compared: Sequence[ModeComparison]) -> Iterator[str]:
    """The largest difference among ranks as many as have been verified, then among more of them; then the counts."""
    near = [each for each in compared if not unverified(each.fastest)]
    far = [each for each in compared if unverified(each.fastest)]
    if near:
        yield _sentence(_difference(near))
    if far:
        yield f"Beyond {VERIFIED_RANKS} ranks, not verified: {_difference(far)}"
    if len(compared) > 1 and any(len(each.leaders) < len(each.cells) for each in compared):
        first = Counter(way for each in compared for way in each.leaders)
        ways = dict.fromkeys(way for each in compared for way in each.cells)
        counts = ", ".join(f"{way} in {first[way]}" for way in sorted(ways, key=lambda way: -first[way]))
        yield f"Of {len(compared)} comparisons, among the fastest as far as intervals tell: {counts}."


def _difference(compared: Sequence[ModeComparison]) -> str:
    widest = max(compared, key=lambda each: each.gap)
    place, slowest = (f" with {widest.place}" if widest.place else ""), list(widest.cells)[-1]
    if slowest in widest.leaders:
        elsewhere = ", and less elsewhere" if len(compared) > 1 else ""
        return (
            f"no way to synchronise is slower than another beyond the intervals; {digits(100 * (widest.gap - 1))} % "
            f"lie between {next(iter(widest.cells))} and {slowest}{place}{elsewhere}."
        )
    return (
        f"{_listed(widest.leaders)} {'is' if len(widest.leaders) == 1 else 'are'} the fastest{place}: "
        f"{duration(widest.fastest.seconds)} a step. {slowest} takes {digits(widest.gap)} times as long."
    )


def _sentence(words: str) -> str:
    """It begins with a capital unless it begins with a name."""
    return f"{words[0].upper()}{words[1:]}" if words.startswith(("no way ", "a step ")) else words


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _scaling(line: PredictedLine) -> str:
    best, last = min(line.cells, key=lambda each: each.seconds), line.last
    name = "" if line.name == "all cells" else f"{line.name}: "
    more = "" if best is last else f"; with {last.setup.ranks:,} it takes {duration(last.seconds)}"
    under = [(one, other) for one, other in pairwise(line.cells) if one.efficiency >= HALF > other.efficiency]
    if under:
        one, other = under[0]
        half = f"falls under a half between {one.setup.ranks:,} and {other.setup.ranks:,} ranks"
    else:
        where = "above" if last.efficiency >= HALF else "under"
        half = f"is {where} a half throughout, {100 * last.efficiency:.0f} % with {last.setup.ranks:,} ranks"
    return (
        f"{name}a step is shortest with {best.setup.ranks:,} ranks: {duration(best.seconds)}, {digits(best.speedup)} "
        f"times as fast as one{more}. Efficiency {half}."
    )


def _extremes(found: Sequence[Forecast]) -> str:
    fastest, slowest = (choose(found, key=lambda each: each.seconds) for choose in (min, max))
    low, high = map(duration, fastest.interval)
    if len(found) == 1:
        return f"A step takes {duration(fastest.seconds)}, in four of five cases {low} to {high}."
    return (
        f"{fastest.name} is the fastest of {len(found)} cells: {duration(fastest.seconds)} a step, in four of five "
        f"cases {low} to {high}. {slowest.name} takes {digits(slowest.seconds / fastest.seconds)} times as long."
    )


def gathered(sentences: Sequence[str]) -> Iterator[str]:
    """Those that say the same of several lines of cells, as one."""
    by_tail: dict[str, list[str]] = {}
    for each in sentences:
        head, _, tail = each.partition(": ")
        by_tail.setdefault(tail, []).append(head)
    for tail, heads in by_tail.items():
        yield f"{'; '.join(heads)}: {tail}"


def outside(found: Sequence[Forecast]) -> Iterator[str]:
    """What lies outside the calibration, and in how many cells; reasons that differ in a number alone are one."""
    reasons: dict[str, tuple[list[float], set[int]]] = {}
    for place, each in enumerate(found):
        for reason in each.outside:
            number, words = re.fullmatch(r"([0-9.e+]+ |)(.*)", reason).groups()  # type: ignore[union-attr]  # any fits
            numbers, cells = reasons.setdefault(words, ([], set()))
            numbers += [float(number)] if number else []
            cells.add(place)
    for words, (numbers, cells) in list(reasons.items())[:MOST_OUTSIDE]:
        ends = " to ".join(f"{each:,g}" for each in sorted({min(numbers), max(numbers)})) if numbers else ""
        yield f"{ends} {words} ({len(cells)} of {len(found)} cells)".strip()
    if len(reasons) > MOST_OUTSIDE:
        yield f"{len(reasons) - MOST_OUTSIDE} more reasons stand in the table's file."
