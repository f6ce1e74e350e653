"""The course of a run by cell: over its steps, its epochs, or the time that it takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import mean, median
from typing import Any, Literal

from pydantic import Field, model_validator

from app.analysis import measures
from app.analysis.on_request import label
from app.analysis.run import Run
from app.analysis.run_records import together
from app.analysis.units import COUNT, DIGITS, PERCENT, SECONDS, TEXT, Unit, digits
from app.machine.say import shown
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.drawn import curve, curves, remarks, whole
from app.pages.findings import axis_of, listed
from app.pages.plot import Plot
from app.pages.scale import Axis, written
from app.pages.series import Series, left_out, of_usage, series, thinned
from app.pages.table import Column, Table
from app.pages.traces import Panel
from app.records.lines import Step
from app.settings.explanations import hint
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views import distance
from app.tools.experiment.views.distance import Distance
from app.tools.experiment.views.view import View

LOSS = "loss"
PHASES = "phases"
PARTS: dict[str, tuple[str, ...]] = {  # the phases of a block's parts; the last one gives the colour
    "forward": ("forward",),
    "backward": ("backward",),
    "communication": ("wait", "sync"),
    "optimiser": ("optimiser",),
}
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
MOST_PANELS = 12
PRINTED = Unit(lambda loss: f"{loss:.4f}")  # as a console prints losses


class CurveView(View):
    """The course of a run by cell."""

    kind: Literal["curve"]
    by: Literal["step", "epoch", "time"] = Field("step", description="what the course is over [step]")
    every: int = Field(
        20, ge=1, description="steps between two rows of the table; of `phases`, steps that are taken together [20]"
    )
    reference: str | None = Field(
        None, description="a cell: how far the losses of the others are from its, step by step, by its size"
    )
    rounding: float = Field(1e-6, gt=0, description="relative difference of losses that rounding explains [1e-6]")
    among: list[str] | None = Field(None, description="with a reference, the cells that are shown [all]")

    @model_validator(mode="after")
    def _consistent(self) -> "CurveView":
        for name in self.measure:
            if name not in KNOWN[self.by]:
                raise ValueError(f"unknown measure '{shown(name)}' by {self.by}. {hint(name, KNOWN[self.by])}")
        if (self.reference or PHASES in self.measure) and len(self.measure) > 1:
            raise ValueError("a reference and phases need a measure of their own")
        lists = all(isinstance(values, list) for each in self.published for values in each.values.values())
        if self.published and (not lists or self.reference or self.by == "time" or PHASES in self.measure):
            raise ValueError("published figures of a curve are lists, one figure for each row of its table")
        if self.reference and self.measure != [LOSS]:
            raise ValueError(f"a reference needs measure = '{LOSS}'")
        return self

    def named_cells(self) -> list[str]:
        own = [*([self.reference] if self.reference else []), *(self.among or [])]
        return list(dict.fromkeys([*own, *super().named_cells()]))

    def planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return [each for each in cells if self.among is None or each.name in (*self.among, self.reference)]

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
            unit = axis_of(OF_EPOCH[name].unit)
            words = [f"{written(value, unit)} ({cell})" for cell, value in last.items() if value is not None]
            yield f"At the end, {label(OF_EPOCH[name])}: {', '.join(words) or 'no cell has it'}."

    def _distances(self, results: Results) -> list[Distance]:
        planned = [cell.name for cell in self.planned(results.grid.cells)]
        names = [cell.name for cell in results.cells if cell.name in planned and cell.name != self.reference]
        return [Distance.of(results, name, self.reference or "") for name in names]

    # Tables

    def tables(self, results: Results, name: str) -> list[Table]:
        if self.reference:
            return [distance.table(results, self._distances(results), self.reference, name, self.title)]
        if self.measure == [PHASES]:
            return [_blocks_table(self._blocks(results), name, self.title)]
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
            lists = [own, *(told for each in self.published if (told := each.several(cell.name)))]
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
            return [draw(name, self.title, _blocks_figure, self._blocks(results))]
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
            up = Axis(measure.replace("_", " "), axis_of(OF_EPOCH[measure].unit), zero=False)
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
            raise Missing("there is no other cell.")
        none = f"no loss differs from that of {self.reference}, or no round has both."
        up = Axis("relative difference of the loss", log=True)
        return curves(self.title, "step", up, lines, none, [(self.rounding, "rounding")]), (
            f"From {self.reference}, in the first round that has both; dotted: what rounding explains. "
            f"Losses that are the same to the last digit have no place on this axis.{remarks(lines)}"
        )

    def _over_time(self, results: Results) -> tuple[Chart, str]:
        """A panel for each cell: a line for each of several measures, or for each rank."""
        cells = results.cells[:MOST_PANELS]
        found = {cell.name: self._samples(cell.first) for cell in cells}
        every = [each for lines in found.values() for own in lines.values() for each in own]
        if not any(not each.empty for each in every):
            raise Missing("no sample is there, or the interface is shared with others.")
        panels = [
            Panel([curve(name, *own, most_marks=1) for name, own in lines.items()], cell)
            for cell, lines in found.items()
        ]
        what = listed([measure.replace("_", " ") for measure in self.measure])
        chart = Plot(
            f"{what} over time, by cell",
            Axis("time since the run began", "s"),
            Axis(what, OF_TIME[self.measure[0]]),
            panels,
        )
        cut = left_out(len(results.cells), MOST_PANELS, "cells")
        return chart, f"Of each rank, by sample, in the first round that is finished.{cut}{thinned(every, 'samples')}"

    def _samples(self, run: Run) -> dict[str, list[Series]]:
        if len(self.measure) > 1:
            return {name: [of_usage(rank, name, name) for rank in run.ranks] for name in self.measure}
        return {f"rank {rank.rank}": [of_usage(rank, "", self.measure[0])] for rank in run.ranks}

    # Phases, block by block

    def _blocks(self, results: Results) -> "list[BlockOfSteps]":
        return [block for cell in results.cells for block in _blocks_of(cell, self.every)]


def _at(values: Sequence[float | None], row: int) -> float | None:
    return values[row] if row < len(values) else None


def _by_epoch(cell: MeasuredCell, measure: str) -> list[float | None]:
    """The median over rounds; None where a round lacks it."""
    values: list[float | None] = []
    for epoch in zip(
        *([each[OF_EPOCH[measure]] for each in run.summary.run.epochs] for run in cell.runs), strict=False
    ):
        known = [each for each in epoch if each is not None]
        values.append(median(known) if len(known) == len(epoch) else None)
    return values


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
        pairs = [largest for pair in combinations(cells, 2) if (largest := _largest(results, *pair))]
        if not pairs:
            continue
        compared = True
        apart, where = max(pairs, key=lambda pair: pair[0])
        what = f"the losses of {listed([cell.name for cell in cells])}"
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


@dataclass(frozen=True)
class BlockOfSteps:
    """Some steps of a cell, one after another; the first step of a run is number 1."""

    cell: str
    first: int
    last: int
    rounds: list[list[Step]]  # the steps of all ranks, by round

    def seconds(self, part: str) -> float | None:
        """Of a step: the mean over ranks and steps, then the median over rounds."""
        taken = [[each for step in steps if (each := _seconds(step, PARTS[part])) is not None] for steps in self.rounds]
        means = [mean(known) for known in taken if known]
        return median(means) if means else None


def _seconds(step: Step, phases: Sequence[str]) -> float | None:
    measured = [each for phase in phases if (each := getattr(step, f"{phase}_seconds")) is not None]
    return sum(measured) if measured else None


def _blocks_of(cell: MeasuredCell, size: int) -> list[BlockOfSteps]:
    """A cell's blocks; the first step of a run is in none, because it sets everything up."""
    lengths = [min(len(rank.steps) for rank in run.ranks) for run in cell.runs]
    found = []
    for begin in range(0, max(lengths), size):
        first, end = max(begin, 1), begin + size
        rounds = [
            [step for rank in run.ranks for step in rank.steps[first : min(end, length)]]
            for run, length in zip(cell.runs, lengths, strict=True)
        ]
        if there := [steps for steps in rounds if steps]:
            found.append(BlockOfSteps(cell.name, first + 1, min(end, max(lengths)), there))
    return found


def _block_seconds(part: str, block: BlockOfSteps) -> float | None:
    return block.seconds(part)


def _blocks_table(blocks: Sequence[BlockOfSteps], name: str, title: str) -> Table:
    """A row for each block of each cell."""
    columns: list[Column[Any]] = [
        Column("", "cell", TEXT, lambda block: block.cell),
        Column("from step", "first_step", COUNT, lambda block: block.first),
        Column("to", "last_step", COUNT, lambda block: block.last),
        *(Column(part, f"{part}_seconds", SECONDS, partial(_block_seconds, part)) for part in PARTS),
        Column("rounds", "rounds", COUNT, lambda block: len(block.rounds)),
    ]
    note = (
        "Per step: the mean over the block's steps and all ranks, then the median over rounds. Communication: wait and "
        "sync. The very first step is left out, because it sets everything up."
    )
    return Table.of(name, title, columns, blocks, note)


def _blocks_figure(blocks: Sequence[BlockOfSteps]) -> tuple[Chart, str]:
    """A panel for each cell, a line for each part of a step."""
    if not blocks:
        raise Missing("no step but the first is there.")
    cells = list(dict.fromkeys(block.cell for block in blocks))
    panels, lines = [], []
    for cell in cells[:MOST_PANELS]:
        own = [block for block in blocks if block.cell == cell]
        last = [block.last for block in own]
        parts = [series(part, last, [block.seconds(part) for block in own]) for part in PARTS]
        panels.append(Panel([curve(each.name, each, role=PARTS[each.name][-1]) for each in parts], cell))
        lines += parts
    x, y = whole("last step of the block", lines), Axis("time per step", "s")
    words = f"Phases by block of steps: {y.title} of {', '.join(PARTS)}, by cell"
    return Plot(words, x, y, panels), (
        "Mean seconds per step of each block, by the number of its last step; medians over rounds."
        f"{left_out(len(cells), MOST_PANELS, 'cells')}{thinned(lines, 'blocks')}"
    )
