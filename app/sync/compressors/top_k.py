"""`top_k`: the elements of largest magnitude, with their indices."""

from collections.abc import Sequence

import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors.contract import Aggregate, Compressor, chosen_of
from app.sync.exchange import Exchange
from app.sync.modes.gathered_all_reduce import GatheredAllReduce
from app.sync.schedules.costs import Size

INDEX = torch.int32  # 16 bits would limit a vector to 65,536 elements


class TopK(Compressor):
    """Each rank selects its own elements, so messages cannot be added, and every rank gathers all of them.

    Formula: mean over the ranks of each rank's k elements of largest magnitude; zero elsewhere.
    Bytes per rank and step: (N-1) * 8k for k = COMPRESSION_RATIO * d numbers of 4 bytes and as many indices.
    Rounds: N-1. It saves nothing unless k/d < 1/N: a ring sends 2(N-1)/N * 4d.
    Law: contraction. A rank adds its residual to its next gradients (ERROR_FEEDBACK).
    """

    law = "contraction"

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The values, then their indices, as bytes."""
        indices = values.abs().topk(chosen_of(self._elements, self._settings.compression_ratio), sorted=False).indices
        return torch.cat([values[indices].view(torch.uint8), indices.to(INDEX).view(torch.uint8)])

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        return self._sum_of([message])

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Every rank adds all messages in rank order."""
        if not isinstance(exchange, GatheredAllReduce):
            raise TypeError(f"top_k requires a subclass of GatheredAllReduce, not {type(exchange).__name__}")
        message = self.encode(values)
        mean = self._sum_of(exchange.gather(message)).mul_(1 / self._communicator.world_size)
        return Aggregate(mean, self.decode(message))

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """Sizes in bytes, because a message mixes values and indices."""
        chosen = chosen_of(sum(map(torch.Size.numel, shapes)), settings.compression_ratio)
        return [Size(size := chosen * (element_bytes + INDEX.itemsize), size)]

    def _sum_of(self, messages: Sequence[torch.Tensor]) -> torch.Tensor:
        sums = torch.zeros(self._elements, dtype=self._dtype)
        for message in map(torch.clone, messages):  # a copy, because numbers of 8 bytes must be aligned
            count = len(message) // (self._dtype.itemsize + INDEX.itemsize)
            values, indices = message.tensor_split([count * self._dtype.itemsize])
            sums.index_add_(0, indices.view(INDEX), values.view(self._dtype))
        return sums
