"""Series out of records, thinned so that a figure of many steps is no larger than one of a few."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.analysis.run_records import RankRecords, column
from app.analysis.statistics import Numbers
from app.analysis.table import Mask

MOST_POINTS = 240


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


def series(
    name: str, at: Sequence[float] | Numbers, values: Sequence[float | None] | Numbers, most: int = MOST_POINTS
) -> Series:
    """The measured values in at most `most` points, each the mean of its neighbours, with their least and most."""
    found = np.array(values, dtype=float)
    known = ~np.isnan(found)
    moments, measured = np.array(at, dtype=float)[known], found[known]
    if len(measured) <= most:
        return Series(name, moments, measured)
    neighbours = -(-len(measured) // most)
    edges = np.arange(0, len(measured), neighbours)
    counts = np.diff(np.append(edges, len(measured)))
    band = Band(neighbours, np.minimum.reduceat(measured, edges), np.maximum.reduceat(measured, edges))
    at_means, means = (np.add.reduceat(each, edges) / counts for each in (moments, measured))
    return Series(name, at_means, means, band)


def over_ranks(name: str, at: Sequence[float], values: Sequence[Sequence[float]]) -> Series:
    """The mean over all ranks of each step, with the least and the most of them, in at most MOST_POINTS points."""
    if not values or len(values[0]) == 1:
        return series(name, at, [value for (value,) in values])
    by_step = np.array(values, dtype=float)
    neighbours = -(-len(at) // MOST_POINTS)
    edges = np.arange(0, len(at), neighbours)
    counts = np.diff(np.append(edges, len(at)))
    places, means = (np.add.reduceat(each, edges) / counts for each in (np.array(at, float), by_step.mean(1)))
    band = Band(neighbours, np.minimum.reduceat(by_step.min(1), edges), np.maximum.reduceat(by_step.max(1), edges))
    return Series(name, places, means, band)


def of_records(name: str, records: Sequence[Any], at: str, value: str, scale: float = 1.0) -> Series:
    """One field of records against another."""
    return series(name, column(records, at), column(records, value) * scale)


def of_usage(rank: RankRecords, name: str, field: str, most: int = MOST_POINTS) -> Series:
    """A field of the samples of a rank's usage. Amounts of an interval are shown per second."""
    kept = long_enough(rank)
    values = rank.sampled[field] / rank.sampled["seconds"] if field.startswith("network") else rank.sampled[field]
    return series(name, rank.sampled["ends"][kept], values[kept], most)


def long_enough(rank: RankRecords) -> Mask:
    """Those samples that a rate can be told of: over the moment at the end of a run it says nothing."""
    seconds = rank.sampled["seconds"]
    kept: Mask = seconds > seconds.max(initial=0.0) / 10
    return kept


def thinned(lines: Sequence[Series], what: str = "steps") -> str:
    """What a caption says where lines are means; nothing where they show every value."""
    counts = [line.band.neighbours for line in lines if line.band and line.band.neighbours > 1]
    if not counts:
        return ""
    many = f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f" A line is the mean of {many} neighbouring {what}, its band their least and most."


def left_out(count: int, most: int, what: str) -> str:
    """What a caption says where a figure cannot show all of them."""
    return f" The first {most} of {count} {what} are drawn." if count > most else ""
