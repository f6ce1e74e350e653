"""What each compressor promises, and what it may count on."""

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
    """What has come out of an exchange of compressed vectors."""

    mean: torch.Tensor  # what all ranks take for the mean; the same bits on all of them
    own: torch.Tensor  # the part of this rank's vector that is in it: the rest has been left out


class Compressor(ABC):
    """A shorter message in place of a vector.

    With C(x) = decode(encode(x)), the law `unbiased` says that the mean of C(x) over many draws is x, `contraction`
    that C(x) is nearer to x than zero is, so that what is left out can be added to the next vector, and `vote` that
    what all ranks take is the sign that most of them have. Nothing here touches the global random state.
    """

    law: ClassVar[Law]

    def __init__(
        self, communicator: Communicator, settings: AveragingSettings, shapes: Sequence[torch.Size], dtype: torch.dtype
    ) -> None:
        """For vectors of this type in which parts of these shapes lie end to end."""
        self._communicator, self._settings = communicator, settings
        self._dtype = dtype
        self._elements = sum(map(torch.Size.numel, shapes))

    @abstractmethod
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """What this rank sends."""

    @abstractmethod
    def decode(self, message: torch.Tensor) -> torch.Tensor:
        """The vector that a message stands for."""

    @abstractmethod
    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Exchange messages, and make of them what all ranks take; the values stay as they are."""

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """The vectors that the exchange averages, one after another; if there are none, override `cost_with`."""
        return []

    @classmethod
    def cost_with(
        cls, mode: type[GradientSync], shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings
    ) -> Cost:
        """The formulas: those of the exchange, for the messages. It depends on the shapes, and not on the size."""
        cost, messages = mode.cost_of(settings), cls.messages(shapes, element_bytes, settings)

        def bytes_sent(size: Size, rank: int, world_size: int) -> float:
            return sum(cost.bytes_sent(message, rank, world_size) for message in messages)

        def least_seconds(size: Size, links: Sequence[LinkSpeed]) -> float:
            return sum(cost.seconds_at_least(message, links) for message in messages)

        return Cost(bytes_sent, least_seconds)

    def state(self) -> dict[str, torch.Tensor]:
        """What it remembers from one step to the next, by name; most remember nothing."""
        return {}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state` returned."""
        if state:
            raise ValueError(f"{type(self).__name__} remembers nothing, and was given {', '.join(state)}")


def chosen_of(elements: int, ratio: float) -> int:
    """Number of elements that are sent: COMPRESSION_RATIO of them, and at least one."""
    return min(elements, max(1, round(ratio * elements)))
