"""What a view is: a part of an experiment's page, chosen in the grid file, made from finished runs alone."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from app.pages.chart import Chart
from app.pages.drawing import Drawing, draw
from app.pages.table import Table
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.results import Results
from app.tools.experiment.views.words import missing_sentences


@dataclass(frozen=True)
class Section:
    """A part of the page: what was read off, in sentences; drawings; tables."""

    name: str
    title: str
    sentences: list[str]
    drawings: list[Drawing]
    tables: list[Table]


class Published(BaseModel):
    """Figures that a document published, by cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(description="which document, in a few words")
    values: dict[str, float | list[float | None]] = Field(description="by cell; a list where there are several")

    def of(self, cell: str | None) -> float | None:
        """The figure of a cell that has one."""
        value = self.values.get(cell or "")
        return None if isinstance(value, list) else value

    def at(self, cell: str, place: int) -> float | None:
        """One of a cell's several figures, such as a rank's; a single figure holds for each of them."""
        value = self.values.get(cell)
        if isinstance(value, list):
            return value[place] if place < len(value) else None
        return value

    def ratio(self, cell: str, other: str | None) -> float | None:
        """One cell's figure by another's."""
        value, base = self.of(cell), self.of(other)
        return value / base if value is not None and base else None


NAMING_CELLS = ("baseline", "reference", "together", "among")  # the options that name a cell, or several


class View(BaseModel):
    """A part of the page. Its fields are the options that [[show]] takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(description="the heading")
    note: str = Field("", description="a remark of the author's below it")
    where: dict[str, str] = Field({}, description="settings, as texts: only cells that have them all [all cells]")

    def section(self, results: Results, name: str) -> Section:
        """Make it; `name` is its own among the views of the page."""
        results = results.where(self.where)
        missing = missing_sentences(results, self._planned(results.grid.cells))
        sentences = [*self._sentences(results), *missing, *([self.note] if self.note else [])]
        return Section(name, self.title, sentences, self._drawings(results, name), self._tables(results, name))

    @abstractmethod
    def _sentences(self, results: Results) -> Iterable[str]:
        """What was found, the main point first."""

    @abstractmethod
    def _tables(self, results: Results, name: str) -> list[Table]:
        """The figures, to all digits."""

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        """A single one, unless a view has more, or none."""
        return [draw(name, self.title, self._figure, results)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        """That one, and its caption."""
        raise NotImplementedError

    def _planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """The cells of the grid that the view is about, which it says are missing where they are."""
        return cells

    def named_cells(self) -> list[str]:
        """The cells that the options name, which must be there."""
        named: list[str] = []
        for option in NAMING_CELLS:
            value = getattr(self, option, None) or []
            named += [value] if isinstance(value, str) else value
        return list(dict.fromkeys([*named, *(cell for each in self._published() for cell in each.values)]))

    def _published(self) -> list[Published]:
        """All published figures that the grid file gives."""
        return [value for _, value in self if isinstance(value, Published)]

    def _sources(self, *published: Published | None) -> str:
        """Where published figures come from, these or all, for the note below a table or a drawing."""
        found = dict.fromkeys(each.source for each in published or self._published() if each)
        return f" Published: {'; '.join(found)}." if found else ""
