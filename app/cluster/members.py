"""The formed group: its members, exchanges of small values, the final barrier, and errors that name the lost rank."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from app.cluster.backends import Backend
from app.cluster.compose import where_to_read
from app.cluster.failure_detector import FailureDetector
from app.cluster.judgement import LossVerdict
from app.errors import LockstepError, PeerLostError
from app.machine import interfaces
from app.machine.cpus import Machine
from app.machine.interrupt import ignore_further_signals


@dataclass(frozen=True)
class Member:
    """A rank's entry in the table of ranks."""

    rank: int
    name: str
    address: str
    port: int  # where its failure detector listens
    interface: str  # the network interface that has this address
    threads: int
    machine: Machine

    @property
    def title(self) -> str:
        return f"rank {self.rank} ({self.name}, {self.address})"


@dataclass(frozen=True)
class Cluster:
    """The formed group, seen from one of its ranks."""

    rank: int
    members: tuple[Member, ...]
    detector: FailureDetector
    peer_timeout: float
    store: dist.Store  # every further group uses it, and PyTorch does not keep it alive
    backend: Backend
    attempt: int = 0  # of the run
    # Incomplete messages between two ranks. MPI aborts a process that drops one, before it can print an error.
    in_flight: set[dist.Work] = field(default_factory=set, compare=False)
    # The operations in progress, outermost first, for a thread that ends the process with an error.
    _under_way: list[Callable[[], str]] = field(default_factory=list, compare=False)

    @property
    def world_size(self) -> int:
        return len(self.members)

    @property
    def bytes_in_order(self) -> int | None:
        """Messages of at most this many bytes arrive in order; None if all do."""
        return self.backend.bytes_in_order

    def group(self, ranks: int | None) -> dist.ProcessGroup:
        """All ranks, or the first `ranks` of them. All ranks of the cluster must call this together."""
        if ranks is None:
            return dist.distributed_c10d._get_default_group()
        return self.backend.group_of(range(ranks), self.rank, self.peer_timeout)

    @property
    def me(self) -> Member:
        return self.members[self.rank]

    def exchange[Value](self, subject: str, value: Value) -> list[Value]:
        """All-gather a small value; returns all values by rank. All ranks must call this in the same order."""
        own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with self.watching(f"all-gather of '{subject}'", lambda: "between the ranks"):
            sizes = self._gather(torch.tensor([len(own)]))
            longest = max(int(size) for size in sizes)
            everyones = self._gather(torch.nn.functional.pad(own, (0, longest - len(own))))
        return [json.loads(each[: int(size)].numpy().tobytes()) for each, size in zip(everyones, sizes, strict=True)]

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Run the body, then leave at a barrier. A rank that fails sends the reason to all others."""
        try:
            yield
            with self.watching("barrier", lambda: "at the end of the run"):
                dist.barrier()
            self.detector.leave()
            self.backend.leave()
        except BaseException as error:
            ignore_further_signals()
            reason = [str(error).partition("\n")[0], *getattr(error, "__notes__", [])]
            self.detector.give_up("\n".join(reason), deterministic=getattr(error, "deterministic", False))
            raise

    def insist_on_all(self) -> None:
        """Raise an error if the failure detector has found a lost rank."""
        if verdict := self.detector.loss:
            raise self.failure(verdict)

    @contextmanager
    def watching(self, operation: str, moment: Callable[[], str]) -> Iterator[None]:
        """Convert the backend's errors to one that names the lost rank and the operation."""
        self._under_way.append(lambda: f"{operation} {moment()}")
        try:
            yield
        except RuntimeError as error:
            if not self.backend.is_failure(error):
                raise
            cause = str(error).splitlines()[0].rpartition("RuntimeError: ")[2]  # without prefixes of wrapping errors
            raise self.failure(self.detector.find_lost(), f" {cause}") from error
        finally:
            self._under_way.pop()

    def failure(self, verdict: LossVerdict, cause: str = "") -> LockstepError:
        """This rank's error, given the failure detector's verdict. Any thread may call this."""
        during = "".join(f" during {under_way()}" for under_way in self._under_way[-1:])
        if self.me.interface not in interfaces.names():
            return interfaces.cut_off(self.rank, self.me.interface)
        if self.rank in verdict.lost:
            return PeerLostError(
                f"rank {self.rank}: the other ranks considered this rank lost{during}: "
                f"{verdict.reason or 'it did not answer'} (PEER_TIMEOUT={self.peer_timeout:g} s). "
                "Check for a paused container, a suspended machine, or a temporary network failure."
            )
        if not verdict.lost:
            return PeerLostError(
                f"rank {self.rank}: no rank is lost, but one took longer than PEER_TIMEOUT={self.peer_timeout:g} s"
                f"{during}:{cause}\nEvery rank responds. Raise PEER_TIMEOUT, or find the slow rank."
            )
        lost = [self.members[rank] for rank in verdict.lost]
        names = ", ".join(member.title for member in lost)
        reason = verdict.reason or cause.strip() or f"it no longer responds (PEER_TIMEOUT={self.peer_timeout:g} s)"
        error = PeerLostError(
            f"rank {self.rank}: lost {names}{during}: {reason}\n"
            f"See the last lines of its output{where_to_read(lost[0].name)}"
        )
        error.deterministic = verdict.deterministic
        return error

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        everyones = [torch.empty_like(tensor) for _ in self.members]
        dist.all_gather(everyones, tensor)
        return everyones
