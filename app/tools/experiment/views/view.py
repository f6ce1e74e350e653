"""What a view is: a part of an experiment's page, chosen in the grid file, made from finished runs alone."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.analysis import measures
from app.analysis.catalogue import GROUPS, NAMES, column, find, heading, label, named
from app.analysis.figures import Measure
from app.analysis.statistics import Blocks, Interval
from app.analysis.units import COUNT, DIGITS, PERCENT, SECONDS, TEXT, Unit
from app.machine.say import shown
from app.pages.drawing import Drawing
from app.pages.findings import Judged, signed
from app.pages.intervals import with_interval
from app.pages.section import Section
from app.pages.table import Column, Table
from app.settings.explanations import nearest
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid_file import Published, UnknownName
from app.tools.experiment.results import MeasuredCell, Results

Comparing = Callable[[Any], Interval | None]  # of a cell, with the one that it is compared with
CELL = (
    Column[MeasuredCell]("", "cell", TEXT, lambda cell: cell.name),
    Column[MeasuredCell]("ranks", "world_size", COUNT, lambda cell: cell.world_size),
    Column[MeasuredCell]("steps", "steps", COUNT, lambda cell: cell.middle(named("warm_steps"))),
)
ROUNDS = Column[MeasuredCell]("rounds", "rounds", COUNT, lambda cell: len(cell.runs))
TIMES_OF_STEPS = ("seconds.median", "epoch_seconds")
SPEEDS = (measures.IMAGES_PER_SECOND.name,)
NO_SPEED = ("hidden_sync", "throttled", "at_least", "uncertainty", "usage.")  # a smaller value of these is not faster


def _several(given: object) -> object:
    return given if isinstance(given, list) else [given]


Names = Annotated[list[str], BeforeValidator(_several), Field(min_length=1)]


def _suggestion(name: str) -> str:
    near = nearest(name, NAMES)
    return f"Did you mean {near}?" if near else "scripts/experiments/README.md lists them"


class View(BaseModel):
    """A part of the page. Its fields are the options that [[view]] takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["line", "bar", "curve", "table"] = Field(description="what it is")
    title: str = Field(description="the heading")
    measure: Names = Field(description="one name or a list; the first one is compared and drawn")
    where: dict[str, str] = Field(
        {},
        description="only cells with these values of their own settings, as texts; `*` is any value, an empty text "
        "means not set [all cells]",
    )
    published: Annotated[list[Published], BeforeValidator(_several)] = Field(
        [], description="figures of documents: one or more tables [none]"
    )
    note: str = Field("", description="a remark of the author's")

    def section(self, results: Results, name: str) -> Section:
        """Make it; `name` is its own among the views of the page."""
        results = results.where(self.where)
        remarks = [*self.remarks(results), *_missing(results), *([self.note] if self.note else [])]
        drawings, tables = self.drawings(results, name), self.tables(results, name)
        return Section(self.title, list(self.sentences(results)), remarks, drawings, tables)

    @abstractmethod
    def sentences(self, results: Results) -> Iterable[str]:
        """What was found, the main point first."""

    @abstractmethod
    def tables(self, results: Results, name: str) -> list[Table]:
        """The figures, to all digits."""

    def drawings(self, results: Results, name: str) -> list[Drawing]:
        return []

    def remarks(self, results: Results) -> Iterable[str]:
        """What readers of the figures must know."""
        return ()

    def named_cells(self) -> list[str | None]:
        """The cells that the options name, which must be there."""
        return [cell for each in self.published for cell in each.values]

    def named_settings(self) -> list[str]:
        """The settings that the options name, which some cell must have."""
        return list(self.where)

    def references(self, cells: Sequence[Cell]) -> Iterator[tuple[str, list[str], list[str]]]:
        """What the options name, each with what there is of it, and what to say where it is not among that."""
        own = {name for cell in cells for name in cell.settings} | {"SYNC_MODE", "WORKERS"}
        yield "no cell sets", self.named_settings(), sorted(own)
        there = [cell.name for cell in cells if cell.matches(self.where)]
        yield "no cell matches", [] if there else [f"where = {self.where}"], there
        yield "no cell is called", [name for name in self.named_cells() if name], there

    def sources(self) -> str:
        found = dict.fromkeys(each.source for each in self.published)
        return f" Published: {'; '.join(found)}." if found else ""


class OfMeasures(View):
    """A view of figures that a whole run has."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in self.measure:
            if name not in GROUPS and find(name) is None:
                raise UnknownName(f"unknown measure '{shown(name)}'. {_suggestion(name)}")
        names = [each.name for each in self.measures]
        for each in self.published:
            found = find(each.measure) if each.measure else self.first
            if found is None or found.name not in names:
                raise UnknownName(f"published: '{shown(each.measure or '')}' is not among the measures of this view")
        columns = [column(each) for each in self.measures]
        if twice := next((each for each in columns if columns.count(each) > 1), None):
            raise ValueError(f"two measures would be the column '{twice}' of the table")
        if not self.first.unit.is_number:
            raise ValueError(f"the first measure must be a number, which '{self.measure[0]}' is not")
        if any(each.ratio for each in self.published) and not self._compares:
            raise ValueError("published ratios need a baseline, or in a line what it is against")
        return self

    @property
    def _compares(self) -> bool:
        """Whether an option names what cells are compared with."""
        return any(getattr(self, each, None) for each in ("baseline", "against"))

    @cached_property
    def measures(self) -> list[Measure[Any]]:
        names = [one for name in self.measure for one in GROUPS.get(name, (name,))]
        return list({found.name: found for name in names if (found := find(name))}.values())

    @property
    def first(self) -> Measure[Any]:
        return self.measures[0]

    def judged(self, results: Results) -> Judged:
        """The first measure, ready for comparisons."""
        name, slowest_is_largest = self.first.name, None
        if self.first.unit == SECONDS and not any(part in name for part in NO_SPEED):
            slowest_is_largest = True
        elif name in SPEEDS:
            slowest_is_largest = False
        return Judged(label(self.first), self.first.unit, results.blocks(self.first), slowest_is_largest)

    def remarks(self, results: Results) -> Iterator[str]:
        """A median over only some runs would be biased, so such cells are left out, like those of which it is 0."""
        known = results.blocks(self.first).cells
        for cell in results.cells:
            if cell.name in known:
                continue
            there = sum(cell.value(run, self.first) is not None for run in cell.runs)
            why = f"measured in {there} of {len(cell.runs)} runs" if there < len(cell.runs) else "0"
            yield f"Left out of comparisons: {cell.name}, whose {label(self.first)} is {why}."

    def values(self, results: Results, *, intervals: bool = True) -> list[Column[MeasuredCell]]:
        """A column for each measure with its interval, on the page for the first; published values stand beside it."""
        columns: list[Column[MeasuredCell]] = []
        for measure in self.measures:
            columns.append(figure(measure))
            if intervals and measure.unit.is_number:
                estimate = partial(_estimate, results.blocks(measure))
                _, *ends = with_interval(heading(measure), column(measure), estimate, measure.unit)
                columns += (replace(end, only_in_file=measure is not self.first) for end in ends)
            told = (each for each in self.published_of(measure) if not each.ratio)
            name = f"published_{column(measure)}"
            columns += (Column("published", name, measure.unit, partial(told_of, each)) for each in told)
        return columns

    def compared(
        self, judged: Judged, other: str, find: Comparing, base: Callable[[str], str | None], *, gain: bool = False
    ) -> list[Column[Any]]:
        """What a cell is beside another: a share by its difference, all else by a ratio; published ones beside it."""
        if judged.unit == PERCENT:
            columns = with_interval(f"minus {other}, points", "difference", find, Unit(signed))
        elif gain:
            columns = with_interval(f"times less than {other}", "times_less", find)
        else:
            columns = with_interval(f"relative to {other}", "ratio", find)
        return [*columns, *self.told_ratios(columns[0].name, base, gain=gain)]

    def told_ratios(self, name: str, base: Callable[[str], str | None], *, gain: bool) -> list[Column[MeasuredCell]]:
        """What documents say of the same cell by the one that it is compared with."""

        def value(told: Published, cell: MeasuredCell) -> float | None:
            return told.by(cell.name, base(cell.name), gain=gain)

        name = f"published_{name}"
        return [Column("published", name, DIGITS, partial(value, each)) for each in self.published_ratios()]

    def published_of(self, measure: Measure[Any]) -> list[Published]:
        return [each for each in self.published if self.measure_of(each).name == measure.name]

    def published_ratios(self) -> list[Published]:
        """Those that can stand beside a comparison of the first measure; a speedup of steps is one of epochs."""
        alike = TIMES_OF_STEPS if self.first.name in TIMES_OF_STEPS else (self.first.name,)
        ratios = self._compares and self.first.unit != PERCENT
        return [each for each in self.published if ratios and self.measure_of(each).name in alike]

    def measure_of(self, published: Published) -> Measure[Any]:
        return named(published.measure) if published.measure else self.first

    def explained(self) -> str:
        """What the columns mean and where published figures come from, for the note below a table."""
        meanings = "; ".join(f"{heading(each)}: {each.meaning}" for each in self.measures)
        return f"Medians over rounds. {meanings[0].upper()}{meanings[1:]}.{self.sources()}"


def _estimate(blocks: Blocks, cell: MeasuredCell) -> Interval | None:
    return blocks.estimate(cell.name)


def figure(measure: Measure[Any]) -> Column[MeasuredCell]:
    """The median of a measure over the rounds; of a text, the first round's."""

    def value(cell: MeasuredCell) -> Any:
        return cell.value(cell.first, measure) if not measure.unit.is_number else cell.middle(measure)

    return Column(heading(measure), column(measure), measure.unit, value)


def told_of(told: Published, cell: MeasuredCell) -> float | None:
    return told.of(cell.name, cell.rank if cell.world_size > 1 else None)


def _missing(results: Results) -> Iterator[str]:
    """What was planned and is not there: cells without a finished run, and cells that lack some of their rounds."""
    absent: dict[str | None, list[str]] = {}
    few: dict[int, list[str]] = {}
    for cell in results.grid.cells:
        there = len(results.runs(cell))
        if not there:
            absent.setdefault(cell.may_fail, []).append(cell.name)
        elif there < results.grid.repeats:
            few.setdefault(there, []).append(cell.name)
    for reason, names in absent.items():
        excuse = f" (they may fail: {reason})" if reason else ""
        yield f"Not measured, because no run is finished{excuse}: {'; '.join(names)}."
    for there, names in few.items():
        yield f"In {there} of {results.grid.repeats} rounds only: {'; '.join(names)}."
