"""`random_k`: randomly drawn elements, the same on all ranks, whose expectation is the gradient."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors.contract import Aggregate, Compressor, chosen_of
from app.sync.exchange import Exchange
from app.sync.schedules.costs import Size


class RandomK(Compressor):
    """The vector is cut into k slices, and all ranks send the same randomly drawn element of each.

    Seed and step determine the draw, so ranks need no agreement and send no indices. An element is multiplied by the
    length of its slice, the inverse of its probability.

    Formula: mean of the k drawn elements over the ranks, each times about d/k; zero elsewhere.
    Bytes: those of the exchange for k = COMPRESSION_RATIO * d numbers; 2(N-1)/N * 4k in a ring.
    Rounds: those of the exchange. It always saves bytes: k/d of them are sent.
    Law: unbiased. The variance is d/k times that of the gradients, so the learning rate has to be lower. It
    has no state.
    """

    law = "unbiased"

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        places, lengths = self._draw()
        return values[torch.from_numpy(places)] * torch.from_numpy(lengths).to(values.dtype)

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        values = message.new_zeros(self._elements)
        values[torch.from_numpy(self._draw()[0])] = message
        return values

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        message = self.encode(values)
        exchange.average(message)
        mean = self.decode(message)
        return Aggregate(mean, mean)

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        chosen = chosen_of(sum(map(torch.Size.numel, shapes)), settings.compression_ratio)
        return [Size(chosen, chosen * element_bytes)]

    def _draw(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Indices of the drawn elements, and lengths of their slices."""
        count = chosen_of(self._elements, self._settings.compression_ratio)
        edges = np.arange(count + 1, dtype=np.int64) * self._elements // max(1, count)
        random = np.random.default_rng((self._settings.seed, self._communicator.step))
        return random.integers(edges[:-1], edges[1:]), np.diff(edges)
