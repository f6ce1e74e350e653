"""Seconds per step by cell: medians over rounds with their intervals, ratios, published figures beside them."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, pairwise

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.reading.results import Measured, Results
from app.experiment.reading.statistics import Blocks
from app.experiment.views.view import (
    Published,
    Section,
    View,
    cell_column,
    difference_sentence,
    estimate_columns,
    estimate_values,
    interval,
    middle,
    noise_sentence,
    ranked,
)
from app.report import theme
from app.report.drawing import Missing, draw
from app.report.table import Column, Table, Value, digits


class Times(View):
    """Seconds per step by cell."""

    baseline: str | None = Field(None, description="the cell that the others are related to")
    among: list[str] | None = Field(None, description="cells whose order is put in words [all but the baseline]")
    first_steps: list[int] = Field(
        [],
        description="means over the first so many steps as well, without the very first, as some documents have them",
    )
    published: Published | None = Field(None, description="seconds per step, by cell")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        published = list(self.published.values) if self.published else []
        return [*([self.baseline] if self.baseline else []), *(self.among or []), *published]

    def section(self, results: Results, name: str) -> Section:
        """The table, the bars, and the order in words."""
        blocks = results.blocks(step_seconds)
        return Section(
            name,
            self.title,
            [*self._sentences(results, blocks), *([self.note] if self.note else [])],
            [draw(name, self.title, lambda subject: self._figure(*subject), (results, blocks), png=True)],
            [self._table(results, blocks, name)],
        )

    def _sentences(self, results: Results, blocks: Blocks) -> list[str]:
        shown = self.among or [cell.name for cell in results.cells if cell.name != self.baseline]
        order = ranked(blocks, shown)
        found = list(_slowest_first(blocks, order))
        if self.baseline and order and (least := blocks.compare(self.baseline, order[-1])):
            found.append(difference_sentence(least, self.baseline, order[-1]))
        return [*found, *self._published_order(blocks, order), noise_sentence(blocks, results)]

    def _published_order(self, blocks: Blocks, cells: Sequence[str]) -> Iterator[str]:
        """Of each pair of cells that the document puts in order, whether it is ours as well."""
        theirs = {cell: value for cell in cells if self.published and (value := self.published.of(cell)) is not None}
        if len(theirs) < 2:
            return
        order = sorted(theirs, key=lambda cell: -theirs[cell])
        verdicts: dict[str, list[str]] = {"found here as well": [], "the other way round here": [], "open": []}
        for slower, faster in combinations(order, 2):
            comparison = blocks.compare(slower, faster)
            if comparison and theirs[slower] > theirs[faster]:
                ours = "found here as well" if comparison.value > 1 else "the other way round here"
                verdicts[ours if comparison.beyond_noise else "open"].append(f"{slower} before {faster}")
        told = [f"{verdict}: {', '.join(pairs)}" for verdict, pairs in verdicts.items() if pairs]
        yield f"Published, the slowest first: {', '.join(order)}. Of that, {'; '.join(told)}."

    def _table(self, results: Results, blocks: Blocks, name: str) -> Table:
        columns = [
            cell_column(),
            *estimate_columns("s/step", "seconds"),
            Column("first step", "first_step_seconds", digits),
            *(Column(f"mean of 2 to {count}", f"mean_to_{count}_seconds", digits) for count in self.first_steps),
        ]
        if self.baseline:
            columns += estimate_columns(f"by {self.baseline}", "ratio")
        if self.published:
            columns.append(Column("published s/step", "published_seconds", digits))
            columns += [Column(f"published, by {self.baseline}", "published_ratio", digits)] if self.baseline else []
        columns.append(Column("rounds", "rounds", digits))
        rows: list[list[Value]] = []
        for cell in results.cells:
            row: list[Value] = [cell.name, *estimate_values(blocks.estimate(cell.name))]
            runs = results.runs(cell.name)
            row.append(middle(runs, first_step_seconds))
            row += [middle(runs, partial(mean_seconds, steps=count)) for count in self.first_steps]
            if self.baseline:
                row += estimate_values(blocks.compare(cell.name, self.baseline))
            if self.published:
                row.append(self.published.of(cell.name))
                row += [self.published.ratio(cell.name, self.baseline)] if self.baseline else []
            rows.append([*row, len(runs)])
        note = (
            "Seconds per step: the median over all ranks and all steps but the first of a run, then the median over "
            "rounds, with its 95 % interval. The first step is shown apart, because it sets everything up."
        )
        if self.published:
            note += f" Published: {self.published.source}."
        return Table(name, self.title, columns, rows, note)

    def _figure(self, results: Results, blocks: Blocks) -> tuple[Figure, str]:
        cells = [cell.name for cell in results.cells]
        if not cells:
            raise Missing("no run is finished.")
        figure = theme.new_figure(1.2 + 0.42 * len(cells))
        axes = figure.subplots()
        places = np.arange(len(cells))
        base = self.baseline if self.published and self.baseline in cells else None
        for place, cell in enumerate(cells):
            shown = blocks.compare(cell, base) if base else blocks.estimate(cell)
            if shown is None:
                continue
            value, low, high = estimate_values(shown)
            axes.barh(
                place, float(value or 0), height=0.55, color=theme.colour(0), label="measured" if not place else None
            )
            if low is not None and high is not None:
                axes.plot([float(low), float(high)], [place, place], color=theme.INK, linewidth=1.2)
            if base and self.published and (published := self.published.ratio(cell, base)) is not None:
                axes.plot(
                    published, place, "D", color=theme.colour(1), markersize=6, label="published" if not place else None
                )
        axes.set_yticks(places, theme.shorten(cells))
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"time per step, {base} is 1" if base else "seconds per step")
        if base:
            theme.legend_above(axes, 2)
        caption = "Medians over rounds; lines are intervals of 95 % confidence."
        return figure, caption + (f" Published: {self.published.source}." if base and self.published else "")


def _slowest_first(blocks: Blocks, order: Sequence[str]) -> Iterator[str]:
    """The slowest, with those that the noise does not tell from it; then each beside the next."""
    against = [comparison for cell in order[1:] if (comparison := blocks.compare(order[0], cell))]
    if not against:
        return
    alike = [cell for cell, each in zip(order[1:], against, strict=True) if not each.beyond_noise]
    faster = [cell for cell in order[1:] if cell not in alike]
    if blocks.noise is None:
        yield f"{order[0]} was the slowest of {', '.join(sorted(order))}, in a single round."
    elif not faster:
        yield f"Between {', '.join(order[:-1])} and {order[-1]} there is no difference beyond the noise."
    else:
        first = blocks.compare(order[0], faster[0])
        lead = f"takes {digits(first.value)} times{interval(first)} what the next, {faster[0]}, takes" if first else ""
        if alike:
            yield (
                f"{', '.join([order[0], *alike[:-1]])} and {alike[-1]} are the slowest of {', '.join(sorted(order))}, "
                f"with no difference beyond the noise between them; {order[0]} {lead}."
            )
        else:
            yield f"{order[0]} is the slowest of {', '.join(sorted(order))}: it {lead}."
    for slower, quicker in pairwise(order):
        if comparison := blocks.compare(slower, quicker):
            yield difference_sentence(comparison, slower, quicker)


def step_seconds(run: Measured) -> float | None:
    """The median over all ranks and steps but the first."""
    spread = run.summary.run.seconds
    return None if spread is None else spread.median


def first_step_seconds(run: Measured) -> float | None:
    """Of the slowest rank."""
    firsts = [rank.first_step.seconds for rank in run.summary.ranks if rank.first_step]
    return max(firsts, default=None)


def mean_seconds(run: Measured, steps: int) -> float | None:
    """The mean over the first so many steps without the very first, as documents count; None where there are fewer."""
    counted = [step.seconds for rank in run.ranks for step in rank.steps[1:steps]]
    whole = all(len(rank.steps) >= steps for rank in run.ranks)
    return float(np.mean(counted)) if counted and whole else None
