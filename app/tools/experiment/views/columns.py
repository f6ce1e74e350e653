"""Columns that the tables of several views have; a row's subject is a cell with its runs, or a rank of it."""

from collections.abc import Callable
from dataclasses import dataclass

from app.analysis.statistics import Blocks, Interval
from app.analysis.units import COUNT, DIGITS, TEXT, Unit
from app.pages.intervals import with_interval
from app.pages.table import Column
from app.tools.experiment.reading.results import Measure, MeasuredCell
from app.tools.experiment.views.view import Published

PRINTED = Unit(lambda loss: f"{loss:.4f}")  # as a console prints losses

CELL = Column[MeasuredCell]("", "cell", TEXT, lambda cell: cell.name)
RANKS = Column[MeasuredCell]("ranks", "world_size", COUNT, lambda cell: cell.world_size)
STEPS = Column[MeasuredCell](  # that the times of a run are of
    "steps", "steps", COUNT, lambda cell: min(len(rank.warm) for run in cell.runs for rank in run.ranks)
)
ROUNDS = Column[MeasuredCell]("rounds", "rounds", COUNT, lambda cell: len(cell.runs))


def measured(heading: str, name: str, measure: Measure, unit: Unit = DIGITS) -> Column[MeasuredCell]:
    """The median of a measure over the rounds."""
    return Column(heading, name, unit, lambda cell: cell.middle(measure))


def told(
    name: str, published: Published | None, unit: Unit = DIGITS, scale: float = 1.0, heading: str = "published"
) -> Column[MeasuredCell]:
    """What a document says of the same cell."""

    def value(cell: MeasuredCell) -> float | None:
        figure = published.of(cell.name) if published else None
        return None if figure is None else scale * figure

    return Column(heading, f"published_{name}", unit, value)


def estimated(heading: str, name: str, blocks: Blocks, unit: Unit = DIGITS) -> list[Column[MeasuredCell]]:
    """A cell's own value."""

    def find(cell: MeasuredCell) -> Interval | None:
        return blocks.estimate(cell.name)

    return with_interval(heading, name, find, unit)


def compared(heading: str, name: str, blocks: Blocks, base: str | None) -> list[Column[MeasuredCell]]:
    """A cell by the one that the others are related to; nothing where there is none."""

    def find(cell: MeasuredCell) -> Interval | None:
        return blocks.compare(cell.name, base)

    return with_interval(heading, name, find) if base else []


@dataclass(frozen=True)
class CellRank:
    """A rank of a cell; None stands for all of them."""

    cell: MeasuredCell
    rank: int | None


MEMBER = [
    Column[CellRank]("", "cell", TEXT, lambda member: member.cell.name),
    Column[CellRank]("rank", "rank", TEXT, lambda member: "all" if member.rank is None else member.rank),
]


def of_member(
    heading: str, name: str, measure: Callable[[int | None], Measure], unit: Unit = DIGITS
) -> Column[CellRank]:
    """The median of a rank's measure over the rounds."""
    return Column(heading, name, unit, lambda member: member.cell.middle(measure(member.rank)))


def ends_of_member(
    heading: str,
    name: str,
    measure: Callable[[int | None], Measure],
    unit: Unit,
    published: Callable[[CellRank], float | None] | None,
    *,
    repeated: bool,
) -> list[Column[CellRank]]:
    """A rank's measure in the first run, the median over the rounds where there are several, what was published."""
    columns = [Column[CellRank](heading, name, unit, lambda member: measure(member.rank)(member.cell.first))]
    if repeated:
        columns.append(of_member("median of rounds", f"{name}_median", measure, unit))
    if published:
        columns.append(Column("published", f"published_{name}", unit, published))
    return columns
