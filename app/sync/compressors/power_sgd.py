"""`power_sgd`: each large matrix of gradients as the product of two thin ones, found by a step of power iteration."""

from collections.abc import Callable, Mapping, Sequence

import torch

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.compressors.contract import Aggregate, Compressor
from app.sync.compressors.matrices import Matrices, orthogonalise
from app.sync.exchange import Exchange
from app.sync.schedules.costs import Size

RIGHT = "right"


class PowerSgd(Compressor):
    """A matrix of n x m numbers is sent as n x r and m x r, with r = COMPRESSION_RANK.

    Formula, for each matrix M: P = mean over the ranks of M Q, with its columns made orthonormal; then Q = mean of
    M^T P; all ranks take P Q^T. The next step begins with this Q (warm start), so that P turns, step by step, towards
    the directions in which M is largest. What two thin matrices are not smaller than goes as it is.
    Bytes: those of the exchange for r(n+m) numbers a matrix, and for all that goes as it is; in a ring 2(N-1)/N * 4
    times as many.
    Rounds: twice those of the exchange.
    Law: contraction. What is not in the product is added to the next gradients (ERROR_FEEDBACK). With full rank the
    product is the mean itself. Equivalent to PyTorch's `powerSGD_hook`, within rounding.
    """

    law = "contraction"

    def __init__(
        self, communicator: Communicator, settings: AveragingSettings, shapes: Sequence[torch.Size], dtype: torch.dtype
    ) -> None:
        super().__init__(communicator, settings, shapes, dtype)
        self._matrices = Matrices(shapes, settings.compression_rank)
        generator = torch.Generator().manual_seed(settings.seed)
        self._first = torch.randn(self._matrices.right_elements, generator=generator, dtype=dtype)
        self._right = self._first.clone()

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """What goes as it is, then the thin matrices as one rank alone has them."""
        return torch.cat(self._factors_of(values, lambda message: None))

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        """The products, and what goes as it is."""
        matrices, count = self._matrices, len(self._matrices.as_it_is)
        as_it_is, left, right = message.tensor_split([count, count + matrices.left_elements])
        values = message.new_empty(self._elements)
        values[matrices.as_it_is] = as_it_is
        for matrix, p, q in zip(matrices, matrices.left_in(left), matrices.right_in(right), strict=True):
            torch.mm(p, q.T, out=matrix.of(values))
        return values

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Two messages: the second needs the mean of the first."""
        as_it_is, left, self._right = self._factors_of(values, exchange.average)
        mean = self.decode(torch.cat([as_it_is, left, self._right]))
        own = mean.clone()
        own[self._matrices.as_it_is] = values[self._matrices.as_it_is]
        return Aggregate(mean, own)

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """What goes as it is with the left matrices, then the right ones."""
        matrices = Matrices(shapes, settings.compression_rank)
        lengths = len(matrices.as_it_is) + matrices.left_elements, matrices.right_elements
        return [Size(length, length * element_bytes) for length in lengths]

    def state(self) -> dict[str, torch.Tensor]:
        return {RIGHT: self._right}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._right = state[RIGHT].clone()

    def _factors_of(self, values: torch.Tensor, average: Callable[[torch.Tensor], None]) -> tuple[torch.Tensor, ...]:
        matrices, before, after = self._matrices, self._right.clone(), torch.empty_like(self._right)
        first = values.new_empty(len(matrices.as_it_is) + matrices.left_elements)
        as_it_is, left = first.tensor_split([len(matrices.as_it_is)])
        as_it_is.copy_(values[matrices.as_it_is])
        rights = zip(matrices.right_in(before), matrices.right_in(self._first), strict=True)
        for matrix, p, (q, at_first) in zip(matrices, matrices.left_in(left), rights, strict=True):
            orthogonalise(q, spare=at_first)  # after a zero gradient there is no direction to go on with
            torch.mm(matrix.of(values), q, out=p)
        average(first)
        for matrix, p, q in zip(matrices, matrices.left_in(left), matrices.right_in(after), strict=True):
            orthogonalise(p)
            torch.mm(matrix.of(values).T, p, out=q)
        if matrices:
            average(after)
        return as_it_is, left, after
