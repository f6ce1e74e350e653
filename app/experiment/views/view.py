"""What a view is: a part of an experiment's page, chosen in the grid file, made from finished runs alone."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Figure, Measured, Results
from app.experiment.reading.statistics import Blocks, Comparison, Estimate
from app.report.drawing import Drawing
from app.report.table import Column, Table, Value, digits, plain


@dataclass(frozen=True)
class Section:
    """A part of the page: what was read off, in sentences; figures; tables."""

    name: str
    title: str
    sentences: list[str]
    figures: list[Drawing] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


class Published(BaseModel):
    """Figures that a document published, by cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(description="which document, in a few words")
    values: dict[str, float | list[float | None]] = Field(description="by cell; a list where there are several")

    def of(self, cell: str) -> float | None:
        """The figure of a cell that has one."""
        value = self.values.get(cell)
        return None if isinstance(value, list) else value

    def at(self, cell: str, place: int) -> float | None:
        """One of a cell's several figures, such as a rank's; a single figure holds for each of them."""
        value = self.values.get(cell)
        if isinstance(value, list):
            return value[place] if place < len(value) else None
        return value

    def ratio(self, cell: str, other: str) -> float | None:
        """One cell's figure by another's."""
        value, base = self.of(cell), self.of(other)
        return value / base if value is not None and base else None


class View(BaseModel):
    """A part of the page. Its fields are the options that [[show]] takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(description="the heading")
    note: str = Field("", description="a remark of the author's below it")

    @abstractmethod
    def section(self, results: Results, name: str) -> Section:
        """Make it; `name` is its own among the views of the page."""

    def named_cells(self) -> list[str]:
        """The cells that the options name, which must be there."""
        return []


def middle(runs: Sequence[Measured], figure: Figure) -> float | None:
    """The median of a figure over runs; None where one of them lacks it."""
    values = [figure(run) for run in runs]
    measured = [value for value in values if value is not None]
    return median(measured) if measured and len(measured) == len(values) else None


def interval(estimate: Estimate | Comparison) -> str:
    """A confidence interval in words."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({digits(estimate.low)} to {digits(estimate.high)})"


def noise_sentence(blocks: Blocks, results: Results, *, points: bool = False, what: str = "") -> str:
    """How far repeats differ (in `what`), which is what a difference has to exceed; accuracies in percentage points."""
    if blocks.noise is None:
        return (
            f"Noise is not known, because there is not more than {results.grid.repeats} round"
            f"{'s' if results.grid.repeats > 1 else ''} to tell it: no difference is called one."
        )
    return (
        f"Repeats of a cell differ by {100 * blocks.noise:.1f} {'percentage points' if points else '%'}"
        f"{f' in {what}' if what else ''} (standard deviation, with what all cells of a round have in common taken "
        "out). Intervals are of 95 % confidence."
    )


def difference_sentence(comparison: Comparison, cell: str, other: str, what: str = "takes") -> str:
    """One cell against another in words; a difference within the noise is called none."""
    ratio = f"{digits(comparison.value)} times{interval(comparison)}"
    if comparison.beyond_noise is None:
        return f"{cell} {what} {ratio} what {other} does, and one round does not tell whether that is noise."
    if comparison.beyond_noise:
        return f"{cell} {what} {ratio} what {other} does."
    return f"Between {cell} and {other} there is no difference beyond the noise: {ratio}."


def missing_sentences(results: Results, cells: Sequence[Cell] | None = None) -> list[str]:
    """What was planned and is not there: cells without a finished run, and cells that lack some of their rounds."""
    absent: dict[str | None, list[str]] = {}
    few: dict[int, list[str]] = {}
    for cell in results.grid.cells if cells is None else cells:
        there = len(results.runs(cell.name))
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


def ranked(blocks: Blocks, cells: Sequence[str]) -> list[str]:
    """These cells, the largest figure first."""
    found = [(estimate.median, cell) for cell in cells if (estimate := blocks.estimate(cell))]
    return [cell for _, cell in sorted(found, reverse=True)]


def cell_column(heading: str = "") -> Column:
    """The column of the cells' names."""
    return Column(heading, "cell", plain)


def estimate_columns(heading: str, name: str) -> list[Column]:
    """A median, and the interval beside it."""
    return [
        Column(heading, name, digits),
        Column("95 % from", f"{name}_low", digits),
        Column("to", f"{name}_high", digits),
    ]


def estimate_values(estimate: Estimate | Comparison | None) -> list[Value]:
    """For those columns."""
    if estimate is None:
        return [None, None, None]
    middle = estimate.median if isinstance(estimate, Estimate) else estimate.value
    return [middle, estimate.low, estimate.high]
