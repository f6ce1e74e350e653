"""From which value of a setting on more of it does not help, along a single line."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from app.experiment.reading.statistics import Blocks, Comparison
from app.experiment.views.axis import Point
from app.experiment.views.view import interval
from app.report.table import digits


def sentences(setting: str, points: Sequence[Point], blocks: Blocks, slowest_is_largest: bool) -> Iterator[str]:
    """The smallest value that no other is faster than, beyond the noise; and what each value brings."""

    def speed(point: Point, other: Point) -> Comparison | None:
        """How many times as fast the first is as the other."""
        names = point.cells[0].name, other.cells[0].name
        return blocks.compare(*(names[::-1] if slowest_is_largest else names))

    measured = [point for point in points if point.cells[0].name in blocks.cells]
    if len(measured) < 2:
        yield f"Not more than one value of {setting} was measured."
        return
    first, last = measured[0], measured[-1]
    steps = [(one, other, speed(other, one)) for one, other in pairwise(measured)]
    if any(step is None or step.beyond_noise is None for *_, step in steps):
        yield f"One round does not tell from which {setting} on more of it does not help."
    else:
        enough = next(each for each in measured if not any(_faster(speed(other, each)) for other in measured))
        if enough is first:
            yield f"More than {setting} {first.label} does not help: no other value is faster beyond the noise."
        else:
            gain = speed(enough, first)
            times = f"{digits(gain.value)} times{interval(gain)} as fast as {first.label}" if gain else ""
            yield (
                f"{setting} {enough.label}, the largest that was measured, is faster than any other: {times}."
                if enough is last
                else f"{setting} helps up to {enough.label}, which is {times}; no other value is faster than that "
                "beyond the noise."
            )
    words = (
        f"from {one.label} to {other.label} {digits(step.value)} times{interval(step)}"
        for one, other, step in steps
        if step
    )
    yield f"What each value brings: {'; '.join(words)} as fast."


def _faster(comparison: Comparison | None) -> bool:
    return bool(comparison and comparison.beyond_noise and comparison.value > 1)
