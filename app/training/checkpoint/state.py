"""The state of one rank in a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class State:
    """Everything on which a rank's next step depends."""

    tensors: Mapping[str, torch.Tensor]  # by name
    numbers: Mapping[str, Any]  # JSON values, by name


@dataclass(frozen=True)
class Label:
    """Identifies a state by its run, attempt, step and rank."""

    run: str
    attempt: int
    step: int  # steps taken
    rank: int
    world_size: int
