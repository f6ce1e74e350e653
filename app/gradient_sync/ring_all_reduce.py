"""`ring_all_reduce`: the bandwidth-optimal all-reduce, written out: reduce-scatter, then all-gather, round a ring."""

from collections import deque
from collections.abc import Sequence
from itertools import cycle, islice
from typing import ClassVar

import torch
from torch import nn

from app.communicator import Communicator, Transfer
from app.gradient_sync.contract import ExplicitSync, gradients_of
from app.settings import Settings


class RingAllReduce(ExplicitSync):
    """All gradients as one buffer of N chunks, which travel round the ring of ranks twice, less two steps.

    Every rank sends to the next one and receives from the one before, in 2(N-1) steps; in step t (from 0) rank r
    receives chunk r-1-t (mod N), and in step t+1 it sends that chunk on. During the first N-1 steps, the
    reduce-scatter, it adds its own gradients to what has come; so after them each rank holds one chunk of the sum of
    all ranks, and divides it by N. During the other N-1, the all-gather, the finished chunks go round and replace
    what is there.

    A chunk is cut into pieces, and a piece is sent on as soon as it is added up: the network moves one piece
    while the processor adds another.

    Formula: grad = (1/N) * sum of all ranks' grad; chunk c is summed up from rank c onwards, in the order of the ring.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes: all chunks twice, but for one chunk in each phase.
    Where N does not divide, chunks differ by one element, and so do the ranks.
    Messages per rank and step: 2(N-1) * the pieces of a chunk, whatever the number of parameters.
    Equivalent to `all_reduce`, within rounding.
    """

    piece_bytes: ClassVar[int] = 4 << 20  # smaller ones cost more wake-ups than their overlap saves
    receives_ahead: ClassVar[int] = 4  # so that the sender never waits for a place to put the next piece

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        self._buffer = torch.empty(0)
        self._places: list[torch.Tensor] = []

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Pack, average round the ring; the means stay where they are and become the gradients."""
        learned = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = gradients_of(learned)
        if not gradients or self._communicator.world_size == 1:
            return
        if len(gradients) == 1:
            self._average(gradients[0].view(-1))  # one buffer as it is
            return
        lengths = [gradient.numel() for gradient in gradients]
        if len(self._buffer) != sum(lengths):
            self._buffer = gradients[0].new_empty(sum(lengths))
        slots = torch.split(self._buffer, lengths)
        for gradient, slot in zip(gradients, slots, strict=True):
            slot.copy_(gradient.view(-1))
        self._average(self._buffer)
        for parameter, slot in zip(learned, slots, strict=True):
            parameter.grad = slot.view(parameter.shape)

    def _average(self, buffer: torch.Tensor) -> None:
        rank, world_size = self._communicator.rank, self._communicator.world_size
        ring = Ring(self._communicator)
        chunks = [self._pieces(chunk) for chunk in torch.split(buffer, chunk_lengths(len(buffer), world_size))]
        reducing, steps = world_size - 1, 2 * (world_size - 1)
        upcoming = iter((step, piece) for step in range(steps) for piece in chunks[(rank - 1 - step) % world_size])
        places = cycle(self._landing_places(buffer))
        landing: deque[tuple[int, torch.Tensor, torch.Tensor, Transfer]] = deque()

        def expect_next() -> None:
            for step, piece in islice(upcoming, 1):
                place = next(places)[: len(piece)] if step < reducing else piece
                landing.append((step, piece, place, ring.start_receive(place)))

        for _ in range(self.receives_ahead):
            expect_next()
        for piece in chunks[rank]:
            ring.start_send(piece)
        while landing:
            step, piece, place, transfer = landing.popleft()
            transfer.wait()
            if step < reducing:
                piece += place
            if step == reducing - 1:
                piece /= world_size
            if step < steps - 1:
                ring.start_send(piece)
            expect_next()
        ring.finish()

    def _landing_places(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """For pieces that are to be added up; kept, because fresh memory costs as much time as the addition."""
        longest = min(len(buffer), self.piece_bytes // buffer.element_size() + 1)
        if not self._places or len(self._places[0]) < longest or self._places[0].dtype != buffer.dtype:
            self._places = [buffer.new_empty(longest) for _ in range(self.receives_ahead)]
        return self._places

    def _pieces(self, chunk: torch.Tensor) -> Sequence[torch.Tensor]:
        return torch.tensor_split(chunk, -(-chunk.nbytes // self.piece_bytes)) if len(chunk) else ()

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        """All chunks in both phases, but for the one that a rank only receives."""
        learned = [parameter for parameter in parameters if parameter.requires_grad]
        if not learned:
            return 0.0
        lengths = chunk_lengths(sum(parameter.numel() for parameter in learned), world_size)
        not_sent = lengths[(rank + 1) % world_size] + lengths[(rank + 2) % world_size]
        return float((2 * sum(lengths) - not_sent) * learned[0].element_size())


def chunk_lengths(elements: int, chunks: int) -> list[int]:
    """As even as it can be: the first ones are longer by one element where it does not divide."""
    return [elements // chunks + (index < elements % chunks) for index in range(chunks)]


class Ring:
    """This rank's two neighbours. Messages are numbered, so that the backend pairs them in order."""

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
        """Return when all that was sent has left."""
        for transfer in self._sent:
            transfer.wait()
