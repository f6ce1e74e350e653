"""Series out of records, thinned so that a figure of many steps is no larger than one of a few."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.records.lines import Usage

MOST_POINTS = 240

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """What the points of a thinned line stand for."""

    neighbours: int  # the last point may have fewer
    least: Numbers
    most: Numbers


@dataclass(frozen=True)
class Series:
    """A line of a figure."""

    name: str
    at: Numbers
    values: Numbers
    band: Band | None = None  # of a line with more values than points

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not len(self.values)


def series(name: str, at: Sequence[float], values: Sequence[float | None]) -> Series:
    """What was measured, in at most so many points, each the mean of its neighbours, within their least and most."""
    moments = np.array([moment for moment, value in zip(at, values, strict=True) if value is not None], dtype=float)
    measured = np.array([value for value in values if value is not None], dtype=float)
    if len(measured) <= MOST_POINTS:
        return Series(name, moments, measured)
    neighbours = -(-len(measured) // MOST_POINTS)
    edges = np.arange(0, len(measured), neighbours)
    counts = np.diff(np.append(edges, len(measured)))
    band = Band(neighbours, np.minimum.reduceat(measured, edges), np.maximum.reduceat(measured, edges))
    at_means, means = (np.add.reduceat(each, edges) / counts for each in (moments, measured))
    return Series(name, at_means, means, band)


def of_records(name: str, records: Sequence[Any], at: str, value: str, scale: float = 1.0) -> Series:
    """One field of records against another."""
    values = [getattr(record, value) for record in records]
    return series(
        name, [getattr(record, at) for record in records], [None if each is None else each * scale for each in values]
    )


def long_enough(samples: Sequence[Usage]) -> list[Usage]:
    """Those samples that a rate can be told of: over the moment at the end of a run it says nothing."""
    longest = max((sample.seconds for sample in samples), default=0.0)
    return [sample for sample in samples if sample.seconds > longest / 10]


def thinned(lines: Sequence[Series], what: str = "steps") -> str:
    """What a caption says where lines are means; nothing where they show every value."""
    counts = [line.band.neighbours for line in lines if line.band]
    if not counts:
        return ""
    many = f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f" A line is the mean of {many} neighbouring {what}, its band their least and most."
