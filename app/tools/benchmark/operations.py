"""The operations of `benchmark collectives`, each on one message size, through the communicator and directly.

Each message consists of small whole numbers that depend on the rank and the position, so that sums are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from app.cluster.wire.bandwidth import CENTRE, LinkSpeed, all_reduce_seconds, gather_seconds, scatter_seconds
from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.modes.ring_all_reduce import RingAllReduce

ELEMENT_BYTES = 4
DISTINCT = 1000  # values that occur in a message


class Exercise(NamedTuple):
    """An operation on messages of one size, in two variants."""

    prepare: Callable[[], object]  # before each run; not timed
    run: Callable[[], object]  # through the communicator
    run_directly: Callable[[], object]  # through torch.distributed
    wrong: Callable[[], int]  # after a run: the number of wrong elements


@dataclass(frozen=True)
class Operation:
    """An operation to time. Sizes and bus bandwidth are those of nccl-tests."""

    exercise: Callable[[Communicator, AveragingSettings, int], Exercise]  # by size in bytes
    bus_factor: Callable[[int], float]  # bus bandwidth divided by algorithm bandwidth, by number of ranks
    seconds_at_least: Callable[[int, Sequence[LinkSpeed]], float]


def numbers(rank: int, elements: int) -> torch.Tensor:
    return torch.arange(elements, dtype=torch.float32).remainder_(DISTINCT).add_(rank)


def _all_reduce(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    ranks, given = communicator.world_size, numbers(communicator.rank, size // ELEMENT_BYTES)
    buffer = torch.empty_like(given)

    def wrong() -> int:
        expected = numbers(0, len(given)).mul_(ranks).add_(sum(range(ranks)))
        return int((buffer != expected).sum())

    return Exercise(
        lambda: buffer.copy_(given),
        lambda: communicator.all_reduce(buffer),
        lambda: dist.all_reduce(buffer, group=communicator.group),
        wrong,
    )


def _ring_all_reduce(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    """The hand-written ring; directly, the backend's all-reduce and a division, because the ring gives the mean."""
    ranks, given = communicator.world_size, numbers(communicator.rank, size // ELEMENT_BYTES)
    ring, buffer = RingAllReduce(communicator, averaging), torch.empty_like(given)

    def run_directly() -> None:
        dist.all_reduce(buffer, group=communicator.group)
        buffer.div_(ranks)

    def wrong() -> int:
        expected = numbers(0, len(given)).add_((ranks - 1) / 2)
        return int((~torch.isclose(buffer, expected, rtol=1e-6)).sum())

    return Exercise(lambda: buffer.copy_(given), lambda: ring.average(buffer), run_directly, wrong)


def _all_gather(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    ranks, elements = communicator.world_size, _part(communicator, size)
    given = numbers(communicator.rank, elements)
    came: list[torch.Tensor] = []

    def run() -> None:
        came[:] = communicator.all_gather(given)

    def run_directly() -> None:
        came[:] = [torch.empty_like(given) for _ in range(ranks)]
        dist.all_gather(came, given, group=communicator.group)

    return Exercise(came.clear, run, run_directly, lambda: _wrong_parts(came, ranks, elements))


def _gather(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    ranks, elements = communicator.world_size, _part(communicator, size)
    given, central = numbers(communicator.rank, elements), communicator.rank == CENTRE
    came: list[torch.Tensor] = []

    def run() -> None:
        came[:] = communicator.gather(given)

    def run_directly() -> None:
        came[:] = [torch.empty_like(given) for _ in range(ranks)] if central else []
        dist.gather(given, came if central else None, dst=CENTRE, group=communicator.group)

    return Exercise(came.clear, run, run_directly, lambda: _wrong_parts(came, ranks if central else 0, elements))


def _scatter(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    ranks, elements = communicator.world_size, _part(communicator, size)
    central = communicator.rank == CENTRE
    parts = [numbers(rank, elements) for rank in range(ranks)] if central else []
    came = torch.empty(elements)

    def wrong() -> int:
        return int((came != numbers(communicator.rank, elements)).sum())

    def run_directly() -> None:
        dist.scatter(came, parts if central else None, src=CENTRE, group=communicator.group)

    return Exercise(lambda: came.fill_(-1), lambda: communicator.scatter(came, parts), run_directly, wrong)


def _send_receive(communicator: Communicator, averaging: AveragingSettings, size: int) -> Exercise:
    """Every rank to the next one, all at the same time."""
    rank, ranks = communicator.rank, communicator.world_size
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    given = numbers(rank, size // ELEMENT_BYTES)
    came = torch.empty_like(given)

    def run() -> None:
        for transfer in (communicator.start_receive(came, source), communicator.start_send(given, to)):
            transfer.wait()

    def run_directly() -> None:
        group = communicator.group
        for work in (dist.irecv(came, source, group=group), dist.isend(given, to, group=group)):
            if work is not None:
                work.wait()

    def wrong() -> int:
        return int((came != numbers(source, len(came))).sum())

    return Exercise(lambda: came.fill_(-1), run, run_directly, wrong)


def _part(communicator: Communicator, size: int) -> int:
    """Elements per rank, for operations whose size is that of all ranks' parts together."""
    return max(1, size // ELEMENT_BYTES // communicator.world_size)


def _wrong_parts(came: Sequence[torch.Tensor], parts: int, elements: int) -> int:
    """The number of wrong elements. In a part that did not arrive, all are wrong."""
    wrong = sum(int((part != numbers(rank, elements)).sum()) for rank, part in enumerate(came))
    return wrong + (parts - len(came)) * elements


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
