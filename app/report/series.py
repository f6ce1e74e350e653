"""Series out of records, thinned so that a figure of many steps is no larger than one of a few."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_POINTS = 240

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A line of a figure."""

    name: str
    at: Numbers
    values: Numbers

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not len(self.values)


def series(name: str, at: Sequence[float], values: Sequence[float | None]) -> Series:
    """What was measured, in at most so many points, each the mean of its neighbours."""
    moments = np.array([moment for moment, value in zip(at, values, strict=True) if value is not None], dtype=float)
    measured = np.array([value for value in values if value is not None], dtype=float)
    if len(measured) > MOST_POINTS:
        edges = np.linspace(0, len(measured), MOST_POINTS + 1).astype(int)[:-1]
        counts = np.diff(np.append(edges, len(measured)))
        moments, measured = (np.add.reduceat(each, edges) / counts for each in (moments, measured))
    return Series(name, moments, measured)


def of_records(name: str, records: Sequence[Any], at: str, value: str, scale: float = 1.0) -> Series:
    """One field of records against another."""
    values = [getattr(record, value) for record in records]
    return series(
        name, [getattr(record, at) for record in records], [None if each is None else each * scale for each in values]
    )
