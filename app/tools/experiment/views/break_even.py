"""The link rate below which each way of sending is faster than the plain one, with its interval."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from app.analysis.statistics import Blocks, Interval
from app.analysis.units import SECONDS, TEXT, Scale, Unit, digits
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.intervals import with_interval
from app.pages.scale import Axis
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.settings.link_rates import read_rate
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.break_even import EVERYWHERE, NOWHERE, break_even
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, estimated
from app.tools.experiment.views.drawn import MOST_LINES, interval_line, plot
from app.tools.experiment.views.measures import step_seconds
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import noise_sentence

RATE = "LINK_RATE"
MEGABITS = Unit(lambda rate: f"{digits(rate / 1e6)} Mbit/s", scales=(Scale("Mbit/s", 1e6),))


@dataclass(frozen=True)
class RateLine:
    """The cells that differ in the rate of their links alone, and their times by those of the plain line."""

    name: str
    against: str
    ratios: dict[float, Interval]  # by bits per second

    @property
    def found(self) -> Interval:
        """The rate at which both take as long."""
        return break_even(self.ratios)

    @property
    def words(self) -> str:
        """The same in a sentence, as far as it is beyond the noise."""
        found, pair = self.found, f"{self.name} is faster than {self.against}"
        slowest, fastest = (MEGABITS.words(end(self.ratios)) for end in (min, max))
        if found.low is None or found.high is None:
            return f"{self._in_one_round(found.value)}, in one round, which does not tell whether that is noise."
        if found.low == EVERYWHERE:
            return f"{pair} at each of these rates, up to {fastest}."
        if found.high == NOWHERE:
            return f"{self.name} is slower than {self.against} at each of these rates, down to {slowest}."
        if found.low == NOWHERE and found.high == EVERYWHERE:
            return f"Between {self.name} and {self.against} no rate tells a difference beyond the noise."
        if found.value == EVERYWHERE:
            return f"{pair} up to {MEGABITS.words(found.low)}; no rate tells where that ends."
        if found.value == NOWHERE:
            return f"{self.name} is slower than {self.against} from {MEGABITS.words(found.high)} on, never faster."
        low = f"less than {slowest}" if found.low == NOWHERE else MEGABITS.words(found.low)
        high = f"more than {fastest}" if found.high == EVERYWHERE else MEGABITS.words(found.high)
        return f"{pair} below {MEGABITS.words(found.value)} ({low} to {high})."

    def _in_one_round(self, value: float) -> str:
        if value == EVERYWHERE:
            return f"{self.name} was faster than {self.against} at each of these rates"
        if value == NOWHERE:
            return f"{self.name} was slower than {self.against} at each of these rates"
        return f"{self.name} was faster than {self.against} below {MEGABITS.words(value)}"


class BreakEven(View):
    """The link rate below which each line of cells is faster than another."""

    against: str = Field(description="the line that the others are laid beside: what its cells are called but the rate")

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks = results.blocks(step_seconds)
        lines = self._lines(results, blocks)
        if not lines:
            yield f"No rate has both {self.against} and another way: there is no break-even to tell."
        yield from (line.words for line in lines)
        yield noise_sentence(blocks, results)

    def _lines(self, results: Results, blocks: Blocks) -> list[RateLine]:
        """Those that have a rate in common with the one they are laid beside."""
        ratios: dict[str, dict[float, Interval]] = {}
        for cell in results.cells:
            found = blocks.compare(cell.name, self._base(cell, results.cells))
            if found and line_of(cell) != self.against:
                ratios.setdefault(line_of(cell), {})[read_rate(cell.settings[RATE])] = found
        return [RateLine(name, self.against, own) for name, own in ratios.items()]

    def _base(self, cell: Cell, cells: Sequence[Cell]) -> str | None:
        """What a cell is laid beside: the plain line's at the same rate."""
        rate = cell.settings.get(RATE)
        there = (each for each in cells if rate and each.settings.get(RATE) == rate)
        return next((each.name for each in there if line_of(each) == self.against), None)

    def _tables(self, results: Results, name: str) -> list[Table]:
        blocks = results.blocks(step_seconds)

        def end(which: str) -> Column[RateLine]:
            heading = {"value": "break-even", "low": "95 % from", "high": "to"}[which]
            suffix = "" if which == "value" else f"_{which}"
            return Column(heading, f"break_even_bits_per_second{suffix}", MEGABITS, lambda line: _end(line, which))

        def ratio(cell: MeasuredCell) -> Interval | None:
            return blocks.compare(cell.name, self._base(cell, results.cells))

        lines = [
            Column[RateLine]("", "line", TEXT, lambda line: line.name),
            *map(end, ("value", "low", "high")),
            Column[RateLine]("in words", "words", TEXT, lambda line: line.words),
        ]
        cells = [
            CELL,
            Column[MeasuredCell](RATE, "link_rate", TEXT, lambda cell: cell.settings.get(RATE)),
            *estimated("step", "seconds", blocks, SECONDS),
            *with_interval(f"by {self.against} at this rate", "ratio", ratio),
            ROUNDS,
        ]
        note = (
            f"Break-even: the rate at which both take as long, between the measured rates by logarithms, with "
            f"{definitions.INTERVALS}. An end that no measured rate tells is missing. "
            "Rates are those that links were asked for; each was measured, and kept within 10 %."
        )
        steps = f"Step: the median {definitions.BUT_THE_FIRST} of a run, then the median over rounds."
        return [
            Table.of(name, self.title, lines, self._lines(results, blocks), note),
            Table.of(f"{name}-rates", "Time per step by rate", cells, results.cells, steps),
        ]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        lines = self._lines(results, results.blocks(step_seconds))
        if not lines:
            raise Missing(f"no rate has both {self.against} and another way.")
        traces = [interval_line(each.name, sorted(each.ratios.items())) for each in lines[:MOST_LINES]]
        rates = {read_rate(rate): rate for cell in results.cells if (rate := cell.settings.get(RATE))}
        x = Axis(RATE, log=True, labels=[*rates.items()])
        y = Axis(f"time per step, {self.against} is 1", log=True)
        return plot(self.title, x, y, traces, [(1.0, self.against)]), (
            f"Below the dotted line it is faster. Both scales are logarithmic; upright lines are "
            f"{definitions.INTERVALS}.{left_out(len(lines), MOST_LINES, 'lines')}"
        )


def line_of(cell: Cell) -> str:
    """What a cell is called but for the rate of its links."""
    return ", ".join(part for part in cell.name.split(", ") if part != cell.settings.get(RATE))


def _end(line: RateLine, which: str) -> float | None:
    value: float | None = getattr(line.found, which)
    return None if value in (None, NOWHERE) or value == math.inf else value
