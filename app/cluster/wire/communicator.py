"""The only way to the wire: it counts all payload, limits every wait, and names the lost rank if one fails."""

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
    """An operation that runs behind other work, from the moment this rank's data was ready; by this rank's clock."""

    bytes: int
    ready: float
    ended: float | None = None


class Traffic:
    """One rank's payload since its step began, and the seconds during which any of it was in flight."""

    def __init__(self) -> None:
        self.sent = 0.0
        self.received = 0.0
        self.passages: list[Passage] = []  # the operations that computation may hide
        self._rounding: tuple[float, float] | None = None
        self._seconds = 0.0
        self._under_way = 0
        self._since = 0.0
        self._lock = threading.Lock()  # the training thread begins an operation, a thread of the backend ends it

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
        """Add to the squares of two norms: of what rounding for the wire has changed, and of what it was given."""
        with self._lock:
            errors, norms = self._rounding or (0.0, 0.0)
            self._rounding = (errors + error, norms + norm)

    @property
    def rounding_error(self) -> float | None:
        """How far rounding for the wire has moved this rank's gradients, relative to them; None if not measured."""
        error, norm = self._rounding or (0.0, 0.0)
        return math.sqrt(error / norm) if norm else None

    def end(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._seconds += time.monotonic() - self._since


class Peers(Protocol):
    """The ranks that a communicator reaches: a formed cluster, or a process group of somebody else's program."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def in_flight(self) -> set[dist.Work]:
        """Messages between two ranks that have not arrived."""

    @property
    def bytes_in_order(self) -> int | None:
        """Messages of at most this size arrive one after another; None: all."""

    def group(self, ranks: int | None) -> dist.ProcessGroup:
        """All ranks, or this many, from rank 0 up."""

    def insist_on_all(self) -> None:
        """Raise an error if a rank is known to be lost."""

    def watching(self, operation: str, moment: Callable[[], str]) -> AbstractContextManager[None]:
        """Explain a failure inside."""


@dataclass(frozen=True)
class PlainGroup:
    """A process group that exists already. Its timeout limits every wait, and its errors are PyTorch's own."""

    process_group: dist.ProcessGroup
    in_flight: set[dist.Work] = field(default_factory=set)
    bytes_in_order: int | None = None

    @property
    def rank(self) -> int:
        """This rank, within the group."""
        return self.process_group.rank()

    @property
    def world_size(self) -> int:
        return self.process_group.size()

    def group(self, ranks: int | None) -> dist.ProcessGroup:
        if ranks is not None:
            raise ValueError("a communicator over a given group has all ranks of the group")
        return self.process_group

    def insist_on_all(self) -> None:
        """A lost rank is noticed by the operation that needs it."""

    def watching(self, operation: str, moment: Callable[[], str]) -> AbstractContextManager[None]:
        """Leave PyTorch's errors as they are."""
        return nullcontext()


class Communicator:
    """The process group of a formed cluster. PEER_TIMEOUT limits every wait."""

    def __init__(self, peers: Peers, moment: str = "before the first step", ranks: int | None = None) -> None:
        """Count from zero; errors use `moment` to say when something happened.

        With `ranks`, the group holds only that many ranks, from rank 0 up. All create it; only its members use it.
        """
        self._peers = peers
        self._moment = moment
        self._apart: list[Communicator] = []
        self.in_flight = peers.in_flight
        self.bytes_in_order = peers.bytes_in_order
        # Messages go straight to the group: dist.isend's own checks take longer than a small message.
        self.group = peers.group(ranks)
        self.world_size = ranks or peers.world_size
        self._ring_factor = all_reduce_share(1, self.world_size)  # bytes sent in an all-reduce, per byte
        self.traffic = Traffic()
        self.step = 0

    @classmethod
    def over(cls, group: dist.ProcessGroup | None = None) -> Self:
        """Use a process group that exists already, by default that of all ranks."""
        return cls(PlainGroup(group or dist.distributed_c10d._get_default_group()))

    @property
    def rank(self) -> int:
        return self._peers.rank

    def apart(self) -> "Communicator":
        """A second communicator for data that is not gradients, with its own counts."""
        other = Communicator(self._peers, self._moment)
        self._apart.append(other)
        return other

    def begin_step(self, step: int) -> None:
        """Count from zero again, and name this step in errors; end here if the failure detector has found a loss."""
        self._peers.insist_on_all()
        self._moment, self.step = f"at step {step}", step
        self.traffic = Traffic()
        for other in self._apart:
            other.begin_step(step)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace the tensor, on every rank, by the sum over all ranks."""
        with self.passing_all_reduce(tensor.nbytes):
            dist.all_reduce(tensor, group=self.group)

    def start_all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Start to replace the tensor by the sum over all ranks; the future returns the tensor."""

        def start() -> torch.futures.Future[list[torch.Tensor]]:
            future: torch.futures.Future[list[torch.Tensor]]
            future = dist.all_reduce(tensor, group=self.group, async_op=True).get_future()
            return future

        return self.behind(tensor.nbytes, start).then(lambda done: done.value()[0])

    def behind[Result](
        self, size: int, start: Callable[[], torch.futures.Future[Result]]
    ) -> torch.futures.Future[Result]:
        """Start an all-reduce of `size` bytes that runs behind other work."""
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
        """Replace the tensor, on every rank, by rank 0's; the backend decides which rank forwards it to which."""
        others = (self.world_size - 1) * tensor.nbytes
        sent, received = (others, 0) if self.rank == CENTRE else (0, tensor.nbytes)
        passage = Passage(tensor.nbytes, time.monotonic())
        self.traffic.passages.append(passage)
        with self.passing(f"broadcast of {tensor.nbytes} bytes", sent, received):
            dist.broadcast(tensor, group=self.group, group_src=CENTRE)
        passage.ended = time.monotonic()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's tensor, by rank, on every rank."""
        others = (self.world_size - 1) * tensor.nbytes
        everyones = [torch.empty_like(tensor) for _ in range(self.world_size)]
        with self.passing(f"all-gather of {tensor.nbytes} bytes from each rank", others, others):
            dist.all_gather(everyones, tensor, group=self.group)
        return everyones

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's tensor, by rank, on rank 0; nothing on the others."""
        others = (self.world_size - 1) * tensor.nbytes
        central = self.rank == CENTRE
        everyones = [torch.empty_like(tensor) for _ in range(self.world_size)] if central else []
        sent, received = (0, others) if central else (tensor.nbytes, 0)
        with self.passing(f"gather of {tensor.nbytes} bytes from each rank", sent, received):
            dist.gather(tensor, everyones if central else None, group=self.group, group_dst=CENTRE)
        return everyones

    def scatter(self, tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Fill each rank's tensor with that rank's part of rank 0's `parts`; the other ranks pass none."""
        others = (self.world_size - 1) * tensor.nbytes
        central = self.rank == CENTRE
        sent, received = (others, 0) if central else (0, tensor.nbytes)
        with self.passing(f"scatter of {tensor.nbytes} bytes to each rank", sent, received):
            dist.scatter(tensor, list(parts) if central else None, group=self.group, group_src=CENTRE)

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> "Transfer":
        """Start to send; the tensor must not change until the transfer is complete."""
        operation = f"send of {tensor.nbytes} bytes to rank {to}"
        with self.watching(operation):
            work = self.group.send([tensor], to, tag)
        return Transfer(self, operation, work, tensor.nbytes, 0)

    def start_receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> "Transfer":
        operation = f"receive of {tensor.nbytes} bytes from rank {source}"
        with self.watching(operation):
            work = self.group.recv([tensor], source, tag)
        return Transfer(self, operation, work, 0, tensor.nbytes)

    def wait_for_peers(self) -> None:
        """Return when every rank has arrived here; its few bytes are not payload."""
        with self.watching("barrier"):
            dist.barrier(self.group)

    def watching(self, operation: str) -> AbstractContextManager[None]:
        """Turn the backend's failure into an error that says which rank was lost, and when."""
        return self._peers.watching(operation, lambda: self._moment)

    @contextmanager
    def passing(self, operation: str, sent: float, received: float) -> Iterator[None]:
        """Count so many bytes while an operation runs, and explain its failure."""
        traffic = self.traffic
        traffic.begin(sent, received)
        try:
            with self.watching(operation):
                yield
        finally:
            traffic.end()

    def passing_all_reduce(self, size: int) -> AbstractContextManager[None]:
        """Count an all-reduce of `size` bytes, each rank's share of the least bytes, while it runs."""
        share = self._ring_factor * size
        return self.passing(f"all-reduce of {size} bytes", share, share)


class Transfer:
    """A message in flight between two ranks."""

    def __init__(self, communicator: Communicator, operation: str, work: dist.Work, sent: int, received: int) -> None:
        self._communicator, self._operation, self._work = communicator, operation, work
        self._traffic = communicator.traffic
        self._traffic.begin(sent, received)
        communicator.in_flight.add(work)

    def wait(self) -> None:
        """Return when the message has left this rank, or has arrived."""
        try:
            with self._communicator.watching(self._operation):
                self._work.wait()
            self._communicator.in_flight.discard(self._work)
        finally:
            self._traffic.end()
