"""The interface of a compressor, and its guarantees."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch

from app.cluster.wire.bandwidth import LinkSpeed
from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, Law
from app.sync.exchange import Exchange
from app.sync.schedules.costs import Cost, Size


class Aggregate(NamedTuple):
    """The result of averaging compressed vectors."""

    mean: torch.Tensor  # bitwise identical on all ranks
    own: torch.Tensor  # the part of this rank's vector that the mean includes; the rest is the residual


class Compressor(ABC):
    """Replaces a vector by a shorter message.

    With C(x) = decode(encode(x)), the laws are `unbiased`: the mean of C(x) over many draws is x; `contraction`: the
    error of C(x) is smaller than x, so that the residual can be added to the next vector; and `vote`: the result is
    the sign that most ranks have. Compressors leave the global random state unchanged.
    """

    law: ClassVar[Law]

    def __init__(
        self, communicator: Communicator, settings: AveragingSettings, shapes: Sequence[torch.Size], dtype: torch.dtype
    ) -> None:
        """Prepare for vectors of this type that concatenate tensors of these shapes."""
        self._communicator, self._settings = communicator, settings
        self._dtype = dtype
        self._elements = sum(map(torch.Size.numel, shapes))

    @abstractmethod
    def encode(self, values: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def decode(self, message: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Average the values over all ranks by means of messages, without changing them."""

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """Sizes of the vectors that the exchange averages; if there are none, override `cost_with`."""
        return []

    @classmethod
    def cost_with(
        cls, mode: type[GradientSync], shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings
    ) -> Cost:
        """The exchange's cost for the messages, which depend on the shapes and not on the size."""
        cost, messages = mode.cost_of(settings), cls.messages(shapes, element_bytes, settings)

        def bytes_sent(size: Size, rank: int, world_size: int) -> float:
            return sum(cost.bytes_sent(message, rank, world_size) for message in messages)

        def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
            return sum(cost.seconds_at_least(message, links) for message in messages)

        return Cost(bytes_sent, least_seconds)

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors that a compressor keeps between steps, by name. Most keep none."""
        return {}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        if state:
            raise ValueError(f"{type(self).__name__} has no state, but was given {', '.join(state)}")


def chosen_of(elements: int, ratio: float) -> int:
    """Number of elements to send: COMPRESSION_RATIO of all, but at least one."""
    return min(elements, max(1, round(ratio * elements)))
