"""What a matrix product needs to know about two shapes and their strides.

With this file a backend of the host takes batches of matrices of any strides as a few
products [M, K] @ [K, N] (`products_of`), shares one product among threads (`panels`),
and checks the operands of a rung of its ladder (`check_rung`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from minitorch.tensor_data import (
    Shape,
    Strides,
    TensorData,
    broadcast_shapes,
    iter_positions,
    view_strides,
)

BLOCK_PANELS = 8  # panels of b in a task, at most
TASKS = 16  # into which a product is cut at least, if it has as many panels


class Products(NamedTuple):
    """Products [M, K] @ [K, N]: where their operands begin, and the strides of them."""

    shape: Shape  # of the result
    sizes: tuple[int, int, int]  # M, N, K
    a: tuple[np.ndarray, int, int]  # start of each product, stride of rows, of steps
    b: tuple[np.ndarray, int, int]  # start of each product, stride of steps, of columns

    @property
    def number(self) -> int:
        """How many products there are."""
        return self.a[0].size

    @property
    def multiplications(self) -> int:
        """Of all products together."""
        M, N, K = self.sizes
        return self.number * M * N * K


def products_of(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides
) -> Products:
    """a [*, M, K] @ b [*, K, N]; batches that share one b are folded into rows of a."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    shape = (*batch, a_shape[-2], b_shape[-1])
    if all(n == 1 for n in b_shape[:-2]) and batch == a_shape[:-2]:
        rows = math.prod(a_shape[:-1])
        strides = view_strides(a_shape, a_strides, (rows, a_shape[-1]))
        if strides is not None:
            batch, a_shape, a_strides = (), (rows, a_shape[-1]), strides
            b_shape, b_strides = b_shape[-2:], b_strides[-2:]
    return Products(
        shape,
        (a_shape[-2], b_shape[-1], a_shape[-1]),
        (
            _starts(batch, a_shape[:-2], a_strides[:-2]),
            a_strides[-2],
            a_strides[-1],
        ),
        (
            _starts(batch, b_shape[:-2], b_strides[:-2]),
            b_strides[-2],
            b_strides[-1],
        ),
    )


def _starts(batch: Shape, shape: Shape, strides: Strides) -> np.ndarray:
    """Where each matrix of the batch begins; repeated ones have a stride of 0."""
    lead = len(batch) - len(shape)
    steps = [0] * lead + [0 if n == 1 else s for n, s in zip(shape, strides)]
    return np.array(list(iter_positions(batch, tuple(steps), 0)), dtype=np.int64)


def panels(row_blocks: int, N: int, wide: int) -> int:
    """Panels of `wide` columns of b in a task: fewer where few blocks of rows would
    leave threads without work.

    All tasks get about as many: each thread takes a run of tasks, one column of blocks
    after the other, and with 6 panels in the first and 2 in the last column, one of two
    threads would do three quarters of the work. The cut does not change the order in
    which an output is summed.
    """
    columns = max(1, -(-N // wide))
    most = max(1, min(BLOCK_PANELS, row_blocks * columns // TASKS))
    return -(-columns // -(-columns // most))


def check_rung(name: str, a: TensorData, b: TensorData) -> None:
    """Raise ValueError unless both are contiguous matrices that can be multiplied."""
    plain = a.is_contiguous() and b.is_contiguous()
    if a.dims != 2 or b.dims != 2 or a.shape[1] != b.shape[0] or not plain:
        raise ValueError(
            f"{name}: a is {a.shape} and b is {b.shape}; expected contiguous matrices "
            f"[M, K] and [K, N] (matmul takes any strides and batches)"
        )
