"""The floating-point types of a run, and the memory layout of its images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from app.cluster.members import Member
from app.settings.training import BUILT_IN_MODELS, MemoryFormat, Precision, TrainingSettings
from app.training.convolution import LAYOUTS, Layout
from app.training.datasets.prepared import channels_of

# bf16 keeps parameters, gradients and their mean over the ranks in fp32.
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True)
class Numerics:
    """Types and layout, chosen once for a run."""

    dtype: torch.dtype = torch.float32  # of parameters, gradients, images and losses
    memory_format: MemoryFormat = "mixed"
    bfloat16: bool = False  # inside the layers

    @classmethod
    def of(cls, training: TrainingSettings, memory_format: MemoryFormat | None = None) -> Self:
        """From the settings, except that a resumed run keeps its memory format."""
        return cls(
            DTYPES[training.precision], memory_format or memory_format_of(training), training.precision == "bf16"
        )

    @property
    def layout(self) -> Layout:
        """The layout of images. Parameters stay contiguous, so that gradients are sent without a copy."""
        return LAYOUTS[self.memory_format]

    def forward(self, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            logits: torch.Tensor = model(images)
        return logits.to(self.dtype)


FP32 = Numerics()


def memory_format_of(training: TrainingSettings) -> MemoryFormat:
    """The requested layout, or else the fastest one in all comparisons.

    With one channel, all layouts are the same order, but PyTorch warns about the strides. oneDNN does not support fp64.
    """
    plain = (
        training.precision == "fp64"
        or training.model not in BUILT_IN_MODELS.choices
        or channels_of(training.model) == 1
    )
    return training.memory_format or ("contiguous" if plain else "mixed")


def slow_bfloat16(precision: Precision, members: Sequence[Member]) -> str | None:
    """A warning if bfloat16 is requested on CPUs that lack instructions for it."""
    lacking = [member for member in members if not member.machine.bfloat16]
    if precision != "bf16" or not lacking:
        return None
    ranks = ", ".join(str(member.rank) for member in lacking)
    return (
        f"PRECISION=bf16 is slower than fp32 on rank {ranks}: the CPU ({lacking[0].machine.cpu_model}) lacks "
        "instructions for bfloat16. For speed, set PRECISION=fp32."
    )
