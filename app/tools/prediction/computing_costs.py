"""What a model's own step costs in CPU time, from the runs of a calibration: lines by images, by least squares."""

import itertools
from collections.abc import Sequence

import numpy as np

from app.tools.prediction.calibration import Computing, CpuLine, kept_of
from app.tools.prediction.observed import COMPUTING, Observed
from app.tools.prediction.traffic import overlaps
from app.tools.prediction.waves import Figures

MOST_SAMPLES = 400  # of a spread
FEWER = 1.9  # renewals of a quota in one run by those in another, from which on they tell what each costs


def by_model(runs: Sequence[Observed]) -> dict[str, Computing]:
    """By model. Backward in a mode that hides something also has the CPU time of messages, so it is left out."""
    found = {}
    for model in dict.fromkeys(each.settings.training.model for each in runs):
        of_model = [each for each in runs if each.settings.training.model == model]
        if own := [each for each in of_model if not overlaps(each.settings.averaging)]:
            found[model] = own_work(own, of_model)
    return found


def own_work(own: Sequence[Observed], of_model: Sequence[Observed]) -> Computing:
    """What these runs show; of all runs of the model, one on a single rank shows when gradients are there."""
    images = [each.setup.images for each in own]
    ready = [each for each in of_model if each.ranks == 1 and each.run.ranks[0].warm[0].buckets]
    work = [each.cpu(*COMPUTING) for each in own]
    several = [(each / each.mean(axis=0)).ravel() for each in work if len(each) > 1]
    renewal = _renewal(own)
    return Computing(
        _line(own, renewal, "data", "forward"),
        _line(own, renewal, "backward"),
        _line(own, renewal, "optimiser"),
        min(images),
        max(images),
        _thinned(np.concatenate(several)) if several else [1.0],
        _thinned(np.concatenate([each.mean(axis=0) / each.mean() for each in work])),
        _ready(ready[0]) if ready else _even(own[0]),
        renewal,
    )


def _line(runs: Sequence[Observed], renewal: float, *phases: str) -> CpuLine:
    """What is left of the CPU time when what renewals cost is taken off."""
    seconds = [kept_of(renewal, each.setup) * float(np.median(each.cpu(*phases))) for each in runs]
    return line_through([each.setup.images for each in runs], seconds)


def line_through(images: Sequence[float], seconds: Sequence[float]) -> CpuLine:
    """The line nearest to the seconds, relative to them; neither part is below zero."""
    if len({*images}) < 2:
        return CpuLine(0.0, float(np.mean(seconds) / np.mean(images)))
    fixed, per_image = non_negative(np.array([(1.0, each) for each in images]), seconds)
    return CpuLine(fixed, per_image)


def _renewal(runs: Sequence[Observed]) -> float:
    """CPU time lost with each renewal of a quota, by runs with as many images that had fewer renewals, or none."""
    alike: dict[float, list[Observed]] = {}
    for each in runs:
        if each.settings.averaging.compression == "none":  # those are made minutes after the others
            alike.setdefault(each.setup.images, []).append(each)
    unlike = {
        images: those
        for images, those in alike.items()
        if max(each.setup.renewals for each in those) > FEWER * min(each.setup.renewals for each in those)
    }
    told = [each for those in unlike.values() for each in those]
    totals = [float(np.median(each.cpu(*COMPUTING))) for each in told]
    rows = [
        [*(float(each.setup.images == images) for images in unlike), seconds * each.setup.renewals]
        for each, seconds in zip(told, totals, strict=True)
    ]
    return non_negative(np.array(rows), totals)[-1] if rows else 0.0


def _thinned(values: Figures) -> list[float]:
    """So many of them that a file can hold them: evenly chosen from the smallest to the largest."""
    places = np.linspace(0, len(values) - 1, min(len(values), MOST_SAMPLES)).round().astype(int)
    return [round(float(each), 4) for each in np.sort(values)[places]]


def _ready(run: Observed) -> list[float]:
    """The median over steps of when each gradient is there, as a part of backward."""
    parts = []
    for step in run.run.ranks[0].warm:
        moments = [bucket.ready_seconds for bucket in step.buckets or ()]
        began, ended = step.data_seconds + step.forward_seconds, max(moments)
        parts.append([(moment - began) / (ended - began) for moment in moments])
    return [round(min(1.0, max(0.0, float(each))), 4) for each in np.maximum.accumulate(np.median(parts, axis=0))]


def _even(run: Observed) -> list[float]:
    """Where that was not measured: as if each gradient took as long as any other."""
    count = len(run.setup.shapes)
    return [(number + 1) / count for number in range(count)]


def non_negative(counts: Figures, totals: Sequence[float]) -> list[float]:
    """What one of each column is worth, none below zero, so that rows come nearest to their totals, relative to those.

    With so few unknowns, each choice of those that are zero can be tried.
    """
    weight = 1 / np.maximum(np.array(totals), 1e-12)
    matrix, wanted = counts * weight[:, np.newaxis], totals * weight
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    best, least = np.zeros(matrix.shape[1]), float((wanted**2).sum())
    for count in range(1, len(best) + 1):
        for chosen in map(list, itertools.combinations(range(len(best)), count)):
            part = matrix[:, chosen]
            found = np.linalg.lstsq(part / scale[chosen], wanted, rcond=None)[0] / scale[chosen]
            missed = float(((part @ found - wanted) ** 2).sum())
            if (found >= 0).all() and missed < least * (1 - 1e-9):
                least, best = missed, np.zeros(len(best))
                best[chosen] = found
    return [float(each) for each in best]
