"""The loss every so many steps, as consoles print it, and the curves of all cells."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from pydantic import Field

from app.analysis.units import COUNT, digits
from app.pages.chart import Chart
from app.pages.scale import Axis
from app.pages.series import series
from app.pages.table import Column, Table
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import PRINTED
from app.tools.experiment.views.drawn import curves, remarks
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listed


class Losses(View):
    """The loss by step."""

    every: int = Field(20, ge=1, description="steps between two rows of the table")
    published: Published | None = Field(
        None, description="rank 0's losses, by cell: a list of those at step 0 and after each so many steps"
    )

    def _sentences(self, results: Results) -> Iterator[str]:
        yield from _distances(results)
        ends = [f"{digits(cell.first.summary.losses[-1])} ({cell.name})" for cell in results.cells]
        yield f"The losses of the last steps: {', '.join(ends)}."

    def _tables(self, results: Results, name: str) -> list[Table]:
        def column(heading: str, name: str, losses: Sequence[float | None]) -> Column[int]:
            return Column(heading, name, PRINTED, lambda row: losses[row] if row < len(losses) else None)

        columns: list[Column[int]] = [Column("step", "step", COUNT, lambda row: row * self.every)]
        rows = 0
        for cell in results.cells:
            own = [step.loss for step in cell.first.ranks[0].steps[:: self.every]]
            columns.append(column(cell.name, f"loss_{cell.slug}", own))
            theirs = self.published.values.get(cell.name) if self.published else None
            if isinstance(theirs, list):
                columns.append(column("published", f"published_{cell.slug}", theirs))
            rows = max(rows, len(own), len(theirs) if isinstance(theirs, list) else 0)
        note = "Of rank 0's part of the batch, before the step's update, in the first round that is finished."
        return [Table.of(name, self.title, columns, range(rows), note + self._sources())]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        losses = {cell.name: cell.first.summary.losses for cell in results.cells}
        lines = [series(name, range(len(own)), own) for name, own in losses.items()]
        return curves(self.title, "step", Axis("loss", zero=False), lines, "no run is finished."), (
            "Of each step's global batch, in the first round that is finished; without synchronisation, the mean over "
            f"the ranks' own models.{remarks(lines)}"
        )


def _distances(results: Results) -> list[str]:
    """How far the curves lie apart that are of the same images in the same batches."""
    alike: dict[tuple[str, str, int], list[MeasuredCell]] = {}
    for cell in results.cells:
        run = cell.first.summary
        alike.setdefault((run.model, run.dataset, run.global_batch_size), []).append(cell)
    several = len({(model, dataset) for model, dataset, _ in alike}) > 1
    sentences = []
    for (model, dataset, batch), cells in alike.items():
        pairs = [largest for pair in combinations(cells, 2) if (largest := _largest(results, *pair))]
        if not pairs:
            continue
        apart, where = max(pairs, key=lambda pair: pair[0])
        names = listed([cell.name for cell in cells])
        kind = f"With a global batch of {batch}" + (f" ({model}, {dataset})" if several else "")
        if apart:
            sentences.append(
                f"{kind}, the losses of {names} lie at most {digits(apart)} apart at the same step of "
                f"the same round: {where}."
            )
        else:
            sentences.append(f"{kind}, the losses of {names} are the same to the last digit at every step.")
    return sentences or ["No two cells have the same global batch in the same round: their losses are not compared."]


def _largest(results: Results, one: Cell, other: Cell) -> tuple[float, str] | None:
    """How far two cells lie apart at most, and where, in the first round that has both."""
    for number, runs in results.together(one.name, other.name).items():
        pairs = list(zip(*(run.summary.losses for run in runs), strict=False))
        step = max(range(len(pairs)), key=lambda place: abs(pairs[place][0] - pairs[place][1]))
        first, second = pairs[step]
        apart = abs(first - second)
        return apart, (
            f"in round {number}, at step {step}, {one.name} has {digits(first)} and {other.name} {digits(second)} "
            f"({digits(100 * apart / (max(first, second) or 1))} %)"
        )
    return None
