"""A training step, simulated on all ranks: computation, the wait for the slowest, the exchanges, the update."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.tools.prediction.exchange import Passing, SimulatedMachine
from app.tools.prediction.processor import MOMENT
from app.tools.prediction.traffic import SimulatedExchange, barrier
from app.tools.prediction.waves import Figures

Costs = Mapping[str, Passing]  # by family
# When a rank has computed, met all others and averaged, and how long it did so behind backward: ranks x samples.
Moments = tuple[Figures, Figures, Figures, Figures]

IN_FLIGHT = 2  # buckets at a time: Gloo has as many threads for them


@dataclass(frozen=True)
class ComputeSamples:
    """CPU seconds of a step, ranks x samples."""

    before: Figures  # data and forward
    backward: Figures
    after: Figures  # the update
    pauses: Figures | float = 0.0  # seconds for each second of computation: of a rank that is slowed on purpose
    pauses_at: Collection[float] = ()  # parts of backward after which it pauses; none if no rank does


def take(
    machine: SimulatedMachine,
    begin: Figures,
    work: ComputeSamples,
    parts: Sequence[SimulatedExchange],
    costs: Costs,
    coding: float = 0.0,
) -> Moments:
    """A step up to its update, where exchanges follow backward and a barrier.

    `coding` is the CPU time of a compressor, before the first exchange.
    """
    if work.pauses_at:
        computed = _through_backward(machine, compute(machine, begin, work.before, work), work, [1.0])[-1]
    else:
        computed = compute(machine, begin, work.before + work.backward, work)
    met = _exchanged(machine, barrier(machine.ranks), costs, computed) if parts else computed
    done = machine.processors.compute(met, np.full(met.shape, coding)) if parts and coding else met
    for part in parts:
        done = _exchanged(machine, part, costs, done)
    return computed, met, done, np.zeros_like(begin)


def compute(machine: SimulatedMachine, begin: Figures, seconds: Figures, work: ComputeSamples) -> Figures:
    """When a piece of work of all ranks is done, and a rank that is slowed down has paused after it.

    A pause is as long as the piece took by the clock, times a factor: also what a quota made it wait.
    """
    end = machine.processors.compute(begin, seconds)
    return end + work.pauses * (end - begin)


def _through_backward(
    machine: SimulatedMachine, begin: Figures, work: ComputeSamples, shares: Sequence[float]
) -> list[Figures]:
    moments, so_far, now = {}, 0.0, begin
    for share in sorted({*shares, *work.pauses_at}):
        now = compute(machine, now, (share - so_far) * work.backward, work)
        moments[share], so_far = now, share
    return [moments[each] for each in shares]


def _exchanged(machine: SimulatedMachine, part: SimulatedExchange, costs: Costs, begin: Figures) -> Figures:
    call = np.full(begin.shape, costs[part.family].call)
    called = machine.processors.run(slice(None), begin, call, in_turn=part.in_turn)
    return machine.exchange(part.waves, part.element_bytes, costs[part.family], called)


Buckets = Sequence[tuple[float, SimulatedExchange]]  # each with the part of backward after which it can start


def take_overlapped(
    machine: SimulatedMachine, begin: Figures, work: ComputeSamples, buckets: Buckets, costs: Costs, link_share: float
) -> Moments:
    """The same for exchanges behind backward, which leaves them this share of the links' rate.

    The CPU time of what passes meanwhile comes out of the same quota, so it makes backward longer.
    """
    forward = compute(machine, begin, work.before, work)
    *ready, alone = _through_backward(machine, forward, work, [*(share for share, _ in buckets), 1.0])
    own = [part.cpu(costs[part.family], machine.ranks)[:, np.newaxis] for _, part in buckets]
    meanwhile = np.zeros_like(begin)  # CPU time
    for each, (start, end) in zip(own, _behind(machine, ready, alone, buckets, costs, link_share), strict=True):
        meanwhile += each * np.clip((alone - start) / np.maximum(end - start, MOMENT), 0.0, 1.0)
    computed = machine.processors.compute(alone, meanwhile)
    first, longer = ready[0], (computed - ready[0]) / np.maximum(alone - ready[0], MOMENT)
    ready = [first + (each - first) * longer for each in ready]
    ends = [end for _, end in _behind(machine, ready, computed, buckets, costs, link_share)]
    passed = np.max(ends, axis=0)
    worked = machine.processors.run(slice(None), computed, np.sum(own, axis=0) - meanwhile)
    done = np.maximum(worked, passed)
    last = np.broadcast_to(ready[-1].max(axis=0), done.shape)  # until then a rank waits for others
    met = np.minimum(np.maximum(computed, last), done)
    return computed, met, done, _covered(ready, ends, computed)


def _covered(begins: Sequence[Figures], ends: Sequence[Figures], until: Figures) -> Figures:
    """How long at least one exchange was under way before `until`; they are in the order in which they begin."""
    total, seen = np.zeros_like(until), begins[0]
    for begin, end in zip(begins, ends, strict=True):
        stop = np.minimum(end, until)
        total += np.maximum(stop - np.maximum(begin, seen), 0.0)
        seen = np.maximum(seen, stop)
    return total


def _behind(
    machine: SimulatedMachine,
    ready: Sequence[Figures],
    computed: Figures,
    buckets: Buckets,
    costs: Costs,
    link_share: float,
) -> list[tuple[Figures, Figures]]:
    """When each bucket's exchange starts and ends on each rank.

    While backward has the CPU, messages pass at a part of the links' rate. So they are simulated by a clock that goes
    slower until the last rank has ended backward.
    """
    clock = _SlowClock(ready[0].max(axis=0), computed.max(axis=0), link_share)
    behind = machine.afresh()  # its clock is the slow one
    found: list[tuple[Figures, Figures]] = []
    for (_, part), moment in zip(buckets, ready, strict=True):
        start = clock.at(machine.after_a_core(moment, costs["barrier"].crowd))  # a thread wakes up for it
        if len(found) >= IN_FLIGHT:
            start = np.maximum(start, found[-IN_FLIGHT][1])
        found.append((start, _exchanged(behind, part, costs, start)))
    machine.waves += behind.waves
    return [(clock.back(start), clock.back(end)) for start, end in found]


class _SlowClock:
    """Goes at a part of the speed between two moments."""

    def __init__(self, begin: Figures, end: Figures, speed: float) -> None:
        self._begin, self._end, self._speed = begin, np.maximum(begin, end), max(speed, 1e-6)

    def at(self, moment: Figures) -> Figures:
        slow = np.clip(moment, self._begin, self._end) - self._begin
        return moment - slow * (1 - self._speed)

    def back(self, shown: Figures) -> Figures:
        slow = np.clip(shown - self._begin, 0, (self._end - self._begin) * self._speed)
        return shown + slow * (1 / self._speed - 1)
