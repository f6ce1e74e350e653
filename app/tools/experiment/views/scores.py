"""The test scores of each rank at the end of a run, beside published ones."""

from collections.abc import Callable, Iterator, Sequence

from pydantic import Field

from app.analysis.run import Run
from app.analysis.units import PERCENT, digits
from app.pages.drawing import Drawing
from app.pages.table import Table
from app.records.lines import Evaluation
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views.columns import MEMBER, PRINTED, CellRank, ends_of_member
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listed, points


class Scores(View):
    """Test loss and accuracy of each rank at the end."""

    published_loss: Published | None = Field(
        None, description="test losses, by cell: a list by rank, or one figure for all ranks"
    )
    published_accuracy: Published | None = Field(None, description="test accuracies from 0 to 1, in the same way")

    def _sentences(self, results: Results) -> Iterator[str]:
        yield from _agreement(results)
        yield from self._beside(results)

    def _beside(self, results: Results) -> Iterator[str]:
        """Where the published losses lie, and ours."""
        published = self.published_loss
        cells = [cell for cell in results.cells if published and cell.name in published.values]
        ours = [each.loss for cell in cells for each in _last_scores(cell.first) if each]
        theirs = [
            value
            for cell in cells
            for rank in range(cell.world_size)
            if published and (value := published.at(cell.name, rank)) is not None
        ]
        if ours and theirs:
            yield (
                f"Test losses of the same cells: here {digits(min(ours))} to {digits(max(ours))}, published "
                f"{digits(min(theirs))} to {digits(max(theirs))}."
            )

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return []

    def _tables(self, results: Results, name: str) -> list[Table]:
        repeated = results.grid.repeats > 1
        columns = [
            *MEMBER,
            *ends_of_member("test loss", "test_loss", _loss, PRINTED, _told(self.published_loss), repeated=repeated),
            *ends_of_member(
                "accuracy", "accuracy", _accuracy, PERCENT, _told(self.published_accuracy), repeated=repeated
            ),
        ]
        members = [
            CellRank(cell, rank)
            for cell in results.cells
            for rank in ((None,) if cell.world_size > 1 and all(map(_is_shared, cell.runs)) else range(cell.world_size))
        ]
        note = "After the last epoch, in the first round that is finished"
        note += ", and the median over rounds beside it." if repeated else "."
        return [Table.of(name, self.title, columns, members, note + self._sources())]


def _told(published: Published | None) -> Callable[[CellRank], float | None] | None:
    """What was published of a rank; a single figure holds for each of them."""
    return (lambda member: published.at(member.cell.name, member.rank or 0)) if published else None


def _last_scores(run: Run) -> list[Evaluation | None]:
    """The last evaluation of each rank."""
    return [rank.evaluations[-1] if rank.evaluations else None for rank in run.ranks]


def _loss(rank: int | None) -> Measure:
    """A rank's test loss at the end; that of all is every rank's."""
    return lambda run: getattr(_last_scores(run)[rank or 0], "loss", None)


def _accuracy(rank: int | None) -> Measure:
    """A rank's test accuracy, in the same way."""
    return lambda run: getattr(_last_scores(run)[rank or 0], "accuracy", None)


def _is_shared(run: Run) -> bool:
    """Whether the test set was cut over the ranks, so that they cannot but have one score."""
    return run.manifest.settings["evaluate"] == "sharded"


def _agreement(results: Results) -> Iterator[str]:
    """Which cells' ranks agree, as the runs have it."""
    scored = [cell for cell in results.cells if all(all(_last_scores(run)) for run in cell.runs)]
    if not scored:
        yield "No run has test scores: the runs were not to evaluate, or did not come to it."
        return
    several = [cell for cell in scored if cell.world_size > 1]
    shared = [cell for cell in several if any(map(_is_shared, cell.runs))]
    differing = [cell for cell in several if cell not in shared and _spread(cell, "loss")]
    agreeing = [cell for cell in several if cell not in shared and cell not in differing]
    if differing:
        loss, accuracy = (max(_spread(cell, score) for cell in differing) for score in ("loss", "accuracy"))
        yield (
            f"The ranks of {_names(differing)} differ in their test scores: by up to {digits(loss)} in loss and "
            f"{points(accuracy)} in accuracy."
        )
    if agreeing:
        yield f"The ranks of {_names(agreeing)} have the same test scores to the last digit."
    yield from _reasons(differing, agreeing)
    if shared:
        yield f"The test set of {_names(shared)} was cut over the ranks, which therefore have one score."
    if not several:
        yield "Every cell is of one rank: there are no ranks to agree or to differ."
    if unscored := [cell for cell in results.cells if cell not in scored]:
        yield f"Without test scores: {_names(unscored)}."


def _names(cells: Sequence[MeasuredCell]) -> str:
    return listed([cell.name for cell in cells])


def _spread(cell: MeasuredCell, score: str) -> float:
    """How far the ranks of a run lie apart at most."""
    values: list[list[float]] = [[getattr(each, score) for each in _last_scores(run) if each] for run in cell.runs]
    return max(max(each) - min(each) for each in values)


def _reasons(differing: Sequence[MeasuredCell], agreeing: Sequence[MeasuredCell]) -> Iterator[str]:
    """Why, as far as the records tell."""
    same_parameters = [cell for cell in differing if all(run.summary.replicas_identical for run in cell.runs)]
    given = [cell for cell in agreeing if any(step.buffers for step in cell.first.ranks[0].steps)]
    synchronised = [cell for cell in agreeing if cell.first.manifest.settings["batch_norm"] == "synchronised"]
    if same_parameters:
        yield (
            f"The parameters of {_names(same_parameters)} are the same on all ranks to the last bit. What differs is "
            "what each rank keeps for itself: the statistics that batch normalisation takes from its own images."
        )
    if given:
        yield f"In {_names(given)}, rank 0 gives its statistics of batch normalisation to all ranks."
    if synchronised:
        yield f"In {_names(synchronised)}, batch normalisation takes its statistics over all ranks' images."
