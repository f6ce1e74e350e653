"""The test scores of each rank at the end of a run, beside published ones."""

from collections.abc import Callable, Sequence
from functools import partial

from pydantic import Field

from app.experiment.reading.results import Measured, Results
from app.experiment.views.learned import as_printed, listed, points
from app.experiment.views.view import Published, Section, View, cell_column, middle, missing_sentences
from app.records.lines import Evaluation
from app.report.table import Column, Table, Value, digits, percent, plain

ALL = "all"  # where the ranks share one score


class Scores(View):
    """Test loss and accuracy of each rank at the end."""

    published_loss: Published | None = Field(
        None, description="test losses, by cell: a list by rank, or one figure for all ranks"
    )
    published_accuracy: Published | None = Field(None, description="test accuracies from 0 to 1, in the same way")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        return [cell for each in (self.published_loss, self.published_accuracy) if each for cell in each.values]

    def section(self, results: Results, name: str) -> Section:
        """The table, and whether the ranks of a cell agree."""
        sentences = [
            *_agreement(results),
            *self._beside(results),
            *missing_sentences(results),
            *([self.note] if self.note else []),
        ]
        return Section(name, self.title, sentences, [], [self._table(results, name)])

    def _beside(self, results: Results) -> list[str]:
        """Where the published losses lie, and ours."""
        if self.published_loss is None:
            return []
        cells = [cell for cell in results.cells if cell.name in self.published_loss.values]
        ours = [each.loss for cell in cells for each in last_scores(results.first(cell.name)) if each]
        theirs = [
            value
            for cell in cells
            for rank in range(cell.world_size)
            if (value := self.published_loss.at(cell.name, rank)) is not None
        ]
        if not ours or not theirs:
            return []
        return [
            f"Test losses of the same cells: here {digits(min(ours))} to {digits(max(ours))}, published "
            f"{digits(min(theirs))} to {digits(max(theirs))}."
        ]

    def _table(self, results: Results, name: str) -> Table:
        repeated = results.grid.repeats > 1
        columns = [cell_column(), Column("rank", "rank", plain)]
        for heading, field, words, published in (
            ("test loss", "test_loss", as_printed, self.published_loss),
            ("accuracy", "accuracy", percent, self.published_accuracy),
        ):
            columns.append(Column(heading, field, words))
            columns += [Column("median of rounds", f"{field}_median", words)] if repeated else []
            columns += [Column("published", f"published_{field}", words)] if published else []
        rows: list[list[Value]] = []
        for cell in results.cells:
            runs = results.runs(cell.name)
            shared = cell.world_size > 1 and all(map(_is_shared, runs))
            for rank in range(1 if shared else cell.world_size):
                row: list[Value] = [cell.name, ALL if shared else rank]
                for figure, published in ((loss_of, self.published_loss), (accuracy_of, self.published_accuracy)):
                    own = partial(figure, rank=rank)
                    row.append(own(runs[0]))
                    row += [middle(runs, own)] if repeated else []
                    row += [published.at(cell.name, rank)] if published else []
                rows.append(row)
        note = "After the last epoch, in the first round that is finished"
        note += ", and the median over rounds beside it." if repeated else "."
        sources = dict.fromkeys(each.source for each in (self.published_loss, self.published_accuracy) if each)
        if sources:
            note += f" Published: {'; '.join(sources)}."
        return Table(name, self.title, columns, rows, note)


def last_scores(run: Measured) -> list[Evaluation | None]:
    """The last evaluation of each rank."""
    return [rank.evaluations[-1] if rank.evaluations else None for rank in run.ranks]


def loss_of(run: Measured, rank: int) -> float | None:
    """A rank's test loss at the end."""
    score = last_scores(run)[rank]
    return score.loss if score else None


def accuracy_of(run: Measured, rank: int) -> float | None:
    """A rank's test accuracy at the end."""
    score = last_scores(run)[rank]
    return score.accuracy if score else None


def _is_shared(run: Measured) -> bool:
    """Whether the test set was cut over the ranks, so that they cannot but have one score."""
    return bool(run.manifest.settings["evaluate"] == "sharded")


def _agreement(results: Results) -> list[str]:
    """Which cells' ranks agree, as the runs have it."""
    scored = [cell for cell in results.cells if all(all(last_scores(run)) for run in results.runs(cell.name))]
    if not scored:
        return ["No run has test scores: the runs were not to evaluate, or did not come to it."]
    several = [cell.name for cell in scored if cell.world_size > 1]
    shared = [cell for cell in several if any(map(_is_shared, results.runs(cell)))]
    judged = [cell for cell in several if cell not in shared]
    differing = [cell for cell in judged if any(_spread(run, loss_of) for run in results.runs(cell))]
    agreeing = [cell for cell in judged if cell not in differing]
    found = []
    if differing:
        loss, accuracy = (
            max(_spread(run, figure) for cell in differing for run in results.runs(cell))
            for figure in (loss_of, accuracy_of)
        )
        found.append(
            f"The ranks of {listed(differing)} differ in their test scores: by up to {digits(loss)} in loss and "
            f"{points(accuracy)} in accuracy."
        )
    if agreeing:
        found.append(f"The ranks of {listed(agreeing)} have the same test scores to the last digit.")
    found += _reasons(results, differing, agreeing)
    if shared:
        found.append(f"The test set of {listed(shared)} was cut over the ranks, which therefore have one score.")
    if not several:
        found.append("Every cell is of one rank: there are no ranks to agree or to differ.")
    unscored = [cell.name for cell in results.cells if cell not in scored]
    return [*found, *([f"Without test scores: {listed(unscored)}."] if unscored else [])]


def _spread(run: Measured, figure: Callable[[Measured, int], float | None]) -> float:
    values = [value for rank in range(len(run.ranks)) if (value := figure(run, rank)) is not None]
    return max(values) - min(values)


def _reasons(results: Results, differing: Sequence[str], agreeing: Sequence[str]) -> list[str]:
    """Why, as far as the records tell."""
    same_parameters = [cell for cell in differing if all(run.summary.replicas_identical for run in results.runs(cell))]
    given = [cell for cell in agreeing if any(step.buffers for step in results.first(cell).ranks[0].steps)]
    synchronised = [cell for cell in agreeing if results.first(cell).manifest.settings["batch_norm"] == "synchronised"]
    found = []
    if same_parameters:
        found.append(
            f"The parameters of {listed(same_parameters)} are the same on all ranks to the last bit. What differs is "
            "what each rank keeps for itself: the statistics that batch normalisation takes from its own images."
        )
    if given:
        found.append(f"In {listed(given)}, rank 0 gives its statistics of batch normalisation to all ranks.")
    if synchronised:
        found.append(f"In {listed(synchronised)}, batch normalisation takes its statistics over all ranks' images.")
    return found
