"""A measure along a setting, one line for each value of another; what each cell is beside another at its place."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Literal

from pydantic import Field, model_validator

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.figures import Measure
from app.analysis.on_request import find
from app.analysis.statistics import Comparison, Interval
from app.analysis.units import DIGITS, PERCENT, SECONDS, TEXT, Scale, Unit, digits
from app.machine.say import shown
from app.pages import findings, palette
from app.pages.chart import Chart
from app.pages.definitions import INTERVALS
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import MOST_LINES, interval_line, plot
from app.pages.findings import Judged, Order, axis_of
from app.pages.intervals import with_interval
from app.pages.scale import MOST_EVEN, Axis
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.pages.traces import Trace
from app.settings.link_rates import RATE_UNITS, read_rate
from app.tools.experiment.plan.cells import Cell, alone_like, conditions
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.view import CELL, ROUNDS, OfMeasures, beside, figure, told_ratio

ONE_RANK = "one rank"
LABEL = "label"
SHORT = {"ranks": "WORKERS", "rate": "LINK_RATE", "mode": "SYNC_MODE", "batch": "BATCH_SIZE_PER_RANK"}
RANKS, RATE, MODE = SHORT["ranks"], SHORT["rate"], SHORT["mode"]
ABSENT = {RATE: "unshaped"}  # what a cell without the setting is called
MEGABITS = Unit(lambda rate: f"{digits(rate / 1e6)} Mbit/s", scales=(Scale("Mbit/s", 1e6),))


@dataclass(frozen=True)
class Spot(MeasuredCell):
    """A cell at its place on the axis, the line that it belongs to, and the cell that it is compared with."""

    group: str = ""  # cells compare only with those that agree in all settings but axis and series
    series: str = ""  # the value of that setting
    label: str = ""  # the place in words
    at: float = 0.0
    base: str | None = None

    @property
    def line(self) -> str:
        return ", ".join(filter(None, (self.series, self.group)))


class LineView(OfMeasures):
    """A measure along a setting."""

    kind: Literal["line"]
    by: str = Field(description="the setting on the axis, or in short `ranks`, `rate`, `mode`, `batch`")
    series: str | None = Field(
        None,
        description="the setting of which each value is a line; `label`: what cells are called but for their place on "
        "the axis [a line for each combination of all other settings, which are not compared]",
    )
    baseline: str | None = Field(
        None, description="the cell that all are compared with [along a line its first; across lines the fastest there]"
    )
    against: str | None = Field(
        None,
        description="instead of a baseline: `one rank`, the cell of one rank under the same conditions; or one of the "
        "lines, at the same place",
    )
    bound: str | None = Field(None, description="the measure of the least that is possible, which is drawn dotted")
    watch: str | None = Field(
        None, description="a line: where it is the slowest of all; with `against`, it is the one told first"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "LineView":
        if self.axis == self.lines:
            raise ValueError(f"by and series are both {shown(self.by)}: give two settings")
        if self.against and self.baseline:
            raise ValueError("against and baseline exclude each other")
        if self.against and self.against != ONE_RANK and self.lines is None:
            raise ValueError("against names a line: it needs series")
        if self.bound is not None and self._bound is None:
            raise ValueError(f"unknown measure '{shown(self.bound)}' as bound")
        return self

    @property
    def axis(self) -> str:
        return SHORT.get(self.by, self.by)

    @property
    def _title(self) -> str:
        return "ranks" if self.axis == RANKS else self.axis

    @property
    def lines(self) -> str | None:
        return SHORT.get(self.series or "", self.series)

    @property
    def _bound(self) -> Measure[Any] | None:
        return find(self.bound) if self.bound else None

    def named_cells(self) -> list[str]:
        return [*([self.baseline] if self.baseline else []), *super().named_cells()]

    def unknown_line(self, cells: Sequence[Cell]) -> tuple[str, list[str]] | None:
        """A line that the options name and that there is not, with those that there are."""
        if self.lines == MODE and any(MODE not in cell.settings for cell in cells):
            return None  # the run tells its mode
        known = list(dict.fromkeys(self._series(cell) for cell in cells))
        asked = [each for each in (self.against, self.watch) if each and each != ONE_RANK]
        return next(((each, known) for each in asked if each not in known), None) if self.lines else None

    def named_settings(self) -> list[str]:
        own = [self.axis, *([self.lines] if self.lines else [])]
        return [*super().named_settings(), *(name for name in own if name != LABEL)]

    # The cells, each at its place

    def spots(self, results: Results) -> list[Spot]:
        """Along the axis; cells without the setting stand at the right end."""
        cells = results.cells
        places = _places([value for cell in cells if (value := _value(cell, self.axis)) is not None])
        spread = sorted(places.values())
        end = (spread[-1] if spread else 0.0) + max((b - a for a, b in pairwise(spread)), default=1.0)
        shared = self._shared(cells)
        found: list[Spot] = []
        for cell in cells:
            value = _value(cell, self.axis)
            label, at = (ABSENT.get(self.axis, "not set"), end) if value is None else (value, places[value])
            series, group = self._series(cell), shared[cell.name]
            # Two cells of one line at one place differ in what one of them does not set: each is a group of its own.
            if any((spot.series, spot.group, spot.label) == (series, group, label) for spot in found):
                group = ", ".join(filter(None, (group, cell.name)))
            base = alone_like(cell, cells) if self.against == ONE_RANK else None
            named = base.name if base else self.baseline
            found.append(Spot(**vars(cell), group=group, series=series, label=label, at=at, base=named))
        return sorted(found, key=lambda spot: (spot.at, spot.label))

    def _shared(self, cells: Sequence[MeasuredCell]) -> Mapping[str, str]:
        """By cell, what its line has in common and other lines have not."""
        if self.lines == LABEL:
            return dict.fromkeys((cell.name for cell in cells), "")
        varied = (self.axis, *([self.lines] if self.lines else []))
        if self.against != ONE_RANK:
            return conditions(cells, *varied)
        # One rank synchronises nothing, so that it has no part in what tells the lines apart.
        several = [cell for cell in cells if cell.world_size > 1]
        return {cell.name: "" for cell in cells} | conditions(several, *varied)

    def _series(self, cell: Cell) -> str:
        if self.lines == LABEL:
            return ", ".join(part for part in cell.name.split(", ") if part != cell.settings.get(self.axis))
        return (_value(cell, self.lines) or "not set") if self.lines else ""

    def _base(self, spot: Spot, found: Sequence[Spot], judged: Judged) -> str | None:
        """What a cell is compared with."""
        if self.baseline or self.against == ONE_RANK:
            return spot.base
        there = [each for each in found if (each.group, each.label) == (spot.group, spot.label)]
        if self.against:
            return next((each.name for each in there if each.series == self.against), None)
        if not self.lines:
            return next(each.name for each in found if each.group == spot.group)
        return next(iter(judged.fastest_first(each.name for each in there)), None)

    def _compared(self, spot: Spot, found: Sequence[Spot], judged: Judged) -> Comparison | None:
        base = self._base(spot, found, judged)
        return judged.speed(spot.name, base) if self._gains(judged) else judged.blocks.compare(spot.name, base)

    def _gains(self, judged: Judged) -> bool:
        return self.against == ONE_RANK and judged.slowest_is_largest is not None

    def _lines_of(self, found: Sequence[Spot]) -> dict[str, list[Spot]]:
        """By name; against one rank, a line is of several ranks."""
        names = dict.fromkeys(spot.line for spot in found if self.against != ONE_RANK or spot.world_size > 1)
        several = self.against != ONE_RANK
        return {name: [s for s in found if s.line == name and (several or s.world_size > 1)] for name in names}

    # What is said

    def sentences(self, results: Results) -> Iterator[str]:
        judged, found = self.judged(results), self.spots(results)
        yield from self.lacking(results, judged)
        if not judged.blocks.cells:
            yield f"{judged.capital}: no cell has it."
            return
        if self.baseline:
            yield from judged.all_against(self.baseline, [spot.name for spot in found])
        if self._gains(judged):
            yield from findings.speedups(
                {name or self._title: (line[-1].world_size, self._compared(line[-1], found, judged))
                 for name, line in self._lines_of(found).items()}
            )  # fmt: skip
        elif self.against:
            yield from self._verdicts(found, judged)
        if judged.slowest_is_largest is None:
            yield from judged.extent()
        elif self.lines and self.lines != LABEL:
            yield from self._across(found, judged)
        elif not self.lines:
            yield from self._along(found, judged)
        for each in self.published_of(self.first):
            if judged.slowest_is_largest is None and not each.ratio:
                yield from judged.beside_published(each.single)
        yield from self._beside_bound(found)
        yield judged.noise()

    def _across(self, found: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """The order of the lines at each place of the axis."""
        groups: dict[str, list[Order]] = {}
        for group in dict.fromkeys(spot.group for spot in found):
            for label, there in groupby((spot for spot in found if spot.group == group), key=lambda spot: spot.label):
                names = {spot.name: spot.series for spot in there if spot.name in judged.blocks.cells}
                if len(names) > 1:
                    place = ", ".join(filter(None, (group, self._in_words(label))))
                    groups.setdefault(group, []).append(Order.of(place, names, judged))
        yield from findings.orders_within(groups)
        if self.watch and groups and not self.against:
            yield findings.about(self.watch, [order for orders in groups.values() for order in orders])

    def _along(self, found: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """From where on more of the setting brings nothing, on each line."""
        lines: dict[str, dict[str, str]] = {}
        for name, line in self._lines_of(found).items():
            alone = [spot for spot in found if spot.name == line[0].base] if self._gains(judged) else []
            lines[name] = {spot.label: spot.name for spot in [*alone, *line]}
        several = {name: places for name, places in lines.items() if len(places) > 1} or {"": {}}
        for name, places in several.items():
            told = findings.saturation(self._title, places, judged)
            yield from (f"{name}: {sentence}" if name and len(lines) > 1 else sentence for sentence in told)

    def _verdicts(self, found: Sequence[Spot], judged: Judged) -> Iterator[str]:
        """Where each line is faster than the one that it is laid beside."""
        if self._breaks_even:
            lines = self._rate_lines(found, judged)
            if not lines:
                yield f"No rate has both {self.against} and another way: there is no break-even to tell."
            for name, ratios in lines.items():
                yield findings.break_even_in_words(name, str(self.against), ratios, MEGABITS)
            return
        if judged.slowest_is_largest is None:
            return
        for name, line in sorted(self._lines_of(found).items(), key=lambda each: each[0] != self.watch):
            pairs = [(spot, self._base(spot, found, judged)) for spot in line if spot.series != self.against]
            places = [(self._in_words(spot.label), spot.name, base) for spot, base in pairs if base]
            yield from findings.verdicts(name, str(self.against), judged, places)

    def _in_words(self, label: str) -> str:
        return f"{label} rank{'s' * (label != '1')}" if self.axis == RANKS else label

    def _beside_bound(self, found: Sequence[Spot]) -> Iterator[str]:
        """Which cells are nearest to the least that is possible, and which the farthest from it."""
        over = {name: each for name, each in self._over_bound(found).items() if each is not None}
        if over:
            near, far = min(over, key=lambda cell: over[cell]), max(over, key=lambda cell: over[cell])
            yield (
                f"Nearest to what is possible is {near}, with {digits(over[near])} times the least"
                f"{f'; farthest from it is {far}, with {digits(over[far])} times' if near != far else ''}."
            )

    def _over_bound(self, found: Sequence[Spot]) -> dict[str, float | None]:
        if self._bound is None:
            return {}
        pairs = [(spot.name, spot.middle(self.first), spot.middle(self._bound)) for spot in found]
        return {name: own / least if own and least else None for name, own, least in pairs}

    # Break-even of links

    @property
    def _breaks_even(self) -> bool:
        return self.axis == RATE and self.against not in (None, ONE_RANK) and self.first.unit == SECONDS

    def _rate_lines(self, found: Sequence[Spot], judged: Judged) -> dict[str, dict[float, Interval]]:
        """Those that have a rate in common with the one that they are laid beside: ratios by bits per second."""
        lines: dict[str, dict[float, Interval]] = {}
        for spot in found:
            ratio = (
                judged.blocks.compare(spot.name, self._base(spot, found, judged))
                if self.axis in spot.settings
                else None
            )
            if ratio and spot.series != self.against:
                lines.setdefault(spot.line, {})[read_rate(spot.settings[RATE])] = ratio
        return lines

    def _break_even_table(self, lines: Mapping[str, Mapping[float, Interval]], name: str) -> Table:
        found = {line: break_even(ratios) for line, ratios in lines.items()}

        def end(which: str, line: str) -> float | None:
            value: float | None = getattr(found[line], which)
            return None if value in (None, NOWHERE, EVERYWHERE) else value

        columns: list[Column[str]] = [Column("", "line", TEXT, lambda line: line)]
        for heading_of, which in (("break-even", "value"), ("95 % from", "low"), ("to", "high")):
            suffix = "" if which == "value" else f"_{which}"
            own = f"break_even_bits_per_second{suffix}"
            columns.append(Column(heading_of, own, MEGABITS, partial(end, which)))
        note = (
            "The rate at which both take as long, between the measured rates by logarithms. An end that no measured "
            "rate tells is missing. Rates are those that links were asked for; each was measured, and kept within 10 %."
        )
        return Table.of(name, "Break-even", columns, lines, note)

    # Tables and drawings

    def tables(self, results: Results, name: str) -> list[Table]:
        judged, found = self.judged(results), self.spots(results)
        columns: list[Column[Any]] = [*CELL, Column[Spot](self._title, "x", TEXT, lambda spot: spot.label)]
        if self.lines or len({spot.line for spot in found}) > 1:
            columns.append(Column[Spot](self.series or "line", "series", TEXT, lambda spot: spot.line))
        columns += self.values(results)
        if self._bound:
            over = self._over_bound(found)
            columns += [
                figure(self._bound),
                Column[Spot]("times that", "times_the_least", DIGITS, lambda s: over[s.name]),
            ]
        if judged.slowest_is_largest is not None or self.against or self.baseline:
            columns += self._ratios(found, judged)
        tables = [Table.of(name, self.title, [*columns, ROUNDS], found, self.explained())]
        if self._breaks_even:
            tables.insert(0, self._break_even_table(self._rate_lines(found, judged), f"{name}-break-even"))
        return tables

    def _ratios(self, found: Sequence[Spot], judged: Judged) -> list[Column[Any]]:
        def compared(spot: Spot) -> Comparison | None:
            return self._compared(spot, found, judged)

        def base(spot: MeasuredCell) -> str | None:
            return next((self._base(each, found, judged) for each in found if each.name == spot.name), None)

        gains = self._gains(judged)
        groups = len({spot.group for spot in found}) > 1
        along = "the first of its line" if groups else found[0].label if found else "the first"
        other = self.baseline or self.against or ("the fastest there" if self.lines else along)
        columns = with_interval("speedup", "speedup", compared) if gains else beside(judged, other, compared)
        alike = [p for p in self.published if p.ratio or self.measure_of(p).unit == self.first.unit]
        told = told_ratio(alike, columns[0].name, base, gain=gains and judged.slowest_is_largest is True)
        told = told if (self.against or self.baseline) and self.first.unit != PERCENT else []
        if gains and self.axis == RANKS:
            efficiency = Column[Spot](
                "efficiency", "efficiency", PERCENT,
                lambda spot: each.value / spot.world_size if (each := compared(spot)) else None,
            )  # fmt: skip
            return [*columns, *told, efficiency]
        return [*columns, *told]

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return [draw(name, self.title, self._figure, results)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        judged, found = self.judged(results), self.spots(results)
        ratios = self.against is not None and self._bound is None
        lines: dict[str, list[tuple[float, Interval]]] = {}
        for line, spots in self._lines_of(found).items():
            alone = [spot for spot in found if spot.name == spots[0].base] if self.against == ONE_RANK else []
            for spot in [*alone, *spots]:
                own = self._compared(spot, found, judged) if ratios else judged.blocks.estimate(spot.name)
                if own and not (ratios and spot.series == self.against):
                    lines.setdefault(line or f"by {self._title}", []).append((spot.at, own))
        if not lines:
            raise Missing("no cell has both sides of it." if ratios else "no cell has this figure in all of its runs.")
        traces = [interval_line(line, points) for line, points in [*lines.items()][:MOST_LINES]]
        values = [value for trace in traces for value in trace.y]
        log = min(values) > 0 and max(values) > MOST_EVEN * min(values)
        levels: list[tuple[float, str]] = []
        gains = ratios and self._gains(judged)
        if gains and self.axis == RANKS:
            traces += self._ideal(found)
            log = False
        elif ratios and self.first.unit != PERCENT:
            levels = [(1.0, str(self.against))]
        traces += self._bounds(found)
        share = self.first.unit == PERCENT
        if gains:
            up = Axis("speedup")
        elif ratios:
            up = Axis(
                f"{judged.title}, {'difference from' * share}{self.against}{' is 1' * (not share)}",
                "share" * share,
                log=log,
            )
        else:
            up = Axis(judged.title, axis_of(self.first.unit), log=log)
        caption = (
            f"Medians over rounds; upright lines are {INTERVALS}."
            f"{' Dotted: as many times as ranks.' if gains and self.axis == RANKS else ''}"
            f"{' Dotted: the least that is possible.' if self._bound else ''}"
            f"{left_out(len(lines), MOST_LINES, 'lines')}{' The scale is logarithmic.' if log else ''}"
        )
        across = Axis(self._title, labels=[*{spot.at: spot.label for spot in found}.items()])
        return plot(self.title, across, up, traces, levels), f"{caption}{self.sources() if gains else ''}"

    def _bounds(self, found: Sequence[Spot]) -> Iterator[Trace]:
        if self._bound is None:
            return
        for number, (line, spots) in enumerate([*self._lines_of(found).items()][:MOST_LINES]):
            least = {spot.at: each for spot in spots if (each := spot.middle(self._bound))}
            if least:
                name = f"{line or f'by {self.by}'}, at least"
                yield _dotted(name, [*least], [*least.values()], palette.series(number))

    def _ideal(self, found: Sequence[Spot]) -> Iterator[Trace]:
        sizes = [float(each) for each in sorted({spot.world_size for spot in found})]
        yield _dotted("as many times as ranks", sizes, sizes)
        told = [(spot, each.by(spot.name, spot.base, gain=True)) for each in self.published for spot in found]
        published = [(spot, value) for spot, value in told if value and spot.world_size > 1]
        if published:
            notes = [f"{spot.name}, published: {digits(value)}" for spot, value in published]
            at, values = [spot.at for spot, _ in published], [value for _, value in published]
            yield Trace("as published", at, values, look="diamond", notes=notes, role="ink")


def _dotted(name: str, at: Sequence[float], values: Sequence[float], role: str = "") -> Trace:
    return Trace(name, at, values, look="curve", hollow=[True] * len(at), role=role)


def _value(cell: Cell, setting: str | None) -> str | None:
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
