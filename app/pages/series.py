"""Series out of records, thinned so that a figure of many steps is no larger than one of a few."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.run_records import RankRecords
from app.analysis.statistics import Mask, Numbers

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
    return _thinned(name, moments, measured, measured, measured, most)


def over_ranks(name: str, at: Numbers, values: Numbers) -> Series:
    """The mean over all ranks (rows) of each step, with the least and the most of them."""
    if len(values) == 1 or not len(at):
        return series(name, at, values[0])
    return _thinned(name, at, np.ascontiguousarray(values.T).mean(1), values.min(0), values.max(0), MOST_POINTS)


def _thinned(name: str, at: Numbers, values: Numbers, low: Numbers, high: Numbers, most: int) -> Series:
    neighbours = -(-len(at) // most)
    edges = np.arange(0, len(at), neighbours)
    counts = np.diff(np.append(edges, len(at)))
    band = Band(neighbours, np.minimum.reduceat(low, edges), np.maximum.reduceat(high, edges))
    places, means = (np.add.reduceat(each, edges) / counts for each in (at, values))
    return Series(name, places, means, band)


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
