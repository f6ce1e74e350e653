"""A measure along a setting, one line for each value of another; what each cell is beside another at its place."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import Field

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.catalogue import find
from app.analysis.figures import Measure
from app.analysis.statistics import Interval
from app.analysis.units import DIGITS, PERCENT, SECONDS, TEXT, Scale, Unit, Value, digits
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
from app.settings.link_rates import read_rate
from app.tools.experiment.plan.grid_file import UnknownName
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.places import (
    LABEL,
    ONE_RANK,
    RATE,
    OfPlaces,
    Spot,
    called,
    is_a_number,
    value_of,
)
from app.tools.experiment.views.view import CELL, figure

MEGABITS = Unit(lambda rate: f"{digits(rate / 1e6)} Mbit/s", scales=(Scale("Mbit/s", 1e6),))


class LineView(OfPlaces):
    """A measure along a setting."""

    kind: Literal["line"]
    bound: str | None = Field(None, description="measure of the minimum, drawn dotted")

    def problems(self) -> Iterator[ValueError]:
        yield from super().problems()
        if self.bound is not None and (self._bound is None or self._bound.unit != self.first.unit):
            yield UnknownName(f"unknown measure '{shown(self.bound)}' as bound, or one of another unit")

    @property
    def _bound(self) -> Measure[Any] | None:
        return find(self.bound) if self.bound else None

    def _speedup(self, judged: Judged) -> bool:
        """Whether cells are shown by how many times as fast they are as one rank."""
        return self.against == ONE_RANK and judged.slowest_is_largest is not None

    def gains(self, judged: Judged) -> bool:
        return self._speedup(judged) and judged.slowest_is_largest is True

    # What is said

    def found(self, judged: Judged, rows: Sequence[Spot]) -> Iterator[str]:
        lines = self.lines(rows)
        if self._speedup(judged):
            ends = {}
            for line, spots in lines.items():
                if measured := [spot for spot in spots if spot.name in judged.blocks.cells and spot.world_size > 1]:
                    ends[line] = measured[-1].world_size, self.comparison(judged, measured[-1])
            yield from along.speedups(ends)
        elif self._breaks_even:
            for line, ratios in self._watched_first(self._ratios_by_rate(judged, rows)):
                yield along.break_even_in_words(line, str(self.against), ratios, MEGABITS)
        elif self.against and judged.slowest_is_largest is not None:
            for line, spots in self._watched_first(lines):
                pairs = [(spot, spot.base) for spot in spots if spot.series != self.against]
                places = [(self.words(spot.label), spot.name, base) for spot, base in pairs if base]
                yield from along.verdicts(line, self.against, judged, places)
        if judged.slowest_is_largest is None:
            yield from judged.extent()
        elif self.series is None:
            yield from self._along(lines, judged)
        elif self.series != LABEL:
            yield from self._across(rows, judged)

    def _watched_first[Content](self, lines: dict[str, Content]) -> list[tuple[str, Content]]:
        return sorted(lines.items(), key=lambda each: each[0] != self.watch)

    def _across(self, rows: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """The order of the lines at each place of the axis."""
        places: dict[tuple[str, str], dict[str, str]] = {}
        for spot in rows:
            if spot.name in judged.blocks.cells:
                places.setdefault((spot.group, self.words(spot.label)), {})[spot.name] = spot.series
        groups: dict[str, list[Order]] = {}
        for (group, label), names in places.items():
            if len(names) > 1:
                order = Order.of(", ".join(filter(None, (group, label))), names, judged)
                groups.setdefault(group, []).append(order)
        yield from along.orders_within(groups)
        if self.watch and groups and not self.against:
            yield along.about(self.watch, [order for orders in groups.values() for order in orders])

    def _along(self, lines: dict[str, list[Spot]], judged: Judged) -> Iterator[str]:
        """From where on more of the setting brings nothing, on each line."""
        for line, spots in ((line, spots) for line, spots in lines.items() if len(spots) > 1):
            numbers = {spot.label: spot.name for spot in spots if is_a_number(spot.label)}
            if all(spot.label in numbers or value_of(spot, self.by) is None for spot in spots):
                told = along.saturation(called(self.by), numbers, judged)
            else:
                told = judged.fastest([spot.name for spot in spots])
            yield from (f"{line}: {sentence}" if len(lines) > 1 else sentence for sentence in told)

    # Break-even

    @property
    def _breaks_even(self) -> bool:
        return self.by == RATE and self.against not in (None, ONE_RANK) and self.first.unit == SECONDS

    def _ratios_by_rate(self, judged: Judged, rows: Sequence[Spot]) -> dict[str, dict[float, Interval]]:
        """Of each line that has a rate in common with the one that it is laid beside."""
        lines: dict[str, dict[float, Interval]] = {}
        for spot in rows:
            if RATE in spot.settings and spot.series != self.against and (ratio := self.comparison(judged, spot)):
                lines.setdefault(spot.line, {})[read_rate(spot.settings[RATE])] = ratio
        return lines

    def _break_even(self, judged: Judged, rows: Sequence[Spot], name: str) -> Table:
        """The rate at which each line takes as long as the other; an end outside the measured rates is left empty."""
        found = {line: break_even(ratios) for line, ratios in self._ratios_by_rate(judged, rows).items()}
        columns = [Column[str]("", "line", TEXT, str)]
        for column in with_interval("break-even", "break_even_bits_per_second", found.get, MEGABITS):
            columns.append(replace(column, value=partial(_inside, column)))
        note = "The asked rate at which both take equally long, interpolated on logarithmic scales."
        return Table.of(f"{name}-break-even", "Break-even", columns, found, note)

    # Tables

    def tables(self, results: Results, name: str) -> list[Table]:
        judged, tables = self.judged(results), super().tables(results, name)
        if not self._breaks_even:
            return tables
        return [self._break_even(judged, self.rows(results, judged), name), *tables]

    def lead(self, rows: Sequence[Any]) -> list[Column[Any]]:
        columns = [*CELL, Column[Spot](called(self.by), "x", TEXT, lambda spot: spot.label)]
        if self.series or len({spot.line for spot in rows}) > 1:
            columns.append(Column[Spot](called(self.series or "line"), "series", TEXT, lambda spot: spot.line))
        return columns

    def values(self, results: Results) -> list[Column[Any]]:
        columns = super().values(results)
        if self._bound:
            columns += [figure(self._bound), Column("times that", "times_the_least", DIGITS, self._over_bound)]
        return columns

    def _over_bound(self, spot: MeasuredCell) -> float | None:
        own, least = spot.middle(self.first), spot.middle(self._bound) if self._bound else None
        return own / least if own and least else None

    def comparisons(self, judged: Judged, rows: Sequence[Any]) -> list[Column[Any]]:
        def efficiency(spot: Spot) -> float | None:
            return each.value / spot.world_size if (each := self.comparison(judged, spot)) else None

        columns = super().comparisons(judged, rows)
        return [*columns, Column("efficiency", "efficiency", PERCENT, efficiency)] if self._speedup(judged) else columns

    def compared_as(self, judged: Judged, rows: Sequence[Any]) -> tuple[str, str]:
        return ("speedup", "speedup") if self._speedup(judged) else super().compared_as(judged, rows)

    def other(self, rows: Sequence[Any]) -> str:
        first = "the first of its line" if len({spot.group for spot in rows}) > 1 else "the first"
        return self.baseline or self.against or ("the fastest there" if self.series else first)

    # The drawing

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return [draw(name, self.title, self._figure, results)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        """The measure, or, with `against` and without a bound, its ratio to the cell compared with."""
        judged = self.judged(results)
        found = self.rows(results, judged)
        ratios = self.against is not None and self._bound is None
        lines: dict[str, list[tuple[float, Interval]]] = {}
        for line, spots in self.lines(found).items():
            for spot in spots:
                own = self.comparison(judged, spot) if ratios else judged.blocks.estimate(spot.name)
                if own and not (ratios and spot.series == self.against):
                    lines.setdefault(line, []).append((spot.at, own))
        if not lines:
            raise Missing("no cell has both sides of it." if ratios else "no cell has this figure in all of its runs.")
        traces = [interval_line(line, points) for line, points in [*lines.items()][:MOST_LINES]]
        values = [value for trace in traces for value in trace.y]
        log = min(values) > 0 and max(values) > MOST_EVEN * min(values)
        up, levels = Axis(judged.title, self.first.unit.axis, log=log), []
        caption = f"Medians over rounds; upright lines are {INTERVALS}."
        if ratios and self._speedup(judged):
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
        across = Axis(called(self.by), labels=[*{spot.at: spot.label for spot in found}.items()])
        return plot(self.title, across, up, traces, levels), caption

    def _bounds(self, found: Sequence[Spot], bound: Measure[Any]) -> Iterator[Trace]:
        for number, (line, spots) in enumerate([*self.lines(found).items()][:MOST_LINES]):
            least = {spot.at: each for spot in spots if (each := spot.middle(bound))}
            if least:
                yield _dotted(f"{line}, at least", [*least], [*least.values()], palette.series(number))

    def _ideal(self, found: Sequence[Spot], judged: Judged) -> Iterator[Trace]:
        sizes = [float(each) for each in sorted({spot.world_size for spot in found})]
        yield _dotted("as many times as ranks", sizes, sizes)
        several = [spot for spot in found if spot.world_size > 1]
        for told in self.published_ratios()[:1]:
            published = [(spot, value) for spot in several if (value := self.told(told, judged, spot))]
            if published:
                notes = [f"{spot.name}, published: {digits(value)}" for spot, value in published]
                at, values = [spot.at for spot, _ in published], [value for _, value in published]
                yield Trace("as published", at, values, look="diamond", notes=notes, role="ink")


def _dotted(name: str, at: Sequence[float], values: Sequence[float], role: str = "") -> Trace:
    return Trace(name, at, values, look="curve", hollow=[True] * len(at), role=role)


def _inside(column: Column[str], line: str) -> Value:
    place = column.value(line)
    return None if place in (NOWHERE, EVERYWHERE) else place
