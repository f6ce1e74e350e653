"""Loss and training accuracy by epoch, and whether cells that must learn alike do, beside a published gap."""

from collections.abc import Callable, Iterator
from functools import partial

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from app.analysis import figures, measures
from app.analysis.run import Run
from app.analysis.units import DIGITS, PERCENT, digits
from app.analysis.words import percent
from app.pages.chart import Chart
from app.pages.drawing import Drawing, draw
from app.pages.scale import Axis
from app.pages.table import Table
from app.tools.experiment.reading.results import Measure, Results
from app.tools.experiment.views.columns import MEMBER, PRINTED, CellRank, ends_of_member
from app.tools.experiment.views.distance import Coincidence
from app.tools.experiment.views.drawn import curves, epoch_lines, remarks
from app.tools.experiment.views.measures import training_accuracy, training_loss
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listed

NEAR = 0.1  # of a published value


class Gap(BaseModel):
    """Two cells between which a document has a gap."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_: str = Field(alias="from")
    to: str


class Curves(View):
    """Loss and training accuracy by epoch."""

    together: list[str] | None = Field(None, min_length=2, max_length=2, description="two cells that must coincide")
    tolerance: float = Field(1e-3, gt=0, description="relative difference of losses up to which they do")
    published_loss: Published | None = Field(None, description="of the last epoch, by cell; a list is by rank")
    published_accuracy: Published | None = Field(None, description="from 0 to 1, in the same way")
    published_seconds: Published | None = Field(None, description="of the whole training, in the same way")
    gap: Gap | None = Field(None, description="from and to: two cells with published losses that are far apart")

    @field_validator("gap")
    @classmethod
    def _is_published(cls, gap: Gap | None, info: ValidationInfo) -> Gap | None:
        published = info.data.get("published_loss")
        if gap and (published is None or published.of(gap.from_) is None or published.of(gap.to) is None):
            raise ValueError("both cells need a published_loss, a single figure")
        return gap

    def _sentences(self, results: Results) -> Iterator[str]:
        if self.together:
            yield Coincidence.of(results, *self.together).sentence(self.tolerance)
        yield from self._nearness(results)
        yield from _ends(results)

    def _nearness(self, results: Results) -> Iterator[str]:
        """Which other cells end where a document has one side of its gap."""
        if not self.gap or not self.published_loss:
            return
        sides = {cell: self.published_loss.of(cell) or 0.0 for cell in (self.gap.from_, self.gap.to)}
        yield f"Published are losses of {listed([f'{digits(loss)} ({cell})' for cell, loss in sides.items()])}."
        ends = {cell.name: end for cell in results.cells if (end := cell.middle(training_loss)) is not None}
        if measured := [f"{digits(ends[cell])} ({cell})" for cell in sides if cell in ends]:
            yield f"Measured, the same cells end at {listed(measured)}."
        others = {cell: end for cell, end in ends.items() if cell not in sides}
        for side, published in sides.items():
            near = [
                f"{cell} ({digits(end)})" for cell, end in others.items() if abs(end - published) <= NEAR * published
            ]
            if near:
                yield f"Within {100 * NEAR:.0f} % of what is published as {side}, {published:g}, ends {listed(near)}."
            elif others:
                nearest = min(others, key=lambda cell: abs(others[cell] - published))
                yield (
                    f"No other cell ends within {100 * NEAR:.0f} % of what is published as {side}, {published:g}: "
                    f"the nearest is {nearest} with {digits(others[nearest])}."
                )

    def _tables(self, results: Results, name: str) -> list[Table]:
        repeated = results.grid.repeats > 1
        loss, accuracy = partial(_last_epoch, measures.TRAINING_LOSS), partial(_last_epoch, measures.TRAINING_ACCURACY)
        told = map(_told, (self.published_loss, self.published_accuracy, self.published_seconds))
        columns = [
            *MEMBER,
            *ends_of_member("loss", "training_loss", loss, PRINTED, next(told), repeated=repeated),
            *ends_of_member("training accuracy", "training_accuracy", accuracy, PERCENT, next(told), repeated=repeated),
            *ends_of_member("seconds", "seconds", _seconds, DIGITS, next(told), repeated=repeated),
        ]
        members = [
            CellRank(cell, rank)
            for cell in results.cells
            for rank in (None, *(range(cell.world_size) if cell.world_size > 1 else ()))
        ]
        note = (
            "Loss and accuracy over the images of the last epoch, each as the model took it at its step. Seconds are "
            "of the whole training, evaluations included; for all ranks, those of the last to finish. Shown is the "
            "first round that is finished" + (", and the median over rounds beside it." if repeated else ".")
        )
        return [Table.of(name, self.title, columns, members, note + self._sources())]

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return [
            draw(f"{name}-{what}", f"{self.title}: {what}", partial(self._by_epoch, what=what), results)
            for what in ("loss", "accuracy")
        ]

    def _by_epoch(self, results: Results, what: str) -> tuple[Chart, str]:
        lines = epoch_lines(results, measures.TRAINING_LOSS if what == "loss" else measures.TRAINING_ACCURACY)
        up = Axis(f"training {what}", "share" if what == "accuracy" else "", zero=False)
        chart = curves(self.title, "epoch", up, lines, "no epoch has a score.")
        caption = "Over each epoch's images, as the model took them; medians over rounds."
        return chart, f"{caption}{remarks(lines, 'epochs')}"


def _told(published: Published | None) -> Callable[[CellRank], float | None] | None:
    """What was published of a rank where there is a figure for each; a single one is of all ranks together."""

    def value(member: CellRank, published: Published) -> float | None:
        single = published.of(member.cell.name)
        if member.rank is None:
            return single
        return published.at(member.cell.name, member.rank) if single is None else None

    return partial(value, published=published) if published else None


def _last_epoch(measure: figures.Measure[float], rank: int | None) -> Measure:
    """Of a rank, or of all together."""
    return lambda run: (run.summary.run if rank is None else run.summary.ranks[rank]).epochs[-1][measure]


def _seconds(rank: int | None) -> Measure:
    """Of a rank, or of the last one to finish."""

    def measure(run: Run) -> float | None:
        ranks = run.ranks if rank is None else [run.ranks[rank]]
        return max((each.finished.seconds for each in ranks if each.finished), default=None)

    return measure


def _ends(results: Results) -> Iterator[str]:
    """What was reached, where nothing else is asked for."""
    ends, epochs = [], set()
    for cell in results.cells:
        loss, accuracy = cell.middle(training_loss), cell.middle(training_accuracy)
        if loss is not None and accuracy is not None:
            epochs.add(len(cell.first.summary.run.epochs))
            ends.append(f"{digits(loss)} and {percent(accuracy, 1)} ({cell.name})")
    when = f"after {count} epoch{'s' if count > 1 else ''}" if len(epochs) == 1 and (count := max(epochs)) else ""
    if ends:
        yield f"Training loss and accuracy {when or 'at the end'}, medians over rounds: {'; '.join(ends)}."
