"""Where cells stand along a setting, the line that each belongs to, and the cell that it is compared with."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

from app.machine.say import shown
from app.pages.findings import Judged
from app.settings.link_rates import RATE_UNITS, read_rate
from app.tools.experiment.plan.cells import Cell, alone_like, conditions
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.view import OfMeasures

ONE_RANK = "one rank"
LABEL = "label"
SHORT = {"ranks": "WORKERS", "rate": "LINK_RATE", "mode": "SYNC_MODE", "batch": "BATCH_SIZE_PER_RANK"}
RANKS, RATE, MODE = SHORT["ranks"], SHORT["rate"], SHORT["mode"]
UNSET = "not set"
ABSENT = {RATE: "unshaped"}  # what a cell without the setting is called

Setting = Annotated[str, AfterValidator(lambda name: SHORT.get(name, name))]


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


class OfPlaces(OfMeasures):
    """A view of cells along a setting, in lines by another one."""

    by: Setting = Field(description="the setting on the axis, or in short `ranks`, `rate`, `mode`, `batch`")
    series: Setting | None = Field(
        None,
        description="the setting that tells the lines apart; `label`: a cell's name without the part that is its value "
        "on the axis [one line for each combination of the other settings; the lines are not compared]",
    )
    baseline: str | None = Field(
        None,
        description="the cell that all others are compared with [in a line its first; across lines the fastest there]",
    )
    against: str | None = Field(
        None,
        description="instead of a baseline: `one rank`, the cell of one rank under the same conditions; or the name of "
        "a line, compared at each place",
    )
    watch: str | None = Field(
        None, description="a line: report where it is the slowest; with `against`, report it first"
    )

    def problems(self) -> Iterator[ValueError]:
        yield from super().problems()
        if self.by == self.series:
            yield ValueError(f"by and series are both {shown(self.by)}: give two settings")
        if self.against and self.baseline:
            yield ValueError("against and baseline exclude each other")
        if (self.watch or self.against not in (None, ONE_RANK)) and self.series is None:
            yield ValueError("against and watch name a line: they need series")
        if self.against == ONE_RANK and self.by != RANKS:
            yield ValueError(f"against = '{ONE_RANK}' needs by = 'ranks'")

    def references(self, cells: Sequence[Cell]) -> Iterator[tuple[str, list[str], list[str]]]:
        (what, named, known), *others = super().references(cells)
        yield what, [*named, *(name for name in (self.by, self.series) if name and name != LABEL)], known
        yield from others
        there = [cell for cell in cells if cell.matches(self.where)]
        if self.series != MODE or all(MODE in cell.settings for cell in there):  # else the run tells its mode
            asked = [each for each in (self.against, self.watch) if each and each != ONE_RANK]
            yield "no line is called", asked, list(dict.fromkeys(map(self._series_of, there)))

    @property
    def names_a_base(self) -> bool:
        return bool(self.baseline or self.against)

    def compares(self, judged: Judged) -> bool:
        return self.names_a_base or judged.slowest_is_largest is not None

    def base(self, row: MeasuredCell) -> str | None:
        return row.base if isinstance(row, Spot) else None

    def words(self, label: str) -> str:
        """A place on the axis."""
        return f"{label} rank{'s' * (label != '1')}" if self.by == RANKS else label

    def rows(self, results: Results, judged: Judged) -> Sequence[Spot]:
        """Along the axis; cells without the setting stand at the right end."""
        cells = results.cells
        places = _places([value for cell in cells if (value := value_of(cell, self.by)) is not None])
        spread = sorted(places.values())
        end = (spread[-1] if spread else 0.0) + max((b - a for a, b in pairwise(spread)), default=1.0)
        shared = self._shared(cells)
        found: list[Spot] = []
        for cell in cells:
            value = value_of(cell, self.by)
            label, at = (ABSENT.get(self.by, UNSET), end) if value is None else (value, places[value])
            series, group = self._series_of(cell), shared[cell.name]
            # Two cells of one line at one place differ in what one of them does not set: each is a group of its own.
            if any((spot.series, spot.group, spot.label) == (series, group, label) for spot in found):
                group = ", ".join(filter(None, (group, cell.name)))
            found.append(Spot(**vars(cell), group=group, series=series, label=label, at=at))
        found.sort(key=lambda spot: (spot.at, spot.label))
        return [replace(spot, base=self._base(spot, found, judged)) for spot in found]

    def _series_of(self, cell: Cell) -> str:
        if self.series == LABEL:
            return ", ".join(part for part in cell.name.split(", ") if part != cell.settings.get(self.by))
        return (value_of(cell, self.series) or UNSET) if self.series else ""

    def _shared(self, cells: Sequence[MeasuredCell]) -> Mapping[str, str]:
        """By cell, what its line has in common and other lines have not."""
        if self.series == LABEL:
            return dict.fromkeys((cell.name for cell in cells), "")
        # One rank synchronises nothing, so that it has no part in what tells the lines apart.
        several = [cell for cell in cells if self.against != ONE_RANK or cell.world_size > 1]
        return {cell.name: "" for cell in cells} | conditions(several, self.by, self.series or "")

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
        lines: dict[str, list[Spot]] = {}
        for spot in found:
            if self.against != ONE_RANK:
                lines.setdefault(spot.line or f"by {called(self.by)}", []).append(spot)
            elif spot.world_size > 1:
                alone = [each for each in found if each.name == spot.base]
                lines.setdefault(spot.line or f"by {called(self.by)}", alone).append(spot)
        return lines


def called(setting: str) -> str:
    """What an axis of the setting is called, whose places are those of `value_of`."""
    return "ranks" if setting == RANKS else setting


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
