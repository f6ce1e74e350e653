"""A measure along a setting, one line for each value of another; what each cell is beside another at its place."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from app.analysis.catalogue import find
from app.analysis.figures import Measure
from app.analysis.statistics import Comparison, Interval
from app.analysis.units import DIGITS, PERCENT, SECONDS, TEXT, digits
from app.machine.say import shown
from app.pages import along, palette
from app.pages.along import Order
from app.pages.chart import Chart
from app.pages.definitions import INTERVALS
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import MOST_LINES, interval_line, plot
from app.pages.findings import Judged
from app.pages.intervals import with_interval
from app.pages.scale import MOST_EVEN, Axis
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.pages.traces import Trace
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid_file import UnknownName
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views import rates
from app.tools.experiment.views.places import (
    ABSENT,
    LABEL,
    MODE,
    ONE_RANK,
    RANKS,
    RATE,
    SHORT,
    UNSET,
    Placing,
    Spot,
    by_place,
    is_a_number,
)
from app.tools.experiment.views.view import CELL, ROUNDS, OfMeasures, figure


class LineView(OfMeasures):
    """A measure along a setting."""

    kind: Literal["line"]
    by: str = Field(description="the setting on the axis, or in short `ranks`, `rate`, `mode`, `batch`")
    series: str | None = Field(
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
    bound: str | None = Field(None, description="measure of the minimum, drawn dotted")
    watch: str | None = Field(
        None, description="a line: report where it is the slowest; with `against`, report it first"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "LineView":
        if self._placing.axis == self._placing.series:
            raise ValueError(f"by and series are both {shown(self.by)}: give two settings")
        if self.against and self.baseline:
            raise ValueError("against and baseline exclude each other")
        if self.against and self.against != ONE_RANK and self._placing.series is None:
            raise ValueError("against names a line: it needs series")
        if self.against == ONE_RANK and self._placing.axis != RANKS:
            raise ValueError(f"against = '{ONE_RANK}' needs by = 'ranks'")
        if self.watch and self._placing.series is None:
            raise ValueError("watch names a line: it needs series")
        if self.bound is not None and (self._bound is None or self._bound.unit != self.first.unit):
            raise UnknownName(f"unknown measure '{shown(self.bound)}' as bound, or one of another unit")
        return self

    @cached_property
    def _placing(self) -> Placing:
        series = SHORT.get(self.series, self.series) if self.series else None
        return Placing(SHORT.get(self.by, self.by), series, self.baseline, self.against)

    @property
    def _bound(self) -> Measure[Any] | None:
        return find(self.bound) if self.bound else None

    def named_cells(self) -> list[str | None]:
        return [self.baseline, *super().named_cells()]

    def named_settings(self) -> list[str]:
        own = (self._placing.axis, self._placing.series)
        return [*super().named_settings(), *(name for name in own if name and name != LABEL)]

    def references(self, cells: Sequence[Cell]) -> Iterator[tuple[str, list[str], list[str]]]:
        yield from super().references(cells)
        there = [cell for cell in cells if cell.matches(self.where)]
        known = list(dict.fromkeys(map(self._placing.series_of, there)))
        asked = [each for each in (self.against, self.watch) if each and each != ONE_RANK]
        if self._placing.series != MODE or all(MODE in cell.settings for cell in there):  # else the run tells its mode
            yield "no line is called", asked, known

    def _gains(self, judged: Judged) -> bool:
        """Whether cells are shown by how many times as fast they are as one rank."""
        return self.against == ONE_RANK and judged.slowest_is_largest is not None

    def _compared(self, spot: Spot, judged: Judged) -> Comparison | None:
        compare = judged.speed if self._gains(judged) else judged.blocks.compare
        return compare(spot.name, spot.base)

    # What is said

    def sentences(self, results: Results) -> Iterator[str]:
        judged = self.judged(results)
        found, series = self._placing.spots(results.cells, judged), self._placing.series
        if not judged.blocks.cells:
            yield f"{judged.capital}: no cell has it."
            return
        if self.baseline:
            yield from judged.all_against(self.baseline, [spot.name for spot in found])
        if self._gains(judged):
            ends = {}
            for line, spots in self._placing.lines(found).items():
                if measured := [spot for spot in spots if spot.name in judged.blocks.cells and spot.world_size > 1]:
                    last = measured[-1]
                    ends[line or self._placing.title] = last.world_size, self._compared(last, judged)
            yield from along.speedups(ends)
        elif self.against:
            yield from self._verdicts(found, judged, self.against)
        if judged.slowest_is_largest is None:
            yield from judged.extent()
            for each in self.published_of(self.first):
                yield from () if each.ratio else judged.beside_published(each.by_cell)
        elif series is None:
            yield from self._along(found, judged)
        elif series != LABEL:
            yield from self._across(found, judged)
        yield from self._beside_bound(found)
        yield judged.noise()

    def _across(self, found: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """The order of the lines at each place of the axis."""
        groups: dict[str, list[Order]] = {}
        for group, label, there in by_place(found):
            names = {spot.name: spot.series for spot in there if spot.name in judged.blocks.cells}
            if len(names) > 1:
                place = ", ".join(filter(None, (group, self._placing.words(label))))
                groups.setdefault(group, []).append(Order.of(place, names, judged))
        yield from along.orders_within(groups)
        if self.watch and groups and not self.against:
            yield along.about(self.watch, [order for orders in groups.values() for order in orders])

    def _along(self, found: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """From where on more of the setting brings nothing, on each line."""
        lines = {line: {spot.label: spot.name for spot in spots} for line, spots in self._placing.lines(found).items()}
        several = {line: places for line, places in lines.items() if len(places) > 1} or {"": {}}
        for line, places in several.items():
            if all(is_a_number(label) or label in (UNSET, ABSENT.get(self._placing.axis)) for label in places):
                told = along.saturation(
                    self._placing.title, {p: c for p, c in places.items() if is_a_number(p)}, judged
                )
            else:
                told = judged.fastest(list(places.values()))
            yield from (f"{line}: {sentence}" if line and len(lines) > 1 else sentence for sentence in told)

    def _verdicts(self, found: Sequence[Spot], judged: Judged, against: str) -> Iterator[str]:
        """Where each line is faster than the one that it is laid beside."""
        if self._breaks_even:
            lines = rates.ratios(found, judged, against)
            if not lines:
                yield f"There is no break-even: {against} and another line have no rate in common."
            for line, ratios in lines.items():
                yield along.break_even_in_words(line, against, ratios, rates.MEGABITS)
        elif judged.slowest_is_largest is not None:
            for line, spots in sorted(self._placing.lines(found).items(), key=lambda each: each[0] != self.watch):
                pairs = [(spot, spot.base) for spot in spots if spot.series != against]
                places = [(self._placing.words(spot.label), spot.name, base) for spot, base in pairs if base]
                yield from along.verdicts(line, against, judged, places)

    @property
    def _breaks_even(self) -> bool:
        return self._placing.axis == RATE and self.against not in (None, ONE_RANK) and self.first.unit == SECONDS

    def _beside_bound(self, found: Sequence[Spot]) -> Iterator[str]:
        """Which cells are nearest to the least that is possible, and which the farthest from it."""
        over = {spot.name: each for spot in found if (each := self._over_bound(spot)) is not None}
        if over:
            near, far = min(over, key=lambda cell: over[cell]), max(over, key=lambda cell: over[cell])
            yield (
                f"Closest to the minimum: {near}, {digits(over[near])} times it"
                f"{f'; farthest from it: {far}, {digits(over[far])} times' if near != far else ''}."
            )

    def _over_bound(self, spot: MeasuredCell) -> float | None:
        own, least = spot.middle(self.first), spot.middle(self._bound) if self._bound else None
        return own / least if own and least else None

    # Tables

    def tables(self, results: Results, name: str) -> list[Table]:
        judged = self.judged(results)
        found = self._placing.spots(results.cells, judged)
        columns: list[Column[Any]] = [*CELL, Column[Spot](self._placing.title, "x", TEXT, lambda spot: spot.label)]
        if self.series or len({spot.line for spot in found}) > 1:
            columns.append(Column[Spot](self.series or "line", "series", TEXT, lambda spot: spot.line))
        columns += self.values(results)
        if self._bound:
            columns += [figure(self._bound), Column("times that", "times_the_least", DIGITS, self._over_bound)]
        if judged.slowest_is_largest is not None or self.against or self.baseline:
            columns += self._ratios(found, judged)
        tables = [Table.of(name, self.title, [*columns, ROUNDS], found, self.explained())]
        if self._breaks_even:
            lines = rates.ratios(found, judged, str(self.against))
            tables.insert(0, rates.table(lines, f"{name}-break-even"))
        return tables

    def _ratios(self, found: Sequence[Spot], judged: Judged) -> list[Column[Any]]:
        def compared(spot: Spot) -> Comparison | None:
            return self._compared(spot, judged)

        def efficiency(spot: Spot) -> float | None:
            return each.value / spot.world_size if (each := compared(spot)) else None

        bases = {spot.name: spot.base for spot in found}
        if self._gains(judged):
            columns: list[Column[Any]] = [*with_interval("speedup", "speedup", compared)]
            columns += self.told_ratios("speedup", bases.get, gain=judged.slowest_is_largest is True)
            return [*columns, Column("efficiency", "efficiency", PERCENT, efficiency)]
        several = len({spot.group for spot in found}) > 1
        first = "the first of its line" if several else found[0].label if found else "the first"
        other = self.baseline or self.against or ("the fastest there" if self.series else first)
        return self.compared(judged, other, compared, bases.get)

    # The drawing

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return [draw(name, self.title, self._figure, results)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        """The measure, or, with `against` and without a bound, its ratio to the cell compared with."""
        judged, placing = self.judged(results), self._placing
        found = placing.spots(results.cells, judged)
        ratios = self.against is not None and self._bound is None
        lines: dict[str, list[tuple[float, Interval]]] = {}
        for line, spots in placing.lines(found).items():
            for spot in spots:
                own = self._compared(spot, judged) if ratios else judged.blocks.estimate(spot.name)
                if own and not (ratios and spot.series == self.against):
                    lines.setdefault(line or f"by {placing.title}", []).append((spot.at, own))
        if not lines:
            raise Missing("no cell has both sides of it." if ratios else "no cell has this figure in all of its runs.")
        traces = [interval_line(line, points) for line, points in [*lines.items()][:MOST_LINES]]
        values = [value for trace in traces for value in trace.y]
        log = min(values) > 0 and max(values) > MOST_EVEN * min(values)
        up, levels = Axis(judged.title, self.first.unit.axis, log=log), []
        caption = f"Medians over rounds; upright lines are {INTERVALS}."
        if ratios and self._gains(judged):
            up = Axis("speedup")
            caption += f" Dotted: as many times as ranks.{self.sources()}"
            traces += self._ideal(found, judged)
        elif ratios and self.first.unit == PERCENT:
            up = Axis(f"{judged.title}, difference from {self.against}", "share")
        elif ratios:
            up, levels = Axis(f"{judged.title}, {self.against} is 1", log=log), [(1.0, str(self.against))]
        if self._bound:
            caption += " Dotted: the minimum."
            traces += self._bounds(found, self._bound)
        caption += f"{left_out(len(lines), MOST_LINES, 'lines')}{' The scale is logarithmic.' * (up.log is True)}"
        across = Axis(placing.title, labels=[*{spot.at: spot.label for spot in found}.items()])
        return plot(self.title, across, up, traces, levels), caption

    def _bounds(self, found: Sequence[Spot], bound: Measure[Any]) -> Iterator[Trace]:
        for number, (line, spots) in enumerate([*self._placing.lines(found).items()][:MOST_LINES]):
            least = {spot.at: each for spot in spots if (each := spot.middle(bound))}
            if least:
                name = f"{line or f'by {self._placing.title}'}, at least"
                yield _dotted(name, [*least], [*least.values()], palette.series(number))

    def _ideal(self, found: Sequence[Spot], judged: Judged) -> Iterator[Trace]:
        sizes = [float(each) for each in sorted({spot.world_size for spot in found})]
        yield _dotted("as many times as ranks", sizes, sizes)
        less = judged.slowest_is_largest is True
        told = [(s, each.by(s.name, s.base, gain=less)) for each in self.published_ratios()[:1] for s in found]
        published = [(spot, value) for spot, value in told if value and spot.world_size > 1]
        if published:
            notes = [f"{spot.name}, published: {digits(value)}" for spot, value in published]
            at, values = [spot.at for spot, _ in published], [value for _, value in published]
            yield Trace("as published", at, values, look="diamond", notes=notes, role="ink")


def _dotted(name: str, at: Sequence[float], values: Sequence[float], role: str = "") -> Trace:
    return Trace(name, at, values, look="curve", hollow=[True] * len(at), role=role)
