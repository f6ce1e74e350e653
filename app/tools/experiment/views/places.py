"""Where cells stand along a setting, the line that each belongs to, and the cell that it is compared with."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from app.pages.findings import Judged
from app.settings.link_rates import RATE_UNITS, read_rate
from app.tools.experiment.plan.cells import Cell, alone_like, conditions
from app.tools.experiment.results import MeasuredCell

ONE_RANK = "one rank"
LABEL = "label"
SHORT = {"ranks": "WORKERS", "rate": "LINK_RATE", "mode": "SYNC_MODE", "batch": "BATCH_SIZE_PER_RANK"}
RANKS, RATE, MODE = SHORT["ranks"], SHORT["rate"], SHORT["mode"]
UNSET = "not set"
ABSENT = {RATE: "unshaped"}  # what a cell without the setting is called


@dataclass(frozen=True)
class Spot(MeasuredCell):
    """A cell at its place."""

    group: str = ""  # cells compare only with those that agree in all settings but axis and series
    series: str = ""  # the value of that setting
    label: str = ""  # the place in words
    at: float = 0.0
    base: str | None = None  # the cell that it is compared with

    @property
    def line(self) -> str:
        return ", ".join(filter(None, (self.series, self.group)))


@dataclass(frozen=True)
class Placing:
    """Which settings place the cells: that of the axis, that of the lines, and what each is compared with."""

    axis: str
    series: str | None
    baseline: str | None  # one cell for all
    against: str | None  # ONE_RANK, or a line

    @property
    def title(self) -> str:
        return "ranks" if self.axis == RANKS else self.axis

    def words(self, label: str) -> str:
        return f"{label} rank{'s' * (label != '1')}" if self.axis == RANKS else label

    def series_of(self, cell: Cell) -> str:
        if self.series == LABEL:
            return ", ".join(part for part in cell.name.split(", ") if part != cell.settings.get(self.axis))
        return (value_of(cell, self.series) or UNSET) if self.series else ""

    def spots(self, cells: Sequence[MeasuredCell], judged: Judged) -> list[Spot]:
        """Along the axis; cells without the setting stand at the right end."""
        places = _places([value for cell in cells if (value := value_of(cell, self.axis)) is not None])
        spread = sorted(places.values())
        end = (spread[-1] if spread else 0.0) + max((b - a for a, b in pairwise(spread)), default=1.0)
        shared = self._shared(cells)
        found: list[Spot] = []
        for cell in cells:
            value = value_of(cell, self.axis)
            label, at = (ABSENT.get(self.axis, UNSET), end) if value is None else (value, places[value])
            series, group = self.series_of(cell), shared[cell.name]
            # Two cells of one line at one place differ in what one of them does not set: each is a group of its own.
            if any((spot.series, spot.group, spot.label) == (series, group, label) for spot in found):
                group = ", ".join(filter(None, (group, cell.name)))
            found.append(Spot(**vars(cell), group=group, series=series, label=label, at=at))
        found.sort(key=lambda spot: (spot.at, spot.label))
        return [replace(spot, base=self._base(spot, found, judged)) for spot in found]

    def _shared(self, cells: Sequence[MeasuredCell]) -> Mapping[str, str]:
        """By cell, what its line has in common and other lines have not."""
        if self.series == LABEL:
            return dict.fromkeys((cell.name for cell in cells), "")
        varied = (self.axis, *([self.series] if self.series else []))
        if self.against != ONE_RANK:
            return conditions(cells, *varied)
        # One rank synchronises nothing, so that it has no part in what tells the lines apart.
        several = [cell for cell in cells if cell.world_size > 1]
        return {cell.name: "" for cell in cells} | conditions(several, *varied)

    def _base(self, spot: Spot, found: Sequence[Spot], judged: Judged) -> str | None:
        if self.baseline:
            return self.baseline
        if self.against == ONE_RANK:
            alone = alone_like(spot, found)
            return alone.name if alone else None
        there = [each for each in found if (each.group, each.label) == (spot.group, spot.label)]
        if self.against:
            return next((each.name for each in there if each.series == self.against), None)
        if not self.series:
            return next(each.name for each in found if each.group == spot.group)
        return next(iter(judged.fastest_first(each.name for each in there)), None)

    def lines(self, found: Sequence[Spot]) -> dict[str, list[Spot]]:
        """By name. Against one rank, each line begins with it, although it has no mode and no link."""
        own = [spot for spot in found if self.against != ONE_RANK or spot.world_size > 1]
        lines: dict[str, list[Spot]] = {}
        for spot in own:
            lines.setdefault(spot.line or f"by {self.title}", []).append(spot)
        if self.against == ONE_RANK:
            lines = {line: [*(s for s in found if s.name == spots[0].base), *spots] for line, spots in lines.items()}
        return lines


def is_a_number(label: str) -> bool:
    """Whether a place on an axis is more or less than another."""
    return re.fullmatch(rf"[0-9.]+({'|'.join(RATE_UNITS)})?", label) is not None


def value_of(cell: Cell, setting: str | None) -> str | None:
    """A setting's value; of the workers, the ranks that they are, and of a mode left unset, the run's own."""
    if setting == RANKS:
        return str(cell.world_size)
    if setting == MODE and isinstance(cell, MeasuredCell) and MODE not in cell.settings:
        return cell.first.mode
    return cell.settings.get(setting or "")


def _places(values: Sequence[str]) -> dict[str, float]:
    """Numbers stand where they are, rates by their logarithm, anything else in the order of the grid file."""
    if all(re.fullmatch(rf"[0-9.]+({'|'.join(RATE_UNITS)})", value) for value in values):
        return {value: math.log10(read_rate(value)) for value in values}
    try:
        return {value: float(value) for value in values}
    except ValueError:
        return {value: float(place) for place, value in enumerate(dict.fromkeys(values))}
