"""What a step is made of by cell, whole and in blocks of steps: what is computed, what communication costs."""

from collections.abc import Iterator

from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.reading.results import Results
from app.experiment.views import step_blocks
from app.experiment.views.measures import (
    COMMUNICATION,
    hidden_share,
    longest_phase,
    mean_seconds,
    mean_step_seconds,
    share,
)
from app.experiment.views.view import (
    Published,
    Section,
    View,
    cell_column,
    estimate_columns,
    estimate_values,
    interval,
    middle,
    missing_sentences,
    noise_sentence,
)
from app.records.summary import PHASES
from app.report.drawing import draw
from app.report.figures import stacked_phases
from app.report.table import Column, Table, Value, digits, percent
from app.summary.verdict import percent as in_percent

HIDDEN = "hidden_sync"


class Phases(View):
    """Seconds of each phase by cell."""

    baseline: str | None = Field(None, description="the cell whose forward pass the others' is related to")
    block: int = Field(20, ge=1, description="steps that are taken together for the course over time")
    published: Published | None = Field(None, description="how many times shorter forward is than the baseline's")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        return [*([self.baseline] if self.baseline else []), *(self.published.values if self.published else [])]

    def section(self, results: Results, name: str) -> Section:
        """Two tables and two figures: of the whole run, and by block of steps."""
        by_block = step_blocks.of_cells(results, self.block)
        title = f"Phases by block of {self.block} steps"
        return Section(
            name,
            self.title,
            [*self._sentences(results), *([self.note] if self.note else [])],
            [
                draw(name, self.title, _figure, results, png=True),
                draw(f"{name}-blocks", title, step_blocks.figure, by_block, png=True),
            ],
            [self._table(results, name), step_blocks.table(by_block, f"{name}-blocks", title)],
        )

    def _sentences(self, results: Results) -> Iterator[str]:
        yield from _about_backward(results)
        yield from self._about_forward(results)
        yield from _about_communication(results)
        yield from _about_hiding(results)
        yield from missing_sentences(results)

    def _about_forward(self, results: Results) -> Iterator[str]:
        if not self.baseline:
            return
        blocks = results.blocks(mean_seconds("forward"))
        parts = []
        for cell in results.cells:
            comparison = blocks.compare(self.baseline, cell.name)
            if cell.name == self.baseline or comparison is None:
                continue
            times = f"{digits(comparison.value)} times{interval(comparison)}"
            if comparison.beyond_noise is False:
                parts.append(f"no difference beyond the noise to {cell.name}: {times}")
            else:
                parts.append(f"{times} that of {cell.name}")
        if parts:
            yield f"The forward pass of {self.baseline} takes {'; '.join(parts)}."
            yield noise_sentence(blocks, results, what="forward")

    def _table(self, results: Results, name: str) -> Table:
        blocks = results.blocks(mean_seconds("forward"))
        columns = [
            cell_column(),
            Column("s/step (mean)", "mean_seconds", digits),
            *(Column(phase, f"{phase}_seconds", digits) for phase in PHASES),
            Column("hidden sync", f"{HIDDEN}_seconds", digits),
            Column("backward of the step", "backward_share", percent),
            Column("wait and sync of the step", "communication_share", percent),
        ]
        if self.baseline:
            columns += estimate_columns(f"forward, {self.baseline} by it", "forward_ratio")
        if self.published:
            columns.append(Column("published", "published_forward_ratio", digits))
        rows: list[list[Value]] = []
        for cell in results.cells:
            runs = results.runs(cell.name)
            figures = [mean_step_seconds, *map(mean_seconds, (*PHASES, HIDDEN)), share("backward")]
            row: list[Value] = [cell.name, *(middle(runs, each) for each in (*figures, share(*COMMUNICATION)))]
            row += estimate_values(blocks.compare(self.baseline, cell.name)) if self.baseline else []
            row += [self.published.of(cell.name)] if self.published else []
            rows.append([*row, len(runs)])
        note = (
            "Mean seconds of each phase over all ranks and all steps but the first, then the median over rounds: data "
            "to optimiser add up to the step in each round. Wait: until the slowest rank has arrived. Sync: what is "
            "then left to do. Hidden sync runs behind backward and is in none of the others."
        )
        if self.published:
            note += f" Published: {self.published.source}."
        return Table(name, self.title, [*columns, Column("rounds", "rounds", digits)], rows, note)


def _figure(results: Results) -> tuple[Figure, str]:
    rows = []
    for cell in results.cells:
        runs = results.runs(cell.name)
        means = {phase: middle(runs, mean_seconds(phase)) for phase in (*PHASES, HIDDEN)}
        rows.append((cell.name, means | {"step": middle(runs, mean_step_seconds)}))
    hidden = " Violet: synchronisation hidden behind backward." if any(row[HIDDEN] for _, row in rows) else ""
    return stacked_phases(rows), f"Mean seconds of each phase over ranks and steps, the median over rounds.{hidden}"


def _about_backward(results: Results) -> Iterator[str]:
    shares = {cell.name: middle(results.runs(cell.name), share("backward")) for cell in results.cells}
    known = {cell: value for cell, value in shares.items() if value is not None}
    if not known:
        yield "Nothing can be said about phases: no step but the first is there."
        return
    longest = [cell for cell in known if all(longest_phase(run) == "backward" for run in results.runs(cell))]
    where = (
        "in every round of every cell"
        if len(longest) == len(known)
        else f"in every round of {', '.join(longest)}, but not of the others"
        if longest
        else "in every round of no cell"
    )
    parts = ", ".join(f"{in_percent(value)} in {cell}" for cell, value in known.items())
    yield f"Backward is the longest phase {where}: of the step it is {parts}."


def _about_communication(results: Results) -> Iterator[str]:
    parts = []
    for cell in results.cells:
        runs = results.runs(cell.name)
        seconds, part = middle(runs, mean_seconds(*COMMUNICATION)), middle(runs, share(*COMMUNICATION))
        waiting = middle(runs, mean_seconds("wait"))
        if seconds is not None and part is not None and cell.world_size > 1:
            waited = "" if waiting is None else f", {digits(waiting)} s of it waiting for the slowest rank"
            parts.append(f"{cell.name} {digits(seconds)} s ({in_percent(part)}{waited})")
    if parts:
        yield f"Communication that delays a step costs: {'; '.join(parts)}."


def _about_hiding(results: Results) -> Iterator[str]:
    for cell in results.cells:
        runs = results.runs(cell.name)
        part, hidden = middle(runs, hidden_share), middle(runs, mean_seconds(HIDDEN))
        exposed = middle(runs, mean_seconds("sync"))
        if part is not None and hidden is not None and exposed is not None and cell.world_size > 1:
            yield (
                f"{cell.name} hides {in_percent(part)} of its synchronisation behind backward: {digits(hidden)} s a "
                f"step are hidden, {digits(exposed)} s are not."
            )
