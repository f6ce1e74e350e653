"""Loss and training accuracy by epoch, and whether cells that must learn alike do, beside a published gap."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from app.experiment.reading.results import Measured, Results
from app.experiment.views.coincidence import Coincidence
from app.experiment.views.learned import (
    as_printed,
    by_epoch,
    in_percent,
    in_words,
    left_out,
    line_figure,
    listed,
    training_loss,
)
from app.experiment.views.view import Published, Section, View, cell_column, middle, missing_sentences
from app.report.drawing import draw
from app.report.series import series
from app.report.table import Column, Table, Value, digits, percent, plain

ALL = "all"
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

    def named_cells(self) -> list[str]:
        """Those of its options."""
        published = [cell for each in self._published() for cell in each.values]
        return [*(self.together or []), *([self.gap.from_, self.gap.to] if self.gap else []), *published]

    def section(self, results: Results, name: str) -> Section:
        """The curves, their ends in a table, what coincides, and what comes near to the published figures."""
        figures = [
            draw(f"{name}-{what}", f"{self.title}: {what}", partial(_figure, field=field, what=what), results, png=True)
            for what, field in (("loss", "training_loss"), ("accuracy", "training_accuracy"))
        ]
        sentences = [
            *self._coincidence(results),
            *self._nearness(results),
            *_ends(results),
            *missing_sentences(results),
        ]
        note = [self.note] if self.note else []
        return Section(name, self.title, [*sentences, *note], figures, [self._table(results, name)])

    def _published(self) -> list[Published]:
        return [each for each in (self.published_loss, self.published_accuracy, self.published_seconds) if each]

    def _coincidence(self, results: Results) -> Iterator[str]:
        if self.together:
            one, other = self.together
            yield Coincidence.of(results, one, other).sentence(self.tolerance)

    def _nearness(self, results: Results) -> Iterator[str]:
        """Which other cells end where a document has one side of its gap."""
        if not self.gap or not self.published_loss:
            return
        sides = {cell: float(self.published_loss.of(cell) or 0) for cell in (self.gap.from_, self.gap.to)}
        yield f"Published are losses of {listed([f'{digits(loss)} ({cell})' for cell, loss in sides.items()])}."
        ends = {cell.name: middle(results.runs(cell.name), training_loss) for cell in results.cells}
        if measured := [f"{digits(end)} ({cell})" for cell in sides if (end := ends.get(cell)) is not None]:
            yield f"Measured, the same cells end at {listed(measured)}."
        others = {cell: end for cell, end in ends.items() if cell not in sides and end is not None}
        for side, published in sides.items():
            near = [cell for cell, end in others.items() if abs(end - published) <= NEAR * published]
            if near:
                ends_there = listed([f"{cell} ({digits(others[cell])})" for cell in near])
                yield f"Within {100 * NEAR:.0f} % of what is published as {side}, {published:g}, ends {ends_there}."
            elif others:
                nearest = min(others, key=lambda cell: abs(others[cell] - published))
                yield (
                    f"No other cell ends within {100 * NEAR:.0f} % of what is published as {side}, {published:g}: "
                    f"the nearest is {nearest} with {digits(others[nearest])}."
                )

    def _table(self, results: Results, name: str) -> Table:
        repeated = results.grid.repeats > 1
        columns = [cell_column(), Column("rank", "rank", plain)]
        for _, heading, field, words, published in self._figures():
            columns.append(Column(heading, field, words))
            columns += [Column("median of rounds", f"{field}_median", words)] if repeated else []
            columns += [Column("published", f"published_{field}", words)] if published else []
        rows: list[list[Value]] = []
        for cell in results.cells:
            runs = results.runs(cell.name)
            for rank in (None, *(range(cell.world_size) if cell.world_size > 1 else ())):
                row: list[Value] = [cell.name, ALL if rank is None else rank]
                for figure, _, _, _, published in self._figures():
                    own = partial(figure, rank=rank)
                    row.append(own(runs[0]))
                    row += [middle(runs, own)] if repeated else []
                    row += [_beside(published, cell.name, rank)] if published else []
                rows.append(row)
        note = (
            "Loss and accuracy over the images of the last epoch, each as the model took it at its step. Seconds are "
            "of the whole training, evaluations included; for all ranks, those of the last to finish. Shown is the "
            "first round that is finished" + (", and the median over rounds beside it." if repeated else ".")
        )
        if sources := dict.fromkeys(each.source for each in self._published()):
            note += f" Published: {'; '.join(sources)}."
        return Table(name, self.title, columns, rows, note)

    def _figures(self) -> tuple[tuple[Any, str, str, Any, Published | None], ...]:
        """What the table has: the figure, its heading, its name, how it reads, what was published of it."""
        return (
            (partial(_last_epoch, field="training_loss"), "loss", "training_loss", as_printed, self.published_loss),
            (
                partial(_last_epoch, field="training_accuracy"),
                "training accuracy",
                "training_accuracy",
                percent,
                self.published_accuracy,
            ),
            (_seconds, "seconds", "seconds", digits, self.published_seconds),
        )


def _beside(published: Published, cell: str, rank: int | None) -> float | None:
    """A single figure stands for all ranks together, a list has one for each."""
    if rank is None:
        return published.of(cell)
    return published.at(cell, rank) if published.of(cell) is None else None


def _last_epoch(run: Measured, rank: int | None, field: str) -> float | None:
    party = run.summary.run if rank is None else run.summary.ranks[rank]
    value: float | None = getattr(party.epochs[-1], field)
    return value


def _seconds(run: Measured, rank: int | None) -> float | None:
    ranks = run.ranks if rank is None else [run.ranks[rank]]
    return max((each.finished.seconds for each in ranks if each.finished), default=None)


def _ends(results: Results) -> Iterator[str]:
    """What was reached, where nothing else is asked for."""
    ends, epochs = [], set()
    for cell in results.cells:
        runs = results.runs(cell.name)
        loss, accuracy = (
            middle(runs, partial(_last_epoch, rank=None, field=field))
            for field in ("training_loss", "training_accuracy")
        )
        if loss is not None and accuracy is not None:
            epochs.add(len(runs[0].summary.run.epochs))
            ends.append(f"{digits(loss)} and {in_words(accuracy)} ({cell.name})")
    when = f"after {count} epoch{'s' if count > 1 else ''}" if len(epochs) == 1 and (count := max(epochs)) else ""
    if ends:
        yield f"Training loss and accuracy {when or 'at the end'}, medians over rounds: {'; '.join(ends)}."


def _figure(results: Results, field: str, what: str) -> tuple[Figure, str]:
    lines = [
        series(cell.name, range(1, len(values) + 1), values)
        for cell in results.cells
        for values in [by_epoch(results, cell.name, field)]
    ]
    figure, axes = line_figure(lines, "epoch", f"training {what}", "no epoch has a score.")
    if what == "accuracy":
        in_percent(axes.yaxis)
    return figure, f"Over each epoch's images, as the model took them; medians over rounds.{left_out(lines)}"
