"""The backends, and all in which they differ: how a group forms, how a lost rank is noticed, groups of some ranks."""

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
    """What carries the messages of a group."""

    name: ClassVar[str]

    bytes_in_order: ClassVar[int | None]
    """Messages of at most so many bytes arrive one after another; None: all.

    Longer ones that are under way at the same time share the connection, and end together.
    """

    @abstractmethod
    def check(self) -> None:
        """Refuse a process that was not started as this backend needs it."""

    @abstractmethod
    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        """Connect this rank to all others; a RuntimeError if that fails."""

    @abstractmethod
    def is_failure(self, error: RuntimeError) -> bool:
        """Whether this error is the backend's own, such as that of a lost rank, and not a defect of the program."""

    @abstractmethod
    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        """A group of some ranks; all ranks of the cluster call this together."""

    @abstractmethod
    def leave(self) -> None:
        """Take leave of what the backend stands on, after all ranks have finished."""


class Gloo(Backend):
    """PyTorch's own backend for CPUs, over TCP."""

    name = "gloo"
    bytes_in_order = None

    def check(self) -> None:
        """It needs nothing."""

    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # the only place where Gloo looks for it
        limit = timedelta(seconds=peer_timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=limit)

    def is_failure(self, error: RuntimeError) -> bool:
        """Gloo names its source file."""
        return isinstance(error, dist.DistError) or "gloo" in str(error)

    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        """Members connect through the store."""
        group: dist.ProcessGroup = dist.new_group(list(ranks), timeout=timedelta(seconds=peer_timeout))
        return group

    def leave(self) -> None:
        """Nothing: its connections end with the process."""


class Mpi(Backend):
    """OpenMPI, over TCP. It has no limits of time: the failure detector alone ends a wait for a silent rank."""

    name = "mpi"
    bytes_in_order = 1 << 15  # sent without a request: half of OpenMPI's limit for TCP

    PARAMETERS: ClassVar[dict[str, str]] = {
        "btl": "self,tcp",
        "pml": "ob1",
        "mpi_yield_when_idle": "1",  # ranks that share cores: a rank that waits lets the others compute
        "mpi_abort_delay": "30",  # seconds: time for this rank to say who is lost, and then to end by itself
    }

    def check(self) -> None:
        """It needs mpirun, or another starter that speaks PMIx."""
        if "PMIX_RANK" not in os.environ:
            raise SettingError(
                "BACKEND=mpi: this process was not started by mpirun. Allowed: BACKEND=mpi scripts/up, or mpirun with "
                "--with-ft ulfm --initial-errhandler mpi_errors_return before python3 -m app train."
            )

    def connect(self, store: dist.Store, rank: int, world_size: int, peer_timeout: float, interface: str) -> None:
        """Connect through mpirun's daemons, which have counted the ranks before."""
        for name, value in {**self.PARAMETERS, "btl_tcp_if_include": interface}.items():
            os.environ.setdefault(f"OMPI_MCA_{name}", value)
        dist.init_process_group("mpi")
        if (dist.get_rank(), dist.get_world_size()) != (rank, world_size):
            raise RuntimeError(
                f"mpirun has made it rank {dist.get_rank()} of {dist.get_world_size()}, and the join rank {rank} of "
                f"{world_size}"
            )

    def is_failure(self, error: RuntimeError) -> bool:
        """PyTorch passes on MPI's error codes."""
        return isinstance(error, dist.DistError) or "MPI error" in str(error) or "MPI_ERR" in str(error)

    def group_of(self, ranks: Sequence[int], rank: int, peer_timeout: float) -> dist.ProcessGroup:
        """MPI makes a group with the help of all ranks, and PyTorch leaves out those that are no members."""
        if rank not in ranks:
            dist.ProcessGroupMPI.create(list(ranks))
        group: dist.ProcessGroup = dist.new_group(list(ranks))
        return group

    def leave(self) -> None:
        """Without MPI's own farewell, which waits for all ranks, mpirun takes the end of a rank for a failure."""
        farewell = threading.Thread(target=ctypes.CDLL(None).MPI_Finalize, name="MPI's farewell", daemon=True)
        farewell.start()
        farewell.join(FAREWELL_SECONDS)


BACKENDS: dict[str, Backend] = {each.name: each for each in (Gloo(), Mpi())}
