"""CPU time on simulated ranks: within each rank's quota, and within the cores of a host that they share."""

from dataclasses import dataclass

import numpy as np

from app.prediction.waves import Figures, Indices

PERIOD_SECONDS = 0.1  # how often the kernel renews a quota: Docker's default


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
        self._cpus, self._ranks = cpus, ranks
        self._phase = random.uniform(0, PERIOD_SECONDS, (ranks, samples))
        self._window = np.full((ranks, samples), -1.0)  # the period in which each rank worked last
        self._used = np.zeros((ranks, samples))  # CPU time in that period
        self._cores_free = np.zeros(samples)  # when the host's cores are done with what they have been given

    def run_alike(self, start: Figures, work: Figures) -> Figures:
        """Work of all ranks at the same time: on a shared host each gets its part of the cores."""
        cores = self._cpus.shared_cores
        speed = 1.0 if cores is None else min(1.0, cores / self._ranks)
        end = self._within_quota(slice(None), start, work, speed)
        self._cores_free = np.maximum(self._cores_free, end.min(axis=0))
        return end

    def run(self, ranks: Indices, start: Figures, work: Figures) -> Figures:
        """Short pieces of work: on a shared host they take the cores in the order in which they come."""
        if not work.any():
            return start
        end = self._within_quota(ranks, start, work, 1.0)
        if self._cpus.shared_cores is not None:
            end = np.maximum(end, self._through_cores(start, work))
        return end

    def _through_cores(self, start: Figures, work: Figures) -> Figures:
        """As if the cores were one that is as fast as all together."""
        order = np.argsort(start, axis=0, kind="stable")
        taken = np.take_along_axis(work, order, axis=0) / (self._cpus.shared_cores or 1)
        before = np.cumsum(taken, axis=0) - taken
        idle_until = np.maximum(np.take_along_axis(start, order, axis=0) - before, self._cores_free)
        ends = np.maximum.accumulate(idle_until, axis=0) + before + taken
        self._cores_free = ends[-1]
        end = np.empty_like(ends)
        np.put_along_axis(end, order, ends, axis=0)
        return end

    def _within_quota(self, ranks: Indices | slice, start: Figures, work: Figures, speed: float) -> Figures:
        if self._cpus.quota is None:
            return start + work / speed
        phase, quota = self._phase[ranks], self._cpus.quota * PERIOD_SECONDS
        window = np.floor((start + phase) / PERIOD_SECONDS)
        used = np.where(window == self._window[ranks], self._used[ranks], 0.0)
        ends_at = (window + 1) * PERIOD_SECONDS - phase
        here = np.minimum(work, np.minimum(np.maximum(quota - used, 0.0), (ends_at - start) * speed))
        rest = work - here
        in_a_period = min(quota, PERIOD_SECONDS * speed)
        whole = np.maximum(np.ceil(rest / in_a_period) - 1, 0.0)
        last = rest - whole * in_a_period
        over = rest > 0
        until = np.where(over, window + 1 + whole, window)
        newer = until >= self._window[ranks]  # what began earlier may be asked for later
        self._used[ranks] = np.where(newer, np.where(over, last, used + here), self._used[ranks])
        self._window[ranks] = np.maximum(until, self._window[ranks])
        return np.where(over, ends_at + whole * PERIOD_SECONDS + last / speed, start + here / speed)
