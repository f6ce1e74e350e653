"""A schedule as arrays: messages that no rank has two of are simulated together, in one wave."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.costs.schedules import Round, Schedule

Indices = NDArray[np.int64]
Figures = NDArray[np.float64]
NOTHING = -1  # in place of a wave: there is nothing to wait for


@dataclass(frozen=True)
class Wave:
    """Messages with different senders and different receivers, each of an exchange of one round."""

    senders: Indices
    receivers: Indices
    starts: Indices  # of the pieces, in elements
    stops: Indices
    adds: NDArray[np.bool_]
    after: Indices  # for each message, the wave whose message its sender must have taken before
    needed: bool = False  # whether any later one waits for it

    @cached_property
    def elements(self) -> Figures:
        """How many each message carries."""
        return (self.stops - self.starts).astype(float)

    @cached_property
    def added(self) -> Figures:
        """How many of them its receiver adds."""
        return self.elements * self.adds

    @cached_property
    def reasons(self) -> list[tuple[int, Indices]]:
        """The earlier waves that messages wait for, each with the places of those messages in this one."""
        earlier = np.unique(self.after)
        return [(int(each), np.nonzero(self.after == each)[0]) for each in earlier if each != NOTHING]


def waves_of(schedule: Schedule, world_size: int, most_elements: int | None = None) -> list[Wave]:
    """All of them, in order; messages are cut into pieces of at most so many elements, as they are when they run."""
    found: list[Wave] = []
    taken: list[tuple[Indices, Indices]] = []  # by wave, what each rank receives in it: from, and up to
    for number in range(len(schedule.rounds)):
        one = Schedule(schedule.rounds[number : number + 1])
        messages = one.rounds[0] if most_elements is None else one.in_pieces(most_elements).rounds[0]
        earlier = len(found)
        for wave in _apart(messages):
            found.append(_with_reasons(wave, found, taken, earlier))
        for wave in found[earlier:]:
            spans = np.zeros((2, world_size), dtype=np.int64)
            spans[:, wave.receivers] = wave.starts, wave.stops
            taken.append((spans[0], spans[1]))
    return _marked(found)


def _apart(messages: Round) -> Iterator[Wave]:
    """The messages of a round, in as few waves as their order allows."""
    numbers = np.zeros(len(messages), dtype=np.int64)
    sends, receives = Counter[int](), Counter[int]()
    for at, message in enumerate(messages):
        number = max(sends[message.sender], receives[message.receiver])
        numbers[at] = number
        sends[message.sender] = receives[message.receiver] = number + 1
    rows = np.array([(m.sender, m.receiver, m.piece.start, m.piece.stop, m.adds) for m in messages], dtype=np.int64)
    for number in range(int(numbers.max()) + 1 if len(messages) else 0):
        senders, receivers, starts, stops, adds = rows[numbers == number].T
        yield Wave(senders, receivers, starts, stops, adds.astype(bool), np.full(len(senders), NOTHING))


def _with_reasons(wave: Wave, found: list[Wave], taken: list[tuple[Indices, Indices]], earlier: int) -> Wave:
    """What each message waits for: the last one of an earlier round to its sender that touches the same elements."""
    after = wave.after.copy()
    for number in range(earlier - 1, -1, -1):
        starts, stops = taken[number]
        touch = np.maximum(starts[wave.senders], wave.starts) < np.minimum(stops[wave.senders], wave.stops)
        after[touch & (after == NOTHING)] = number
        if (after != NOTHING).all():
            break
    return Wave(wave.senders, wave.receivers, wave.starts, wave.stops, wave.adds, after)


def _marked(found: list[Wave]) -> list[Wave]:
    needed = {int(each) for wave in found for each in np.unique(wave.after)}
    return [
        Wave(each.senders, each.receivers, each.starts, each.stops, each.adds, each.after, number in needed)
        for number, each in enumerate(found)
    ]
