"""Matrix products: launchers of the kernels in `matmul.mojo`.

With this file one can multiply batches of matrices (`matmul`), and call and time each
rung of the ladder (`LADDER`). What the kernels do is said there.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from minitorch.backend.host.workspace import KEEP_BYTES, workspace
from minitorch.tensor_data import (
    Shape,
    Strides,
    TensorData,
    broadcast_shapes,
    iter_positions,
    view_strides,
)
from mojo_ops.bridge import Library
from mojo_ops.memory import empty

kernels = Library("matmul")

ROWS = 8  # lines of a panel of a, as in matmul.mojo
BLOCK_ROWS = 240  # rows of out in a task, at most: 240 KiB of packed a
BLOCK_PANELS = 8  # panels of b in a task, at most
TASKS = 16  # into which a product is cut at least, if it has as many panels
TINY = 2048  # multiplications for which packing is not worth while
SERIAL = 524_288  # multiplications that one thread does by itself


class Layout(NamedTuple):
    """What the kernels need to know about two shapes and their strides."""

    shape: Shape  # of the result
    a_starts: np.ndarray  # of each matrix, from the offset on
    b_starts: np.ndarray
    plan: np.ndarray  # as `matmul_packed` in matmul.mojo reads it
    work: int  # elements of the packed panels
    multiplications: int


@lru_cache(maxsize=2)
def _wide(name: str) -> int:
    return int(kernels.tile_columns(name))


@lru_cache(maxsize=1024)
def _layout(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides, item: int
) -> Layout:
    """Fold batches that share one b into rows of a, and choose the sizes of blocks."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    shape = (*batch, a_shape[-2], b_shape[-1])
    if math.prod(b_shape[:-2]) == 1 and batch == a_shape[:-2]:
        folded = (math.prod(a_shape[:-1]), a_shape[-1])
        strides = view_strides(a_shape, a_strides, folded)
        if strides is not None:
            batch, a_shape, a_strides = (), folded, strides
            b_shape, b_strides = b_shape[-2:], b_strides[-2:]
    (M, K), N = a_shape[-2:], b_shape[-1]
    wide = _wide("float64" if item == 8 else "float32")
    part = (-(-M // ROWS) * ROWS + -(-N // wide) * wide) * K
    products = math.prod(batch)
    together = max(1, min(products, KEEP_BYTES // max(part * item, 1)))
    multiplications = products * M * N * K
    a_lines = (a_strides[-2], a_strides[-1], M)
    b_lines = (b_strides[-1], b_strides[-2], N)
    rows = _block_rows(M)
    columns = wide * _panels(products * -(-M // max(rows, 1)), N, wide)
    serial = multiplications <= SERIAL
    plan = (*a_lines, *b_lines, K, products, together, columns, serial, rows)
    return Layout(
        shape,
        _starts(batch, a_shape[:-2], a_strides[:-2]),
        _starts(batch, b_shape[:-2], b_strides[:-2]),
        np.array(plan, np.int64),
        part * together,
        multiplications,
    )


def _block_rows(M: int) -> int:
    """Rows of a task: all tasks get about as many."""
    blocks = max(1, -(-M // BLOCK_ROWS))
    return -(-M // (blocks * ROWS)) * ROWS


def _panels(row_blocks: int, N: int, wide: int) -> int:
    """Panels of b in a task: fewer where few rows would leave threads without work.

    The cut does not change the order in which an output is summed.
    """
    columns = max(1, -(-N // wide))
    most = max(1, min(BLOCK_PANELS, row_blocks * columns // TASKS))
    return -(-columns // -(-columns // most))


def _starts(batch: Shape, shape: Shape, strides: Strides) -> np.ndarray:
    """Where each matrix of the batch begins; repeated ones have a stride of 0."""
    lead = len(batch) - len(shape)
    steps = [0] * lead + [0 if n == 1 else s for n, s in zip(shape, strides)]
    return np.array(list(iter_positions(batch, tuple(steps), 0)), dtype=np.int64)


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

    Any strides, read in place: a transposed operand costs no copy.
    """
    way = _layout(a.shape, a.strides, b.shape, b.strides, a.storage.dtype.itemsize)
    tiny = way.multiplications <= TINY or not a.storage.dtype.is_floating_point
    return _launch(kernels.matmul_rows if tiny else kernels.matmul_packed, a, b, way)


def _launch(run: Any, a: TensorData, b: TensorData, way: Layout) -> TensorData:
    dtype = a.storage.dtype
    out = empty(way.shape, dtype)
    z = out.storage.array
    if way.multiplications == 0:
        z.fill(0)
        return out
    work = workspace(way.work, dtype) if dtype.is_floating_point else z
    run(
        a.storage.array, a.offset, b.storage.array, b.offset, z, work,
        way.a_starts, way.b_starts, way.plan, dtype.name,
    )  # fmt: skip
    return out


# ------------------------------------------------ the rungs of the ladder, callable


def _run_rung(run: Any, name: str, a: TensorData, b: TensorData) -> TensorData:
    """Check two matrices and run one of the first five kernels on them."""
    plain = a.is_contiguous() and b.is_contiguous() and a.dtype.is_floating_point
    if a.dims != 2 or b.dims != 2 or a.shape[1] != b.shape[0] or not plain:
        raise ValueError(
            f"{name}: a is {a.shape} and b is {b.shape}; expected contiguous matrices "
            f"of floats, [M, K] and [K, N] (matmul takes any strides and batches)"
        )
    (M, K), N = a.shape, b.shape[1]
    out = empty((M, N), a.dtype)
    run(a.flat(), b.flat(), out.flat(), M, N, K, a.dtype.name)
    return out


def matmul_naive(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `naive`; both contiguous."""
    return _run_rung(kernels.matmul_naive, "matmul_naive", a, b)


def matmul_loop_order(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `loop_order`; both contiguous."""
    return _run_rung(kernels.matmul_loop_order, "matmul_loop_order", a, b)


def matmul_vectorised(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `vectorised`; both contiguous."""
    return _run_rung(kernels.matmul_vectorised, "matmul_vectorised", a, b)


def matmul_parallel(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `ParallelRows`; both contiguous."""
    return _run_rung(kernels.matmul_parallel, "matmul_parallel", a, b)


def matmul_tiled(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `Tiled`; both contiguous."""
    return _run_rung(kernels.matmul_tiled, "matmul_tiled", a, b)


def matmul_packed(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N] by packed panels, whatever the size."""
    way = _layout(a.shape, a.strides, b.shape, b.strides, a.dtype.itemsize)
    return _launch(kernels.matmul_packed, a, b, way)


# From the definition to the fastest; a benchmark draws them all.
LADDER = (
    matmul_naive,
    matmul_loop_order,
    matmul_vectorised,
    matmul_parallel,
    matmul_tiled,
    matmul_packed,
)
