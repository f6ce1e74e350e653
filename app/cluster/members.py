"""The formed group: its members, exchanges of small values, the final barrier, and errors that name the lost rank."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb

import torch
import torch.distributed as dist

from app.cluster.activity import COMPUTING, IN_PYTORCH, LONGEST_TEXT, MOST_PEERS, Activity, place_of
from app.cluster.backends import Backend
from app.cluster.compose import where_to_read
from app.cluster.failure_detector import FailureDetector
from app.cluster.judgement import LossVerdict
from app.errors import DeadlockError, LockstepError, PeerLostError
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
    # Incomplete messages: sender and receiver. MPI aborts a process that drops one, before it can print an error.
    in_flight: dict[dist.Work, tuple[int, int]] = field(default_factory=dict, compare=False)
    # The operations in progress, outermost first, each since when it waits if it does. Any thread may read this.
    _under_way: list[tuple[float | None, Callable[[], str]]] = field(default_factory=list, compare=False)
    _thread: int = field(default_factory=threading.get_ident, compare=False)  # the training thread

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
    def watching(self, operation: str, moment: Callable[[], str], *, waits: bool = True) -> Iterator[None]:
        """Convert the backend's errors to one that names the lost rank and the operation."""
        self._under_way.append((time.monotonic() if waits else None, lambda: f"{operation} {moment()}"))
        try:
            yield
        except RuntimeError as error:
            if not self.backend.is_failure(error):
                raise
            cause = str(error).splitlines()[0].rpartition("RuntimeError: ")[2]  # without prefixes of wrapping errors
            raise self.failure(self.detector.find_lost(self.activity(error)), f" {cause}") from error
        finally:
            self._under_way.pop()

    def activity(self, failed: RuntimeError | None = None) -> Activity:
        """What this rank's training thread is doing, or did when the backend `failed`. Any thread may call this."""
        frames = [frame for frame, _ in walk_tb(failed.__traceback__)] if failed else []
        place, in_pytorch = place_of(frames[-1] if frames else sys._current_frames().get(self._thread))
        doing, waited = IN_PYTORCH if in_pytorch else COMPUTING, None
        for since, name in self._under_way[-1:]:
            if since is not None or failed:  # the backend fails in operations only, also in those of PyTorch itself
                doing, waited = name(), time.monotonic() - since if since is not None else 0.0
        messages = set(self.in_flight.values())
        return Activity(
            doing[:LONGEST_TEXT],
            waited,
            place[:LONGEST_TEXT],
            tuple(sorted(receiver for sender, receiver in messages if sender == self.rank)[:MOST_PEERS]),
            tuple(sorted(sender for sender, receiver in messages if receiver == self.rank)[:MOST_PEERS]),
        )

    def failure(self, verdict: LossVerdict, cause: str = "") -> LockstepError:
        """This rank's error, given the failure detector's verdict. Any thread may call this."""
        during = "".join(f" during {name()}" for _, name in self._under_way[-1:])
        if self.me.interface not in interfaces.names():
            return interfaces.cut_off(self.rank, self.me.interface)
        if self.rank in verdict.lost:
            return PeerLostError(
                f"rank {self.rank}: the other ranks considered this rank lost{during}: "
                f"{verdict.reason or 'it did not answer'} (PEER_TIMEOUT={self.peer_timeout:g} s). "
                "Check for a paused container, a suspended machine, or a temporary network failure."
            )
        if not verdict.lost:
            return self._unfinished(verdict.deadlock, during, cause)
        lost = [self.members[rank] for rank in verdict.lost]
        names = ", ".join(member.title for member in lost)
        reason = verdict.reason or cause.strip() or f"it no longer responds (PEER_TIMEOUT={self.peer_timeout:g} s)"
        error = PeerLostError(
            f"rank {self.rank}: lost {names}{during}: {reason}\n"
            f"See the last lines of its output{where_to_read(lost[0].name)}"
        )
        error.deterministic = verdict.deterministic
        return error

    def _unfinished(self, deadlock: bool, during: str, cause: str) -> LockstepError:
        """The error after an operation that failed although no rank is lost. It shows what every rank is doing."""
        message = (
            f"rank {self.rank}: no rank is lost, but an operation did not finish within "
            f"PEER_TIMEOUT={self.peer_timeout:g} s{during}"
        )
        error: LockstepError
        if deadlock:
            error = DeadlockError(f"{message}. The ranks wait for each other:")
            remedy = (
                "Compare the order of sends, receives and collectives on these ranks. scripts/conformance MODE finds "
                "such an error without a run. If only the links are slow, raise PEER_TIMEOUT."
            )
        else:
            error = PeerLostError(f"{message}:{cause}\nEvery rank responds:")
            remedy = "Find the rank that the others wait for, or raise PEER_TIMEOUT."
        everyones = self.detector.activities()
        error.add_note("\n".join([*(f"  rank {rank}: {everyones[rank]}" for rank in sorted(everyones)), remedy]))
        return error

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        everyones = [torch.empty_like(tensor) for _ in self.members]
        dist.all_gather(everyones, tensor)
        return everyones
