"""`ddp`: PyTorch's DistributedDataParallel, which averages buckets of gradients during backward."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, Overlap
from app.sync.schedules.costs import ALL_REDUCE
from app.sync.wire_precision import Averaged, wire_of

MEBIBYTE = 1 << 20


class Ddp(GradientSync):
    """DistributedDataParallel with its own buckets and overlap; BUCKET_BYTES sets their size.

    Formula: grad = sum over the ranks of grad/N, bucket by bucket, as its gradients become ready.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce per bucket, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `all_reduce`, within rounding. Before each forward pass, rank 0 also broadcasts its buffers
    (batch normalisation's running statistics). Those bytes are not gradients and are counted separately.
    WIRE_PRECISION applies as in `flat_all_reduce`.
    """

    cost = ALL_REDUCE
    explicit: ClassVar[bool] = False
    settles: ClassVar[bool] = True  # it rebuilds its buckets after the first step

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._apart = communicator.apart()
        self._wire = wire_of(communicator, settings)
        self._bucket_bytes = settings.bucket_bytes

    def attach(self, model: nn.Module) -> nn.Module:
        """Wrap the model so that its buckets and buffers go through the communicator."""
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # DistributedDataParallel refuses a model without trainable parameters
        mebibytes = None if self._bucket_bytes is None else self._bucket_bytes / MEBIBYTE
        wrapped = DistributedDataParallel(
            model,
            process_group=self._communicator.group,
            bucket_cap_mb=mebibytes,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )
        wrapped.register_comm_hook(None, self._average)
        wrapped.register_forward_pre_hook(self._broadcast_buffers)  # as DDP does, but where it can be timed
        return wrapped

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Do nothing, because backward has averaged the gradients."""

    def overlap(self) -> Overlap:
        return Overlap(self._communicator.traffic.passages, self._apart.traffic.passages)

    @torch.no_grad()
    def _broadcast_buffers(self, replica: nn.Module, _: object) -> None:
        """Send rank 0's buffers to every rank, with all buffers of a type in one message."""
        buffers = list(replica.buffers())
        for dtype in dict.fromkeys(buffer.dtype for buffer in buffers):
            same = [buffer for buffer in buffers if buffer.dtype == dtype]
            flat = torch.cat([buffer.reshape(-1) for buffer in same])
            self._apart.broadcast(flat)
            for buffer, part in zip(same, torch.split(flat, [buffer.numel() for buffer in same]), strict=True):
                buffer.copy_(part.view_as(buffer))

    def _average(self, state: None, bucket: GradBucket) -> Averaged:
        """Divide and then sum, so that results match DDP's to the bit. Half precision sums first."""
        values = bucket.buffer()
        return self._wire.start(values if self._wire.prescale == 1 else values.mul_(self._wire.prescale))
