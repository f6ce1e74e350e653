"""Sentences and parts of sentences that several views use: how large a difference is, and whether it is one."""

from collections.abc import Iterable, Iterator, Sequence

from app.analysis.statistics import Blocks, Comparison
from app.analysis.units import digits
from app.pages.definitions import INTERVALS
from app.pages.intervals import NO_DIFFERENCE, interval
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.reading.results import Results


def times(comparison: Comparison) -> str:
    """A ratio in words."""
    return f"{digits(comparison.value)} times{interval(comparison)}"


def alike(comparison: Comparison) -> str:
    """What is added where a difference is within the noise."""
    return f", {NO_DIFFERENCE}" if comparison.beyond_noise is False else ""


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
        f"out). Numbers in brackets are {INTERVALS}."
    )


def difference_sentence(comparison: Comparison, cell: str, other: str) -> str:
    """One cell against another in words; a difference within the noise is called none."""
    if comparison.beyond_noise is None:
        return f"{cell} takes {times(comparison)} what {other} does, and one round does not tell whether that is noise."
    if comparison.beyond_noise:
        return f"{cell} takes {times(comparison)} what {other} does."
    return f"Between {cell} and {other} there is {NO_DIFFERENCE}: {times(comparison)}."


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


def listing(lead: str, parts: Iterable[str]) -> Iterator[str]:
    """A sentence of all parts, where there are any."""
    if together := "; ".join(parts):
        yield f"{lead}: {together}."


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def points(difference: float) -> str:
    """A difference of accuracies, without its sign."""
    return f"{100 * abs(difference):.1f} percentage points"
