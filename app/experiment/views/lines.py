"""Time per step, or images per second, against a setting, one line for each value of another."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from app.experiment.reading.results import Results
from app.experiment.reading.statistics import Blocks
from app.experiment.views import order, saturation
from app.experiment.views.axis import Axis, Point
from app.experiment.views.axis import figure as drawn
from app.experiment.views.measures import images_per_second
from app.experiment.views.times import step_seconds
from app.experiment.views.view import (
    Section,
    View,
    cell_column,
    estimate_columns,
    estimate_values,
    missing_sentences,
    noise_sentence,
)
from app.report.drawing import draw
from app.report.table import Column, Table, Value, digits, plain

HEADINGS = {"seconds": "s/step", "images_per_second": "images/s"}


class Lines(View):
    """A figure against a setting."""

    x: str = Field(description="the setting on the axis")
    series: str | None = Field(None, description="the setting of which each value is a line [a single line]")
    figure: Literal["seconds", "images_per_second"] = Field("seconds", description="what is shown")
    baseline: str | None = Field(None, description="the cell that ratios are to [of one line: the first x; else best]")
    watch: str | None = Field(None, description="a value of the series which documents call the slowest")

    def named_cells(self) -> list[str]:
        """The baseline."""
        return [self.baseline] if self.baseline else []

    def section(self, results: Results, name: str) -> Section:
        """The lines, their table, and what changes along the axis."""
        blocks = results.blocks(step_seconds if self.figure == "seconds" else images_per_second)
        axis = Axis(self.x, self.series, results.cells)
        sentences = list(
            self._across(axis, blocks)
            if self.series
            else saturation.sentences(self.x, axis.points, blocks, self._slowest_is_largest)
        )
        sentences += [noise_sentence(blocks, results), *missing_sentences(results)]
        return Section(
            name,
            self.title,
            [*sentences, *([self.note] if self.note else [])],
            [draw(name, self.title, lambda subject: drawn(*subject), (axis, blocks, self._heading), png=True)],
            [self._table(results, axis, blocks, name)],
        )

    @property
    def _heading(self) -> str:
        return HEADINGS[self.figure]

    @property
    def _slowest_is_largest(self) -> bool:
        return self.figure == "seconds"

    def _across(self, axis: Axis, blocks: Blocks) -> Iterator[str]:
        """The order of the lines at each point of the axis."""
        points = [order.of(point.label, point.by_series(), blocks, self._slowest_is_largest) for point in axis.points]
        compared = [point for point in points if len(point.names) > 1]
        if not compared:
            yield "No two lines have a point in common."
            return
        yield f"Slowest first: {'; '.join(point.words for point in compared)}."
        yield "There = is a difference that is not beyond the noise, between neighbours."
        yield from order.changes(compared)
        if self.watch:
            yield order.about(self.watch, compared)

    def _table(self, results: Results, axis: Axis, blocks: Blocks, name: str) -> Table:
        columns = [cell_column(), Column(self.x, "x", plain)]
        columns += [Column(self.series, "series", plain)] if self.series else []
        first = next((point.label for point in axis.points), "the first")
        base = self.baseline or ("the fastest there" if self.series else first)
        columns += [*estimate_columns(self._heading, self.figure), *estimate_columns(f"by {base}", "ratio")]
        rows: list[list[Value]] = []
        for point in axis.points:
            for cell in point.cells:
                other = self.baseline or self._base(axis, point, blocks)
                row: list[Value] = [cell.name, point.label, *([axis.line_of(cell)] if self.series else [])]
                row += estimate_values(blocks.estimate(cell.name))
                row += estimate_values(blocks.compare(cell.name, other) if other else None)
                rows.append([*row, len(results.runs(cell.name))])
        note = "Medians over rounds, with 95 % intervals; of a run, " + (
            "the median over all ranks and steps but the first."
            if self.figure == "seconds"
            else "all ranks' images by the time of the slowest one's steps, without the first."
        )
        return Table(name, self.title, [*columns, Column("rounds", "rounds", digits)], rows, note)

    def _base(self, axis: Axis, point: Point, blocks: Blocks) -> str | None:
        """The cell that others are related to where none is named."""
        cells = point.cells if self.series else axis.points[0].cells[:1]
        known = [(estimate.median, cell.name) for cell in cells if (estimate := blocks.estimate(cell.name))]
        if not known:
            return None
        return (min(known) if self._slowest_is_largest else max(known))[1]
