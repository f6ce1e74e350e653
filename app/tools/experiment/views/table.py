"""A row for each cell, or for each of its ranks."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from app.analysis import measures
from app.analysis.catalogue import label, named
from app.analysis.figures import Measure
from app.analysis.run import Run
from app.analysis.units import TEXT, digits
from app.pages.findings import listed, listing
from app.pages.scale import written
from app.pages.table import Column, Table
from app.tools.experiment.plan.grid_file import Published
from app.tools.experiment.results import MeasuredCell, Results
from app.tools.experiment.views.view import CELL, ROUNDS, OfMeasures, told_of

SCORES = (measures.TEST_LOSS.name, measures.ACCURACY.name)
SENT, BUSIEST = "sent_in_gradients", "busiest_in_gradients"
WHOLE = 1e-6  # of all gradients; below it, counts differ by a few bytes


class TableView(OfMeasures):
    """A row for each cell, or for each of its ranks."""

    kind: Literal["table"]
    by: Literal["cell", "rank"] = Field("cell", description="what a row is of [cell]")

    def sentences(self, results: Results) -> Iterator[str]:
        names = [each.name for each in self.measures]
        if not results.cells:
            yield "No run is finished."
            return
        if self.by == "rank" and {*SCORES} & {*names}:
            yield from _agreement(results)
        if SENT in names:
            yield from _about_bytes(results)
        if SENT not in names and not (self.by == "rank" and {*SCORES} & {*names}):
            yield from self.judged(results).extent()
        for each in self.published:
            yield from self._beside(results, each, self.measure_of(each))

    def _beside(self, results: Results, published: Published, measure: Measure[Any]) -> Iterator[str]:
        """Where the published figures lie, and ours of the same cells."""
        rows = [row for row in self._rows(results) if row.name in published.values]
        ours = [own for row in rows if (own := row.middle(measure)) is not None]
        theirs = [told for row in rows if (told := told_of(published, row)) is not None]
        if ours and theirs:
            unit = measure.unit.axis
            ends = [" to ".join(dict.fromkeys(written(end(x), unit) for end in (min, max))) for x in (ours, theirs)]
            yield f"Of the same cells, {label(measure)}: here {ends[0]}, published {ends[1]}."

    def tables(self, results: Results, name: str) -> list[Table]:
        by_rank = self.by == "rank"
        rank = Column[MeasuredCell]("rank", "rank", TEXT, lambda row: "all" if row.rank is None else row.rank)
        columns = [*((CELL[0], rank) if by_rank else CELL), *self.values(results, intervals=not by_rank), ROUNDS]
        note = f"{self.explained()}{' All: all ranks together, or the mean over them.' if by_rank else ''}"
        return [Table.of(name, self.title, columns, self._rows(results), note)]

    def _rows(self, results: Results) -> list[MeasuredCell]:
        return [row for cell in results.cells for row in (cell.by_rank() if self.by == "rank" else [cell])]


# Whether ranks agree


def _scores(run: Run) -> list[tuple[float, float] | None]:
    """Loss and accuracy of each rank's last evaluation."""
    return [
        (last.loss, last.accuracy) if (last := next(iter(rank.evaluations[-1:]), None)) else None for rank in run.ranks
    ]


def _agreement(results: Results) -> Iterator[str]:
    """Which cells' ranks have the same test scores, and why others have not, as far as the records tell."""
    scored = [cell for cell in results.cells if all(all(_scores(run)) for run in cell.runs)]
    if not scored:
        yield "No run has test scores: the runs were not to evaluate, or did not come to it."
        return
    several = [cell for cell in scored if cell.world_size > 1]
    shared = [c for c in several if any(run.manifest.settings["evaluate"] == "sharded" for run in c.runs)]
    differing = [cell for cell in several if cell not in shared and _spread(cell, 0)]
    agreeing = [cell for cell in several if cell not in shared and cell not in differing]
    if differing:
        loss, accuracy = (max(_spread(cell, which) for cell in differing) for which in (0, 1))
        yield (
            f"The ranks of {_names(differing)} differ in their test scores: by up to {digits(loss)} in loss and "
            f"{100 * accuracy:.1f} percentage points in accuracy."
        )
    if agreeing:
        yield f"The ranks of {_names(agreeing)} have the same test scores to the last digit."
    same_parameters = [cell for cell in differing if all(run.summary.replicas_identical for run in cell.runs)]
    given = [cell for cell in agreeing if any(step.buffers for step in cell.first.ranks[0].steps)]
    synchronised = [cell for cell in agreeing if cell.first.manifest.settings["batch_norm"] == "synchronised"]
    if same_parameters:
        yield (
            f"The parameters of {_names(same_parameters)} are the same on all ranks to the last bit. What differs is "
            "each rank's own statistics of batch normalisation, taken from its own images."
        )
    if given:
        yield f"In {_names(given)}, rank 0 gives its statistics of batch normalisation to all ranks."
    if synchronised:
        yield f"In {_names(synchronised)}, batch normalisation takes its statistics over all ranks' images."
    if shared:
        yield f"The test set of {_names(shared)} was cut over the ranks: each rank's scores are of its own part."
    if not several:
        yield "Every cell is of one rank: there are no ranks to agree or to differ."
    if unscored := [cell for cell in results.cells if cell not in scored]:
        yield f"Without test scores: {_names(unscored)}."


def _names(cells: Sequence[MeasuredCell]) -> str:
    return listed([cell.name for cell in cells])


def _spread(cell: MeasuredCell, which: int) -> float:
    """How far the ranks of a run lie apart at most."""
    values = [[each[which] for each in _scores(run) if each] for run in cell.runs]
    return max(max(each) - min(each) for each in values)


# What a step's messages amount to


def _about_bytes(results: Results) -> Iterator[str]:
    """Cells of as many ranks and as many gradients, by what all their ranks send together; then their busiest ranks."""
    sent, busiest, who = map(named, (SENT, BUSIEST, "busiest_rank"))
    groups: dict[tuple[int, int], dict[str, float]] = {}
    for cell in results.cells:
        if total := cell.value(cell.first, sent):
            groups.setdefault((cell.world_size, cell.first.manifest.gradient_bytes), {})[cell.name] = total
    for (ranks, size), cells in groups.items():
        where = f"{ranks} ranks, where the gradients of one, S, are {size / 1e6:.2f} MB"
        if max(cells.values()) - min(cells.values()) <= WHOLE:
            names = f"{', '.join(cells)} send the same" if len(cells) > 1 else f"{next(iter(cells))} sends"
            least = min(cells.values())
            yield f"Over all ranks together {names}: {digits(least)} S = {least * size / 1e6:.1f} MB a step ({where})."
        else:
            parts = ", ".join(f"{cell} {digits(total)} S" for cell, total in cells.items())
            yield f"Over all ranks together a step sends: {parts} ({where})."
        most = [
            f"{cell.name} {digits(cell.value(cell.first, busiest))} S ({cell.value(cell.first, who)})"
            for cell in results.cells
            if cell.name in cells
        ]
        yield from listing("The busiest rank sends", most)
