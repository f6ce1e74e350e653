"""All communication passes through here: it counts payload, limits every wait, and names the lost rank on failure."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
import torch.distributed as dist

from app.cluster.wire.bandwidth import CENTRE, all_reduce_share


@dataclass
class Passage:
    """An operation that overlaps with other work. Its times are on this rank's clock, from when its data was ready."""

    bytes: int
    ready: float
    ended: float | None = None


class Traffic:
    """One rank's payload since its step began, and the seconds during which any of it was in flight."""

    def __init__(self) -> None:
        self.sent = 0.0
        self.received = 0.0
        self.passages: list[Passage] = []  # operations that may overlap with computation
        self._rounding: tuple[float, float] | None = None
        self._seconds = 0.0
        self._under_way = 0
        self._since = 0.0
        self._lock = threading.Lock()  # the training thread starts an operation, a backend thread ends it

    @property
    def seconds(self) -> float:
        """Seconds with an operation in flight; operations that overlap count once."""
        return self._seconds

    def begin(self, sent: float, received: float) -> None:
        with self._lock:
            self.sent += sent
            self.received += received
            if self._under_way == 0:
                self._since = time.monotonic()
            self._under_way += 1

    def note_rounding(self, error: float, norm: float) -> None:
        """Add the squared norms of the rounding error and of the values before rounding for the wire."""
        with self._lock:
            errors, norms = self._rounding or (0.0, 0.0)
            self._rounding = (errors + error, norms + norm)

    @property
    def rounding_error(self) -> float | None:
        """Norm of the error from rounding for the wire divided by the gradients' norm; None if not measured."""
        error, norm = self._rounding or (0.0, 0.0)
        return math.sqrt(error / norm) if norm else None

    def end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._seconds += time.monotonic() - self._since


class Peers(Protocol):
    """The ranks that a communicator reaches: a formed cluster, or a process group of another program."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def in_flight(self) -> dict[dist.Work, tuple[int, int]]:
        """Sender and receiver of the incomplete messages, which the communicator adds and removes."""

    @property
    def bytes_in_order(self) -> int | None:
        """Messages of at most this many bytes arrive in order; None if all do."""

    def group(self, ranks: int | None) -> dist.ProcessGroup:
        """All ranks, or the first `ranks` of them."""

    def insist_on_all(self) -> None:
        """Raise an error if a rank is known to be lost."""

    def watching(
        self, operation: str, moment: Callable[[], str], *, waits: bool = True
    ) -> AbstractContextManager[None]:
        """Convert the backend's errors in the body to errors that name the operation and the lost rank."""


@dataclass(frozen=True)
class PlainGroup:
    """An existing process group. Its timeout limits every wait, and its errors are PyTorch's own."""

    process_group: dist.ProcessGroup
    in_flight: dict[dist.Work, tuple[int, int]] = field(default_factory=dict)
    bytes_in_order: int | None = None

    @property
    def rank(self) -> int:
        """This process's rank within the group, which may have fewer ranks than the program."""
        return self.process_group.rank()

    @property
    def world_size(self) -> int:
        return self.process_group.size()

    def group(self, ranks: int | None) -> dist.ProcessGroup:
        if ranks is not None:
            raise ValueError("a communicator over an existing group has all ranks of the group")
        return self.process_group

    def insist_on_all(self) -> None:
        """Check nothing, because an operation that needs a lost rank fails by itself."""

    def watching(
        self, operation: str, moment: Callable[[], str], *, waits: bool = True
    ) -> AbstractContextManager[None]:
        return nullcontext()


class Communicator:
    """The process group of a formed cluster. PEER_TIMEOUT limits every wait."""

    def __init__(self, peers: Peers, moment: str = "before the first step", ranks: int | None = None) -> None:
        """Count from zero. Errors contain `moment` as the time of the failure.

        With `ranks`, the group has only the first `ranks` ranks. All ranks must create it, but only its members use it.
        """
        self._peers = peers
        self._moment = moment
        self._apart: list[Communicator] = []
        self.in_flight = peers.in_flight
        self.bytes_in_order = peers.bytes_in_order
        # Messages bypass dist.isend, whose checks take longer than a small message.
        self.group = peers.group(ranks)
        self.world_size = ranks or peers.world_size
        self._ring_factor = all_reduce_share(1, self.world_size)  # bytes sent in an all-reduce, per byte
        self.traffic = Traffic()
        self.step = 0

    @classmethod
    def over(cls, group: dist.ProcessGroup | None = None) -> Self:
        """Use an existing process group, by default that of all ranks."""
        return cls(PlainGroup(group or dist.distributed_c10d._get_default_group()))

    @property
    def rank(self) -> int:
        return self._peers.rank

    def apart(self) -> "Communicator":
        """A second communicator with its own counts, for data other than gradients."""
        other = Communicator(self._peers, self._moment)
        self._apart.append(other)
        return other

    def begin_step(self, step: int) -> None:
        """Reset the counts, and name this step in errors. Raises an error if a rank is known to be lost."""
        self._peers.insist_on_all()
        self._moment, self.step = f"at step {step}", step
        self.traffic = Traffic()
        for other in self._apart:
            other.begin_step(step)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace the tensor with the sum over all ranks, on every rank."""
        with self.passing_all_reduce(tensor.nbytes):
            dist.all_reduce(tensor, group=self.group)

    def start_all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Start an all-reduce (sum) of the tensor, which the future returns."""

        def start() -> torch.futures.Future[list[torch.Tensor]]:
            future: torch.futures.Future[list[torch.Tensor]]
            future = dist.all_reduce(tensor, group=self.group, async_op=True).get_future()
            return future

        return self.behind(tensor.nbytes, start).then(lambda done: done.value()[0])

    def behind[Result](
        self, size: int, start: Callable[[], torch.futures.Future[Result]]
    ) -> torch.futures.Future[Result]:
        """Start an all-reduce of `size` bytes that overlaps with other work."""
        traffic, share = self.traffic, self._ring_factor * size
        passage = Passage(size, time.monotonic())
        traffic.passages.append(passage)
        traffic.begin(share, share)

        def finish(done: torch.futures.Future[Result]) -> Result:
            passage.ended = time.monotonic()
            traffic.end()
            return done.value()

        return start().then(finish)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace the tensor with rank 0's, on every rank, with the backend's own algorithm."""
        others = (self.world_size - 1) * tensor.nbytes
        sent, received = (others, 0) if self.rank == CENTRE else (0, tensor.nbytes)
        passage = Passage(tensor.nbytes, time.monotonic())
        self.traffic.passages.append(passage)
        with self.passing(f"broadcast of {tensor.nbytes} bytes", sent, received):
            dist.broadcast(tensor, group=self.group, group_src=CENTRE)
        passage.ended = time.monotonic()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """All tensors, by rank, on every rank."""
        others = (self.world_size - 1) * tensor.nbytes
        everyones = [torch.empty_like(tensor) for _ in range(self.world_size)]
        with self.passing(f"all-gather of {tensor.nbytes} bytes from each rank", others, others):
            dist.all_gather(everyones, tensor, group=self.group)
        return everyones

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """All tensors, by rank, on rank 0; empty on the others."""
        others = (self.world_size - 1) * tensor.nbytes
        central = self.rank == CENTRE
        everyones = [torch.empty_like(tensor) for _ in range(self.world_size)] if central else []
        sent, received = (0, others) if central else (tensor.nbytes, 0)
        with self.passing(f"gather of {tensor.nbytes} bytes from each rank", sent, received):
            dist.gather(tensor, everyones if central else None, group=self.group, group_dst=CENTRE)
        return everyones

    def scatter(self, tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Fill each rank's tensor with that rank's part of rank 0's `parts`. Other ranks pass no parts."""
        others = (self.world_size - 1) * tensor.nbytes
        central = self.rank == CENTRE
        sent, received = (others, 0) if central else (0, tensor.nbytes)
        with self.passing(f"scatter of {tensor.nbytes} bytes to each rank", sent, received):
            dist.scatter(tensor, list(parts) if central else None, group=self.group, group_src=CENTRE)

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> "Transfer":
        """Start to send. The tensor must not change until the transfer is complete."""
        operation = f"send of {tensor.nbytes} bytes to rank {to}"
        with self.watching(operation):
            work = self.group.send([tensor], to, tag)
        self.in_flight[work] = self.rank, to
        return Transfer(self, operation, work, tensor.nbytes, 0)

    def start_receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> "Transfer":
        operation = f"receive of {tensor.nbytes} bytes from rank {source}"
        with self.watching(operation):
            work = self.group.recv([tensor], source, tag)
        self.in_flight[work] = source, self.rank
        return Transfer(self, operation, work, 0, tensor.nbytes)

    def wait_for_peers(self) -> None:
        """Wait at a barrier, whose few bytes do not count as payload."""
        with self.watching("barrier"):
            dist.barrier(self.group)

    def watching(self, operation: str, *, waits: bool = True) -> AbstractContextManager[None]:
        """Convert the backend's errors to one that names the lost rank, the operation and the step.

        `waits` is false if the body also computes, and a rank in it may be the one that the others wait for.
        """
        return self._peers.watching(operation, lambda: self._moment, waits=waits)

    @contextmanager
    def passing(self, operation: str, sent: float, received: float) -> Iterator[None]:
        """Count these bytes while an operation runs, and convert its errors."""
        traffic = self.traffic
        traffic.begin(sent, received)
        try:
            with self.watching(operation):
                yield
        finally:
            traffic.end()

    def passing_all_reduce(self, size: int) -> AbstractContextManager[None]:
        """Count an all-reduce of `size` bytes while it runs, with the optimal number of bytes per rank."""
        share = self._ring_factor * size
        return self.passing(f"all-reduce of {size} bytes", share, share)


class Transfer:
    """A message between two ranks, which counts as in flight until `wait` returns."""

    def __init__(self, communicator: Communicator, operation: str, work: dist.Work, sent: int, received: int) -> None:
        self._communicator, self._operation, self._work = communicator, operation, work
        self._traffic = communicator.traffic
        self._traffic.begin(sent, received)

    def wait(self) -> None:
        """Wait until the message has left this rank or has arrived."""
        try:
            with self._communicator.watching(self._operation):
                self._work.wait()
            self._communicator.in_flight.pop(self._work, None)
        finally:
            self._traffic.end()
