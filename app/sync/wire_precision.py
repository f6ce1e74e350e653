"""Averages buffers of gradients, in full or half precision on the wire (WIRE_PRECISION)."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

import torch

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings, WirePrecision
from app.sync.schedules.schedule import cut

Averaged = torch.futures.Future[torch.Tensor]

DTYPES: dict[WirePrecision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BLOCK = 1 << 16  # elements converted and added at a time, so that they stay in the CPU cache


class Wire(Protocol):
    """Averages buffers over all ranks."""

    prescale: float
    """Factor that the caller must apply to the gradients first."""

    def average(self, values: torch.Tensor) -> None:
        """Replace the values by their mean over all ranks."""

    def start(self, values: torch.Tensor) -> Averaged:
        """Start averaging in the background, in the same order on all ranks; the future returns the values."""


def wire_of(communicator: Communicator, settings: AveragingSettings) -> Wire:
    """Select by WIRE_PRECISION. A single rank sends nothing, so it rounds nothing."""
    if settings.wire_precision == "fp32" or communicator.world_size == 1:
        return Whole(communicator)
    return Halves(communicator, settings)


class Whole:
    """The backend's all-reduce in the type of the values."""

    def __init__(self, communicator: Communicator) -> None:
        self.prescale = 1 / communicator.world_size
        self.average, self.start = communicator.all_reduce, communicator.start_all_reduce


class Halves:
    """An all-reduce of 16-bit numbers that accumulates in fp32.

    Each rank owns a chunk. All others send it theirs, rounded. It adds them to its own, divides by N, rounds the mean,
    and sends it to all. A number is therefore rounded twice, whatever the number of ranks, while a backend that
    accumulates in half precision rounds N times. Dividing the sum instead of the addends prevents underflow in fp16,
    and accumulating in fp32 prevents overflow. The bytes are those of a ring.
    """

    prescale = 1.0

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        self._communicator, self._dtype = communicator, DTYPES[settings.wire_precision]
        self._log_every = settings.log_every
        self._rounded = torch.empty(0, dtype=self._dtype)
        self._landed = torch.empty(0, dtype=self._dtype)
        self._line = WorkQueue()

    def average(self, values: torch.Tensor) -> None:
        size = len(values) * self._dtype.itemsize
        with self._communicator.passing_all_reduce(size):
            self._exchange(values)

    def start(self, values: torch.Tensor) -> Averaged:
        size = len(values) * self._dtype.itemsize
        return self._communicator.behind(size, lambda: self._line.start(lambda: self._exchange(values)))

    def _exchange(self, values: torch.Tensor) -> torch.Tensor:
        if self._communicator.step % self._log_every == 0:
            self._communicator.traffic.note_rounding(*rounding(values, self._dtype))
        rank, world_size, group = self._communicator.rank, self._communicator.world_size, self._communicator.group
        places = cut(range(len(values)), world_size)
        chunks = [values[place.start : place.stop] for place in places]
        rounded = [self._memory_for(values)[place.start : place.stop] for place in places]
        landed = self._landing_for(world_size, len(chunks[rank]))
        others = [(rank + distance) % world_size for distance in range(1, world_size)]

        arriving = [group.recv([landed[other]], other, 0) for other in others]
        leaving = []
        for other in others:
            rounded[other].copy_(chunks[other])
            leaving.append(group.send([rounded[other]], other, 0))
        for other, arrival in zip(others, arriving, strict=True):
            arrival.wait()
            if other == others[-1]:
                add(chunks[rank], [landed[other]], rounded[rank], 1 / world_size)
            else:
                add(chunks[rank], [landed[other]], chunks[rank])
        for departure in leaving:
            departure.wait()

        arriving = [group.recv([rounded[other]], other, 0) for other in others]
        leaving = [group.send([rounded[rank]], other, 0) for other in others]
        chunks[rank].copy_(rounded[rank])
        for other, arrival in zip(others, arriving, strict=True):
            arrival.wait()
            chunks[other].copy_(rounded[other])
        for departure in leaving:
            departure.wait()
        return values

    # Both buffers are reused, because allocating memory takes as long as an addition.

    def _memory_for(self, values: torch.Tensor) -> torch.Tensor:
        if len(self._rounded) < len(values):
            self._rounded = torch.empty(len(values), dtype=self._dtype)
        return self._rounded

    def _landing_for(self, world_size: int, length: int) -> torch.Tensor:
        if len(self._landed) < world_size * length:
            self._landed = torch.empty(world_size * length, dtype=self._dtype)
        return self._landed[: world_size * length].view(world_size, length)


class WorkQueue:
    """A thread that runs tasks in the order of their submission."""

    def __init__(self) -> None:
        self._submitted: SimpleQueue[torch.futures.Future[None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="half precision", daemon=True)

    def start(self, work: Callable[[], torch.Tensor]) -> Averaged:
        if not self._thread.is_alive():
            self._thread.start()
        turn: torch.futures.Future[None] = torch.futures.Future()
        done = turn.then(lambda _: work())
        self._submitted.put(turn)
        return done

    def _run(self) -> None:
        while True:
            self._submitted.get().set_result(None)  # runs the work here; its failure goes to the thread that waits


def add(values: torch.Tensor, others: Sequence[torch.Tensor], out: torch.Tensor, factor: float = 1.0) -> None:
    """Add numbers of possibly different types, multiply the sum by a factor, and round it to the type of `out`."""
    if {values.dtype} == {out.dtype, *(each.dtype for each in others)}:
        for other in others:
            values = torch.add(values, other, out=out)
        if factor != 1:
            out *= factor
        return
    # Block by block in the CPU cache: PyTorch's mixed-type addition takes three times as long.
    exact = values.new_empty(min(BLOCK, len(values)))
    for block, place, *addends in zip(*(torch.split(each, BLOCK) for each in (values, out, *others)), strict=True):
        total, partial = place if place.dtype == block.dtype else exact[: len(block)], block
        for addend in addends:
            partial = torch.add(partial, addend.to(block.dtype), out=total)
        if factor != 1:
            total *= factor
        if total is not place:
            place.copy_(total)


def rounding(values: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """The squared norms of the rounding error and of the values."""
    error = norm = 0.0
    for block in torch.split(values, BLOCK):
        error += float(torch.linalg.vector_norm(block.to(dtype).to(block.dtype).sub_(block))) ** 2
        norm += float(torch.linalg.vector_norm(block)) ** 2
    return error, norm
