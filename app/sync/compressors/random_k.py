"""`random_k`: some elements, which all ranks draw alike; on average over the steps they are the gradients."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors.contract import Aggregate, Compressor, chosen_of
from app.sync.exchange import Exchange
from app.sync.schedules.costs import Size


class RandomK(Compressor):
    """The vector is cut into k stretches, and each rank sends the same element, drawn at random, of each.

    Seed and step decide what is drawn, so all ranks agree without a word, and no indices are sent. An element is
    multiplied by the length of its stretch: the chance to be drawn makes up for it.

    Formula: mean of the k drawn elements over the ranks, each times about d/k; zero elsewhere.
    Bytes: those of the exchange for k = COMPRESSION_RATIO * d numbers; 2(N-1)/N * 4k in a ring.
    Rounds: those of the exchange. It always saves: k/d of the bytes are sent.
    Law: unbiased. The variance is d/k times that of the gradients, so the learning rate has to be lower. Nothing is
    remembered.
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
        """Where the drawn elements are, and how long their stretches."""
        count = chosen_of(self._elements, self._settings.compression_ratio)
        edges = np.arange(count + 1, dtype=np.int64) * self._elements // max(1, count)
        random = np.random.default_rng((self._settings.seed, self._communicator.step))
        return random.integers(edges[:-1], edges[1:]), np.diff(edges)
