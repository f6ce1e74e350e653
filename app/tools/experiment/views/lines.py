"""Time per step, or images per second, against a setting, one line for each value of another."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Self

from pydantic import Field, model_validator

from app.analysis.statistics import Blocks, Interval
from app.analysis.units import DIGITS, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT, Unit
from app.machine.say import shown
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.intervals import with_interval
from app.pages.scale import MOST_EVEN, Axis, written
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.settings.explanations import hint
from app.settings.link_rates import RATE_UNITS, read_rate
from app.tools.experiment.plan.cells import conditions
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, estimated
from app.tools.experiment.views.drawn import MOST_LINES, interval_line, plot
from app.tools.experiment.views.measures import (
    SMOOTHED,
    images_per_second,
    names_of_summary,
    of_run,
    of_summary,
    seconds_to,
    step_seconds,
)
from app.tools.experiment.views.order import EXPLANATION, Order, about, changes_within, saturation
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import noise_sentence

TO_LOSS = "seconds_to_loss"
AXES = {"s": SECONDS, "B": MEGABYTES, "B/s": MEGABYTES_PER_SECOND, "share": PERCENT}
ABSENT = {"LINK_RATE": "unshaped"}  # what a cell without the setting is called


@dataclass(frozen=True)
class Shown:
    """What the lines are of. An order from slow to fast needs times or speeds."""

    title: str
    unit: Unit
    measure: Measure
    slowest_is_largest: bool | None = None

    @property
    def axis(self) -> str:
        return next((name for name, unit in AXES.items() if unit == self.unit), "count")


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
    figure: str = Field(
        "seconds",
        description="what is shown: `seconds` of a step, `images_per_second`, `seconds_to_loss`, or a figure of all "
        "ranks by its name in summary.json, such as `bytes_sent_per_step` or `shares.sync`",
    )
    loss: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="for `seconds_to_loss`: the loss that ten steps have on average"
    )
    baseline: str | None = Field(None, description="the cell that ratios are to [of one line: the first x; else best]")
    watch: str | None = Field(None, description="a value of the series which documents call the slowest")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.figure == TO_LOSS and self.loss is None:
            raise ValueError(f'figure = "{TO_LOSS}" needs loss = NUMBER')
        if self.figure != TO_LOSS and self.loss is not None:
            raise ValueError(f'loss needs figure = "{TO_LOSS}"')
        if self.x == self.series:
            raise ValueError(f"x and series are both {shown(self.x)}: give two settings")
        self._shown  # noqa: B018  # refuses an unknown figure
        return self

    @property
    def _shown(self) -> Shown:
        if self.figure == "seconds":
            return Shown("time per step", SECONDS, step_seconds, slowest_is_largest=True)
        if self.figure == "images_per_second":
            return Shown("images per second", DIGITS, images_per_second, slowest_is_largest=False)
        if self.loss is not None:
            return Shown(f"time to a loss of {self.loss:g}", SECONDS, seconds_to(self.loss), slowest_is_largest=True)
        found = of_summary(self.figure)
        if found is None or found.unit == TEXT:
            names = ["seconds", "images_per_second", TO_LOSS, *names_of_summary()]
            raise ValueError(
                f"unknown figure '{shown(self.figure)}': no figure of all ranks. {hint(self.figure, names)}"
            )
        return Shown(found.meaning, found.unit, of_run(found))

    def _blocks(self, results: Results) -> Blocks:
        return results.blocks(
            self._shown.measure,
            [cell for cell in results.cells if cell.middle(self._shown.measure) is not None],
            ratios=self._shown.slowest_is_largest is not None,
        )

    def _lacking(self, results: Results, blocks: Blocks) -> Iterator[str]:
        """Cells without the figure in one of their runs: a median over the others would be of the lucky ones."""
        title = _capital(self._shown.title)
        for cell in results.cells:
            if cell.name not in blocks.cells:
                there = sum(self._shown.measure(run) is not None for run in cell.runs)
                yield f"{title}: {cell.name} has it in {there} of {len(cell.runs)} runs and is left out."

    def _spots(self, results: Results) -> list[Spot]:
        return _along(self.x, self.series, results.cells)

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks, found, largest = self._blocks(results), self._spots(results), self._shown.slowest_is_largest
        yield from self._lacking(results, blocks)
        if largest is None:
            yield from self._values(found, blocks)
        if largest is None or (results.cells and not blocks.cells):
            return
        if self.series:
            yield from self._across(found, blocks, largest)
        else:
            for group, line in _groups(found):
                told = saturation(self.x, {spot.label: spot.name for spot in line}, blocks, largest)
                yield from (f"{group}: {sentence}" if group else sentence for sentence in told)
        yield noise_sentence(blocks, results)

    def _values(self, found: Sequence[Spot], blocks: Blocks) -> Iterator[str]:
        """The least and the most of all cells."""
        known = [(spot, own) for spot in found if (own := blocks.estimate(spot.name))]
        ends = [end(known, key=lambda each: each[1].value) for end in (min, max)] if known else []
        values = [written(own.value, self._shown.axis) for _, own in ends]
        cells = [f"{value} ({spot.name})" for value, (spot, _) in zip(values, ends, strict=True)]
        if known:
            what = f"{values[0]} in every cell" if len(set(values)) == 1 else " to ".join(cells)
            yield f"{_capital(self._shown.title)}: {what}."

    def _across(self, found: Sequence[Spot], blocks: Blocks, slowest_is_largest: bool) -> Iterator[str]:
        """The order of the lines at each place of the axis."""
        groups = {}
        for group, members in _groups(found):
            orders = [
                Order.of(
                    ", ".join(filter(None, (group, label))),
                    {spot.name: spot.series for spot in there},
                    blocks,
                    slowest_is_largest,
                )
                for label, there in _by_place(members)
            ]
            groups[group] = [order for order in orders if len(order.names) > 1]
        compared = [order for orders in groups.values() for order in orders]
        if not compared:
            yield "No two lines have a point in common."
            return
        yield f"Slowest first: {'; '.join(order.words for order in compared)}."
        yield EXPLANATION
        yield from changes_within({group: orders for group, orders in groups.items() if orders})
        if self.watch:
            yield about(self.watch, compared)

    def _tables(self, results: Results, name: str) -> list[Table]:
        blocks, found = self._blocks(results), self._spots(results)
        first = found[0].label if found else "the first"
        first = "the first of its line" if len({spot.group for spot in found}) > 1 else first
        base = self.baseline or ("the fastest there" if self.series else first)

        def by_base(spot: Spot) -> Interval | None:
            return blocks.compare(spot.name, self.baseline or self._base(spot, found, blocks))

        columns: list[Column[Any]] = [CELL, Column[Spot](self.x, "x", TEXT, lambda spot: spot.label)]
        if self.series:
            columns.append(Column[Spot](self.series, "series", TEXT, lambda spot: spot.line))
        figure = self._shown
        heading = {"seconds": "step", "images_per_second": "images/s"}.get(self.figure, figure.title)
        columns += estimated(heading, self.figure.replace(".", "_"), blocks, figure.unit)
        if figure.slowest_is_largest is not None:
            columns += with_interval(f"by {base}", "ratio", by_base)
        columns.append(ROUNDS)
        what = {
            "seconds": f"Step: the median {definitions.BUT_THE_FIRST} of a run.",
            "images_per_second": definitions.IMAGES,
            TO_LOSS: f"From the first step's start until the mean loss of {SMOOTHED} steps is reached, by wall clock.",
        }.get(self.figure, "")
        note = f"Medians over rounds, with {definitions.INTERVALS}. {what}"
        return [Table.of(name, self.title, columns, found, note)]

    def _base(self, spot: Spot, found: Sequence[Spot], blocks: Blocks) -> str | None:
        """The cell that others are related to where none is named: the fastest at the same place."""
        group = [each for each in found if each.group == spot.group]
        there = [each for each in group if each.label == spot.label] if self.series else group[:1]
        ranked = blocks.ranked(each.name for each in there)
        return ranked[-1 if self._shown.slowest_is_largest else 0] if ranked else None

    def _figure(self, results: Results) -> tuple[Chart, str]:
        blocks, found = self._blocks(results), self._spots(results)
        lines = {
            each: [(spot.at, own) for spot in found if spot.line == each and (own := blocks.estimate(spot.name))]
            for each in dict.fromkeys(spot.line for spot in found)
        }
        drawn = [
            interval_line(name or f"by {self.x}", points) for name, points in list(lines.items())[:MOST_LINES] if points
        ]
        if not drawn:
            raise Missing("no cell has this figure in all of its runs." if found else "no run is finished.")
        values = [value for each in drawn for value in each.y]
        log = min(values) > 0 and max(values) > MOST_EVEN * min(values)
        places, up = {spot.at: spot.label for spot in found}, Axis(self._shown.title, self._shown.axis, log=log)
        return plot(self.title, Axis(self.x, labels=[*places.items()]), up, drawn), (
            f"Medians over rounds; upright lines are {definitions.INTERVALS}."
            f"{left_out(len(lines), MOST_LINES, 'lines')}{' The scale is logarithmic.' if log else ''}"
        )


def _capital(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


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
