"""A schedule as arrays: messages that no rank has two of are simulated together, in one wave."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.sync.schedules.schedule import Round, Schedule

Indices = NDArray[np.int64]
Figures = NDArray[np.float64]
Ranks = Indices | slice
NOTHING = -1  # in place of a wave: there is nothing to wait for


def rows(values: Figures, ranks: Ranks) -> Figures:
    """Those of some ranks: of a slice without a copy, and otherwise several times as fast as by their numbers alone."""
    return values[ranks] if isinstance(ranks, slice) else values.take(ranks, axis=0)


def _in_a_row(ranks: Indices) -> Ranks:
    """A slice, where each is the next after the one before it."""
    first, count = int(ranks[0]), len(ranks)
    return slice(first, first + count) if (ranks == np.arange(first, first + count)).all() else ranks


@dataclass(frozen=True)
class Wave:
    """Messages with different senders and different receivers, each of an exchange of one round."""

    senders: Indices
    receivers: Indices
    starts: Indices  # of the pieces, in elements
    stops: Indices
    adds: NDArray[np.bool_]
    after: Indices  # for each message, the wave whose message its sender must have taken before
    asked: Indices  # and the one that its receiver must have taken before it asks for this
    behind: Indices  # and the one from its receiver to its sender behind which what it asks for arrives
    opens: bool = False  # a round, whose messages wait until what their senders sent before has left

    @cached_property
    def sending(self) -> Ranks:
        return _in_a_row(self.senders)

    @cached_property
    def receiving(self) -> Ranks:
        return _in_a_row(self.receivers)

    @cached_property
    def elements(self) -> Figures:
        return (self.stops - self.starts).astype(float)

    @cached_property
    def added(self) -> Figures:
        return self.elements * self.adds

    @cached_property
    def reasons(self) -> list[tuple[int, Ranks, Ranks]]:
        """The earlier waves that messages wait for, with the places of those messages, and the ranks that took it."""
        return [
            *_by_wave(self.after, self.senders),
            *_by_wave(self.asked, self.receivers),
            *_by_wave(self.behind, self.senders),
        ]


def _by_wave(numbers: Indices, ranks: Indices) -> Iterator[tuple[int, Ranks, Ranks]]:
    for number in np.unique(numbers):
        if number != NOTHING:
            places = np.flatnonzero(numbers == number)
            yield int(number), _in_a_row(places), _in_a_row(ranks[places])


def waves_of(
    schedule: Schedule, world_size: int, most_elements: int | None = None, *, requests: bool = False
) -> list[Wave]:
    """All of them, in order; messages are cut into pieces of at most so many elements, as they are when they run.

    With requests, messages wait until their receivers ask for them, as those of our own rounds do.
    """
    found: list[Wave] = []
    taken: list[tuple[Indices, Indices]] = []  # by wave, what each rank receives in it: from, and up to
    asking = _Asking(world_size)
    for number in range(len(schedule.rounds)):
        one = Schedule(schedule.rounds[number : number + 1])
        messages = one.rounds[0] if most_elements is None else one.in_pieces(most_elements).rounds[0]
        earlier = len(found)
        own = [_with_reasons(wave, found, taken, earlier) for wave in _apart(messages)]
        found += asking.round(own, earlier) if requests else own
        if requests and own:
            found[earlier] = replace(found[earlier], opens=True)
        for wave in own:
            spans = np.zeros((2, world_size), dtype=np.int64)
            spans[:, wave.receivers] = wave.starts, wave.stops
            taken.append((spans[0], spans[1]))
    return found


def limit_in_flight(most: int, waves: Sequence[Wave]) -> list[Wave]:
    """The same where each rank takes part in each wave, in no more than so many at a time.

    A rank sends and asks for the next message when it has taken the one so many before it; before the all-gather, when
    it has taken all.
    """
    found: list[Wave] = []
    began = 0  # the first wave of the reduce-scatter, or of the all-gather
    for number, wave in enumerate(waves):
        if number and wave.adds.any() != waves[number - 1].adds.any():
            began = number
        earlier = np.full(len(wave.senders), max(number - most, began - 1))
        found.append(replace(wave, asked=earlier, after=np.maximum(wave.after, earlier)))
    return found


class _Asking:
    """After which receives ranks ask and send: `asked_after` and `sent_after`, of all ranks at once."""

    def __init__(self, world_size: int) -> None:
        self._last, self._sender, self._other = np.full((3, world_size), NOTHING)
        """By rank: the wave in which it received last, from whom, and the last one before in which another sent."""
        self._sent = np.full((world_size, world_size), NOTHING)
        """By sender and receiver: the last wave of an earlier round between them."""

    def round(self, waves: Sequence[Wave], number: int) -> list[Wave]:
        """The waves of a round, of which the first has this number, with what their messages wait for besides."""
        if not waves:
            return []
        asked = [self._from_another(wave) for wave in waves]
        for place, wave in enumerate(waves, number):
            self._other[wave.receivers] = self._from_another(wave)
            self._last[wave.receivers], self._sender[wave.receivers] = place, wave.senders
        own = np.split(_of_what_comes_back(waves, asked), np.cumsum([len(each) for each in asked])[:-1])
        found = [
            replace(wave, asked=each, after=np.maximum(wave.after, after), behind=self._behind(wave))
            for wave, each, after in zip(waves, asked, own, strict=True)
        ]
        for place, wave in enumerate(waves, number):
            self._sent[wave.senders, wave.receivers] = place
        return found

    def _behind(self, wave: Wave) -> Indices:
        """The last wave of earlier rounds from each receiver to its sender, on the connection of the request.

        Only for what arrives in the place of what was sent: the rest is asked for before anything is sent.
        """
        return np.where(wave.adds, NOTHING, self._sent[wave.receivers, wave.senders])

    def _from_another(self, wave: Wave) -> Indices:
        """The last wave in which each receiver received from another than its sender here."""
        ranks = wave.receivers
        return np.where(self._sender[ranks] == wave.senders, self._other[ranks], self._last[ranks])


def _of_what_comes_back(waves: Sequence[Wave], asked: Sequence[Indices]) -> Indices:
    """For all messages of a round, after which wave their sender asks for what their receiver sends to it."""
    senders, receivers = (np.concatenate(each) for each in zip(*((w.senders, w.receivers) for w in waves), strict=True))
    most = max(senders.max(), receivers.max()) + 1
    pairs, turned = senders * most + receivers, receivers * most + senders
    order = np.argsort(pairs, kind="stable")
    last = np.searchsorted(pairs, turned, side="right", sorter=order) - 1
    back = order[np.maximum(last, 0)]
    return np.where((last >= 0) & (pairs[back] == turned), np.concatenate(asked)[back], NOTHING)


def _apart(messages: Round) -> Iterator[Wave]:
    """The messages of a round, in as few waves as their order allows."""
    if not messages:
        return
    table = np.array([(m.sender, m.receiver, m.piece.start, m.piece.stop, m.adds) for m in messages], dtype=np.int64)
    numbers = _numbers(table[:, 0], table[:, 1])
    for number in range(int(numbers.max()) + 1):
        senders, receivers, starts, stops, adds = table[numbers == number].T
        nothing = np.full(len(senders), NOTHING)
        yield Wave(senders, receivers, starts, stops, adds.astype(bool), nothing, nothing, nothing)


def _numbers(senders: Indices, receivers: Indices) -> Indices:
    """Of the wave of each message: the one after those of all before it that have its sender or its receiver."""
    numbers = np.zeros(len(senders), dtype=np.int64)
    if all(len(np.unique(each)) == len(each) for each in (senders, receivers)):
        return numbers
    sends, receives = Counter[int](), Counter[int]()
    for at, (sender, receiver) in enumerate(zip(map(int, senders), map(int, receivers), strict=True)):
        number = max(sends[sender], receives[receiver])
        numbers[at] = number
        sends[sender] = receives[receiver] = number + 1
    return numbers


def _with_reasons(wave: Wave, found: list[Wave], taken: list[tuple[Indices, Indices]], earlier: int) -> Wave:
    """What each message waits for: the last one of an earlier round to its sender that touches the same elements."""
    after = wave.after.copy()
    for number in range(earlier - 1, -1, -1):
        starts, stops = taken[number]
        touch = np.maximum(starts[wave.senders], wave.starts) < np.minimum(stops[wave.senders], wave.stops)
        after[touch & (after == NOTHING)] = number
        if (after != NOTHING).all():
            break
    return replace(wave, after=after)
