"""How many times fewer bytes a step sends than in another cell, beside what was published."""

from collections.abc import Iterator

from pydantic import Field

from app.analysis.units import DIGITS, MEGABYTES, digits
from app.pages.drawing import Drawing
from app.pages.table import Column, Table
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, measured, told
from app.tools.experiment.views.measures import gradient_bytes, sent_in_all
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listing


class Savings(View):
    """How many times fewer bytes a step sends."""

    baseline: str = Field(description="the cell that the others are related to")
    published: Published | None = Field(None, description="times fewer bytes, by cell")

    def _sentences(self, results: Results) -> Iterator[str]:
        words = []
        for cell in results.cells:
            if (found := self._factor(cell, results)) is not None and cell.name != self.baseline:
                theirs = self.published.of(cell.name) if self.published else None
                words.append(f"{cell.name} {digits(found)}{f' (published: {digits(theirs)})' if theirs else ''}")
        yield from listing(f"Times fewer bytes than {self.baseline}", words)
        if not words:
            yield f"No saving can be told: {self.baseline} and another cell are needed, with all their bytes counted."

    def _factor(self, cell: MeasuredCell, results: Results) -> float | None:
        """Bytes are counted, so that one round tells as much as several."""
        base = next((each.middle(sent_in_all) for each in results.cells if each.name == self.baseline), None)
        own = cell.middle(sent_in_all)
        return base / own if base and own else None

    def _tables(self, results: Results, name: str) -> list[Table]:
        columns = [
            CELL,
            RANKS,
            measured("gradients of a rank", "gradient_bytes", gradient_bytes, MEGABYTES),
            measured("all ranks send, a step", "total_bytes", sent_in_all, MEGABYTES),
            Column[MeasuredCell]("times fewer", "times_fewer", DIGITS, lambda cell: self._factor(cell, results)),
            told("times_fewer", self.published),
            ROUNDS,
        ]
        note = f"Payload as counted, without headers. Times fewer: the bytes of {self.baseline} by the cell's."
        return [Table.of(name, self.title, columns, results.cells, note + self._sources())]

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return []
