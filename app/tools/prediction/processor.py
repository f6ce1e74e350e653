"""CPU time on simulated ranks: within each rank's quota, and within the cores of a host that they share."""

from dataclasses import dataclass

import numpy as np

from app.tools.prediction.waves import Figures, Ranks, rows

PERIOD_SECONDS = 0.1  # how often the kernel renews a quota: Docker's default
MOST_IN_TURNS = 64  # ranks of one host that are simulated one by one; more get equal parts of its cores
MOST_LOST = 0.5  # of an allowance, whatever takes it
MOMENT = 1e-9  # seconds that are nothing


@dataclass(frozen=True)
class Cpus:
    """What ranks may use."""

    quota: float | None = None  # CPUs of each rank; None: as many as there are
    shared_cores: int | None = None  # of the one host of all ranks; None: each has a host of its own
    lost: float = 0.0  # CPU seconds of each allowance that exchanges do not get, as another core has them


class Processors:
    """When work is done that begins at given moments. All arrays are ranks x samples.

    A quota is an allowance of CPU time, renewed in each period: what fits into it runs at full speed, the rest waits
    for the next period. Periods of different ranks begin at different moments.
    """

    def __init__(self, cpus: Cpus, ranks: int, samples: int, random: np.random.Generator) -> None:
        self._cores, self._ranks = cpus.shared_cores, ranks
        self._allowed = np.inf if cpus.quota is None else cpus.quota * PERIOD_SECONDS  # in a period, to one thread,
        self._in_pieces = max(self._allowed - cpus.lost, MOST_LOST * self._allowed)  # and to several that take turns
        self._phase = random.uniform(0, PERIOD_SECONDS, (ranks, samples))
        self._renewal = np.full((ranks, samples), -np.inf)  # the end of the period in which each rank worked last
        self._used = np.zeros((ranks, samples))  # CPU time in that period
        self._clock = np.full(samples, -np.inf)  # when the shared cores were looked at last,
        self._backlog = np.zeros(samples)  # and how long they needed then for the short works that they had been given

    def compute(self, start: Figures, work: Figures) -> Figures:
        """Work of all ranks at about the same time: on a shared host, those at work have equal parts of its cores."""
        if self._cores is None or self._ranks <= self._cores:
            return self._within_quota(slice(None), start, work, self._allowed)
        if self._ranks > MOST_IN_TURNS:
            return self._within_quota(slice(None), start, work, self._allowed, self._cores / self._ranks)
        return self._in_turns(start, work)

    def run(self, ranks: Ranks, start: Figures, work: Figures | float, *, in_turn: bool = False) -> Figures:
        """Short pieces of work: on a shared host they take the cores in the order in which they come.

        They get all of an allowance only `in_turn`: where no others wait for them meanwhile.
        """
        if not np.count_nonzero(work):
            return start
        end = self._within_quota(ranks, start, work, self._allowed if in_turn else self._in_pieces)
        if self._cores is not None:
            each = np.broadcast_to(np.asarray(work) / self._cores, end.shape)
            end = np.maximum(end, self._through_cores(end - work, each))
        return end

    def _through_cores(self, start: Figures, work: Figures) -> Figures:
        """As if the cores were one that is as fast as all together.

        Works are not given quite in the order of time. What is left from those before is counted at the first start.
        """
        first = start.min(axis=0)
        clock = np.maximum(self._clock, first)
        with np.errstate(invalid="ignore"):
            passed = np.where(np.isfinite(self._clock), clock - self._clock, 0.0)
        self._clock, left = clock, np.maximum(self._backlog - passed, 0.0)
        self._backlog = left + work.sum(axis=0)
        return _one_after_another(np.maximum(start, first + left), work)

    def _in_turns(self, start: Figures, work: Figures) -> Figures:
        """From event to event: a rank begins, is done, has used up its allowance, or gets the next one."""
        now, left, end = start.min(axis=0), work.copy(), start.copy()
        renewal = self._renewal_after(start, self._phase)
        used: Figures = np.where(abs(renewal - self._renewal) < MOMENT, self._used, 0.0)
        unfinished = left > MOMENT
        while unfinished.any():
            begun = unfinished & (start <= now + MOMENT)
            unused = self._allowed - used
            at_work = begun & (unused > MOMENT)
            speed = np.minimum(1.0, (self._cores or 1) / np.maximum(at_work.sum(axis=0), 1))
            until = np.where(unfinished & ~begun, start - now, np.inf)
            until = np.where(begun, renewal - now, until)
            until = np.where(at_work, np.minimum(until, np.minimum(left, unused) / speed), until)
            taken = until.min(axis=0)
            taken = np.where(np.isfinite(taken), np.maximum(taken, 0.0), 0.0)
            now = now + taken
            done = np.where(at_work, taken * speed, 0.0)
            renewed = begun & (renewal <= now + MOMENT)
            left, used, renewal = left - done, np.where(renewed, 0.0, used + done), renewal + renewed * PERIOD_SECONDS
            finished = unfinished & (left <= MOMENT)
            end = np.where(finished, now, end)
            np.copyto(self._renewal, renewal, where=finished)
            np.copyto(self._used, used, where=finished)
            unfinished &= ~finished
        return end

    def _within_quota(
        self, ranks: Ranks, start: Figures, work: Figures | float, allowed: float, speed: float = 1.0
    ) -> Figures:
        """Without sharing: what fits into what is left of the period, and the rest in those after it.

        What could have begun in a period that a rank has left already begins in its present one.
        """
        if np.isinf(allowed):
            return np.asarray(start + work / speed)
        before, used_before = rows(self._renewal, ranks), rows(self._used, ranks)
        start = np.maximum(start, before - PERIOD_SECONDS)
        renewal = np.maximum(self._renewal_after(start, rows(self._phase, ranks)), before)
        used = used_before.copy()
        np.copyto(used, 0.0, where=abs(renewal - before) > MOMENT)
        room = np.minimum(np.maximum(allowed - used, 0.0), (renewal - start) * speed)
        here = np.minimum(work, room)
        rest = work - here
        end: Figures = start + here / speed
        used += here
        over = np.flatnonzero(rest > 0)
        if len(over):
            whole, last = _periods(rest.take(over), min(allowed, PERIOD_SECONDS * speed))
            begun = renewal.take(over) + whole * PERIOD_SECONDS
            end.put(over, begun + last / speed)
            used.put(over, last)
            renewal.put(over, begun + PERIOD_SECONDS)
        self._renewal[ranks], self._used[ranks] = renewal, used
        return end

    @staticmethod
    def _renewal_after(start: Figures, phase: Figures) -> Figures:
        """When the period ends in which that lies."""
        return np.asarray((np.floor((start + phase) / PERIOD_SECONDS) + 1) * PERIOD_SECONDS - phase)


def _periods(work: Figures, at_most: float) -> tuple[Figures, Figures]:
    """How many whole periods work takes that begins with one, and what is left of it in the last."""
    whole = np.maximum(np.ceil(work / at_most) - 1, 0.0)
    return whole, work - whole * at_most


def _one_after_another(start: Figures, work: Figures) -> Figures:
    """When each is done by a single processor that takes them in the order in which they come."""
    if len(start) == 1:
        return start + work
    order = np.argsort(start, axis=0, kind="stable"), np.arange(start.shape[1])
    taken = work[order]
    through = np.cumsum(taken, axis=0)
    end = np.empty_like(start)
    end[order] = np.maximum.accumulate(start[order] - (through - taken), axis=0) + through
    return end
