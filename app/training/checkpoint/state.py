"""What a checkpoint holds of a rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class State:
    """Everything on which a rank's next step depends."""

    tensors: Mapping[str, torch.Tensor]  # by name
    numbers: Mapping[str, Any]  # what JSON can hold, by name


@dataclass(frozen=True)
class Label:
    """Whose state it is, and from when."""

    run: str
    attempt: int
    step: int  # so many steps had been taken
    rank: int
    world_size: int
