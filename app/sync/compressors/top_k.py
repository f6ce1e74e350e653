"""`top_k`: the elements of largest size, with the places where they stand."""

from collections.abc import Sequence

import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors.contract import Aggregate, Compressor, chosen_of
from app.sync.exchange import Exchange
from app.sync.modes.gathered_all_reduce import GatheredAllReduce
from app.sync.schedules.costs import Size

INDEX = torch.int32  # 16 bits would end at 65,535 elements


class TopK(Compressor):
    """Each rank chooses for itself, so messages of different ranks do not add up: everyone gathers all of them.

    Formula: mean over the ranks of what each has chosen: its k elements of largest size; zero elsewhere.
    Bytes per rank and step: (N-1) * 8k for k = COMPRESSION_RATIO * d numbers of 4 bytes and as many places.
    Rounds: N-1. It saves nothing unless k/d < 1/N: a ring sends 2(N-1)/N * 4d.
    Law: contraction. What a rank leaves out it adds to its next gradients (ERROR_FEEDBACK).
    """

    law = "contraction"

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Values, then places, as bytes."""
        places = values.abs().topk(chosen_of(self._elements, self._settings.compression_ratio), sorted=False).indices
        return torch.cat([values[places].view(torch.uint8), places.to(INDEX).view(torch.uint8)])

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        return self._added_up([message])

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Everyone adds up everyone's, in the order of the ranks."""
        if not isinstance(exchange, GatheredAllReduce):
            raise TypeError(f"top_k needs an exchange that gathers, and was given {type(exchange).__name__}")
        message = self.encode(values)
        mean = self._added_up(exchange.gather(message)).mul_(1 / self._communicator.world_size)
        return Aggregate(mean, self.decode(message))

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """Bytes, as what passes is no vector of numbers."""
        chosen = chosen_of(sum(map(torch.Size.numel, shapes)), settings.compression_ratio)
        return [Size(size := chosen * (element_bytes + INDEX.itemsize), size)]

    def _added_up(self, messages: Sequence[torch.Tensor]) -> torch.Tensor:
        sums = torch.zeros(self._elements, dtype=self._dtype)
        for message in map(torch.clone, messages):  # numbers of 8 bytes must begin where 8 divides
            count = len(message) // (self._dtype.itemsize + INDEX.itemsize)
            values, places = message.tensor_split([count * self._dtype.itemsize])
            sums.index_add_(0, places.view(INDEX), values.view(self._dtype))
        return sums
