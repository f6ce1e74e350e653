"""What a step is made of by cell, whole and in blocks of steps: what is computed, what communication costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from pydantic import Field

from app.analysis.run import Run
from app.analysis.statistics import Interval
from app.analysis.units import COUNT, PERCENT, SECONDS, TEXT
from app.analysis.words import duration, percent
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.intervals import with_interval
from app.pages.phases import MeanSeconds, phase_bars
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.series import left_out, series, thinned
from app.pages.table import Column, Table
from app.pages.traces import Panel
from app.records.lines import PHASES, Step
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, STEPS, measured, told
from app.tools.experiment.views.drawn import curve, whole
from app.tools.experiment.views.measures import COMMUNICATION, HIDDEN, mean_step_seconds, phase_seconds, ratio, share
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listing, noise_sentence, times

PARTS: dict[str, tuple[str, ...]] = {  # the phases of a block's parts; the last one gives the colour
    "forward": ("forward",),
    "backward": ("backward",),
    "communication": COMMUNICATION,
    "optimiser": ("optimiser",),
}
MOST_PANELS = 12


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
        means = [float(np.mean(known)) for known in taken if known]
        return median(means) if means else None


class Phases(View):
    """Seconds of each phase by cell."""

    baseline: str | None = Field(None, description="the cell whose forward pass the others' is related to")
    block: int = Field(20, ge=1, description="steps that are taken together for the course over time")
    published: Published | None = Field(None, description="how many times shorter forward is than the baseline's")

    def _sentences(self, results: Results) -> Iterator[str]:
        yield _about_backward(results)
        yield from self._about_forward(results)
        yield from _about_communication(results)
        yield from _about_hiding(results)

    def _about_forward(self, results: Results) -> Iterator[str]:
        blocks = results.blocks(phase_seconds("forward"))
        parts = []
        for cell in results.cells:
            comparison = blocks.compare(self.baseline, cell.name)
            if cell.name == self.baseline or comparison is None:
                continue
            if comparison.beyond_noise is False:
                parts.append(f"no difference beyond the noise to {cell.name}: {times(comparison)}")
            else:
                parts.append(f"{times(comparison)} that of {cell.name}")
        if parts:
            yield f"The forward pass of {self.baseline} takes {'; '.join(parts)}."
            yield noise_sentence(blocks, results, what="forward")

    def _blocks(self, results: Results) -> list[BlockOfSteps]:
        return [block for cell in results.cells for block in _blocks_of(cell, self.block)]

    @property
    def _title_of_blocks(self) -> str:
        return f"Phases by block of {self.block} steps"

    def _tables(self, results: Results, name: str) -> list[Table]:
        forward = results.blocks(phase_seconds("forward"))

        def times_shorter(cell: MeasuredCell) -> Interval | None:
            return forward.compare(self.baseline, cell.name)

        columns = [
            CELL,
            STEPS,
            measured("step (mean)", "mean_seconds", mean_step_seconds, SECONDS),
            *(measured(phase, f"{phase}_seconds", phase_seconds(phase), SECONDS) for phase in PHASES),
            measured("hidden sync", f"{HIDDEN}_seconds", phase_seconds(HIDDEN), SECONDS),
            measured("backward of the step", "backward_share", share("backward"), PERCENT),
            measured("wait and sync of the step", "communication_share", share(*COMMUNICATION), PERCENT),
        ]
        if self.baseline:
            columns += with_interval(f"forward, {self.baseline} by it", "forward_ratio", times_shorter)
        if self.published:
            columns.append(told("forward_ratio", self.published))
        note = (
            f"Means {definitions.BUT_THE_FIRST}, then the median over rounds, in each of which the phases add up. "
            f"{definitions.PHASES}"
        )
        return [
            Table.of(name, self.title, [*columns, ROUNDS], results.cells, note + self._sources()),
            _blocks_table(self._blocks(results), f"{name}-blocks", self._title_of_blocks),
        ]

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return [
            draw(name, self.title, self._figure, results),
            draw(f"{name}-blocks", self._title_of_blocks, _blocks_figure, self._blocks(results)),
        ]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        rows = [(cell.name, _mean_seconds(cell)) for cell in results.cells]
        hidden = definitions.HIDDEN_BAR if any(row["hidden_sync"] for _, row in rows) else ""
        caption = f"Mean seconds of each phase {definitions.BUT_THE_FIRST}, the median over rounds. "
        return phase_bars(self.title, rows), f"{caption}{definitions.WAIT_AND_SYNC}{hidden}"


def _mean_seconds(cell: MeasuredCell) -> MeanSeconds:
    phases = {phase: cell.middle(phase_seconds(phase)) for phase in (*PHASES, HIDDEN)}
    return phases | {"step": cell.middle(mean_step_seconds)}


def _about_backward(results: Results) -> str:
    known = [(cell, part) for cell in results.cells if (part := cell.middle(share("backward"))) is not None]
    if not known:
        return "Nothing can be said about phases: no step but the first is there."
    longest = [cell.name for cell, _ in known if all(map(_is_backward_longest, cell.runs))]
    where = f"in every round of {', '.join(longest)}, but not of the others" if longest else "in every round of no cell"
    if len(longest) == len(known):
        where = "in every round of every cell"
    parts = ", ".join(f"{percent(part)} in {cell.name}" for cell, part in known)
    return f"Backward is the longest phase {where}: of the step it is {parts}."


def _is_backward_longest(run: Run) -> bool:
    seconds = {phase: phase_seconds(phase)(run) or 0.0 for phase in PHASES}
    return max(seconds, key=lambda phase: seconds[phase]) == "backward"


def _about_communication(results: Results) -> Iterator[str]:
    parts = []
    for cell in results.cells:
        seconds, part = cell.middle(phase_seconds(*COMMUNICATION)), cell.middle(share(*COMMUNICATION))
        waiting = cell.middle(phase_seconds("wait"))
        if seconds is not None and part is not None and cell.world_size > 1:
            waited = "" if waiting is None else f", {duration(waiting)} of it waiting for the slowest rank"
            parts.append(f"{cell.name} {duration(seconds)} ({percent(part)}{waited})")
    yield from listing("Communication that delays a step costs", parts)


def _about_hiding(results: Results) -> Iterator[str]:
    for cell in results.cells:
        hidden, exposed = cell.middle(phase_seconds(HIDDEN)), cell.middle(phase_seconds("sync"))
        part = cell.middle(ratio(phase_seconds(HIDDEN), phase_seconds(HIDDEN, "sync")))
        if part is not None and hidden is not None and exposed is not None and cell.world_size > 1:
            yield (
                f"{cell.name} hides {percent(part)} of its synchronisation behind backward: {duration(hidden)} a "
                f"step are hidden, {duration(exposed)} are not."
            )


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


def _blocks_table(blocks: Sequence[BlockOfSteps], name: str, title: str) -> Table:
    """A row for each block of each cell."""

    def seconds(part: str) -> Column[BlockOfSteps]:
        return Column(part, f"{part}_seconds", SECONDS, lambda block: block.seconds(part))

    columns: list[Column[BlockOfSteps]] = [
        Column("", "cell", TEXT, lambda block: block.cell),
        Column("from step", "first_step", COUNT, lambda block: block.first),
        Column("to", "last_step", COUNT, lambda block: block.last),
        *map(seconds, PARTS),
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
