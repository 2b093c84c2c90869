"""Diagonals of matrices, and tensors joined as NumPy joins them.

With this file one can take a diagonal out of a matrix or make a matrix of one (`diag`),
add it up (`trace`), and put tensors side by side or one below the other (`hstack`,
`vstack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minitorch.arguments import checked_list, dims_of
from minitorch.dtypes import bool_
from minitorch.functions.movement import cat, pad

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix's diagonal as a vector, or the matrix of a vector [n] and zeros else.

    Rows of m numbers lie one behind the other: a diagonal's places are m + 1 apart.

    Args:
        diagonal: how many places above the main diagonal; negative: below.
    """
    if dims_of("diag", input) not in (1, 2):
        raise ValueError(f"diag: expected a vector or a matrix, got {input.raw.shape}")
    above, below = max(diagonal, 0), max(-diagonal, 0)
    if input.dim() == 2:
        rows, m = input.raw.shape
        n, first = max(min(rows - below, m - above), 0), above + below * m
        return input.flatten()[first : first + n * (m + 1) : m + 1].clone()
    n, m = len(input), len(input) + above + below
    first = above + below * m
    flat = pad(input.unsqueeze(1), (0, m)).flatten()
    return pad(flat, (first, m * m - first - n * (m + 1))).reshape(m, m)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal. Integers give int64."""
    if dims_of("trace", input) != 2 or input.dtype is bool_:
        kind, shape = input.dtype.name, input.raw.shape
        raise ValueError(f"trace: expected a matrix of numbers, got {kind} {shape}")
    return diag(input).sum()


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side: joined along dim 1, numbers and vectors along dim 0."""
    parts = [x if x.dim() else x.unsqueeze(0) for x in checked_list("hstack", tensors)]
    return cat(parts, min(parts[0].dim() - 1, 1))


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one below the other, along dim 0; a vector [n] is a row [1, n]."""
    parts = checked_list("vstack", tensors)
    return cat([x if x.dim() > 1 else x.reshape(1, -1) for x in parts], 0)
