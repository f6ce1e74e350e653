"""The course of a run by cell: over its steps, its epochs, or the time that it takes."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from statistics import mean, median
from typing import Literal

from pydantic import Field, model_validator

from app.analysis import measures
from app.analysis.catalogue import label
from app.analysis.run import Run
from app.analysis.run_records import together
from app.analysis.units import COUNT, DIGITS, PERCENT, SECONDS, Unit, digits
from app.machine.say import shown
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import NO_SAMPLES, SINCE_START, curves, panels, remarks
from app.pages.findings import listed
from app.pages.scale import Axis, written
from app.pages.series import Series, of_usage, series
from app.pages.table import Column, Table
from app.settings.explanations import hint
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid_file import UnknownName
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views import blocks, distance
from app.tools.experiment.views.distance import Distance
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
MOST_COMPARED = 20  # cells of one batch, each with each
PRINTED = Unit(lambda loss: f"{loss:.4f}")  # as a console prints losses


class CurveView(View):
    """The course of a run by cell."""

    kind: Literal["curve"]
    by: Literal["step", "epoch", "time"] = Field("step", description="what the course is over [step]")
    every: int = Field(20, ge=1, description="steps for each row of the table; for `phases`, steps of a block [20]")
    reference: str | None = Field(
        None, description="a cell: the relative difference of the others' losses from its losses, step by step"
    )
    rounding: float = Field(1e-6, gt=0, description="largest relative difference that rounding explains [1e-6]")

    @model_validator(mode="after")
    def _consistent(self) -> "CurveView":
        for name in self.measure:
            if name not in KNOWN[self.by]:
                raise UnknownName(f"unknown measure '{shown(name)}' by {self.by}. {hint(name, KNOWN[self.by])}")
        if (self.reference or PHASES in self.measure) and len(self.measure) > 1:
            raise ValueError("a reference and phases need a measure of their own")
        lists = all(isinstance(values, list) for each in self.published for values in each.values.values())
        for each in self.published:
            if each.ratio or (each.measure or self.measure[0]) not in self.measure:
                raise ValueError(
                    f"published is a ratio, or of '{shown(each.measure or '')}', which this curve does not show"
                )
        if self.published and (not lists or self.reference or self.by == "time" or PHASES in self.measure):
            raise ValueError("published figures of a curve are lists, one figure for each row of its table")
        if self.by == "time" and len({OF_TIME[name] for name in self.measure}) > 1:
            raise ValueError("a curve by time needs measures of one unit")
        if self.by != "step" and "every" in self.model_fields_set:
            raise ValueError("every counts steps: omit it, or use by = 'step'")
        if self.reference and self.measure != [LOSS]:
            raise ValueError(f"a reference needs measure = '{LOSS}'")
        return self

    def named_cells(self) -> list[str | None]:
        return [self.reference, *super().named_cells()]

    def sentences(self, results: Results) -> Iterator[str]:
        if self.reference:
            yield from distance.sentences(results, self._distances(results), self.reference, self.rounding)
        elif self.by == "step" and LOSS in self.measure:
            yield from _apart(results)
            ends = [f"{digits(cell.first.summary.losses[-1])} ({cell.name})" for cell in results.cells]
            yield f"The losses of the last steps: {', '.join(ends) or 'none is there'}."
        elif self.by == "epoch":
            yield from self._ends(results)
        elif not results.cells:
            yield "No run is finished."

    def _ends(self, results: Results) -> Iterator[str]:
        for name in self.measure:
            last = {cell.name: known[-1] for cell in results.cells if (known := _by_epoch(cell, name))}
            unit = OF_EPOCH[name].unit.axis
            words = [f"{written(value, unit)} ({cell})" for cell, value in last.items() if value is not None]
            yield f"At the end, {label(OF_EPOCH[name])}: {', '.join(words) or 'no cell has it'}."

    def _distances(self, results: Results) -> list[Distance]:
        others = [cell.name for cell in results.cells if cell.name != self.reference]
        return [Distance.of(results, name, self.reference or "") for name in others]

    # Tables

    def tables(self, results: Results, name: str) -> list[Table]:
        if self.reference:
            return [distance.table(results, self._distances(results), self.reference, name, self.title)]
        if self.measure == [PHASES]:
            return [blocks.table(blocks.of(results.cells, self.every), name, self.title)]
        if self.by == "time":
            return []
        return [self._courses(results, name, measure) for measure in self.measure]

    def _courses(self, results: Results, name: str, measure: str) -> Table:
        """A row for each step or epoch, a column for each cell."""
        every = self.every if self.by == "step" else 1
        unit = PRINTED if "loss" in measure else OF_STEP[measure] if self.by == "step" else PERCENT
        first = 0 if self.by == "step" else 1
        columns: list[Column[int]] = [Column(self.by, self.by, COUNT, lambda row: first + row * every)]
        rows = 0
        for cell in results.cells:
            own = _of_rank_0(cell.first, measure)[::every] if self.by == "step" else _by_epoch(cell, measure)
            published = (each for each in self.published if (each.measure or self.measure[0]) == measure)
            lists = [own, *(told for each in published if (told := each.several(cell.name)))]
            for number, values in enumerate(lists):
                heading, prefix = (cell.name, measure) if number == 0 else ("published", "published")
                columns.append(Column(heading, f"{prefix}_{cell.slug}", unit, partial(_at, values)))
                rows = max(rows, len(values))
        if self.by == "epoch":
            note = f"{label(OF_EPOCH[measure]).capitalize()} of each epoch; medians over rounds."
        else:
            part = ", and of its part of the batch before the step's update" if measure == LOSS else ""
            note = f"Of rank 0{part}, in the first round that is finished."
        several = len(self.measure) > 1
        return Table.of(
            f"{name}-{measure}" if several else name, self.title, columns, range(rows), note + self.sources()
        )

    # Drawings

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        if self.measure == [PHASES]:
            return [draw(name, self.title, blocks.figure, blocks.of(results.cells, self.every))]
        if self.by == "time":
            return [draw(name, self.title, self._over_time, results)]
        if self.reference:
            return [draw(name, self.title, self._distance_figure, results)]
        several = len(self.measure) > 1
        return [
            draw(f"{name}-{each}" if several else name, self.title, partial(self._curves, each), results)
            for each in self.measure
        ]

    def _curves(self, measure: str, results: Results) -> tuple[Chart, str]:
        if self.by == "epoch":
            scores = [(cell.name, _by_epoch(cell, measure)) for cell in results.cells]
            lines = [series(name, range(1, len(values) + 1), values) for name, values in scores]
            up = Axis(measure.replace("_", " "), OF_EPOCH[measure].unit.axis, zero=False)
            chart = curves(self.title, "epoch", up, lines, "no epoch has this score.")
            return chart, f"Medians over rounds.{remarks(lines, 'epochs')}"
        courses = [(cell.name, _of_all_ranks(cell.first, measure)) for cell in results.cells]
        lines = [series(name, range(len(own)), own) for name, own in courses]
        up = Axis("loss", zero=False) if measure == LOSS else Axis(measure.replace("_", " "), "s")
        whose = (
            "Of each step's global batch; without synchronisation, the mean over the ranks' own models"
            if measure == LOSS
            else "The mean over ranks"
        )
        missing = "no step has this figure." if results.cells else "no run is finished."
        chart = curves(self.title, "step", up, lines, missing)
        return chart, f"{whose}. In the first round that is finished.{remarks(lines)}"

    def _distance_figure(self, results: Results) -> tuple[Chart, str]:
        lines = []
        for each in self._distances(results):
            distances = next(iter(each.rounds.values()), [])
            lines.append(series(each.cell, range(len(distances)), [apart or None for apart in distances]))
        if not lines:
            raise Missing("no other cell has a finished run.")
        none = f"no loss differs from that of {self.reference}, or no round has both."
        up = Axis("relative difference of the loss", log=True)
        return curves(self.title, "step", up, lines, none, [(self.rounding, "rounding")]), (
            f"From {self.reference}, in the first round that has both; dotted: what rounding explains. "
            f"Losses that are the same to the last digit have no place on this axis.{remarks(lines)}"
        )

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


def _at(values: Sequence[float | None], row: int) -> float | None:
    return values[row] if row < len(values) else None


def _by_epoch(cell: MeasuredCell, measure: str) -> list[float | None]:
    """The median over rounds; None where a round lacks it."""
    rounds = ([each[OF_EPOCH[measure]] for each in run.summary.run.epochs] for run in cell.runs)
    return [median(epoch) if None not in epoch else None for epoch in zip(*rounds, strict=False)]


def _of_rank_0(run: Run, measure: str) -> list[float | None]:
    return [getattr(step, measure) for step in run.ranks[0].steps]


def _of_all_ranks(run: Run, measure: str) -> Sequence[float | None]:
    if measure == LOSS:
        return run.summary.losses
    steps = [[getattr(step, measure) for step in each] for each in together([rank.steps for rank in run.ranks])]
    return [mean(each) if None not in each else None for each in steps]


def _apart(results: Results) -> Iterator[str]:
    """How far the losses lie apart that are of the same images in the same batches."""
    alike: dict[tuple[str, str, int], list[MeasuredCell]] = {}
    for cell in results.cells:
        run = cell.first.summary
        alike.setdefault((run.model, run.dataset, run.global_batch_size), []).append(cell)
    several = len({(model, dataset) for model, dataset, _ in alike}) > 1
    compared = False
    for (model, dataset, batch), cells in alike.items():
        pairs = [largest for pair in combinations(cells[:MOST_COMPARED], 2) if (largest := _largest(results, *pair))]
        if not pairs:
            continue
        compared = True
        apart, where = max(pairs, key=lambda pair: pair[0])
        what = f"the losses of {listed([cell.name for cell in cells[:MOST_COMPARED]])}"
        kind = f"With a global batch of {batch}" + (f" ({model}, {dataset})" if several else "")
        if apart:
            yield f"{kind}, {what} lie at most {digits(apart)} apart at the same step of the same round: {where}."
        else:
            yield f"{kind}, {what} are the same to the last digit at every step."
    if not compared:
        yield "No two cells have the same global batch in the same round: their losses are not compared."


def _largest(results: Results, one: Cell, other: Cell) -> tuple[float, str] | None:
    """How far two cells lie apart at most, and where, in the first round that has both."""
    for number, runs in results.together(one.name, other.name).items():
        pairs = list(zip(*(run.summary.losses for run in runs), strict=False))
        step = max(range(len(pairs)), key=lambda place: abs(pairs[place][0] - pairs[place][1]))
        first, second = pairs[step]
        return abs(first - second), (
            f"in round {number}, at step {step}, {one.name} has {digits(first)} and {other.name} {digits(second)}"
        )
    return None
