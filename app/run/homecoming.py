"""The records of all ranks come home to rank 0, through the group, where they share no disk."""

import hashlib
import zlib
from pathlib import Path

import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.machine.folders import file_to_replace
from app.records.journal import path_of

HOME = 0  # the rank that makes the report
CHUNK_BYTES = 2**22  # of a file, before it is compressed


def bring_home(cluster: Cluster, run_folder: Path) -> None:
    """Give rank 0 every file of records that it does not see already, after the last record was written."""
    files = cluster.exchange("records", _describe(path_of(run_folder, cluster.rank)))
    away = []
    if cluster.rank == HOME:
        away = [rank for rank, told in enumerate(files) if _describe(path_of(run_folder, rank)) != told]
    communicator = Communicator(cluster, "while the records came home")
    for rank in cluster.exchange("records that are away", away)[HOME]:
        if cluster.rank == HOME:
            _receive(communicator, rank, path_of(run_folder, rank))
        elif cluster.rank == rank:
            _send(communicator, path_of(run_folder, rank))


def _describe(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _send(communicator: Communicator, path: Path) -> None:
    """Each chunk is announced by its size; a size of 0 ends the file."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            packed = torch.frombuffer(bytearray(zlib.compress(chunk)), dtype=torch.uint8)
            communicator.start_send(torch.tensor([len(packed)]), HOME).wait()
            communicator.start_send(packed, HOME).wait()
    communicator.start_send(torch.tensor([0]), HOME).wait()


def _receive(communicator: Communicator, rank: int, path: Path) -> None:
    with file_to_replace(path) as file:
        while size := _receive_size(communicator, rank):
            packed = torch.empty(size, dtype=torch.uint8)
            communicator.start_receive(packed, rank).wait()
            file.write(zlib.decompress(packed.numpy().tobytes()))


def _receive_size(communicator: Communicator, rank: int) -> int:
    size = torch.zeros(1, dtype=torch.int64)
    communicator.start_receive(size, rank).wait()
    return int(size)
