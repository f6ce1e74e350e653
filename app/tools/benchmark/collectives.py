"""`benchmark collectives`: times operations over a range of message sizes, as nccl-tests do."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.cluster.link.measured import speed_of
from app.cluster.link.measurement import measure_links
from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE, LinkSpeed
from app.cluster.wire.communicator import Communicator
from app.machine.say import Say
from app.settings.settings import Settings
from app.tools.benchmark.choice import CollectivesChoice
from app.tools.benchmark.operations import OPERATIONS, Exercise, Operation
from app.tools.benchmark.ratios import Middle

MEASURE_FROM = 32 << 20  # bytes; from here on the links decide and are measured along with the operation

CELL_SECONDS = 1.0  # what the repetitions of an operation and size should take, through one of the two variants
MOST_REPETITIONS, ENOUGH_REPETITIONS, LEAST_REPETITIONS = 100, 8, 3  # enough for an interval
LONGEST_SECONDS = 5.0  # operations that would take longer on these links are left out

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Repetitions through one variant, each as long as its slowest rank took."""

    seconds: Sequence[float]
    wrong: int  # on all ranks

    def columns(self, size: int, bus_factor: float, seconds_at_least: float | None) -> str:
        """p50, p99, algorithm and bus bandwidth, errors, and how close p50 comes to the bound."""
        p50, p99 = (float(np.percentile(self.seconds, percent)) for percent in (50, 99))
        algorithm = size / p50 / 1e6
        bound = "-" if seconds_at_least is None else f"{seconds_at_least / p50:.0%}"
        return (
            f"{p50 * 1e3:>10.3f} {p99 * 1e3:>10.3f} "
            f"{algorithm:>8.1f} {algorithm * bus_factor:>8.1f} {self.wrong:>6} {bound:>6}"
        )


def compare_collectives(settings: Settings, cluster: Cluster, choice: CollectivesChoice, say: Say) -> dict[str, Any]:
    """Print a table for each number of ranks, line by line."""
    cells: list[dict[str, Any]] = []
    for ranks in choice.numbers_of_ranks(cluster.world_size):
        bench = CollectiveBench(settings, cluster, Communicator(cluster, "in the benchmark", ranks))
        say(_heading(ranks, bench.measure()))
        for name in choice.operations:
            for size in choice.sizes():
                row, samples = bench.row(OPERATIONS[name], size)
                say(f"{name:<16} {size:>11}  {row}")
                cells.append({"operation": name, "bytes": size, "ranks": ranks, **samples})
    return {"cells": cells}


class CollectiveBench:
    """Times operations among the first ranks of the cluster. The others only take part in the exchanges of all."""

    def __init__(self, settings: Settings, cluster: Cluster, communicator: Communicator) -> None:
        self._settings, self._cluster, self._communicator = settings, cluster, communicator
        self._taking_part = cluster.rank < communicator.world_size
        self._links: list[LinkSpeed] = []

    def measure(self) -> list[LinkSpeed]:
        """The speeds of the links now; empty if they are not measured."""
        measured = measure_links(self._settings.links, self._cluster, self._communicator)
        self._links = [speed_of(link) for link in measured or []]
        return self._links

    def row(self, operation: Operation, size: int) -> tuple[str, dict[str, Any]]:
        """A row's columns, and its samples for the file."""
        least = operation.seconds_at_least(size, self._links) if self._links else None
        if least is not None and least > LONGEST_SECONDS:
            skipped = {"seconds": None, "straight_seconds": None, "ratio": None, "seconds_at_least": least}
            return f"skipped: each would take at least {least:.0f} s on these links", skipped
        ours, straight = self._time(operation.exercise(self._communicator, self._settings.averaging, size), size)
        factor = operation.bus_factor(self._communicator.world_size)
        least = operation.seconds_at_least(size, self._links) if self._links else None
        ratio = Middle.of_ratios(ours.seconds, straight.seconds)
        columns = [timing.columns(size, factor, least) for timing in (ours, straight)]
        return f"{len(ours.seconds):>3} {'   '.join(columns)}   {ratio}", {
            "seconds": ours.seconds,
            "straight_seconds": straight.seconds,
            "ratio": vars(ratio),
            "seconds_at_least": least,
            "wrong": ours.wrong,
            "straight_wrong": straight.wrong,
        }

    def _time(self, exercise: Exercise, size: int) -> list[Timing]:
        """Alternate the variants, so that changes of the machine's speed hit both alike; measure the links, too."""
        runs = (exercise.run, exercise.run_directly)
        wrong = [self._try(exercise, run) for run in runs] if self._taking_part else []
        longest = max(self._once(exercise, run) for run in runs) if self._taking_part else 0.0
        repetitions = _repetitions(self._cluster.exchange("benchmark/longest", longest)[CENTRE])
        seconds: list[list[float]] = [[] for _ in runs]
        links = [self.measure()] if size >= MEASURE_FROM else [self._links]
        for part in (repetitions // 2, repetitions - repetitions // 2):
            for _ in range(part if self._taking_part else 0):
                for run, taken in zip(runs, seconds, strict=True):
                    taken.append(self._once(exercise, run))
            if size >= MEASURE_FROM:
                links.append(self.measure())
        self._links = [LinkSpeed(*np.median(each, axis=0).tolist()) for each in zip(*links, strict=True)]
        everyones_seconds = self._cluster.exchange("benchmark/seconds", seconds)[: self._communicator.world_size]
        everyones_wrong = self._cluster.exchange("benchmark/wrong", wrong)[: self._communicator.world_size]
        return [
            Timing(
                [max(each) for each in zip(*(taken[variant] for taken in everyones_seconds), strict=True)],
                sum(found[variant] for found in everyones_wrong),
            )
            for variant in range(len(runs))
        ]

    def _try(self, exercise: Exercise, run: Run) -> int:
        """Run once to warm up; returns the number of wrong elements."""
        self._once(exercise, run)
        return exercise.wrong()

    def _once(self, exercise: Exercise, run: Run) -> float:
        exercise.prepare()
        self._communicator.wait_for_peers()
        began = time.perf_counter()
        run()
        return time.perf_counter() - began


def _repetitions(longest: float) -> int:
    enough = min(ENOUGH_REPETITIONS, LONGEST_SECONDS / longest)
    return int(min(max(CELL_SECONDS / longest, enough, LEAST_REPETITIONS), MOST_REPETITIONS))


def _heading(ranks: int, links: Sequence[LinkSpeed]) -> str:
    measured = [speed / 1e6 for link in links for speed in link]
    speeds = f"links of {min(measured):.1f} to {max(measured):.1f} MB/s" if measured else "links not measured"
    columns = f"{'p50 ms':>10} {'p99 ms':>10} {'algbw':>8} {'busbw':>8} {'wrong':>6} {'bound':>6}"
    return (
        f"\n{ranks} ranks, {speeds}. Bandwidths in MB/s of payload. bound: least time on these links divided by p50\n"
        f"{'':<34}{'through the communicator':<53}   directly through torch.distributed\n"
        f"{'operation':<16} {'bytes':>11}  {'n':>3} {columns}   {columns}   ours/direct"
    )
