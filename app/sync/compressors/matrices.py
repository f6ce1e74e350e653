"""Views of a vector's large parts as matrices, and Gram-Schmidt orthonormalisation."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

NEGLIGIBLE = 1e-12  # relative to a column's length: a smaller remainder is noise


class Matrix(NamedTuple):
    """A part of a vector viewed as a matrix, and the rank of its two factors."""

    start: int
    rows: int
    columns: int
    rank: int

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        return vector[self.start : self.start + self.rows * self.columns].view(self.rows, self.columns)


class Matrices(list[Matrix]):
    """The parts of these shapes that are larger than their factors. The first dimension has the rows."""

    def __init__(self, shapes: Sequence[torch.Size], rank: int) -> None:
        super().__init__()
        self.uncompressed = torch.empty(0, dtype=torch.int64)
        """Indices of all other elements."""
        start, others = 0, [self.uncompressed]
        for shape in shapes:
            rows, columns = (shape[0], shape[1:].numel()) if shape else (1, 1)
            fitting = min(rank, rows, columns)
            if fitting * (rows + columns) < rows * columns:
                self.append(Matrix(start, rows, columns, fitting))
            else:
                others.append(torch.arange(start, start + shape.numel()))
            start += shape.numel()
        self.uncompressed = torch.cat(others)

    @property
    def left_elements(self) -> int:
        return sum(each.rows * each.rank for each in self)

    @property
    def right_elements(self) -> int:
        return sum(each.columns * each.rank for each in self)

    def left_in(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        """The left factors, which are concatenated in this vector."""
        return _matrices_in(vector, [(each.rows, each.rank) for each in self])

    def right_in(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        return _matrices_in(vector, [(each.columns, each.rank) for each in self])


def _matrices_in(vector: torch.Tensor, shapes: Sequence[tuple[int, int]]) -> Iterator[torch.Tensor]:
    start = 0
    for rows, columns in shapes:
        yield vector[start : start + rows * columns].view(rows, columns)
        start += rows * columns


def orthogonalise(matrix: torch.Tensor, spare: torch.Tensor | None = None) -> None:
    """Make the columns orthonormal by Gram-Schmidt, applied twice because one pass leaves rounding errors.

    A linearly dependent column is replaced by that of `spare`, or by zeros without one; it never becomes NaN.
    """
    for number, column in enumerate(matrix.T):
        before = matrix[:, :number]
        if not _normalise(column, before) and spare is not None:
            column.copy_(spare[:, number])
            _normalise(column, before)


def _normalise(column: torch.Tensor, before: torch.Tensor) -> bool:
    length = torch.linalg.vector_norm(column)
    for _ in range(2):
        column -= before @ (before.T @ column)
    left = torch.linalg.vector_norm(column)
    if not left > NEGLIGIBLE * length:
        column.zero_()
        return False
    column /= left
    return True
