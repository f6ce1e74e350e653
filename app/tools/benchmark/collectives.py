"""`benchmark collectives`: operations over a range of sizes, through the communicator and directly, as nccl-tests."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from app.cluster.link.measured import speed_of
from app.cluster.link.measurement import measure_links
from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE, LinkSpeed, all_reduce_seconds, gather_seconds, scatter_seconds
from app.cluster.wire.communicator import Communicator
from app.machine.say import Say
from app.settings.averaging import AveragingSettings
from app.settings.settings import Settings
from app.sync.modes.ring_all_reduce import RingAllReduce
from app.tools.benchmark import results
from app.tools.benchmark.choice import Choice
from app.tools.benchmark.ratios import Middle

ELEMENT_BYTES = 4
DISTINCT = 1000  # numbers that a message is made of, small enough for sums to be exact
MEASURE_FROM = 32 << 20  # bytes; from here on the links decide and are measured along with the operation

CELL_SECONDS = 1.0  # what the repetitions of an operation and size should take, through one of the two variants
MOST_REPETITIONS, ENOUGH_REPETITIONS, LEAST_REPETITIONS = 100, 8, 3  # enough for an interval
LONGEST_SECONDS = 5.0  # operations that would take longer on these links are left out


class Variant(NamedTuple):
    """One way to carry out an operation."""

    prepare: Callable[[], None]  # done before each run, and not timed
    run: Callable[[], object]
    wrong: Callable[[], int]  # after a run: how many numbers are wrong


@dataclass(frozen=True)
class Operation:
    """An operation to time. Sizes and bus bandwidth are those of nccl-tests."""

    variants: Callable[
        [Communicator, AveragingSettings, int], tuple[Variant, Variant]
    ]  # ours and plain torch, by size in bytes
    bus_factor: Callable[[int], float]  # bus bandwidth divided by algorithm bandwidth, for so many ranks
    seconds_at_least: Callable[[int, Sequence[LinkSpeed]], float]


@dataclass(frozen=True)
class Timing:
    """Repetitions through one variant, each as long as its slowest rank took."""

    seconds: Sequence[float]
    wrong: int  # on all ranks

    def columns(self, size: int, bus_factor: float, seconds_at_least: float | None) -> str:
        """p50, p99, algorithm and bus bandwidth, errors, and how close p50 comes to the bound."""
        algorithm = size / self.median / 1e6
        bound = "-" if seconds_at_least is None else f"{seconds_at_least / self.median:.0%}"
        return (
            f"{self.median * 1e3:>10.3f} {float(np.percentile(self.seconds, 99)) * 1e3:>10.3f} "
            f"{algorithm:>8.1f} {algorithm * bus_factor:>8.1f} {self.wrong:>6} {bound:>6}"
        )

    @property
    def median(self) -> float:
        """p50."""
        return float(np.median(self.seconds))


def compare_collectives(settings: Settings, cluster: Cluster, choice: Choice, say: Say) -> None:
    """Time all that was chosen; rank 0 prints a table for each number of ranks, line by line."""
    speak = say if cluster.rank == 0 else _keep_silent
    cells: list[dict[str, Any]] = []
    for ranks in choice.numbers_of_ranks(cluster.world_size):
        bench = CollectiveBench(settings, cluster, Communicator(cluster, "in the benchmark", ranks))
        speak(_heading(ranks, bench.measure()))
        for name in choice.operations:
            for size in choice.sizes():
                speak(f"{name:<16} {size:>11}  {bench.row(OPERATIONS[name], size)}")
                cells.append({"operation": name, "bytes": size, "ranks": ranks, **bench.samples})
    if cluster.rank == 0:
        results.write("collectives", {"cells": cells}, say, settings.values(), cluster)


class CollectiveBench:
    """Times operations among the first ranks of the cluster; the others only keep step."""

    def __init__(self, settings: Settings, cluster: Cluster, communicator: Communicator) -> None:
        self._settings, self._cluster, self._communicator = settings, cluster, communicator
        self._taking_part = cluster.rank < communicator.world_size
        self._links: list[LinkSpeed] = []
        self.samples: dict[str, Any] = {}  # of the last row, for the file

    def measure(self) -> list[LinkSpeed]:
        """What the links carry now; empty if they are not measured."""
        measured = measure_links(self._settings.links, self._cluster, self._communicator)
        self._links = [speed_of(link) for link in measured or []]
        return self._links

    def row(self, operation: Operation, size: int) -> str:
        """One line of the table."""
        least = operation.seconds_at_least(size, self._links) if self._links else None
        self.samples = {"seconds": None, "straight_seconds": None, "ratio": None, "seconds_at_least": least}
        if least is not None and least > LONGEST_SECONDS:
            return f"skipped: each would take at least {least:.0f} s on these links"
        ours, straight = self._time(operation.variants(self._communicator, self._settings.averaging, size), size)
        factor = operation.bus_factor(self._communicator.world_size)
        least = operation.seconds_at_least(size, self._links) if self._links else None
        ratio = Middle.of_ratios(ours.seconds, straight.seconds)
        self.samples = {
            "seconds": ours.seconds,
            "straight_seconds": straight.seconds,
            "ratio": vars(ratio),
            "seconds_at_least": least,
            "wrong": ours.wrong,
            "straight_wrong": straight.wrong,
        }
        columns = [timing.columns(size, factor, least) for timing in (ours, straight)]
        return f"{len(ours.seconds):>3} {'   '.join(columns)}   {ratio}"

    def _time(self, variants: Sequence[Variant], size: int) -> list[Timing]:
        """Time the variants in turn, so that changes of the machine's speed hit both alike; measure the links, too."""
        wrong = [_try(variant, self._communicator) for variant in variants] if self._taking_part else []
        longest = max(_once(variant, self._communicator) for variant in variants) if self._taking_part else 0.0
        repetitions = _repetitions(self._cluster.exchange("benchmark/longest", longest)[CENTRE])
        seconds: list[list[float]] = [[] for _ in variants]
        links = [self.measure()] if size >= MEASURE_FROM else [self._links]
        for part in (repetitions // 2, repetitions - repetitions // 2):
            for _ in range(part if self._taking_part else 0):
                for variant, taken in zip(variants, seconds, strict=True):
                    taken.append(_once(variant, self._communicator))
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
            for variant in range(len(variants))
        ]


def _repetitions(longest: float) -> int:
    enough = min(ENOUGH_REPETITIONS, LONGEST_SECONDS / longest)
    return int(min(max(CELL_SECONDS / longest, enough, LEAST_REPETITIONS), MOST_REPETITIONS))


def _try(variant: Variant, communicator: Communicator) -> int:
    """Run once to warm up, and check the result."""
    _once(variant, communicator)
    return variant.wrong()


def _once(variant: Variant, communicator: Communicator) -> float:
    variant.prepare()
    communicator.wait_for_peers()
    began = time.perf_counter()
    variant.run()
    return time.perf_counter() - began


def _heading(ranks: int, links: Sequence[LinkSpeed]) -> str:
    measured = [speed / 1e6 for link in links for speed in link]
    speeds = f"links of {min(measured):.1f} to {max(measured):.1f} MB/s" if measured else "links not measured"
    columns = f"{'p50 ms':>10} {'p99 ms':>10} {'algbw':>8} {'busbw':>8} {'wrong':>6} {'bound':>6}"
    return (
        f"\n{ranks} ranks, {speeds}. Bandwidths in MB/s of payload. bound: least time on these links divided by p50\n"
        f"{'':<34}{'through the communicator':<53}   directly through torch.distributed\n"
        f"{'operation':<16} {'bytes':>11}  {'n':>3} {columns}   {columns}   ours/direct"
    )


def _keep_silent(_: str) -> None:
    """Print nothing: rank 0 speaks for all."""


# The operations. Each message is made of small whole numbers that depend on the rank and the place.


def numbers(rank: int, elements: int) -> torch.Tensor:
    """The numbers that a rank sends."""
    return torch.arange(elements, dtype=torch.float32).remainder_(DISTINCT).add_(rank)


def _all_reduce(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    ranks, given = communicator.world_size, numbers(communicator.rank, size // ELEMENT_BYTES)
    buffer = torch.empty_like(given)

    def prepare() -> None:
        buffer.copy_(given)

    def wrong() -> int:
        expected = numbers(0, len(given)).mul_(ranks).add_(sum(range(ranks)))
        return int((buffer != expected).sum())

    return (
        Variant(prepare, lambda: communicator.all_reduce(buffer), wrong),
        Variant(prepare, lambda: dist.all_reduce(buffer, group=communicator.group), wrong),
    )


def _ring_all_reduce(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    """The hand-written ring; and directly, the backend's all-reduce and the division that turns the sum into a mean."""
    ranks, given = communicator.world_size, numbers(communicator.rank, size // ELEMENT_BYTES)
    ring, buffer = RingAllReduce(communicator, averaging), torch.empty_like(given)

    def prepare() -> None:
        buffer.copy_(given)

    def average() -> None:
        dist.all_reduce(buffer, group=communicator.group)
        buffer.div_(ranks)

    def wrong() -> int:
        expected = numbers(0, len(given)).add_((ranks - 1) / 2)
        return int((~torch.isclose(buffer, expected, rtol=1e-6)).sum())

    return Variant(prepare, lambda: ring.average(buffer), wrong), Variant(prepare, average, wrong)


def _all_gather(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    ranks, elements = communicator.world_size, _part(communicator, size)
    given = numbers(communicator.rank, elements)
    came: list[torch.Tensor] = []

    def run() -> None:
        came[:] = communicator.all_gather(given)

    def run_straight() -> None:
        came[:] = [torch.empty_like(given) for _ in range(ranks)]
        dist.all_gather(came, given, group=communicator.group)

    def wrong() -> int:
        return _wrong_parts(came, ranks, elements)

    return Variant(came.clear, run, wrong), Variant(came.clear, run_straight, wrong)


def _gather(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    ranks, elements = communicator.world_size, _part(communicator, size)
    given, central = numbers(communicator.rank, elements), communicator.rank == CENTRE
    came: list[torch.Tensor] = []

    def run() -> None:
        came[:] = communicator.gather(given)

    def run_straight() -> None:
        came[:] = [torch.empty_like(given) for _ in range(ranks)] if central else []
        dist.gather(given, came if central else None, dst=CENTRE, group=communicator.group)

    def wrong() -> int:
        return _wrong_parts(came, ranks if central else 0, elements)

    return Variant(came.clear, run, wrong), Variant(came.clear, run_straight, wrong)


def _scatter(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    ranks, elements = communicator.world_size, _part(communicator, size)
    central = communicator.rank == CENTRE
    parts = [numbers(rank, elements) for rank in range(ranks)] if central else []
    came = torch.empty(elements)

    def wrong() -> int:
        return int((came != numbers(communicator.rank, elements)).sum())

    def run_straight() -> None:
        dist.scatter(came, parts if central else None, src=CENTRE, group=communicator.group)

    return (
        Variant(lambda: _clear(came), lambda: communicator.scatter(came, parts), wrong),
        Variant(lambda: _clear(came), run_straight, wrong),
    )


def _send_receive(communicator: Communicator, averaging: AveragingSettings, size: int) -> tuple[Variant, Variant]:
    """Every rank to the next one, all at once."""
    rank, ranks = communicator.rank, communicator.world_size
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    given = numbers(rank, size // ELEMENT_BYTES)
    came = torch.empty_like(given)

    def run() -> None:
        for transfer in (communicator.start_receive(came, source), communicator.start_send(given, to)):
            transfer.wait()

    def run_straight() -> None:
        for work in (
            dist.irecv(came, source, group=communicator.group),
            dist.isend(given, to, group=communicator.group),
        ):
            if work is not None:
                work.wait()

    def wrong() -> int:
        return int((came != numbers(source, len(came))).sum())

    return Variant(lambda: _clear(came), run, wrong), Variant(lambda: _clear(came), run_straight, wrong)


def _part(communicator: Communicator, size: int) -> int:
    """Elements of one rank, for operations whose size is that of all ranks' parts together."""
    return max(1, size // ELEMENT_BYTES // communicator.world_size)


def _wrong_parts(came: Sequence[torch.Tensor], parts: int, elements: int) -> int:
    """How many numbers are wrong; in a part that did not arrive, all are."""
    wrong = sum(int((part != numbers(rank, elements)).sum()) for rank, part in enumerate(came))
    return wrong + (parts - len(came)) * elements


def _clear(came: torch.Tensor) -> None:
    came.fill_(-1)


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


OPERATIONS: dict[str, Operation] = {
    "send_receive": Operation(
        _send_receive, lambda _: 1.0, lambda size, links: max(size / speed for link in links for speed in link)
    ),
    "gather": Operation(_gather, _share, lambda size, links: gather_seconds(size // len(links), links)),
    "scatter": Operation(_scatter, _share, lambda size, links: scatter_seconds(size // len(links), links)),
    "all_gather": Operation(_all_gather, _share, lambda size, links: all_reduce_seconds(size, links) / 2),
    "all_reduce": Operation(_all_reduce, lambda ranks: 2 * _share(ranks), all_reduce_seconds),
    "ring_all_reduce": Operation(_ring_all_reduce, lambda ranks: 2 * _share(ranks), all_reduce_seconds),
}
