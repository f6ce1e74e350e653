"""`ring_all_reduce`: the bandwidth-optimal all-reduce, written out: reduce-scatter, then all-gather, round a ring."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import ClassVar, Self

import torch
from torch import nn

from app.costs.patterns import RING, cut
from app.gradient_sync.contract import GradientSync, gradients_of
from app.gradient_sync.wire_precision import DTYPES, add, rounding
from app.settings.fields import Settings
from app.wire.communicator import Communicator, Transfer


class RingAllReduce(GradientSync):
    """All gradients as one buffer of N chunks, which travel round the ring of ranks twice, less two steps.

    Every rank sends to the next one and receives from the one before, in 2(N-1) steps; in step t (from 0) rank r
    receives chunk r-1-t (mod N), and in step t+1 it sends that chunk on. During the first N-1 steps, the
    reduce-scatter, it adds its own gradients to each chunk received. Then each rank holds one chunk of the sum of all
    ranks, and divides it by N. During the other N-1 steps, the all-gather, the finished chunks go round and replace
    the unfinished ones.

    A chunk is cut into pieces, and a piece is sent on as soon as it is added up: the network moves one piece
    while the processor adds another.

    Formula: grad = (1/N) * sum of all ranks' grad; chunk c is summed up from rank c onwards, in the order of the ring.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes: all chunks twice, but for one chunk in each phase.
    Where N does not divide, chunks differ by one element, and so do the ranks.
    Messages per rank and step: 2(N-1) * the pieces of a chunk, whatever the number of parameters.
    Equivalent to `all_reduce`, within rounding.

    With WIRE_PRECISION=bf16 or fp16, S is half as large. What arrives is added in fp32, and rounded again to be sent:
    a chunk is rounded N times on its way, and the rank that finishes it keeps the rounded mean as all others do.
    """

    cost = RING

    piece_bytes: ClassVar[int] = 8 << 20  # smaller ones cost more wake-ups than their overlap saves
    receives_ahead: ClassVar[int] = 4  # the sender then never waits for a place for the next piece

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        self._precision, self._log_every = settings.wire_precision, settings.log_every
        self._buffer = self._rounded = torch.empty(0)
        self._places: list[torch.Tensor] = []

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average round the ring in one buffer; the means stay there and become the gradients."""
        learned = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [gradient.view(-1) for gradient in gradients_of(learned)]
        if not gradients or self._communicator.world_size == 1:
            return
        if self._precision != "fp32" and self._communicator.step % self._log_every == 0:
            for gradient in gradients:
                self._communicator.traffic.note_rounding(*rounding(gradient, DTYPES[self._precision]))
        buffer = self._buffer_for(gradients)
        self._average(gradients, buffer, self._wire_for(buffer))
        for parameter, mean in zip(learned, torch.split(buffer, list(map(len, gradients))), strict=True):
            parameter.grad = mean.view(parameter.shape)

    def _average(self, gradients: Sequence[torch.Tensor], buffer: torch.Tensor, wire: torch.Tensor) -> None:
        rank, world_size = self._communicator.rank, self._communicator.world_size
        ring = Ring(self._communicator)
        chunks = [self._pieces(chunk, gradients, buffer, wire) for chunk in cut(range(len(buffer)), world_size)]
        reducing, steps = world_size - 1, 2 * (world_size - 1)
        upcoming = iter((step, piece) for step in range(steps) for piece in chunks[(rank - 1 - step) % world_size])
        places = cycle(self._landing_places(wire))
        landing: deque[tuple[int, Piece, torch.Tensor, Transfer]] = deque()

        def expect_next() -> None:
            for step, piece in islice(upcoming, 1):
                place = next(places)[: len(piece.wire)] if step < reducing else piece.wire
                landing.append((step, piece, place, ring.start_receive(place)))

        for _ in range(self.receives_ahead):
            expect_next()
        for piece in chunks[rank]:
            piece.pack()
            ring.start_send(piece.wire)
        while landing:
            step, piece, place, transfer = landing.popleft()
            transfer.wait()
            if step < reducing:
                piece.pack_with(place, 1 / world_size if step == reducing - 1 else 1)
            if step < steps - 1:
                ring.start_send(piece.wire)
            if step >= reducing - 1:
                piece.unround()
            expect_next()
        ring.finish()

    def _pieces(
        self, chunk: range, gradients: Sequence[torch.Tensor], buffer: torch.Tensor, wire: torch.Tensor
    ) -> "list[Piece]":
        count = -(-len(chunk) * wire.element_size() // self.piece_bytes)
        return [Piece.of(buffer, wire, gradients, stretch) for stretch in cut(chunk, count)]

    # All memory is kept from step to step, because fresh memory costs as much time as an addition.

    def _buffer_for(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """A single gradient is a buffer already."""
        if len(gradients) == 1:
            return gradients[0]
        length = sum(map(len, gradients))
        if len(self._buffer) != length:
            self._buffer = gradients[0].new_empty(length)
        return self._buffer

    def _wire_for(self, buffer: torch.Tensor) -> torch.Tensor:
        """What travels: the buffer itself, or its numbers rounded."""
        if self._precision == "fp32":
            return buffer
        if len(self._rounded) != len(buffer):
            self._rounded = torch.empty(len(buffer), dtype=DTYPES[self._precision])
        return self._rounded

    def _landing_places(self, wire: torch.Tensor) -> list[torch.Tensor]:
        """Memory for received pieces, before they are added."""
        longest = min(len(wire), self.piece_bytes // wire.element_size() + 1)
        if not self._places or len(self._places[0]) < longest:
            self._places = [wire.new_empty(longest) for _ in range(self.receives_ahead)]
        return self._places


@dataclass(frozen=True)
class Piece:
    """A stretch of the buffer, and the stretches of this rank's gradients that belong there."""

    values: torch.Tensor
    wire: torch.Tensor  # what travels: the same memory, or the values rounded
    own: list[tuple[torch.Tensor, torch.Tensor]]  # place in what travels, part of a gradient

    @classmethod
    def of(cls, buffer: torch.Tensor, wire: torch.Tensor, gradients: Sequence[torch.Tensor], stretch: range) -> Self:
        """A stretch of the buffer, in which all gradients lie end to end."""
        own, start = [], 0
        for gradient in gradients:
            first, end = max(stretch.start, start), min(stretch.stop, start + len(gradient))
            if first < end:
                own.append((wire[first:end], gradient[first - start : end - start]))
            start += len(gradient)
        values = buffer[stretch.start : stretch.stop]
        return cls(values, values if wire is buffer else wire[stretch.start : stretch.stop], own)

    def pack(self) -> None:
        """Let this rank's gradients travel."""
        for place, gradient in self.own:
            place.copy_(gradient)

    def pack_with(self, others: torch.Tensor, factor: float) -> None:
        """Let their sum with the received values, times a factor, travel, in one pass over the memory."""
        start = 0
        for place, gradient in self.own:
            add(gradient, others[start : start + len(place)], place, factor)
            start += len(place)

    def unround(self) -> None:
        """Take what has travelled, or will."""
        if self.wire is not self.values:
            self.values.copy_(self.wire)


class Ring:
    """This rank's two neighbours. Messages are numbered: the backend pairs them in order."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._next = (communicator.rank + 1) % communicator.world_size
        self._before = (communicator.rank - 1) % communicator.world_size
        self._sent: list[Transfer] = []
        self._expected = 0

    def start_send(self, piece: torch.Tensor) -> None:
        """Start a piece on its way to the next rank."""
        self._sent.append(self._communicator.start_send(piece, self._next, tag=len(self._sent)))

    def start_receive(self, place: torch.Tensor) -> Transfer:
        """Open a place for the next piece from the rank before."""
        self._expected += 1
        return self._communicator.start_receive(place, self._before, tag=self._expected - 1)

    def finish(self) -> None:
        """Return when everything sent has left."""
        for transfer in self._sent:
            transfer.wait()
