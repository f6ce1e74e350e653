"""Seconds per step by cell: medians over rounds with their intervals, ratios, published figures beside them."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from pydantic import Field

from app.analysis.statistics import Blocks
from app.analysis.units import DIGITS, SECONDS
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.results import Results
from app.tools.experiment.views.columns import CELL, ROUNDS, STEPS, compared, estimated, measured, told
from app.tools.experiment.views.drawn import bar, bars
from app.tools.experiment.views.measures import first_step_seconds, mean_to, step_seconds
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import difference_sentence, noise_sentence, times


class Times(View):
    """Seconds per step by cell."""

    baseline: str | None = Field(None, description="the cell that the others are related to")
    among: list[str] | None = Field(None, description="cells whose order is put in words [all but the baseline]")
    first_steps: list[int] = Field(
        [],
        description="means over the first so many steps as well, without the very first, as some documents have them",
    )
    published: Published | None = Field(None, description="seconds per step, by cell")

    def _planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return []  # the table shows what is there

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks = results.blocks(step_seconds)
        order = blocks.ranked(self.among or [cell.name for cell in results.cells if cell.name != self.baseline])
        yield from _slowest_first(blocks, order)
        if self.baseline and order and (least := blocks.compare(self.baseline, order[-1])):
            yield difference_sentence(least, self.baseline, order[-1])
        yield from self._published_order(blocks, order)
        yield noise_sentence(blocks, results)

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
        judged = [f"{verdict}: {', '.join(pairs)}" for verdict, pairs in verdicts.items() if pairs]
        yield f"Published, the slowest first: {', '.join(order)}. Of that, {'; '.join(judged)}."

    def _tables(self, results: Results, name: str) -> list[Table]:
        blocks, base, published = results.blocks(step_seconds), self.baseline, self.published
        columns = [
            CELL,
            STEPS,
            *estimated("step", "seconds", blocks, SECONDS),
            measured("first step", "first_step_seconds", first_step_seconds, SECONDS),
            *(
                measured(f"mean of 2 to {each}", f"mean_to_{each}_seconds", mean_to(each), SECONDS)
                for each in self.first_steps
            ),
            *compared(f"by {base}", "ratio", blocks, base),
        ]
        if published:
            columns.append(told("seconds", published, SECONDS))
        if published and base:
            heading = f"published, by {base}"
            columns.append(Column(heading, "published_ratio", DIGITS, lambda cell: published.ratio(cell.name, base)))
        note = (
            f"Step: the median {definitions.BUT_THE_FIRST} of a run, then the median over rounds, with "
            f"{definitions.INTERVALS}. The first step is shown apart, because it sets everything up."
        )
        return [Table.of(name, self.title, [*columns, ROUNDS], results.cells, note + self._sources())]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        cells, blocks = [cell.name for cell in results.cells], results.blocks(step_seconds)
        published = self.published if self.baseline in cells else None
        base = self.baseline if published else None
        x = Axis(f"time per step, {base} is 1") if base else Axis("time per step", "s")
        rows = [
            bar(
                cell, blocks.compare(cell, base) if base else blocks.estimate(cell), x.unit,
                published.ratio(cell, base) if published else None,
            )
            for cell in cells
        ]  # fmt: skip
        caption = f"Medians over rounds; lines are {definitions.INTERVALS}.{self._sources() if base else ''}"
        return bars(self.title, x, rows), caption


def _slowest_first(blocks: Blocks, order: Sequence[str]) -> Iterator[str]:
    """The slowest, with those that the noise does not tell from it; then each beside the next."""
    against = {cell: comparison for cell in order[1:] if (comparison := blocks.compare(order[0], cell))}
    if not against:
        return
    alike = [cell for cell, each in against.items() if not each.beyond_noise]
    faster = [cell for cell in against if cell not in alike]
    every = ", ".join(sorted(order))
    if blocks.noise is None:
        yield f"{order[0]} was the slowest of {every}, in a single round."
    elif not faster:
        yield f"Between {', '.join(order[:-1])} and {order[-1]} there is no difference beyond the noise."
    else:
        lead = f"takes {times(against[faster[0]])} what the next, {faster[0]}, takes"
        if alike:
            yield (
                f"{', '.join([order[0], *alike[:-1]])} and {alike[-1]} are the slowest of {every}, "
                f"with no difference beyond the noise between them; {order[0]} {lead}."
            )
        else:
            yield f"{order[0]} is the slowest of {every}: it {lead}."
    for slower, quicker in pairwise(order):
        if comparison := blocks.compare(slower, quicker):
            yield difference_sentence(comparison, slower, quicker)
