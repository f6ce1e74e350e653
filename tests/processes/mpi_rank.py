"""A rank of an MPI job, which mpirun starts for test_mpi.py: every mode on some models, and groups of some ranks."""

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import MODES
from app.settings.settings import Settings
from app.sync.modes import mode_class
from app.tools.conformance.cases import MODELS
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import synchronise

Case = tuple[str, str]  # mode, model
TRIED = ["odd shapes", "not contiguous", "none with a gradient", "single precision"]
CASES: list[Case] = [(mode, model) for mode in MODES if mode != "none" for model in TRIED]


@dataclass(frozen=True)
class Seen:
    """What one rank saw."""

    outcomes: dict[Case, list[TrialOutcome]]  # twice each
    exchanged: list[int]
    sums: list[float]  # of the group of the first two ranks, and of all


def see(cluster: Cluster) -> Seen:
    outcomes = {
        (mode, model): [synchronise(cluster, mode_class(mode), MODELS[model]) for _ in range(2)]
        for mode, model in CASES
    }
    some, everyone = Communicator(cluster, ranks=2), Communicator(cluster)
    sums = []
    for communicator in (some, everyone):
        tensor = torch.ones(3)
        if cluster.rank < communicator.world_size:
            communicator.all_reduce(tensor)
        sums.append(float(tensor[0]))
    return Seen(outcomes, cluster.exchange("rank", cluster.rank), sums)


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    rank, world_size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    settings = Settings.of(
        backend="mpi",
        rank=rank,
        world_size=world_size,
        master_addr="127.0.0.1",
        master_port=port,
        join_timeout=60,
        peer_timeout=60,
    )
    torch.set_num_threads(1)
    cluster = join(settings, identify(settings.place), lambda _: None, [])
    with cluster.until_the_end():
        seen = see(cluster)
    (folder / str(rank)).write_bytes(pickle.dumps(seen))
    os._exit(0)  # as the program itself ends: without the backend's farewell
