"""Time per step, or images per second, against a setting, one line for each value of another."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

from pydantic import Field

from app.analysis.statistics import Blocks, Interval
from app.analysis.units import DIGITS, SECONDS, TEXT
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.intervals import with_interval
from app.pages.scale import MOST_EVEN, Axis
from app.pages.table import Column, Table
from app.settings.link_rates import RATE_UNITS, read_rate
from app.tools.experiment.plan.cells import conditions
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, estimated
from app.tools.experiment.views.drawn import MOST_LINES, interval_line, left_out, plot
from app.tools.experiment.views.measures import images_per_second, step_seconds
from app.tools.experiment.views.order import Order, about, changes_within, saturation
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import noise_sentence

MEASURES = {"seconds": step_seconds, "images_per_second": images_per_second}
AXES = {"seconds": ("time per step", "s"), "images_per_second": ("images per second", "count")}
ABSENT = {"LINK_RATE": "unshaped"}  # what a cell without the setting is called


@dataclass(frozen=True)
class Spot(MeasuredCell):
    """A cell at its place on the axis, and the line that it belongs to."""

    group: str = ""  # cells compare only with those that agree in all settings but axis and series
    series: str = ""  # the value of that setting
    label: str = ""  # the setting's value
    at: float = 0.0

    @property
    def line(self) -> str:
        return ", ".join(filter(None, (self.series, self.group)))


class Lines(View):
    """A figure against a setting."""

    x: str = Field(description="the setting on the axis")
    series: str | None = Field(None, description="the setting of which each value is a line [a single line]")
    figure: Literal["seconds", "images_per_second"] = Field("seconds", description="what is shown")
    baseline: str | None = Field(None, description="the cell that ratios are to [of one line: the first x; else best]")
    watch: str | None = Field(None, description="a value of the series which documents call the slowest")

    @property
    def _slowest_is_largest(self) -> bool:
        return self.figure == "seconds"

    def _blocks(self, results: Results) -> Blocks:
        return results.blocks(MEASURES[self.figure])

    def _spots(self, results: Results) -> list[Spot]:
        return _along(self.x, self.series, results.cells)

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks, found = self._blocks(results), self._spots(results)
        if self.series:
            yield from self._across(found, blocks)
        else:
            for group, line in _groups(found):
                told = saturation(self.x, {spot.label: spot.name for spot in line}, blocks, self._slowest_is_largest)
                yield from (f"{group}: {sentence}" if group else sentence for sentence in told)
        yield noise_sentence(blocks, results)

    def _across(self, found: Sequence[Spot], blocks: Blocks) -> Iterator[str]:
        """The order of the lines at each place of the axis."""
        groups = {}
        for group, members in _groups(found):
            orders = [
                Order.of(
                    ", ".join(filter(None, (group, label))),
                    {spot.name: spot.series for spot in there},
                    blocks,
                    self._slowest_is_largest,
                )
                for label, there in _by_place(members)
            ]
            groups[group] = [order for order in orders if len(order.names) > 1]
        compared = [order for orders in groups.values() for order in orders]
        if not compared:
            yield "No two lines have a point in common."
            return
        yield f"Slowest first: {'; '.join(order.words for order in compared)}."
        yield "There = is a difference that is not beyond the noise, between neighbours."
        yield from changes_within({group: orders for group, orders in groups.items() if orders})
        if self.watch:
            yield about(self.watch, compared)

    def _tables(self, results: Results, name: str) -> list[Table]:
        blocks, found = self._blocks(results), self._spots(results)
        first = found[0].label if found else "the first"
        base = self.baseline or ("the fastest there" if self.series else first)

        def by_base(spot: Spot) -> Interval | None:
            return blocks.compare(spot.name, self.baseline or self._base(spot, found, blocks))

        columns: list[Column[Any]] = [CELL, Column[Spot](self.x, "x", TEXT, lambda spot: spot.label)]
        if self.series:
            columns.append(Column[Spot](self.series, "series", TEXT, lambda spot: spot.line))
        seconds = self.figure == "seconds"
        columns += estimated("step" if seconds else "images/s", self.figure, blocks, SECONDS if seconds else DIGITS)
        columns += [*with_interval(f"by {base}", "ratio", by_base), ROUNDS]
        what = f"Step: the median {definitions.BUT_THE_FIRST} of a run." if seconds else definitions.IMAGES
        note = f"Medians over rounds, with {definitions.INTERVALS}. {what}"
        return [Table.of(name, self.title, columns, found, note)]

    def _base(self, spot: Spot, found: Sequence[Spot], blocks: Blocks) -> str | None:
        """The cell that others are related to where none is named: the fastest at the same place."""
        group = [each for each in found if each.group == spot.group]
        there = [each for each in group if each.label == spot.label] if self.series else group[:1]
        ranked = blocks.ranked(each.name for each in there)
        return ranked[-1 if self._slowest_is_largest else 0] if ranked else None

    def _figure(self, results: Results) -> tuple[Chart, str]:
        blocks, found = self._blocks(results), self._spots(results)
        lines = {
            each: [(spot.at, own) for spot in found if spot.line == each and (own := blocks.estimate(spot.name))]
            for each in dict.fromkeys(spot.line for spot in found)
        }
        shown = [
            interval_line(name or f"by {self.x}", points) for name, points in list(lines.items())[:MOST_LINES] if points
        ]
        if not shown:
            raise Missing("no run is finished.")
        values = [value for each in shown for value in each.y]
        log = max(values) > MOST_EVEN * min(values)
        title, unit = AXES[self.figure]
        places = {spot.at: spot.label for spot in found}
        return plot(self.title, Axis(self.x, labels=[*places.items()]), Axis(title, unit, log=log), shown), (
            f"Medians over rounds; upright lines are {definitions.INTERVALS}.{left_out(len(lines), what='lines')}"
            f"{' The scale is logarithmic.' if log else ''}"
        )


def _along(setting: str, series: str | None, cells: Sequence[MeasuredCell]) -> list[Spot]:
    """The cells along the axis; those without the setting stand at the right end."""
    places = _places([value for cell in cells if (value := cell.settings.get(setting)) is not None])
    spread = sorted(places.values())
    end = (spread[-1] if spread else 0.0) + max((b - a for a, b in pairwise(spread)), default=1.0)
    shared = conditions(cells, setting, *([series] if series else []))
    found: list[Spot] = []
    for cell in cells:
        value = cell.settings.get(setting)
        label, at = (ABSENT.get(setting, "not set"), end) if value is None else (value, places[value])
        own = cell.settings.get(series, "not set") if series else ""
        group = shared[cell.name]
        # Two cells of one line at one place differ in what one of them does not set: each is a group of its own.
        taken = any((spot.series, spot.group, spot.label) == (own, group, label) for spot in found)
        found.append(Spot(**vars(cell), group=cell.name if taken else group, series=own, label=label, at=at))
    return sorted(found, key=lambda spot: (spot.at, spot.label))


def _groups(found: Sequence[Spot]) -> Iterator[tuple[str, list[Spot]]]:
    """The cells that compare with each other, along the axis, by what they have in common."""
    for group in dict.fromkeys([spot.group for spot in found] or [""]):
        yield group, [spot for spot in found if spot.group == group]


def _by_place(found: Sequence[Spot]) -> Iterator[tuple[str, list[Spot]]]:
    """What stands together, with the label there."""
    for label, there in groupby(found, key=lambda spot: spot.label):
        yield label, list(there)


def _places(values: Sequence[str]) -> dict[str, float]:
    """Numbers stand where they are, rates by their logarithm, anything else in the order of the grid file."""
    if all(re.fullmatch(rf"[0-9.]+({'|'.join(RATE_UNITS)})", value) for value in values):
        return {value: math.log10(read_rate(value)) for value in values}
    try:
        return {value: float(value) for value in values}
    except ValueError:
        return {value: float(place) for place, value in enumerate(dict.fromkeys(values))}
