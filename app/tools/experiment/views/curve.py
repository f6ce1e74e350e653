"""The course of a run by cell: over its steps, its epochs, or the time that it takes."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, median
from typing import Literal

from pydantic import Field

from app.analysis import measures
from app.analysis.catalogue import label
from app.analysis.run import Run
from app.analysis.run_records import together
from app.analysis.units import COUNT, DIGITS, PERCENT, SECONDS, Unit
from app.machine.say import shown
from app.pages.chart import Chart
from app.pages.drawing import Drawing, draw
from app.pages.drawn import NO_SAMPLES, SINCE_START, curves, panels, remarks
from app.pages.findings import listed, listing
from app.pages.scale import Axis, written
from app.pages.series import Series, of_usage, series
from app.pages.table import Column, Table
from app.settings.explanations import hint
from app.tools.experiment.plan.grid_file import UnknownName
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views import blocks
from app.tools.experiment.views.distance import Distance, sentences, table
from app.tools.experiment.views.view import View

LOSS = "loss"
PHASES = "phases"
OF_STEP = {timing.name: SECONDS for timing in measures.TIMES} | {LOSS: DIGITS}
OF_EPOCH = {each.name: each for each in measures.SCORES if each not in (measures.LOSS, measures.TRAINING_SAMPLES)}
OF_TIME = {
    "cpu_user_percent": "% of one CPU",
    "cpu_system_percent": "% of one CPU",
    "memory_bytes": "B",
    "network_sent_bytes": "B/s",
    "network_received_bytes": "B/s",
}
KNOWN = {"step": [*OF_STEP, PHASES], "epoch": [*OF_EPOCH], "time": [*OF_TIME]}
PRINTED = Unit(lambda loss: f"{loss:.4f}")  # as a console prints losses

Course = Sequence[float | None]


class CurveView(View):
    """The course of a run by cell."""

    kind: Literal["curve"]
    by: Literal["step", "epoch", "time"] = Field(
        "step", description="what the course is over: `step`, `epoch` or `time` [step]"
    )
    every: int = Field(20, ge=1, description="steps for each row of the table; for `phases`, steps of a block [20]")
    reference: str | None = Field(
        None, description="a cell: the relative difference of the others' losses from its losses, step by step"
    )
    rounding: float = Field(1e-6, gt=0, description="largest relative difference that rounding explains [1e-6]")

    def problems(self) -> Iterator[ValueError]:
        for name in self.measure:
            if name not in KNOWN[self.by]:
                yield UnknownName(f"unknown measure '{shown(name)}' by {self.by}. {hint(name, KNOWN[self.by])}")
        if PHASES in self.measure and len(self.measure) > 1:
            yield ValueError("phases need a view of their own")
        if self.reference and self.measure != [LOSS]:
            yield ValueError(f"a reference needs measure = '{LOSS}'")
        if self.by == "time" and len({OF_TIME[name] for name in self.measure}) > 1:
            yield ValueError("a curve by time needs measures of one unit")
        if self.by != "step" and "every" in self.model_fields_set:
            yield ValueError("every counts steps: omit it, or use by = 'step'")
        alone = self.reference or self.by == "time" or PHASES in self.measure
        for each in self.published:
            lists = all(isinstance(values, list) for values in each.values.values())
            if alone or not lists or each.ratio or (each.measure or self.measure[0]) not in self.measure:
                yield ValueError(
                    "published figures of a curve are lists, one figure for each row of its table, of its measures"
                )

    def sentences(self, results: Results) -> Iterator[str]:
        if self.reference:
            yield from sentences(self._distances(results), self.reference, self.rounding)
        for name in self.measure if self.by == "epoch" or LOSS in self.measure else ():
            unit = OF_EPOCH[name].unit.axis if self.by == "epoch" else ""
            last = {cell.name: own[-1] for cell in results.cells if (own := self._course(name, cell))}
            words = [f"{written(value, unit)} ({cell})" for cell, value in last.items() if value is not None]
            yield from listing(f"At the end, {self._label(name)}", words)

    def _label(self, measure: str) -> str:
        return label(OF_EPOCH[measure]) if self.by == "epoch" else measure.replace("_", " ")

    def _distances(self, results: Results) -> list[Distance]:
        others = (cell for cell in results.cells if cell.name != self.reference)
        return [each for cell in others if (each := Distance.of(results, cell, self.reference or "")).rounds]

    def _course(self, measure: str, cell: MeasuredCell) -> Course:
        """By epoch, the median over rounds, None where a round lacks it; by step, that of all ranks in the first."""
        if self.by == "epoch":
            rounds = ([each[OF_EPOCH[measure]] for each in run.summary.run.epochs] for run in cell.runs)
            return [median(epoch) if None not in epoch else None for epoch in zip(*rounds, strict=False)]
        if measure == LOSS:
            return cell.first.summary.losses
        steps = [[getattr(step, measure) for step in each] for each in together([r.steps for r in cell.first.ranks])]
        return [mean(each) if None not in each else None for each in steps]

    # Tables

    def tables(self, results: Results, name: str) -> list[Table]:
        if self.reference:
            return [table(self._distances(results), name, self.title)]
        if self.measure == [PHASES]:
            return [blocks.table(blocks.of(results.cells, self.every), name, self.title)]
        return [] if self.by == "time" else [self._courses(results, *each) for each in self._named(name)]

    def _named(self, name: str) -> list[tuple[str, str]]:
        """Each measure with the name of its table and drawing."""
        return [(each, f"{name}-{each}" if len(self.measure) > 1 else name) for each in self.measure]

    def _courses(self, results: Results, measure: str, name: str) -> Table:
        """A row for each step or epoch, a column for each cell."""
        by_step = self.by == "step"
        every, first = (self.every, 0) if by_step else (1, 1)
        unit = PRINTED if "loss" in measure else OF_STEP[measure] if by_step else PERCENT
        columns: list[Column[int]] = [Column(self.by, self.by, COUNT, lambda row: first + row * every)]
        rows = 0
        for cell in results.cells:
            steps = cell.first.ranks[0].steps[::every]
            own: Course = [getattr(s, measure) for s in steps] if by_step else self._course(measure, cell)
            published = (each for each in self.published if (each.measure or self.measure[0]) == measure)
            told = (several for each in published if (several := each.several(cell.name)))
            for heading, prefix, values in ((cell.name, measure, own), *(("published", "published", t) for t in told)):
                columns.append(Column(heading, f"{prefix}_{cell.slug}", unit, partial(_at, values)))
                rows = max(rows, len(values))
        note = "Of rank 0, in the first round that is finished." if by_step else "Medians over rounds."
        return Table.of(name, self.title, columns, range(rows), note + self.sources())

    # Drawings

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        if self.measure == [PHASES]:
            return [draw(name, self.title, blocks.figure, blocks.of(results.cells, self.every))]
        if self.by == "time":
            return [draw(name, self.title, self._over_time, results)]
        return [draw(own, self.title, partial(self._curves, each), results) for each, own in self._named(name)]

    def _curves(self, measure: str, results: Results) -> tuple[Chart, str]:
        levels = []
        words, unit = measure.replace("_", " "), OF_EPOCH[measure].unit.axis if self.by == "epoch" else "s"
        if self.reference:
            first = {each.cell: next(iter(each.rounds.values())) for each in self._distances(results)}
            courses: dict[str, Course] = {cell: [apart or None for apart in own] for cell, own in first.items()}
            up, levels = Axis("relative difference of the loss", log=True), [(self.rounding, "rounding")]
            caption = (
                f"From {self.reference}, in the first round that has both; dotted: what rounding explains. "
                "Losses that are the same to the last digit have no place on this axis."
            )
        else:
            courses = {cell.name: self._course(measure, cell) for cell in results.cells}
            loss = measure == LOSS
            up = Axis(words, zero=False) if loss else Axis(words, unit, zero=self.by != "epoch")
            caption = "Medians over rounds."
            if self.by == "step":
                caption = (
                    f"{'Of the global batch' if loss else 'Means over ranks'}, in the first round that is finished."
                )
        begin = 1 if self.by == "epoch" else 0
        lines = [series(cell, range(begin, begin + len(own)), own) for cell, own in courses.items()]
        chart = curves(self.title, self.by, up, lines, f"no {self.by} has it.", levels)
        return chart, f"{caption}{remarks(lines, f'{self.by}s')}"

    def _over_time(self, results: Results) -> tuple[Chart, str]:
        """A panel for each cell: a line for each of several measures, or for each rank."""
        found = {cell.name: self._samples(cell.first) for cell in results.cells}
        what = listed([measure.replace("_", " ") for measure in self.measure])
        words, up = f"{what} over time, by cell", Axis(what, OF_TIME[self.measure[0]])
        chart, cut = panels(words, SINCE_START, up, found, "cells", "samples", NO_SAMPLES)
        return chart, f"Of each rank, by sample, in the first round that is finished.{cut}"

    def _samples(self, run: Run) -> dict[str, list[Series]]:
        if len(self.measure) > 1:
            return {name: [of_usage(rank, name, name) for rank in run.ranks] for name in self.measure}
        return {f"rank {rank.rank}": [of_usage(rank, "", self.measure[0])] for rank in run.ranks}


def _at(values: Course, row: int) -> float | None:
    return values[row] if row < len(values) else None
