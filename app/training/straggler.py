"""Slows one rank down on purpose (SLOW_RANK, SLOW_FACTOR)."""

import time
from typing import Protocol

from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.place import PlaceSettings


class Pace(Protocol):
    """The speed at which a rank computes."""

    def begin(self) -> None:
        """Mark the start of a computation."""

    def keep(self) -> None:
        """Stretch the computation since the last call or its start to this rank's pace."""


class FullSpeed:
    """Computes at the speed of the machine, without pauses."""

    def begin(self) -> None: ...

    def keep(self) -> None: ...


class Slowed:
    """Emulates a CPU that takes `factor` times as long, by a proportional pause after each piece of work.

    In backward, a pause follows each parameter's gradient, so gradients become ready as late as on a slow CPU.
    Messages are not slowed: the seconds of batch normalisation's messages, which `statistics` counts, are excluded.
    """

    def __init__(self, factor: float, model: nn.Module, statistics: Communicator | None) -> None:
        self._pauses = factor - 1
        self._statistics = statistics
        self.begin()
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._after_gradient)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        self._began, self._messaged = time.monotonic(), self._messaging()

    def keep(self) -> None:
        """Pause in proportion to the work since the last call."""
        worked = time.monotonic() - self._began - (self._messaging() - self._messaged)
        time.sleep(max(0.0, worked * self._pauses))
        self.begin()

    def _after_gradient(self, _: object) -> None:
        self.keep()

    def _messaging(self) -> float:
        return 0.0 if self._statistics is None else self._statistics.traffic.seconds


def pace_of(place: PlaceSettings, rank: int, model: nn.Module, statistics: Communicator | None) -> Pace:
    if rank != place.slow_rank or place.slow_factor == 1:
        return FullSpeed()
    return Slowed(place.slow_factor, model, statistics)


def slowed_on_purpose(place: PlaceSettings) -> str | None:
    if place.slow_rank is None or place.slow_factor == 1:
        return None
    return (
        f"rank {place.slow_rank} is slowed down on purpose: its computation takes {place.slow_factor:g} times as "
        "long (SLOW_RANK, SLOW_FACTOR)."
    )
