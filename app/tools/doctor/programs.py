"""The course's collective programs. Each verifies the numbers that it receives."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE
from app.cluster.wire.communicator import Communicator

ELEMENTS = 8192  # 64 KiB from each rank
REPETITIONS = 5

Program = Callable[[Communicator, int], list[int]]  # returns the ranks whose numbers arrived corrupted here


@dataclass(frozen=True)
class ProgramOutcome:
    """The outcome of one program, over all ranks."""

    program: str
    seconds: float  # communication time: the slowest rank's median
    wrong: dict[int, list[int]]  # by rank whose numbers arrived corrupted: the ranks at which they did


def numbers(rank: int, elements: int) -> torch.Tensor:
    """The numbers that a rank sends. All ranks' numbers are distinct, so that a mix-up of ranks is detected as well."""
    return torch.arange(1, elements + 1, dtype=torch.float64) + rank * elements


def gather(communicator: Communicator, elements: int) -> list[int]:
    everyones = communicator.gather(numbers(communicator.rank, elements))
    return [rank for rank, came in enumerate(everyones) if not torch.equal(came, numbers(rank, elements))]


def scatter(communicator: Communicator, elements: int) -> list[int]:
    central = communicator.rank == CENTRE
    parts = [numbers(rank, elements) for rank in range(communicator.world_size)] if central else []
    mine = torch.zeros(elements, dtype=torch.float64)
    communicator.scatter(mine, parts)
    return [] if torch.equal(mine, numbers(communicator.rank, elements)) else [CENTRE]


def all_reduce(communicator: Communicator, elements: int) -> list[int]:
    """Each rank adds its numbers to its own slice, and zeros elsewhere, so that a wrong sum identifies its rank."""
    world_size = communicator.world_size
    sums = torch.zeros(world_size, elements // world_size, dtype=torch.float64)
    sums[communicator.rank] = numbers(communicator.rank, elements // world_size)
    communicator.all_reduce(sums)
    return [rank for rank, came in enumerate(sums) if not torch.equal(came, numbers(rank, elements // world_size))]


PROGRAMS: dict[str, Program] = {"gather": gather, "scatter": scatter, "all-reduce": all_reduce}


def run_program(name: str, cluster: Cluster, communicator: Communicator) -> ProgramOutcome:
    """Run one program several times together with all other ranks, which receive the same outcome."""
    elements = max(ELEMENTS, communicator.world_size)
    seconds, wrong = [], set()
    for _ in range(REPETITIONS):
        communicator.wait_for_peers()
        before = communicator.traffic.seconds
        wrong.update(PROGRAMS[name](communicator, elements))
        seconds.append(communicator.traffic.seconds - before)
    medians = cluster.exchange(f"doctor/{name}/seconds", statistics.median(seconds))
    accused = cluster.exchange(f"doctor/{name}/wrong", sorted(wrong))
    blamed = sorted({rank for ranks in accused for rank in ranks})
    by_whom = {rank: [accuser for accuser, ranks in enumerate(accused) if rank in ranks] for rank in blamed}
    return ProgramOutcome(name, max(medians), by_whom)
