"""The numbers that a run computes with, and how images lie in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from app.cluster.members import Member
from app.datasets.prepared import MODEL_CHANNELS
from app.settings.fields import MemoryFormat, Precision, Settings

# bf16 keeps its parameters, and with them gradients and their mean over the ranks, in fp32.
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}
MEMORY_FORMATS: dict[MemoryFormat, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
# oneDNN, which computes convolutions, prefers channels last and passes that layout on from layer to layer. It has no
# fp64, and PyTorch's own convolution prefers the other one. Parameters stay contiguous: in the other layout they gain
# next to nothing, and every gradient would have to be copied before it could be sent.
FASTER: dict[Precision, MemoryFormat] = {"fp32": "channels_last", "bf16": "channels_last", "fp64": "contiguous"}


def layout(settings: Settings) -> MemoryFormat:
    """How images lie in memory: as MEMORY_FORMAT says, or the faster way."""
    if settings.memory_format is None and MODEL_CHANNELS[settings.model] == 1:
        return "contiguous"  # with one channel both are the same order, but PyTorch warns of the strides
    return settings.memory_format or FASTER[settings.precision]


@dataclass(frozen=True)
class Numerics:
    """Types and layout, chosen once for a run."""

    dtype: torch.dtype = torch.float32  # of parameters, gradients, images and losses
    memory_format: torch.memory_format = torch.channels_last  # of images
    bfloat16: bool = False  # inside the layers

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings request."""
        return cls(DTYPES[settings.precision], MEMORY_FORMATS[layout(settings)], settings.precision == "bf16")

    def forward(self, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """The model's logits."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            logits: torch.Tensor = model(images)
        return logits.to(self.dtype)


FP32 = Numerics()


def slow_bfloat16(precision: Precision, members: Sequence[Member]) -> str | None:
    """A warning if bfloat16 is requested on CPUs that lack instructions for it."""
    lacking = [member for member in members if not member.machine.bfloat16]
    if precision != "bf16" or not lacking:
        return None
    ranks = ", ".join(str(member.rank) for member in lacking)
    return (
        f"PRECISION=bf16: the CPU of rank {ranks} ({lacking[0].machine.cpu_model}) has no instructions for bfloat16, "
        "so it is slower there than fp32. Set PRECISION=fp32 for speed."
    )
