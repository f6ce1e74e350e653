"""`power_sgd`: each large gradient matrix as a product of two low-rank factors, found by power iteration."""

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
    """An n x m matrix is sent as two factors, n x r and m x r, with r = COMPRESSION_RANK.

    Formula, for each matrix M: P = mean over the ranks of M Q, with orthonormalised columns; then Q = mean of M^T P;
    the result is P Q^T. The next step starts with this Q (warm start), so that P converges to the dominant directions
    of M. Tensors that are not larger than their factors are sent uncompressed.
    Bytes: those of the exchange for r(n+m) numbers per matrix and for all uncompressed ones; in a ring 2(N-1)/N * 4
    bytes for each number.
    Rounds: twice those of the exchange.
    Law: contraction. The residual is added to the next gradients (ERROR_FEEDBACK). With full rank, the product equals
    the mean. Equivalent to PyTorch's `powerSGD_hook`, within rounding.
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
        """The uncompressed elements, then the factors of this rank's own matrices."""
        return torch.cat(self._factors_of(values, lambda message: None))

    def decode(self, message: torch.Tensor) -> torch.Tensor:
        matrices, count = self._matrices, len(self._matrices.uncompressed)
        uncompressed, left, right = message.tensor_split([count, count + matrices.left_elements])
        values = message.new_empty(self._elements)
        values[matrices.uncompressed] = uncompressed
        for matrix, p, q in zip(matrices, matrices.left_in(left), matrices.right_in(right), strict=True):
            torch.mm(p, q.T, out=matrix.of(values))
        return values

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        """Average two messages, because the second depends on the mean of the first."""
        uncompressed, left, self._right = self._factors_of(values, exchange.average)
        mean = self.decode(torch.cat([uncompressed, left, self._right]))
        own = mean.clone()
        own[self._matrices.uncompressed] = values[self._matrices.uncompressed]
        return Aggregate(mean, own)

    @classmethod
    def messages(cls, shapes: Sequence[torch.Size], element_bytes: int, settings: AveragingSettings) -> list[Size]:
        """The uncompressed elements with the left factors, then the right factors."""
        matrices = Matrices(shapes, settings.compression_rank)
        lengths = len(matrices.uncompressed) + matrices.left_elements, matrices.right_elements
        return [Size(length, length * element_bytes) for length in lengths]

    def state(self) -> dict[str, torch.Tensor]:
        return {RIGHT: self._right}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._right = state[RIGHT].clone()

    def _factors_of(self, values: torch.Tensor, average: Callable[[torch.Tensor], None]) -> tuple[torch.Tensor, ...]:
        matrices, before, after = self._matrices, self._right.clone(), torch.empty_like(self._right)
        first = values.new_empty(len(matrices.uncompressed) + matrices.left_elements)
        uncompressed, left = first.tensor_split([len(matrices.uncompressed)])
        uncompressed.copy_(values[matrices.uncompressed])
        rights = zip(matrices.right_in(before), matrices.right_in(self._first), strict=True)
        for matrix, p, (q, at_first) in zip(matrices, matrices.left_in(left), rights, strict=True):
            orthogonalise(q, spare=at_first)  # a zero gradient leaves no direction
            torch.mm(matrix.of(values), q, out=p)
        average(first)
        for matrix, p, q in zip(matrices, matrices.left_in(left), matrices.right_in(after), strict=True):
            orthogonalise(p)
            torch.mm(matrix.of(values).T, p, out=q)
        if matrices:
            average(after)
        return uncompressed, left, after
