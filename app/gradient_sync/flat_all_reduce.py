"""`flat_all_reduce`: all gradients are views into one buffer, averaged by a single all-reduce after backward."""

from collections.abc import Sequence

from torch import nn

from app.costs.patterns import ALL_REDUCE
from app.gradient_sync.contract import GradientSync, learned_of
from app.gradient_sync.gradient_buffer import GradientBuffer
from app.gradient_sync.wire_precision import wire_of
from app.settings.fields import Settings
from app.wire.communicator import Communicator


class FlatAllReduce(GradientSync):
    """The backend's all-reduce, once for all gradients: nothing is packed before it and nothing unpacked after it.

    A hook behind each gradient divides it by N on its way into its place in the buffer.

    Formula: grad = sum over the ranks of grad/N.
    Bytes per rank and step: 2(N-1)/N * S for gradients of S bytes.
    Messages: one all-reduce, which is a ring in Gloo: 2(N-1) rounds, each of two messages or more.
    Equivalent to `all_reduce`, within rounding: the sum is taken in another order.

    With WIRE_PRECISION=bf16 or fp16, S is half as large, and `Halves` says how the sum is taken.
    """

    cost = ALL_REDUCE

    def __init__(self, communicator: Communicator, settings: Settings) -> None:
        super().__init__(communicator, settings)
        self._wire = wire_of(communicator, settings)
        self._buffer: GradientBuffer | None = None

    def attach(self, model: nn.Module) -> nn.Module:
        """Lay out the buffer, and let backward fill it."""
        learned = learned_of(model.parameters())
        if learned and self._communicator.world_size > 1:
            self._buffer = GradientBuffer(learned, self._wire.share)
            for parameter in learned:
                parameter.register_post_accumulate_grad_hook(self._buffer.take)  # type: ignore[no-untyped-call]
        return model

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum the whole buffer up."""
        if self._buffer is not None and self._buffer.take_all():
            self._wire.average(self._buffer.values)
