"""`bucketed_all_reduce`: DistributedDataParallel by hand: buckets are averaged while backward runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, Overlap, learned_of
from app.sync.exchange import GradientBuffer
from app.sync.schedules.costs import ALL_REDUCE
from app.sync.wire_precision import Averaged, wire_of

BUCKET_BYTES = 4 << 20


class BucketedAllReduce(GradientSync):
    """One buffer of all gradients, last parameter first, cut into buckets that are averaged during backward.

    A bucket starts once it is complete and all earlier ones have started, so the order is the same on every rank. One
    that misses a gradient starts at the end of backward. WIRE_PRECISION applies as in `flat_all_reduce`.

    Formula: grad = sum over the ranks of grad/N, bucket by bucket.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce per bucket, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `ddp`, within rounding, except that each rank keeps its own buffers, as in the explicit modes.
    """

    cost = ALL_REDUCE
    explicit: ClassVar[bool] = False

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._wire = wire_of(communicator, settings)
        self._bucket_bytes = settings.bucket_bytes or BUCKET_BYTES
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[nn.Parameter, Bucket] = {}
        self._started: list[Averaged] = []
        self._in_backward = False

    def attach(self, model: nn.Module) -> nn.Module:
        learned = learned_of(model.parameters())[::-1]
        if learned and self._communicator.world_size > 1:
            self._buffer = GradientBuffer(learned, self._wire.prescale)
            self._cut(learned)
            for parameter in learned:
                parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Do nothing, because backward has averaged the gradients."""

    def overlap(self) -> Overlap:
        return Overlap(self._communicator.traffic.passages, [])

    def _cut(self, parameters: Sequence[nn.Parameter]) -> None:
        first = end = gradients = 0  # of the bucket that is being filled
        for parameter in parameters:
            end, gradients = end + parameter.numel(), gradients + 1
            values = self._buffer.values[first:end]
            if values.nbytes >= self._bucket_bytes or parameter is parameters[-1]:
                self._buckets.append(Bucket(values, gradients, missing=gradients))
                self._bucket_of.update(dict.fromkeys(parameters[len(self._bucket_of) :][:gradients], self._buckets[-1]))
                first, gradients = end, 0

    def _take(self, parameter: nn.Parameter) -> None:
        if not self._in_backward:
            self._in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._buffer.take(parameter)
        self._bucket_of[parameter].missing -= 1
        while len(self._started) < len(self._buckets) and self._buckets[len(self._started)].missing == 0:
            self._start_next()

    def _start_next(self) -> None:
        self._started.append(self._wire.start(self._buckets[len(self._started)].values))

    def _finish(self) -> None:
        self._buffer.take_all()
        while len(self._started) < len(self._buckets):
            self._start_next()
        for bucket, averaged in zip(self._buckets, self._started, strict=True):
            with self._communicator.watching(f"all-reduce of {bucket.values.nbytes} bytes"):
                averaged.wait()
            bucket.missing = bucket.gradients
        self._started, self._in_backward = [], False


@dataclass
class Bucket:
    """Gradients that are sent together."""

    values: torch.Tensor
    gradients: int
    missing: int  # gradients that this backward has not produced yet
