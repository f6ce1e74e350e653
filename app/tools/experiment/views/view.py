"""What a view is: a part of an experiment's page, chosen in the grid file, made from finished runs alone."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.analysis import measures
from app.analysis.catalogue import GROUPS, NAMES, column, find, heading, label, named
from app.analysis.figures import Measure
from app.analysis.statistics import Blocks, Comparison, Interval
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

CELL: list[Column[Any]] = [
    Column("", "cell", TEXT, lambda cell: cell.name),
    Column("ranks", "world_size", COUNT, lambda cell: cell.world_size),
    Column("steps", "steps", COUNT, lambda cell: cell.middle(named("warm_steps"))),
]
ROUNDS: Column[Any] = Column("rounds", "rounds", COUNT, lambda cell: len(cell.runs))
TIMES_OF_STEPS = ("seconds.median", "epoch_seconds")
SPEEDS = (measures.IMAGES_PER_SECOND.name,)
NO_SPEED = ("hidden_sync", "throttled", "at_least", "uncertainty", "usage.")  # a smaller value of these is not faster


def _several(given: object) -> object:
    return given if isinstance(given, list) else [given]


Names = Annotated[list[str], BeforeValidator(_several), Field(min_length=1)]


class View(BaseModel):
    """A part of the page. Its fields are the options that [[view]] takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["line", "bar", "curve", "table"] = Field(description="`line`, `bar`, `curve` or `table`")
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in self.problems():
            raise problem
        return self

    def problems(self) -> Iterator[ValueError]:
        """What its options have wrong together."""
        yield from ()

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

    def references(self, cells: Sequence[Cell]) -> Iterator[tuple[str, list[str], list[str]]]:
        """What the options name, each with what there is of it, and what to say where it is not among that."""
        own = {name for cell in cells for name in cell.settings} | {"SYNC_MODE", "WORKERS"}
        yield "no cell sets", [*self.where], sorted(own)
        there = [cell.name for cell in cells if cell.matches(self.where)]
        yield "no cell matches", [] if there else [f"where = {self.where}"], there
        named = [cell for each in self.published for cell in each.values]
        named += [cell for option in ("baseline", "reference") if (cell := getattr(self, option, None))]
        yield "no cell is called", named, there

    def sources(self) -> str:
        found = dict.fromkeys(each.source for each in self.published)
        return f" Published: {'; '.join(found)}." if found else ""


def _missing(results: Results) -> Iterator[str]:
    """What was planned and is not there."""
    found: dict[str, list[str]] = {}
    for cell in results.grid.cells:
        there, planned = len(results.runs(cell)), results.grid.repeats
        if there < planned:
            excuse = f", and may fail: {cell.may_fail}" if cell.may_fail else ""
            found.setdefault(f"Finished in {there} of {planned} rounds{excuse}", []).append(cell.name)
    yield from (f"{what}: {'; '.join(names)}." for what, names in found.items())


class OfMeasures(View):
    """A view of figures that a whole run has: a row for each cell, compared with the one that its options name."""

    baseline: str | None = Field(None, description="the cell that the others are compared with")

    def problems(self) -> Iterator[ValueError]:
        for name in self.measure:
            if name not in GROUPS and find(name) is None:
                near = nearest(name, NAMES)
                hint = f"Did you mean {near}?" if near else "scripts/experiments/README.md lists them"
                yield UnknownName(f"unknown measure '{shown(name)}'. {hint}")
        names, columns = [each.name for each in self.measures], [column(each) for each in self.measures]
        if twice := next((each for each in columns if columns.count(each) > 1), None):
            yield ValueError(f"two measures would be the column '{twice}' of the table")
        if not self.first.unit.is_number:
            yield ValueError(f"the first measure must be a number, which '{self.measure[0]}' is not")
        for each in self.published:
            known = find(each.measure) if each.measure else self.first
            if known is None or known.name not in names:
                yield UnknownName(f"published: '{shown(each.measure or '')}' is not among the measures of this view")
            if each.ratio and not self.names_a_base:
                yield ValueError("published ratios need a baseline, or in a line what it is against")

    @property
    def names_a_base(self) -> bool:
        """Whether an option names what cells are compared with."""
        return self.baseline is not None

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

    # Which cells are shown, and which one each is compared with

    def compares(self, judged: Judged) -> bool:
        return self.names_a_base

    def rows(self, results: Results, judged: Judged) -> Sequence[Any]:
        return results.cells

    def lead(self, rows: Sequence[Any]) -> list[Column[Any]]:
        """The columns that say which cell a row is of."""
        return CELL

    def base(self, row: MeasuredCell) -> str | None:
        """The cell that a row's one is compared with."""
        return self.baseline

    @property
    def has_intervals(self) -> bool:
        return True

    def gains(self, judged: Judged) -> bool:
        """Whether a comparison is how many times better the cell is, and not its share of the other's value."""
        return False

    def comparison(self, judged: Judged, row: MeasuredCell) -> Comparison | None:
        pair = (row.name, self.base(row))
        return judged.blocks.compare(*(pair[::-1] if self.gains(judged) else pair))

    # What the page has

    def sentences(self, results: Results) -> Iterator[str]:
        judged = self.judged(results)
        if not judged.blocks.cells:
            yield f"{judged.capital}: no cell has it."
            return
        rows = self.rows(results, judged)
        yield from self.found(judged, rows)
        if self.baseline:
            yield from judged.all_against(self.baseline, dict.fromkeys(row.name for row in rows))
        for told in self.published_of(self.first) if judged.slowest_is_largest is None else ():
            yield from () if told.ratio else judged.beside_published(told.by_cell)
        yield judged.noise()

    def found(self, judged: Judged, rows: Sequence[Any]) -> Iterator[str]:
        yield from judged.extent()

    def remarks(self, results: Results) -> Iterator[str]:
        """A median over only some runs would be biased, so such cells are left out, like those of which it is 0."""
        known = results.blocks(self.first).cells
        left = [cell.name for cell in results.cells if cell.name not in known]
        if left:
            yield f"Left out of comparisons, because {label(self.first)} is 0 or not in all runs: {'; '.join(left)}."

    def tables(self, results: Results, name: str) -> list[Table]:
        judged = self.judged(results)
        rows = self.rows(results, judged)
        compared = self.comparisons(judged, rows) if self.compares(judged) else []
        columns = [*self.lead(rows), *self.values(results), *compared, ROUNDS]
        meanings = "; ".join(f"{heading(each)}: {each.meaning}" for each in self.measures)
        note = f"Medians over rounds. {meanings[0].upper()}{meanings[1:]}.{self.sources()}"
        return [Table.of(name, self.title, columns, rows, note)]

    def values(self, results: Results) -> list[Column[Any]]:
        """A column for each measure with its interval, on the page for the first; published values stand beside it."""
        columns: list[Column[Any]] = []
        for measure in self.measures:
            columns.append(figure(measure))
            if measure.unit.is_number and self.has_intervals:
                estimate = partial(_estimate, results.blocks(measure))
                _, *ends = with_interval(heading(measure), column(measure), estimate, measure.unit)
                columns += (replace(end, only_in_file=measure is not self.first) for end in ends)
            name = f"published_{column(measure)}"
            told = (each for each in self.published_of(measure) if not each.ratio)
            columns += (Column("published", name, measure.unit, partial(told_of, each)) for each in told)
        return columns

    def comparisons(self, judged: Judged, rows: Sequence[Any]) -> list[Column[Any]]:
        """What a cell is beside another: a share by its difference, all else by a ratio; published ones beside it."""
        columns = with_interval(*self.compared_as(judged, rows), partial(self.comparison, judged), self._unit)
        published = ((told, f"published_{columns[0].name}") for told in self.published_ratios())
        return columns + [Column("published", name, DIGITS, partial(self.told, t, judged)) for t, name in published]

    @property
    def _unit(self) -> Unit:
        return Unit(signed) if self.first.unit == PERCENT else DIGITS

    def compared_as(self, judged: Judged, rows: Sequence[Any]) -> tuple[str, str]:
        """Heading and name of the column that compares."""
        other = self.other(rows)
        if judged.unit == PERCENT:
            return f"minus {other}, points", "difference"
        return (f"times less than {other}", "times_less") if self.gains(judged) else (f"relative to {other}", "ratio")

    def other(self, rows: Sequence[Any]) -> str:
        return str(self.baseline)

    # Published figures

    def told(self, published: Published, judged: Judged, row: MeasuredCell) -> float | None:
        """What a document says of the same comparison."""
        return published.by(row.name, self.base(row), gain=self.gains(judged))

    def published_of(self, measure: Measure[Any]) -> list[Published]:
        return [each for each in self.published if self.measure_of(each).name == measure.name]

    def published_ratios(self) -> list[Published]:
        """Those that can stand beside a comparison of the first measure; a speedup of steps is one of epochs."""
        alike = TIMES_OF_STEPS if self.first.name in TIMES_OF_STEPS else (self.first.name,)
        ratios = self.names_a_base and self.first.unit != PERCENT
        return [each for each in self.published if ratios and self.measure_of(each).name in alike]

    def measure_of(self, published: Published) -> Measure[Any]:
        return named(published.measure) if published.measure else self.first


def figure(measure: Measure[Any]) -> Column[Any]:
    """The median of a measure over the rounds; of a text, the first round's."""

    def value(cell: MeasuredCell) -> Any:
        return cell.value(cell.first, measure) if not measure.unit.is_number else cell.middle(measure)

    return Column(heading(measure), column(measure), measure.unit, value)


def _estimate(blocks: Blocks, cell: MeasuredCell) -> Interval | None:
    return blocks.estimate(cell.name)


def told_of(told: Published, row: MeasuredCell) -> float | None:
    return told.of(row.name, row.rank if row.world_size > 1 else None)
