"""The loss every so many steps, as consoles print it, and the curves of all cells."""

from itertools import combinations

from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Measured, Results
from app.experiment.views.learned import as_printed, left_out, line_figure, listed, losses
from app.experiment.views.view import Published, Section, View, missing_sentences
from app.report.drawing import draw
from app.report.series import series
from app.report.table import Column, Table, Value, digits, plain


class Losses(View):
    """The loss by step."""

    every: int = Field(20, ge=1, description="steps between two rows of the table")
    published: Published | None = Field(
        None, description="rank 0's losses, by cell: a list of those at step 0 and after each so many steps"
    )

    def named_cells(self) -> list[str]:
        """Those of its options."""
        return list(self.published.values) if self.published else []

    def section(self, results: Results, name: str) -> Section:
        """The table, the curves, and how far they lie apart."""
        sentences = [
            *_distances(results),
            _last_values(results),
            *missing_sentences(results),
            *([self.note] if self.note else []),
        ]
        return Section(
            name,
            self.title,
            sentences,
            [draw(name, self.title, _figure, results, png=True)],
            [self._table(results, name)],
        )

    def _table(self, results: Results, name: str) -> Table:
        columns, lists = [Column("step", "step", plain)], []
        for cell in results.cells:
            steps = results.first(cell.name).ranks[0].steps
            columns.append(Column(cell.name, f"loss_{cell.slug}", as_printed))
            lists.append([step.loss for step in steps[:: self.every]])
            published = self.published.values.get(cell.name) if self.published else None
            if isinstance(published, list):
                columns.append(Column("published", f"published_{cell.slug}", as_printed))
                lists.append(published)
        rows: list[list[Value]] = [
            [row * self.every, *(values[row] if row < len(values) else None for values in lists)]
            for row in range(max(map(len, lists), default=0))
        ]
        note = "Of rank 0's part of the batch, before the step's update, in the first round that is finished."
        if self.published:
            note += f" Published: {self.published.source}."
        return Table(name, self.title, columns, rows, note)


def _figure(results: Results) -> tuple[Figure, str]:
    lines = [
        series(cell.name, range(len(values)), values)
        for cell in results.cells
        for values in [losses(results.first(cell.name))]
    ]
    figure, _ = line_figure(lines, "step", "loss", "no run is finished.")
    return figure, (
        "Of each step's global batch, in the first round that is finished; without synchronisation, the mean over the "
        f"ranks' own models.{left_out(lines)}"
    )


def _distances(results: Results) -> list[str]:
    """How far the curves lie apart that are of the same images in the same batches."""
    found = []
    alike = _alike(results)
    several = len({(model, dataset) for model, dataset, _ in alike}) > 1
    for (model, dataset, batch), cells in alike.items():
        pairs = [(*pair, largest) for pair in combinations(cells, 2) if (largest := _largest(results, *pair))]
        if not pairs:
            continue
        one, other, (number, step, first, second) = max(pairs, key=lambda pair: abs(pair[2][2] - pair[2][3]))
        names = listed([cell.name for cell in cells])
        kind = f"with a global batch of {batch}" + (f" ({model}, {dataset})" if several else "")
        if first == second:
            found.append(f"{kind.capitalize()}, the losses of {names} are the same to the last digit at every step.")
        else:
            found.append(
                f"{kind.capitalize()}, the losses of {names} lie at most {digits(abs(first - second))} apart at the "
                f"same step of the same round: in round {number}, at step {step}, {one.name} has {digits(first)} and "
                f"{other.name} {digits(second)} ({digits(100 * abs(first - second) / max(first, second))} %)."
            )
    return found or ["No two cells have the same global batch in the same round: their losses are not compared."]


def _alike(results: Results) -> dict[tuple[str, str, int], list[Cell]]:
    found: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in results.cells:
        run = results.first(cell.name).summary
        found.setdefault((run.model, run.dataset, run.global_batch_size), []).append(cell)
    return found


def _largest(results: Results, one: Cell, other: Cell) -> tuple[int, int, float, float] | None:
    """Round, step and losses where two cells lie furthest apart, in the first round that has both."""
    for number in range(1, results.grid.repeats + 1):
        runs = results.run(one.name, number), results.run(other.name, number)
        if runs[0] and runs[1]:
            pairs = list(zip(losses(runs[0]), losses(runs[1]), strict=False))
            step = max(range(len(pairs)), key=lambda place: abs(pairs[place][0] - pairs[place][1]))
            return number, step, *pairs[step]
    return None


def _last_values(results: Results) -> str:
    ends = [f"{digits(_last(run))} ({cell.name})" for cell in results.cells for run in [results.first(cell.name)]]
    return f"The losses of the last steps: {', '.join(ends)}."


def _last(run: Measured) -> float:
    return losses(run)[-1]
