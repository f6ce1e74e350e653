"""A vector's large parts as matrices, and columns made orthonormal."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

HARDLY_ANYTHING = 1e-12  # of a column: what is left of it is noise


class Matrix(NamedTuple):
    """A part of a vector, and the rank of the two thin matrices whose product stands for it."""

    start: int
    rows: int
    columns: int
    rank: int

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        return vector[self.start : self.start + self.rows * self.columns].view(self.rows, self.columns)


class Matrices(list[Matrix]):
    """Those parts of these shapes that thin matrices are smaller than; the first dimension has the rows."""

    def __init__(self, shapes: Sequence[torch.Size], rank: int) -> None:
        super().__init__()
        self.as_it_is = torch.empty(0, dtype=torch.int64)
        """Where the other elements are."""
        start, others = 0, [self.as_it_is]
        for shape in shapes:
            rows, columns = (shape[0], shape[1:].numel()) if shape else (1, 1)
            fitting = min(rank, rows, columns)
            if fitting * (rows + columns) < rows * columns:
                self.append(Matrix(start, rows, columns, fitting))
            else:
                others.append(torch.arange(start, start + shape.numel()))
            start += shape.numel()
        self.as_it_is = torch.cat(others)

    @property
    def left_elements(self) -> int:
        return sum(each.rows * each.rank for each in self)

    @property
    def right_elements(self) -> int:
        return sum(each.columns * each.rank for each in self)

    def left_in(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        """The left ones, which lie in this vector end to end."""
        return _matrices_in(vector, [(each.rows, each.rank) for each in self])

    def right_in(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        return _matrices_in(vector, [(each.columns, each.rank) for each in self])


def _matrices_in(vector: torch.Tensor, shapes: Sequence[tuple[int, int]]) -> Iterator[torch.Tensor]:
    start = 0
    for rows, columns in shapes:
        yield vector[start : start + rows * columns].view(rows, columns)
        start += rows * columns


def orthogonalise(matrix: torch.Tensor, spare: torch.Tensor | None = None) -> None:
    """Make the columns orthonormal, one after another (Gram-Schmidt, twice, because once leaves rounding errors).

    A column that depends on those before it becomes the one of `spare`, without which it becomes zero, and never NaN.
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
    if not left > HARDLY_ANYTHING * length:
        column.zero_()
        return False
    column /= left
    return True
