"""Where along an axis one thing stops being cheaper than another: from their ratio at a few places, with intervals."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from app.analysis.statistics import Interval

NOWHERE, EVERYWHERE = 0.0, math.inf  # in place of a place, where a ratio is below 1 at none of them, or at all


def break_even(ratios: Mapping[float, Interval]) -> Interval:
    """The place up to which the ratio is below 1, by the logarithms of ratios and places.

    What is saved on a link counts for less the faster the link is, so the true ratio rises along the axis: where the
    measured one falls, neighbours take their mean. The ends are where the ratios' intervals leave 1.
    """
    places = sorted(ratios)
    found = [ratios[place] for place in places]
    low, high = [each.low for each in found], [each.high for each in found]
    value = _crossing(places, [each.value for each in found])
    if None in low or None in high:
        return Interval(value, None, None)
    # The larger the ratio, the earlier it comes to 1.
    first, last = (_crossing(places, [each for each in ends if each is not None]) for ends in (high, low))
    return Interval(value, first, last)


def _crossing(places: Sequence[float], ratios: Sequence[float]) -> float:
    rising = _risen([math.log(ratio) for ratio in ratios])
    if not rising or rising[0] > 0:
        return NOWHERE
    for (one, below), (other, above) in pairwise(zip(places, rising, strict=True)):
        if above > 0:
            return one * math.exp(math.log(other / one) * -below / (above - below))
    return EVERYWHERE


def _risen(values: Sequence[float]) -> list[float]:
    """The nearest values that nowhere fall, by least squares: neighbours that do are pooled."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]
