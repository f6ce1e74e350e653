"""Batch normalisation over a rank's part of a batch, or over the global batch. Both accept an empty part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm

from app.cluster.wire.communicator import Communicator
from app.errors import SettingError

BatchNorm = Callable[[int], nn.Module]  # makes a layer for this many channels


class LocalBatchNorm2d(nn.BatchNorm2d):
    """PyTorch's layer, over this rank's samples. An empty part leaves the running statistics unchanged."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if len(values) == 0:
            # Weight and bias must still receive gradients (of zero), as on the other ranks.
            return values * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        if self.training and values.numel() == self.num_features:
            raise _too_few("local", "this rank's part of the batch", "Set BATCH_NORM=synchronised, or raise")
        return super().forward(values)


class SynchronisedBatchNorm2d(nn.BatchNorm2d):
    """Normalises by mean and variance over the global batch, in forward and in backward.

    All ranks compute bitwise identical statistics, so the running ones stay identical too. The result equals that of
    one process with the whole batch, within rounding. PyTorch's SyncBatchNorm needs a GPU.

    Bytes that a rank sends in a training step, per layer of C channels of e bytes: (N-1)(2C+1)e in an all-gather
    during forward, 2(N-1)/N * 2Ce in an all-reduce during backward.
    """

    def __init__(self, channels: int, communicator: Communicator) -> None:
        super().__init__(channels)
        self._communicator = communicator

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(values)
        values = values.to(self.weight.dtype)  # bfloat16, which some layers return, is too coarse for statistics
        mean, variance, count = global_statistics(values.detach(), self._communicator)
        if count == 1:  # on all ranks
            raise _too_few("synchronised", "the global batch", "Raise")
        self._update_running(mean, variance, count)
        normalised: torch.Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            values, self.weight, self.bias, mean, variance, count, self.eps, self._communicator
        )
        return normalised

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        momentum = 0.0 if self.momentum is None else self.momentum
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance * (count / (count - 1)), momentum)


def _too_few(setting: str, batch: str, remedy: str) -> SettingError:
    return SettingError(
        f"BATCH_NORM={setting} cannot compute a variance: at some layer, {batch} has only one value per channel (one "
        f"image of one pixel). {remedy} GLOBAL_BATCH_SIZE (or BATCH_SIZE_PER_RANK). If only the last batch of an "
        "epoch is this small, change TRAIN_SAMPLES.",
        "conflicting-settings",
    )


def global_statistics(values: torch.Tensor, communicator: Communicator) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Mean and variance of each channel over all ranks' values, and the number of these values.

    The ranks exchange mean, variance and count instead of sums of squares, whose difference would lose digits.
    The variance is the weighted mean of the ranks' variances plus the variance of their means.
    """
    channels = values.shape[1]
    count = values.numel() // channels
    own = values.new_zeros(2 * channels + 1)
    if count:
        own[:channels], own[channels:-1] = torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0)
        own[-1] = count
    everyones = torch.stack(communicator.all_gather(own))
    means, variances, counts = everyones[:, :channels], everyones[:, channels:-1], everyones[:, -1:]
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    variance = (counts * (variances + (means - mean).square())).sum(0) / total
    return mean, variance, int(total)


class _Normalise(torch.autograd.Function):
    """weight * (values - mean) / sqrt(variance + eps) + bias, with mean and variance over all ranks' values."""

    @staticmethod
    def forward(
        context: Any,
        values: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        mean: torch.Tensor,
        variance: torch.Tensor,
        count: int,
        eps: float,
        communicator: Communicator,
    ) -> torch.Tensor:
        context.save_for_backward(values, weight, mean, variance)
        context.count, context.eps, context.communicator = count, eps, communicator
        return batch_norm(values, mean, variance, weight, bias, eps=eps)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """With x^ the normalised values: (weight / deviation) * (g - mean(g) - x^ * mean(g * x^)).

        The means are over the global batch. Weight and bias receive this rank's gradient, like every parameter.
        """
        values, weight, mean, variance = context.saved_tensors
        # With mean and variance as constants: weight / deviation * g, sum of g * x^, sum of g.
        from_values, from_weight, from_bias = (
            torch.ops.aten.native_batch_norm_backward(
                gradient, values, weight, mean, variance, None, None, False, context.eps, [True, True, True]
            )
            if len(values)
            else (torch.empty_like(values), torch.zeros_like(weight), torch.zeros_like(weight))
        )
        sums = torch.stack((from_weight, from_bias))
        context.communicator.all_reduce(sums)
        of_products, of_gradients = sums / context.count
        # The contribution of mean and variance is linear in the values: slope * x + offset.
        deviation = (variance + context.eps).sqrt()
        slope = -weight * of_products / deviation.square()
        offset = -weight * of_gradients / deviation - slope * mean
        from_values.addcmul_(values, slope.view(1, -1, 1, 1)).add_(offset.view(1, -1, 1, 1))
        return from_values, from_weight, from_bias, None, None, None, None, None
