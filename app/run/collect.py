"""Copies the records of all ranks to rank 0 through the process group, if the ranks share no disk."""

import hashlib
import zlib
from pathlib import Path

import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.machine.folders import file_to_replace
from app.records.journal import path_of

COLLECTOR = 0  # the rank that writes the report
CHUNK_BYTES = 2**22  # of a file, before it is compressed


def collect_records(cluster: Cluster, run_folder: Path) -> None:
    """Copy to rank 0 every file of records of which it has no equal copy. Call it after the last record."""
    checksums = cluster.exchange("records", _checksum(path_of(run_folder, cluster.rank)))
    missing = []
    if cluster.rank == COLLECTOR:
        missing = [rank for rank, each in enumerate(checksums) if _checksum(path_of(run_folder, rank)) != each]
    communicator = Communicator(cluster, "while records were copied")
    for rank in cluster.exchange("missing records", missing)[COLLECTOR]:
        if cluster.rank == COLLECTOR:
            _receive(communicator, rank, path_of(run_folder, rank))
        elif cluster.rank == rank:
            _send(communicator, path_of(run_folder, rank))


def _checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _send(communicator: Communicator, path: Path) -> None:
    """Send each chunk after its size in bytes; a size of 0 ends the file."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            packed = torch.frombuffer(bytearray(zlib.compress(chunk)), dtype=torch.uint8)
            communicator.start_send(torch.tensor([len(packed)]), COLLECTOR).wait()
            communicator.start_send(packed, COLLECTOR).wait()
    communicator.start_send(torch.tensor([0]), COLLECTOR).wait()


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
