"""Compares the mean that a user's own mode computes in an attempt's first step with that of a plain all-reduce."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.errors import ExtensionError
from app.extensions.files import path_of
from app.machine.say import numbered
from app.modes import MODES
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, tolerance_for
from app.sync.exchange import places_in, vector_for
from app.sync.wire_precision import DTYPES
from app.training.compared_gradient import ComparedGradient


def warn_if_not_checked(sync: GradientSync, averaging: AveragingSettings, world_size: int) -> str | None:
    """A warning for a user's own mode whose mean cannot be checked."""
    mode, obstacle = averaging.sync_mode, _obstacle(sync, averaging)
    if not _is_own(averaging, world_size) or not obstacle:
        return None
    return (
        f"the mean of SYNC_MODE={mode} is not checked in the first step: {obstacle}. To check the mode, run "
        f"`scripts/conformance {mode}`."
    )


def check_for(
    sync: GradientSync, averaging: AveragingSettings, cluster: Cluster, model: nn.Module
) -> Callable[[], None]:
    """The check to call before the first update, when every `.grad` must be the mean. Later calls return at once.

    Call this before the mode's `attach`, on all ranks. Built-in modes need no check: the contract suite covers them.
    """
    if not _is_own(averaging, cluster.world_size) or _obstacle(sync, averaging):
        return lambda: None
    return MeanCheck(averaging, cluster, model).once


def _is_own(averaging: AveragingSettings, world_size: int) -> bool:
    return averaging.sync_mode not in MODES and world_size > 1


def _obstacle(sync: GradientSync, averaging: AveragingSettings) -> str | None:
    """Why the gradients of the first step need not be the mean within rounding; None if they must be."""
    if averaging.sync_every is not None:
        return f"SYNC_EVERY={averaging.sync_every} averages parameters, not gradients"
    if averaging.compression != "none":
        return f"COMPRESSION={averaging.compression} changes the gradients"
    return None if sync.law == "exact" else f"the mode declares law = {sync.law!r}, which is not the exact mean"


class MeanCheck:
    """Keeps this rank's own gradients of one backward, and compares the mode's result with their mean.

    Hooks of `register_hook` get a gradient before it is accumulated into `.grad`. They are registered before `attach`,
    so they also run before the mode's own hooks, which may already scale, move or send a gradient during backward.
    """

    def __init__(self, averaging: AveragingSettings, cluster: Cluster, model: nn.Module) -> None:
        learned = {name: each for name, each in model.named_parameters() if each.requires_grad and each.numel()}
        self._averaging, self._cluster, self._learned = averaging, cluster, learned
        self._local = vector_for(list(learned.values()))
        self._hooks = [
            parameter.register_hook(partial(self._keep, parameter, place))  # type: ignore[no-untyped-call]
            for parameter, place in zip(learned.values(), self._places(self._local), strict=True)
        ]

    @staticmethod
    @torch.no_grad()
    def _keep(parameter: nn.Parameter, place: torch.Tensor, gradient: torch.Tensor) -> None:
        if parameter.grad is None:
            place.copy_(gradient)  # it replaces that of a warm-up step
        else:
            place.add_(gradient)  # checkpointed layers accumulate a gradient in parts

    @torch.no_grad()
    def once(self) -> None:
        """Raise ExtensionError on all ranks if any rank's result is wrong."""
        if not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        worst = max(self._compared(), key=lambda each: each.deviation)
        everyones = self._cluster.exchange("check of the mean", worst.is_wrong)
        if any(everyones):
            self._refuse(worst, [rank for rank, wrong in enumerate(everyones) if wrong])
        self._local = torch.empty(0)

    def _compared(self) -> Iterator[ComparedGradient]:
        world_size, wire = self._cluster.world_size, self._averaging.wire_precision
        largest = torch.stack([place.abs().max() for place in self._places(self._local)])
        mean = torch.cat([self._local, largest])
        Communicator(self._cluster, "while the mean was checked").all_reduce(mean)  # not counted as the mode's bytes
        mean /= world_size
        precision = torch.finfo(self._local.dtype if wire == "fp32" else DTYPES[wire])
        tolerance = tolerance_for(wire, double=self._local.dtype == torch.float64, ranks=world_size)
        # Rounding is relative to the addends, not to their mean, which may be near zero. Below the smallest normal
        # number it is absolute.
        allowed = mean[len(self._local) :] * tolerance + world_size * precision.smallest_normal * precision.eps
        everything = zip(self._learned.items(), self._places(self._local), self._places(mean), allowed, strict=True)
        for (name, parameter), local, expected, most in everything:
            got = torch.zeros_like(expected) if parameter.grad is None else parameter.grad
            yield ComparedGradient(name, got, local, expected, float(most), world_size)

    def _places(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        return places_in(vector, list(self._learned.values()))

    def _refuse(self, worst: ComparedGradient, wrong: list[int]) -> None:
        own = worst.described() if self._cluster.rank in wrong else ""
        results = self._cluster.exchange("results of the mode", [own, worst.diagnosis(), self._digest()])
        example = self._cluster.rank if own else wrong[0]
        described, diagnosis, _ = results[example]
        if not diagnosis and any(digest != results[0][2] for _, _, digest in results):
            diagnosis = " The ranks hold different results."
        mode = self._averaging.sync_mode
        ranks = numbered("rank", wrong)
        raise ExtensionError(
            f"rank {self._cluster.rank}: {path_of(mode)} does not compute the mean of the gradients on "
            f"{ranks}. On rank {example}, {described}.{diagnosis} Run `scripts/conformance {mode}` for a smallest "
            "failing case. If the mode is not meant to compute the exact mean, declare its `law`.",
            "wrong-mean",
        )

    def _digest(self) -> str:
        gradients = [each.grad for each in self._learned.values() if each.grad is not None]
        return hashlib.sha256(b"".join(each.contiguous().numpy().tobytes() for each in gradients)).hexdigest()
