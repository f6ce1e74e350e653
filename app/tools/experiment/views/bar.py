"""A bar for each cell: a measure with its interval, or several that add up."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from pydantic import Field, model_validator

from app.analysis import measures
from app.analysis.catalogue import label, named
from app.analysis.statistics import Interval
from app.analysis.units import PERCENT
from app.analysis.words import duration, percent
from app.pages import definitions, phases
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import bar, bars
from app.pages.findings import Judged, listed, listing
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.records.lines import PHASES
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.view import CELL, ROUNDS, OfMeasures


class BarView(OfMeasures):
    """A bar for each cell: a measure with its interval, or several that add up."""

    kind: Literal["bar"]
    stacked: bool = Field(
        False,
        description="true: the measures after the first are the parts of the bar; `phases` are always stacked [false]",
    )
    baseline: str | None = Field(None, description="the cell that the others are compared with")
    times_less: bool = Field(
        False,
        description="true: baseline divided by cell instead of cell divided by baseline [false]",
    )

    @model_validator(mode="after")
    def _parts(self) -> "BarView":
        if self._of_phases and (without := self.model_fields_set & {"stacked", "baseline", "times_less"}):
            raise ValueError(f"bars of phases are not compared: omit {', '.join(sorted(without))}")
        if self.stacked and len(self.measures) < 2:
            raise ValueError("stacked needs a whole and its parts: two measures or more")
        if self.stacked and len({each.unit for each in self.measures}) > 1:
            raise ValueError("stacked needs measures of one unit")
        if self.times_less and (self.baseline is None or self.first.unit == PERCENT):
            raise ValueError("times_less needs a baseline, and cannot compare shares")
        return self

    @property
    def _of_phases(self) -> bool:
        return self.measure[0] == "phases"

    def named_cells(self) -> list[str | None]:
        return [self.baseline, *super().named_cells()]

    def sentences(self, results: Results) -> Iterator[str]:
        judged = self.judged(results)
        cells = [cell.name for cell in results.cells]
        if self._of_phases:
            yield from _about_phases(results)
            return
        order = [cell for cell in cells if cell != self.baseline]
        if self.stacked:
            yield from self._of_parts(results, judged)
        elif judged.slowest_is_largest is not None:
            yield from judged.fastest(order)
        else:
            yield from judged.extent()
        if self.baseline:
            yield from judged.all_against(self.baseline, cells)
        for each in self.published_of(self.first):
            if each.ratio:
                told = (f"{cell} {value:g} times" for cell, value in each.by_cell.items())
                yield from listing(f"Published, against {self.baseline}", told)
            elif judged.slowest_is_largest is not None:
                yield from judged.published_order(order, each.by_cell)
            else:
                yield from judged.beside_published(each.by_cell)
        if judged.blocks.cells:
            yield judged.noise()

    def _of_parts(self, results: Results, judged: Judged) -> Iterator[str]:
        words = []
        for cell in results.cells:
            if whole := judged.blocks.estimate(cell.name):
                parts = [(label(part), cell.middle(part)) for part in self.measures[1:]]
                shares = [f"{percent(value / whole.value)} {part}" for part, value in parts if value is not None]
                words.append(f"{cell.name} {judged.words(whole.value)} ({', '.join(shares)})")
        yield from listing(judged.capital, words)

    def tables(self, results: Results, name: str) -> list[Table]:
        columns: list[Column[Any]] = [*CELL, *self.values(results)]
        if base := self.baseline:
            judged = self.judged(results)
            columns += self.compared(judged, base, partial(self._ratio, judged), lambda _: base, gain=self.times_less)
        return [Table.of(name, self.title, [*columns, ROUNDS], results.cells, self.explained())]

    def _ratio(self, judged: Judged, cell: MeasuredCell) -> Interval | None:
        if self.first.unit == PERCENT and cell.name == self.baseline:
            return None
        return judged.blocks.compare(*(self.baseline, cell.name)[:: 1 if self.times_less else -1])

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return [draw(name, self.title, self._phases if self._of_phases else self._bars, results)]

    def _bars(self, results: Results) -> tuple[Chart, str]:
        judged, base = self.judged(results), self._base_of_bars(results)
        theirs = next(iter(self.published_of(self.first)), None)
        if base is None:
            x = Axis(judged.title, self.first.unit.axis)
        else:
            x = Axis(f"times less than {base}" if self.times_less else f"{judged.title}, {base} is 1")
        rows = []
        for cell in results.cells:
            found = self._value(judged, cell) if base is None else self._ratio(judged, cell)
            if theirs is None or (base is None and theirs.ratio):
                told = None
            else:
                told = theirs.of(cell.name) if base is None else theirs.by(cell.name, base, gain=self.times_less)
            parts = [(label(part), cell.middle(part) or 0.0) for part in self.measures[1:]] if self.stacked else []
            rows.append(bar(cell.name, found, x.unit, told, parts))
        caption = f"Medians over rounds; lines are {definitions.INTERVALS}."
        if all(row.value is None for row in rows):
            raise Missing("no cell has this figure in all of its runs.")
        return bars(self.title, x, rows), f"{caption}{self.sources() if any(row.published for row in rows) else ''}"

    def _value(self, judged: Judged, cell: MeasuredCell) -> Interval | None:
        """A 0 has no place among ratios, but one among bars."""
        middle = cell.middle(self.first)
        return judged.blocks.estimate(cell.name) or (None if middle is None else Interval(middle, None, None))

    def _base_of_bars(self, results: Results) -> str | None:
        """Times from another machine compare only as ratios."""
        of_another = self.published_of(self.first) and self.judged(results).slowest_is_largest is not None
        told = not self.stacked and (self.times_less or of_another)
        return self.baseline if told and self.baseline in [cell.name for cell in results.cells] else None

    def _phases(self, results: Results) -> tuple[Chart, str]:
        rows = [
            (cell.name, {name: cell.middle(timing.mean) for name, timing in phases.TIMES.items()})
            for cell in results.cells
        ]
        caption = f"Mean seconds of each phase {definitions.BUT_THE_FIRST}, the median over rounds"
        return phases.phase_bars(self.title, rows, caption)


# What a step is made of


def _about_phases(results: Results) -> Iterator[str]:
    backward, communication, hidden = map(named, ("shares.backward", "communication_share", "hidden_share"))
    known = [(cell, part) for cell in results.cells if (part := cell.middle(backward)) is not None]
    if not known:
        yield "No phases: only the first step was recorded."
        return
    longest = [cell.name for cell, _ in known if _is_backward_longest(cell)]
    if len(longest) == len(known):
        where = "Backward is the longest phase in every round of every cell"
    elif longest:
        where = f"Backward is the longest phase in every round of {listed(longest)}, but not of the others"
    else:
        where = "In no cell is backward the longest phase in every round"
    yield f"{where}. Its share of the step: {', '.join(f'{percent(part)} in {cell.name}' for cell, part in known)}."
    costs = []
    for cell, _ in known:
        wait, sync = (cell.middle(measures.STEP_TIMES[phase].mean) for phase in ("wait", "sync"))
        share = cell.middle(communication)
        if share is not None and cell.world_size > 1 and (wait, sync) != (None, None):
            waited = "" if wait is None else f", {duration(wait)} of it waiting for the slowest rank"
            costs.append(f"{cell.name} {duration((wait or 0) + (sync or 0))} ({percent(share)}{waited})")
    yield from listing("Communication that delays a step costs", costs)
    for cell, _ in known:
        part, behind = cell.middle(hidden), cell.middle(measures.HIDDEN_SYNC.mean)
        if part is not None and behind is not None and cell.world_size > 1:
            hides = f"{cell.name} hides {percent(part)} of its synchronisation behind backward"
            yield f"{hides}: {duration(behind)} a step."


def _is_backward_longest(cell: MeasuredCell) -> bool:
    means = [{phase: cell.value(run, measures.STEP_TIMES[phase].mean) or 0.0 for phase in PHASES} for run in cell.runs]
    return all(max(each, key=lambda phase: each[phase]) == "backward" for each in means)
