"""`flat_all_reduce`: all gradients are views of one buffer, averaged by a single all-reduce after backward."""

from collections.abc import Sequence

import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.exchange import Exchange, GradientBuffer
from app.sync.schedules.costs import ALL_REDUCE
from app.sync.wire_precision import wire_of


class FlatAllReduce(Exchange):
    """The backend's all-reduce, once for all gradients, without packing or unpacking.

    A hook on each gradient divides it by N while copying it into the buffer.

    Formula: grad = sum over the ranks of grad/N.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `all_reduce`, within rounding: the sum is taken in another order.

    WIRE_PRECISION=bf16 or fp16 halves S. `Halves` describes how the sum is computed.
    """

    cost = ALL_REDUCE

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._wire = wire_of(communicator, settings)

    def average(self, values: torch.Tensor) -> None:
        values *= self._wire.prescale
        self._wire.average(values)

    def _buffer_for(self, learned: Sequence[nn.Parameter]) -> GradientBuffer:
        return GradientBuffer(learned, self._wire.prescale)

    def _average_buffer(self, buffer: GradientBuffer) -> None:
        self._wire.average(buffer.values)
