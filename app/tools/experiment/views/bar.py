"""Views without an axis: a bar for each cell, or a row of a table for each cell or each of its ranks."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from app.analysis.catalogue import PHASE_MEANS, label
from app.analysis.figures import Measure
from app.analysis.statistics import Interval
from app.analysis.units import PERCENT, TEXT
from app.analysis.words import percent
from app.pages import definitions, phases
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import bar, bars
from app.pages.findings import Judged, listing
from app.pages.scale import Axis
from app.pages.table import Column
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.view import CELL, OfMeasures


class BarView(OfMeasures):
    """A bar for each cell: a measure with its interval, or several that add up."""

    kind: Literal["bar"]
    stacked: bool = Field(
        False,
        description="true: the measures after the first are the parts of the bar; `phases` are always stacked [false]",
    )
    times_less: bool = Field(
        False,
        description="true: baseline divided by cell instead of cell divided by baseline [false]",
    )

    def problems(self) -> Iterator[ValueError]:
        yield from super().problems()
        if self.stacked and {each.unit for each in self.measures[1:]} != {self.first.unit}:
            yield ValueError("stacked needs a whole and its parts: two measures or more, of one unit")
        if self.times_less and (self.baseline is None or self.first.unit == PERCENT):
            yield ValueError("times_less needs a baseline, and cannot compare shares")

    @property
    def _of_phases(self) -> bool:
        return self.measure[0] == "phases"

    @property
    def _parts(self) -> list[Measure[Any]]:
        if self._of_phases:
            return [each for each in self.measures[1:] if each.name in PHASE_MEANS]
        return self.measures[1:] if self.stacked else []

    def gains(self, judged: Judged) -> bool:
        return self.times_less

    def found(self, judged: Judged, rows: Sequence[Any]) -> Iterator[str]:
        others = [row.name for row in rows if row.name != self.baseline]
        if self._parts:
            yield from listing(judged.capital, self._shares(judged, rows))
        elif judged.slowest_is_largest is None:
            yield from judged.extent()
        else:
            yield from judged.fastest(others)
            for each in self.published_of(self.first):
                yield from () if each.ratio else judged.published_order(others, each.by_cell)

    def _shares(self, judged: Judged, rows: Sequence[Any]) -> Iterator[str]:
        """What each bar is made of."""
        for row in rows:
            if whole := judged.blocks.estimate(row.name):
                parts = [(self._word(part), row.middle(part)) for part in self._parts]
                shares = [f"{percent(value / whole.value)} {part}" for part, value in parts if value is not None]
                yield f"{row.name} {judged.words(whole.value)} ({', '.join(shares)})"

    def _word(self, part: Measure[Any]) -> str:
        return part.name.removesuffix("_seconds.mean").replace("_", " ") if self._of_phases else label(part)

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return [draw(name, self.title, self._phases if self._of_phases else self._bars, results)]

    def _bars(self, results: Results) -> tuple[Chart, str]:
        """Times from another machine compare only as ratios."""
        judged, published = self.judged(results), next(iter(self.published_of(self.first)), None)
        of_another = published is not None and judged.slowest_is_largest is not None
        compares = (self.times_less or of_another) and not self.stacked and self.baseline in judged.blocks.cells
        x = Axis(judged.title, self.first.unit.axis)
        if compares:
            x = Axis(self.compared_as(judged, ())[0] if self.times_less else f"{judged.title}, {self.baseline} is 1")
        rows = []
        for cell in results.cells:
            value = self.comparison(judged, cell) if compares else self._value(judged, cell)
            told = None
            if published and (compares or not published.ratio):
                told = self.told(published, judged, cell) if compares else published.of(cell.name)
            parts = [(label(part), cell.middle(part) or 0.0) for part in self._parts]
            rows.append(bar(cell.name, value, x.unit, told, parts))
        if all(row.value is None for row in rows):
            raise Missing("no cell has this figure in all of its runs.")
        sources = self.sources() if any(row.published for row in rows) else ""
        return bars(self.title, x, rows), f"Medians over rounds; lines are {definitions.INTERVALS}.{sources}"

    def _value(self, judged: Judged, cell: MeasuredCell) -> Interval | None:
        """A 0 has no place among ratios, but one among bars."""
        middle = cell.middle(self.first)
        return judged.blocks.estimate(cell.name) or (None if middle is None else Interval(middle, None, None))

    def _phases(self, results: Results) -> tuple[Chart, str]:
        times = phases.TIMES.items()
        rows = [(cell.name, {name: cell.middle(timing.mean) for name, timing in times}) for cell in results.cells]
        caption = f"Mean seconds of each phase {definitions.BUT_THE_FIRST}, the median over rounds"
        return phases.phase_bars(self.title, rows, caption)


class TableView(OfMeasures):
    """A row for each cell, or for each of its ranks."""

    kind: Literal["table"]
    by: Literal["cell", "rank"] = Field("cell", description="`rank`: a row for each rank, and one for all [cell]")

    def problems(self) -> Iterator[ValueError]:
        yield from super().problems()
        if self.baseline and self.by == "rank":
            yield ValueError("ranks are not compared: omit baseline, or by = 'rank'")

    @property
    def has_intervals(self) -> bool:
        return self.by == "cell"

    def rows(self, results: Results, judged: Judged) -> list[MeasuredCell]:
        return [row for cell in results.cells for row in (cell.by_rank() if self.by == "rank" else [cell])]

    def lead(self, rows: Sequence[Any]) -> list[Column[Any]]:
        rank = Column[MeasuredCell]("rank", "rank", TEXT, lambda row: "all" if row.rank is None else row.rank)
        return [CELL[0], rank] if self.by == "rank" else CELL

    def found(self, judged: Judged, rows: Sequence[Any]) -> Iterator[str]:
        yield from judged.extent()
        apart: dict[str, float] = {}  # how far the ranks of a run lie apart at most
        for row in rows:
            ranks = [one for one in rows if one.name == row.name and one.rank is not None]
            values = [[one.value(run, self.first) for one in ranks] for run in row.runs]
            if len(ranks) > 1 and all(None not in each for each in values):
                apart[row.name] = max(max(each) - min(each) for each in values)
        alike = [cell for cell, distance in apart.items() if not distance]
        differing = [f"{judged.words(distance)} ({cell})" for cell, distance in apart.items() if distance]
        yield from listing("Its ranks differ by", differing)
        yield from listing("The same on all ranks", alike)
