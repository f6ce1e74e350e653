"""Test cases for a mode: a model whose gradients are known, and a number of ranks."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from app.machine.say import counted
from app.settings.averaging import WirePrecision

Gradients = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Parameter:
    """The shape and the special properties of one parameter in a test model."""

    shape: tuple[int, ...]
    frozen: bool = False
    transposed: bool = False  # in memory, so that its gradient is not contiguous
    unused: bool = False  # by the model, so that it receives no gradient

    def __str__(self) -> str:
        how = [word for word in ("frozen", "transposed", "unused") if getattr(self, word)]
        return " ".join([str(self.shape), *how])


@dataclass(frozen=True)
class Model:
    """A test model: its parameters, its precision, and the settings of the mode."""

    parameters: tuple[Parameter, ...]
    precision: type[np.floating] = np.float64
    bucket_bytes: int | None = None
    wire_precision: WirePrecision = "fp32"

    @property
    def learned(self) -> list[int]:
        """Indices of the parameters that receive a gradient."""
        return [at for at, each in enumerate(self.parameters) if not each.frozen and not each.unused]

    @property
    def elements(self) -> int:
        """The number of elements of all parameters, including frozen and unused ones."""
        return sum(int(np.prod(each.shape)) for each in self.parameters)

    def __str__(self) -> str:
        few = len(self.parameters) == 1
        shapes = ", ".join(map(str, self.parameters))
        precision = "fp64" if self.precision is np.float64 else "fp32"
        return f"{'one parameter' if few else f'{len(self.parameters)} parameters'} of shape {shapes} in {precision}"


@dataclass(frozen=True)
class Case:
    """A test model, and the number of ranks on which it is tried."""

    world_size: int
    model: Model

    def __str__(self) -> str:
        return f"{counted(self.world_size, 'rank')}, {self.model}"


MODELS = {
    "odd shapes": Model((Parameter((3, 5)), Parameter((1,)), Parameter((7, 1, 3)), Parameter((64, 33)), Parameter(()))),
    "one element": Model((Parameter((1,)),)),
    "fewer elements than ranks": Model((Parameter((1,)), Parameter((2,)))),
    "not contiguous": Model((Parameter((4, 9), transposed=True), Parameter((2, 3, 5, 7), transposed=True))),
    "some frozen": Model((Parameter((8,), frozen=True), Parameter((5, 5)), Parameter((3,), frozen=True))),
    "none with a gradient": Model((Parameter((8,), frozen=True), Parameter((5, 5), frozen=True))),
    "many pieces": Model((Parameter((1_300_001,)), Parameter((3, 1000)))),
    "many buckets": Model((Parameter((400,)), Parameter((300,)), Parameter((500,))), bucket_bytes=2048),
    "single precision": Model((Parameter((100, 7)), Parameter((11,))), precision=np.float32),
}


class Weighted(nn.Module):
    """A model whose gradients are exactly the coefficients that it is called with."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        dtype = torch.from_numpy(np.zeros(0, model.precision)).dtype
        self.parts = nn.ParameterList()
        self._used = [not each.unused for each in model.parameters]
        for each in model.parameters:
            zeros = torch.zeros(each.shape[::-1] if each.transposed else each.shape, dtype=dtype)
            value = zeros.permute(tuple(reversed(range(zeros.dim())))) if each.transposed else zeros
            if value.is_contiguous():  # DistributedDataParallel refuses such a tensor with unusual strides
                value = torch.zeros(each.shape, dtype=dtype)
            self.parts.append(nn.Parameter(value, requires_grad=not each.frozen))

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        """The sum of coefficients times parameters, without the unused parameters."""
        products = [(part * each).sum() for part, each in zip(self.parts, coefficients, strict=True)]
        return torch.stack([product for product, used in zip(products, self._used, strict=True) if used]).sum()


def coefficients(model: Model, seed: int, step: int) -> list[torch.Tensor]:
    """One rank's gradients in a step, as tensors. Each rank has its own seed."""
    return [torch.from_numpy(each) for each in values(model, seed, step)]


def values(model: Model, seed: int, step: int) -> list[npt.NDArray[np.floating]]:
    """One rank's gradients in a step, as arrays, because the checker forks and so must not compute with torch."""
    random = np.random.default_rng((seed, step))
    return [np.asarray(random.standard_normal(each.shape), model.precision) for each in model.parameters]
