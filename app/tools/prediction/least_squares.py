"""Costs out of measured totals: what one of each is worth, where none can be worth less than nothing."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from app.tools.prediction.calibration import CpuLine


def line_through(points: Sequence[tuple[float, float]]) -> CpuLine:
    """The line nearest to points of images and seconds, relative to the seconds; neither part is below zero."""
    if len({images for images, _ in points}) < 2:
        images, seconds = (sum(each) / len(points) for each in zip(*points, strict=True))
        return CpuLine(0.0, seconds / images if images else 0.0)
    fixed, per_image = non_negative(
        [{"fixed": 1.0, "per_image": images} for images, _ in points], [s for _, s in points]
    )
    return CpuLine(fixed, per_image)


def non_negative(rows: Sequence[Mapping[str, float]], totals: Sequence[float]) -> list[float]:
    """What one of each is worth, none below zero, so that the rows come nearest to their totals, relative to those.

    With so few unknowns, each choice of those that are zero can be tried.
    """
    names_of = list(rows[0])
    weight = 1 / np.maximum(np.array(totals, dtype=float), 1e-12)
    matrix = np.array([[row[name] for name in names_of] for row in rows], dtype=float) * weight[:, np.newaxis]
    wanted = np.array(totals, dtype=float) * weight
    best, least = [0.0] * len(names_of), float((wanted**2).sum())
    for count in range(1, len(names_of) + 1):
        for chosen in itertools.combinations(range(len(names_of)), count):
            part = matrix[:, chosen]
            scale = np.maximum(np.abs(part).max(axis=0), 1e-300)
            found = np.linalg.lstsq(part / scale, wanted, rcond=None)[0] / scale
            missed = float(((part @ found - wanted) ** 2).sum())
            if (found >= 0).all() and missed < least * (1 - 1e-9):
                least = missed
                best = [0.0] * len(names_of)
                for place, value in zip(chosen, found, strict=True):
                    best[place] = float(value)
    return best
