"""CPU time on simulated ranks: within each rank's quota, and within the cores of a host that they share."""

from dataclasses import dataclass

import numpy as np

from app.prediction.waves import Figures, Indices

PERIOD_SECONDS = 0.1  # how often the kernel renews a quota: Docker's default
MOST_IN_TURNS = 64  # ranks of one host that are simulated one by one; more get equal parts of its cores
MOMENT = 1e-9  # seconds that are nothing


@dataclass(frozen=True)
class Cpus:
    """What ranks may use."""

    quota: float | None = None  # CPUs of each rank; None: as many as there are
    shared_cores: int | None = None  # of the one host of all ranks; None: each has a host of its own


class Processors:
    """When work is done that begins at given moments. All arrays are ranks x samples.

    A quota is an allowance of CPU time, renewed in each period: what fits into it runs at full speed, the rest waits
    for the next period. Periods of different ranks begin at different moments.
    """

    def __init__(self, cpus: Cpus, ranks: int, samples: int, random: np.random.Generator) -> None:
        self._cores, self._ranks = cpus.shared_cores, ranks
        self._allowed = np.inf if cpus.quota is None else cpus.quota * PERIOD_SECONDS  # in a period
        self._phase = random.uniform(0, PERIOD_SECONDS, (ranks, samples))
        self._window = np.full((ranks, samples), -1.0)  # the period in which each rank worked last
        self._used = np.zeros((ranks, samples))  # CPU time in that period
        self._clock = np.full(samples, -np.inf)  # when the shared cores were looked at last,
        self._backlog = np.zeros(samples)  # and how long they needed then for the short works that they had been given

    def compute(self, start: Figures, work: Figures, pace: Figures | float = 1.0) -> Figures:
        """Work of all ranks at about the same time: on a shared host, those at work have equal parts of its cores.

        `pace` is the part of a core that a rank can use, less than 1 where it pauses after each piece of work.
        """
        if self._cores is None or self._ranks <= self._cores:
            return self._within_quota(slice(None), start, work, np.asarray(pace))
        if self._ranks > MOST_IN_TURNS:
            return self._within_quota(slice(None), start, work, np.asarray(pace) * self._cores / self._ranks)
        return self._in_turns(start, work, np.broadcast_to(pace, start.shape))

    def run(self, ranks: Indices, start: Figures, work: Figures) -> Figures:
        """Short pieces of work: on a shared host they take the cores in the order in which they come."""
        if not work.any():
            return start
        end = self._within_quota(ranks, start, work, np.ones(1))
        if self._cores is not None:
            end = np.maximum(end, self._through_cores(end - work, work / self._cores))
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

    def _in_turns(self, start: Figures, work: Figures, pace: Figures) -> Figures:
        """From event to event: a rank begins, is done, has used up its allowance, or gets the next one."""
        now, left, end = start.min(axis=0), work.copy(), start.copy()
        window: Figures = np.floor((start + self._phase) / PERIOD_SECONDS)
        used: Figures = np.where(window == self._window, self._used, 0.0)
        unfinished = left > MOMENT
        while unfinished.any():
            begun = unfinished & (start <= now + MOMENT)
            renewal = (window + 1) * PERIOD_SECONDS - self._phase
            unused = self._allowed - used
            at_work = begun & (unused > MOMENT)
            speed = pace * np.minimum(1.0, (self._cores or 1) / np.maximum((at_work * pace).sum(axis=0), MOMENT))
            until = np.where(unfinished & ~begun, start - now, np.inf)
            until = np.where(begun, renewal - now, until)
            until = np.where(at_work, np.minimum(until, np.minimum(left, unused) / speed), until)
            taken = until.min(axis=0)
            taken = np.where(np.isfinite(taken), np.maximum(taken, 0.0), 0.0)
            now = now + taken
            done = np.where(at_work, taken * speed, 0.0)
            renewed = begun & (renewal <= now + MOMENT)
            left, used, window = left - done, np.where(renewed, 0.0, used + done), window + renewed
            finished = unfinished & (left <= MOMENT)
            end = np.where(finished, now, end)
            np.copyto(self._window, window, where=finished)
            np.copyto(self._used, used, where=finished)
            unfinished &= ~finished
        return end

    def _within_quota(self, ranks: Indices | slice, start: Figures, work: Figures, speed: Figures) -> Figures:
        if np.isinf(self._allowed):
            return np.asarray(start + work / speed)
        phase = self._phase[ranks]
        window = np.floor((start + phase) / PERIOD_SECONDS)
        used = np.where(window == self._window[ranks], self._used[ranks], 0.0)
        ends_at = (window + 1) * PERIOD_SECONDS - phase
        here = np.minimum(work, np.minimum(np.maximum(self._allowed - used, 0.0), (ends_at - start) * speed))
        rest = work - here
        in_a_period = np.minimum(self._allowed, PERIOD_SECONDS * speed)
        whole = np.maximum(np.ceil(rest / in_a_period) - 1, 0.0)
        last = rest - whole * in_a_period
        over = rest > 0
        until = np.where(over, window + 1 + whole, window)
        newer = until >= self._window[ranks]  # what began earlier may be asked for later
        self._used[ranks] = np.where(newer, np.where(over, last, used + here), self._used[ranks])
        self._window[ranks] = np.maximum(until, self._window[ranks])
        return np.where(over, ends_at + whole * PERIOD_SECONDS + last / speed, start + here / speed)


def _one_after_another(start: Figures, work: Figures) -> Figures:
    """When each is done by a single processor that takes them in the order in which they come."""
    order = np.argsort(start, axis=0, kind="stable")
    taken = np.take_along_axis(work, order, axis=0)
    before = np.cumsum(taken, axis=0) - taken
    ends = np.maximum.accumulate(np.take_along_axis(start, order, axis=0) - before, axis=0) + before + taken
    end = np.empty_like(ends)
    np.put_along_axis(end, order, ends, axis=0)
    return end
