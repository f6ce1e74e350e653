"""What the cores allow: a step's least time by its arithmetic, if they multiplied matrices and did nothing else."""

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from app.settings.training import ModelName
from app.training import models
from app.training.datasets import SIDE
from app.training.datasets.prepared import channels_of
from app.training.numerics import DTYPES

SAMPLE_IMAGES = 2
MEASURED_SECONDS = 0.2  # of CPU time, for each way to multiply
SIDE_OF_PRODUCT = 512  # elements; small enough for the caches, large enough for full speed
IMAGES, PIXELS = 32, 8  # of the convolution of 1x1 that is the same product: images times 8x8 pixels are its rows

DTYPE_OF_PRODUCT = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


def flops_per_image(model: ModelName) -> float:
    """Floating-point operations of forward and backward, those of matrix products and convolutions alone."""
    network = models.build(model, seed=1, dtype=DTYPES["fp32"])
    images = torch.randn(SAMPLE_IMAGES, channels_of(model), SIDE, SIDE)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    return float(counter.get_total_flops()) / SAMPLE_IMAGES


class MatrixProduct:
    """The cores' matrix product, by the library for matrices or for convolutions, whichever is faster."""

    def __init__(self, precision: str) -> None:
        dtype, side = DTYPE_OF_PRODUCT[precision], SIDE_OF_PRODUCT
        left, right = torch.randn(side, side, dtype=dtype), torch.randn(side, side, dtype=dtype)
        images = torch.randn(IMAGES, side, PIXELS, PIXELS, dtype=dtype).contiguous(memory_format=torch.channels_last)
        weight = torch.randn(side, side, 1, 1, dtype=dtype)
        self._products: list[tuple[int, Callable[[], object]]] = [  # with their numbers of rows
            (side, lambda: torch.mm(left, right)),
            (IMAGES * PIXELS * PIXELS, lambda: nn.functional.conv2d(images, weight)),
        ]
        self._flops_per_row = 2.0 * side * side

    def flops_per_cpu_second(self) -> float:
        """The rate while it has the cores, so neither a quota nor other programs lower it."""
        with torch.no_grad():
            return max(self._rate(rows, run) for rows, run in self._products)

    def _rate(self, rows: int, run: Callable[[], object]) -> float:
        run()
        runs, began = 0, time.process_time()
        while (taken := time.process_time() - began) < MEASURED_SECONDS:
            run()
            runs += 1
        return runs * rows * self._flops_per_row / taken
