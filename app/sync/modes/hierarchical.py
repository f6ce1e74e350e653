"""`hierarchical`: rings within groups of ranks, and rings between the groups."""

from collections.abc import Iterator
from itertools import chain, zip_longest

from app.settings.averaging import AveragingSettings
from app.sync.modes.ring_all_reduce import all_gather, reduce_scatter
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Round, Schedule, cut


class Hierarchical(Scheduled):
    """Rings in G = N/g groups of g = GROUP_SIZE neighbouring ranks, and rings across them.

    A reduce-scatter within each group leaves each rank with one chunk of the group's sum. The ranks at the same
    position in all groups average that chunk in a ring of their own. An all-gather within each group distributes it.

    Formula: grad = (1/N) * sum of all ranks' grad, added up group by group.
    Bytes per rank and step: 2(g-1)/g * S + 2(G-1)/G * S/g for gradients of S bytes, as many as in a ring; only
    the second term crosses groups.
    Messages: 2(g-1) + 2(G-1), each in its own round, compared with 2(N-1) in a ring.
    Equivalent to `all_reduce`, within rounding. It is faster if links between groups are slower than those within.
    """

    @staticmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        size, whole = settings.group_size_of(world_size), range(elements)
        groups = [range(first, first + size) for first in range(0, world_size, size)]
        across = list(zip([range(place, world_size, size) for place in range(size)], cut(whole, size), strict=True))
        return Schedule.of(
            *at_once(*(reduce_scatter(group, whole) for group in groups)),
            *at_once(*(reduce_scatter(ranks, chunk) for ranks, chunk in across)),
            *at_once(*(all_gather(ranks, chunk) for ranks, chunk in across)),
            *at_once(*(all_gather(group, whole) for group in groups)),
        )


def at_once(*collectives: Iterator[Round]) -> Iterator[Round]:
    """Merge the rounds of several collectives among disjoint ranks."""
    for rounds in zip_longest(*collectives, fillvalue=()):
        yield tuple(chain.from_iterable(rounds))
