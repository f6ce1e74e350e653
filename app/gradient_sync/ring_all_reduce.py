"""`ring_all_reduce`: the bandwidth-optimal all-reduce, written out: reduce-scatter, then all-gather, round a ring."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from app.communicator import Communicator, Transfer
from app.gradient_sync.contract import gradients_of
from app.settings import Settings


class RingAllReduce:
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

    explicit: ClassVar[bool] = True
    piece_bytes: ClassVar[int] = 1 << 20
    receives_ahead: ClassVar[int] = 4  # so that the sender never waits for a place to put the next piece

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        """Talk through this communicator."""
        self._communicator = communicator
        self._buffer = torch.empty(0)

    def attach(self, model: nn.Module) -> nn.Module:
        """Leave the model as it is."""
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Pack, average round the ring, unpack."""
        gradients = gradients_of(parameters)
        if not gradients or self._communicator.world_size == 1:
            return
        self._buffer = self._buffer.to(gradients[0].dtype)
        self._buffer.resize_(sum(gradient.numel() for gradient in gradients))
        torch.cat([gradient.view(-1) for gradient in gradients], out=self._buffer)
        self._average(self._buffer)
        means = torch.split(self._buffer, [gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))

    def _average(self, buffer: torch.Tensor) -> None:
        rank, world_size = self._communicator.rank, self._communicator.world_size
        chunks = [self._pieces(chunk) for chunk in torch.split(buffer, chunk_lengths(buffer.numel(), world_size))]
        last = 2 * (world_size - 1) - 1
        incoming = [(step, piece) for step in range(last + 1) for piece in chunks[(rank - 1 - step) % world_size]]

        ring = Ring(self._communicator)
        for piece in chunks[rank]:
            ring.send(piece)
        landing: deque[tuple[torch.Tensor, Transfer]] = deque()
        for index, (step, piece) in enumerate(incoming):
            while len(landing) < self.receives_ahead and index + len(landing) < len(incoming):
                ahead, place = incoming[index + len(landing)]
                landing.append(ring.receive(torch.empty_like(place) if ahead < world_size - 1 else place))
            arrived, transfer = landing.popleft()
            transfer.wait()
            if step < world_size - 1:
                piece += arrived
            if step == world_size - 2:
                piece /= world_size
            if step < last:
                ring.send(piece)
        ring.finish()

    def _pieces(self, chunk: torch.Tensor) -> Sequence[torch.Tensor]:
        length = max(1, self.piece_bytes // chunk.element_size())
        return torch.split(chunk, length) if chunk.numel() else ()

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
        self._received = 0

    def send(self, piece: torch.Tensor) -> None:
        """Start a piece on its way to the next rank."""
        self._sent.append(self._communicator.start_send(piece, self._next, tag=len(self._sent)))

    def receive(self, place: torch.Tensor) -> tuple[torch.Tensor, Transfer]:
        """Open a place for the next piece from the rank before."""
        self._received += 1
        return place, self._communicator.start_receive(place, self._before, tag=self._received - 1)

    def finish(self) -> None:
        """Return when all that was sent has left."""
        for transfer in self._sent:
            transfer.wait()
