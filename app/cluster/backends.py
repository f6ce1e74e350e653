"""The backends, and everything that depends on the backend: connecting, recognising its errors, forming subgroups."""

import ctypes
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import torch.distributed as dist

from app.errors import SettingError

FAREWELL_SECONDS = 5.0


class Backend(ABC):
    """The library that carries a group's messages."""

    name: ClassVar[str]

    bytes_in_order: ClassVar[int | None]
    """Messages of at most this many bytes arrive in order; None if all do.

    Longer messages in flight at the same time share the connection and complete together.
    """

    @abstractmethod
    def check(self) -> None:
        """Refuse a process that was not started in the way that this backend requires."""

    @abstractmethod
    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        """Connect this rank to all others; raises RuntimeError if that fails."""

    @abstractmethod
    def is_failure(self, error: RuntimeError) -> bool:
        """Whether the backend raised this error, for example because of a lost rank. Others are program defects."""

    @abstractmethod
    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        """Create a group of some ranks. All ranks of the cluster must call this together."""

    @abstractmethod
    def leave(self) -> None:
        """Shut the backend down after all ranks have finished."""


class Gloo(Backend):
    """PyTorch's own backend for CPUs, over TCP."""

    name = "gloo"
    bytes_in_order = None

    def check(self) -> None:
        """Gloo has no requirements, so it accepts any process."""

    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # Gloo reads it from nowhere else
        limit = timedelta(seconds=peer_timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=limit)

    def is_failure(self, error: RuntimeError) -> bool:
        """Gloo's messages contain the path of its source file."""
        return isinstance(error, dist.DistError) or "gloo" in str(error)

    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(list(ranks), timeout=timedelta(seconds=peer_timeout))
        return group

    def leave(self) -> None:
        """Gloo's connections close when the process exits."""


class Mpi(Backend):
    """OpenMPI, over TCP. It has no timeouts: only the failure detector ends a wait for a silent rank."""

    name = "mpi"
    bytes_in_order = 1 << 15  # sent eagerly: half of OpenMPI's limit for TCP

    PARAMETERS: ClassVar[dict[str, str]] = {
        "btl": "self,tcp",
        "pml": "ob1",
        "mpi_yield_when_idle": "1",  # on shared cores a waiting rank lets the others compute
        "mpi_abort_delay": "30",  # seconds in which this rank reports the lost rank and exits by itself
    }

    def check(self) -> None:
        """MPI requires mpirun or another launcher with PMIx."""
        if "PMIX_RANK" not in os.environ:
            raise SettingError(
                "BACKEND=mpi: mpirun did not start this process. Run BACKEND=mpi scripts/up, or mpirun with "
                "--with-ft ulfm --initial-errhandler mpi_errors_return before python3 -m app train."
            )

    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        """Connect through mpirun's daemons, which have already counted the ranks."""
        for name, value in {**self.PARAMETERS, "btl_tcp_if_include": interface}.items():
            os.environ.setdefault(f"OMPI_MCA_{name}", value)
        dist.init_process_group("mpi")
        if (dist.get_rank(), dist.get_world_size()) != (rank, world_size):
            raise RuntimeError(
                f"mpirun assigned rank {dist.get_rank()} of {dist.get_world_size()}, but the join assigned rank {rank} "
                f"of {world_size}"
            )

    def is_failure(self, error: RuntimeError) -> bool:
        """PyTorch's messages contain MPI's error codes."""
        return isinstance(error, dist.DistError) or "MPI error" in str(error) or "MPI_ERR" in str(error)

    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        """All ranks must create an MPI group together, but PyTorch skips ranks that are not members."""
        if rank not in ranks:
            dist.ProcessGroupMPI.create(list(ranks))
        group: dist.ProcessGroup = dist.new_group(list(ranks))
        return group

    def leave(self) -> None:
        """Call MPI_Finalize, which waits for all ranks. Without it, mpirun treats a rank's exit as a failure."""
        farewell = threading.Thread(target=ctypes.CDLL(None).MPI_Finalize, name="MPI_Finalize", daemon=True)
        farewell.start()
        farewell.join(FAREWELL_SECONDS)


BACKENDS: dict[str, Backend] = {each.name: each for each in (Gloo(), Mpi())}
