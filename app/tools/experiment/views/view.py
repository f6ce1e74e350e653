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
from app.tools.experiment.results import MeasuredCell, Results

COMPARED_WITH = ("baseline", "against")  # the options that name what a cell is compared with
CELL = (
    Column[MeasuredCell]("", "cell", TEXT, lambda cell: cell.name),
    Column[MeasuredCell]("ranks", "world_size", COUNT, lambda cell: cell.world_size),
    Column[MeasuredCell]("steps", "steps", COUNT, lambda cell: cell.middle(named("warm_steps"))),
)
ROUNDS = Column[MeasuredCell]("rounds", "rounds", COUNT, lambda cell: len(cell.runs))
TIMES_OF_STEPS = ("seconds.median", "epoch_seconds")
SPEEDS = (measures.IMAGES_PER_SECOND.name,)
NO_SPEED = ("hidden_sync", "throttled", "at_least", "uncertainty", "usage.")  # a smaller value of these is not faster


class Published(BaseModel):
    """Figures that a document published, by cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str | None = Field(None, description="the measure that they are of, one of the view's [its first one]")
    ratio: bool = Field(False, description="true if the figures are ratios to the cell that is compared with")
    source: str = Field(description="which document, in a few words")
    scale: float = Field(
        1.0,
        gt=0,
        description="factor that converts the figures to seconds, bytes or shares, such as 1e6 for MB [1]",
    )
    values: dict[str, float | list[float | None]] = Field(
        description="by cell; a list where a cell has several, such as one for each rank"
    )

    def of(self, cell: str | None) -> float | None:
        """The figure of a cell that has one."""
        value = self.values.get(cell or "")
        return None if value is None or isinstance(value, list) else self.scale * value

    def several(self, cell: str) -> list[float | None] | None:
        """The figures of a cell that has several."""
        values = self.values.get(cell)
        return [v if v is None else self.scale * v for v in values] if isinstance(values, list) else None

    def by(self, cell: str | None, base: str | None, *, gain: bool = False) -> float | None:
        """A cell's figure by another's, or the other by it, or that ratio as it was published."""
        if self.ratio:
            return self.of(cell)
        value, other = self.of(cell), self.of(base)
        value, other = (other, value) if gain else (value, other)
        return value / other if value is not None and other else None

    @property
    def single(self) -> dict[str, float]:
        return {cell: value for cell in self.values if (value := self.of(cell)) is not None}


class UnknownName(ValueError):  # noqa: N818  # its message is part of a refusal
    """An option names what there is not."""


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
        missing = missing_sentences(results, self.planned(results.grid.cells))
        remarks = [*self.remarks(results), *missing, *([self.note] if self.note else [])]
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

    def planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """The cells that the view is about, which it says are missing where they are."""
        return cells

    def named_cells(self) -> list[str]:
        """The cells that the options name, which must be there."""
        return list(dict.fromkeys(cell for each in self.published for cell in each.values))

    def named_settings(self) -> list[str]:
        """The settings that the options name, which some cell must have."""
        return list(self.where)

    def unknown_line(self, cells: Sequence[Cell]) -> tuple[str, list[str]] | None:
        """A line that the options name but no cell belongs to, and the lines that exist."""
        return None

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
        if any(each.ratio for each in self.published) and not any(getattr(self, each, None) for each in COMPARED_WITH):
            raise ValueError("published ratios need a baseline, or in a line what it is against")
        return self

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

    def values(self, results: Results) -> list[Column[Any]]:
        """A column for each measure with its interval, on the page for the first; published values stand beside it."""
        columns: list[Column[Any]] = []
        for measure in self.measures:
            if not measure.unit.is_number:
                columns.append(figure(measure))
            else:
                blocks = results.blocks(measure)
                own = with_interval(heading(measure), column(measure), partial(_estimate, blocks), measure.unit)
                middle, *ends = [figure(measure), *own[1:]]
                columns += [middle, *(replace(end, only_in_file=measure is not self.first) for end in ends)]
            columns += [told(each, measure) for each in self.published_of(measure) if not each.ratio]
        return columns

    def published_of(self, measure: Measure[Any]) -> list[Published]:
        return [each for each in self.published if self.measure_of(each).name == measure.name]

    def published_ratios(self) -> list[Published]:
        """Those that can stand beside a comparison of the first measure; a speedup of steps is one of epochs."""
        alike = (self.first.name, *(TIMES_OF_STEPS if self.first.name in TIMES_OF_STEPS else ()))
        return (
            [each for each in self.published if self.measure_of(each).name in alike]
            if self.first.unit != PERCENT
            else []
        )

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


def told(published: Published, measure: Measure[Any]) -> Column[MeasuredCell]:
    """What a document says of the same cell."""
    return Column("published", f"published_{column(measure)}", measure.unit, lambda cell: published.of(cell.name))


def beside(
    judged: Judged, other: str, find: Callable[[Any], Interval | None], *, less: bool = False
) -> list[Column[Any]]:
    """What a cell is beside another: a share by its difference, all else by a ratio."""
    if judged.unit == PERCENT:
        return with_interval(f"minus {other}, points", "difference", find, Unit(signed))
    heading_of, name = (f"times less than {other}", "times_less") if less else (f"relative to {other}", "ratio")
    return with_interval(heading_of, name, find)


def told_ratio(
    published: Iterable[Published], name: str, base: Callable[[MeasuredCell], str | None], *, gain: bool
) -> list[Column[MeasuredCell]]:
    """What documents say of the same cell by the one that it is compared with."""

    def value(told: Published, cell: MeasuredCell) -> float | None:
        return told.by(cell.name, base(cell), gain=gain)

    return [Column("published", f"published_{name}", DIGITS, partial(value, each)) for each in published]


def missing_sentences(results: Results, cells: Sequence[Cell]) -> list[str]:
    """What was planned and is not there: cells without a finished run, and cells that lack some of their rounds."""
    absent: dict[str | None, list[str]] = {}
    few: dict[int, list[str]] = {}
    for cell in cells:
        there = len(results.runs(cell))
        if not there:
            absent.setdefault(cell.may_fail, []).append(cell.name)
        elif there < results.grid.repeats:
            few.setdefault(there, []).append(cell.name)
    return [
        *(
            f"Not measured, because no run is finished{f' (they may fail: {reason})' if reason else ''}: "
            f"{'; '.join(names)}."
            for reason, names in absent.items()
        ),
        *(f"In {there} of {results.grid.repeats} rounds only: {'; '.join(names)}." for there, names in few.items()),
    ]
