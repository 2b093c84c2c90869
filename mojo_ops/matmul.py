"""Matrix products: launchers of the kernels in `matmul.mojo`.

With this file one can multiply batches of matrices (`matmul`), and call and time each
rung of the ladder (`LADDER`). What the kernels do is said there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from minitorch.backend.host.matmul import check_rung, panels, products_of
from minitorch.backend.host.workspace import KEEP_BYTES, workspace
from minitorch.tensor_data import Shape, Strides, TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import empty

kernels = Library("matmul")

ROWS = 8  # lines of a panel of a, as in matmul.mojo
BLOCK_ROWS = 240  # rows of out in a task, at most: 240 KiB of packed a
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
    """Choose the sizes of blocks."""
    given = products_of(a_shape, a_strides, b_shape, b_strides)
    M, N, K = given.sizes
    wide = _wide("float64" if item == 8 else "float32")
    packed = (-(-M // ROWS) * ROWS + -(-N // wide) * wide) * K
    together = max(1, min(given.number, KEEP_BYTES // max(packed * item, 1)))
    rows = _block_rows(M)
    columns = wide * panels(given.number * -(-M // max(rows, 1)), N, wide)
    serial = given.multiplications <= SERIAL
    a_lines = (*given.a[1:], M)
    b_lines = (given.b[2], given.b[1], N)
    plan = (*a_lines, *b_lines, K, given.number, together, columns, serial, rows)
    return Layout(
        given.shape,
        given.a[0],
        given.b[0],
        np.array(plan, np.int64),
        packed * together,
        given.multiplications,
    )


def _block_rows(M: int) -> int:
    """Rows of a task: all tasks get about as many."""
    blocks = max(1, -(-M // BLOCK_ROWS))
    return -(-M // (blocks * ROWS)) * ROWS


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

    Any strides, read in place: a transposed operand costs no copy.
    """
    layout = _layout(a.shape, a.strides, b.shape, b.strides, a.storage.dtype.itemsize)
    tiny = layout.multiplications <= TINY or not a.storage.dtype.is_floating_point
    return _launch(kernels.matmul_rows if tiny else kernels.matmul_packed, a, b, layout)


def _launch(run: Any, a: TensorData, b: TensorData, layout: Layout) -> TensorData:
    dtype = a.storage.dtype
    out = empty(layout.shape, dtype)
    z = out.storage.array
    if layout.multiplications == 0:
        z.fill(0)
        return out
    work = workspace(layout.work, dtype) if dtype.is_floating_point else z
    run(
        a.storage.array, a.offset, b.storage.array, b.offset, z, work,
        layout.a_starts, layout.b_starts, layout.plan,
    )  # fmt: skip
    return out


# ------------------------------------------------ the rungs of the ladder, callable


def _run_rung(run: Any, name: str, a: TensorData, b: TensorData) -> TensorData:
    """Check two matrices and run one of the first five kernels on them."""
    check_rung(name, a, b)
    if not a.dtype.is_floating_point:
        raise ValueError(
            f"{name}: a is {a.dtype.name}; expected floats (matmul takes integers, too)"
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


def matmul_vectorized(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `vectorized`; both contiguous."""
    return _run_rung(kernels.matmul_vectorized, "matmul_vectorized", a, b)


def matmul_parallel(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `ParallelRows`; both contiguous."""
    return _run_rung(kernels.matmul_parallel, "matmul_parallel", a, b)


def matmul_tiled(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `Tiled`; both contiguous."""
    return _run_rung(kernels.matmul_tiled, "matmul_tiled", a, b)


def matmul_packed(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N] by packed panels, whatever the size."""
    layout = _layout(a.shape, a.strides, b.shape, b.strides, a.dtype.itemsize)
    return _launch(kernels.matmul_packed, a, b, layout)


# From the definition to the fastest; a benchmark draws them all.
LADDER = (
    matmul_naive,
    matmul_loop_order,
    matmul_vectorized,
    matmul_parallel,
    matmul_tiled,
    matmul_packed,
)
