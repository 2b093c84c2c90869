"""Transpose a matrix: the same numbers, read along rows and written along columns.

With this file one can lay a transposed matrix, or a batch of them, out row by row
(`transpose_copy`), and read, run and time the steps that lead there, by name in
`LADDER`:

    transpose_uncoalesced   a thread an element: neighbours write far apart
    transpose_tiled         through shared memory: both sides in order
    transpose_padded        a column more in shared memory: no bank conflicts
    transpose_vectorized    16 bytes at a time on both sides

A rung takes a contiguous matrix [M, N] and returns [N, M]. This is the first case in
which the order of access, and nothing else, decides on the speed: memory comes in
pieces of 32 bytes, a warp asks for 32 elements at once, and what it asks for lies in 4
such pieces, or in 32.

Source: Ruetsch and Micikevicius, "Optimizing matrix transpose in CUDA", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda

from cuda_ops.arrays import allocate
from cuda_ops.intrinsics import is_aligned, load, load4, store, store4
from cuda_ops.launch import SIMULATED, Kernel, ceil_div, kernel
from minitorch.dtypes import ALL, DType, float32
from minitorch.tensor_data import Storage, TensorData

SIDE = 8 if SIMULATED else 32  # of a tile of elements; neighbouring threads along it
LINES = (
    2 if SIMULATED else 8
)  # lines of a tile that the threads of a block make at once
QUADS = (
    4 if SIMULATED else 16
)  # vectors of 4 in a line of a tile of `transpose_vectorized`
WIDE = 4 * QUADS  # the side of such a tile
WIDE_LINES = 4 if SIMULATED else 16  # lines of it that are made at once

# ------------------------------------------------------------------- rung by rung


@kernel(examples=["float32[] float32[] int64 int64"], threads=SIDE * LINES)
def transpose_uncoalesced(a, out, m, n):
    """The two loops, with a thread for each element.

    # a [m, n] -> out [n, m]

        for i, j:  out[j, i] = a[i, j]

    Neighbouring threads have neighbouring j. They read neighbouring addresses, and
    write addresses m elements apart: each of a warp's 32 stores goes to a piece of 32
    bytes of its own, of which 4 bytes are used.
    """
    across = (n + SIDE - 1) // SIDE
    tile_i = cuda.blockIdx.x // across
    j = (cuda.blockIdx.x - tile_i * across) * SIDE + cuda.threadIdx.x % SIDE
    for k in range(cuda.threadIdx.x // SIDE, SIDE, LINES):
        i = tile_i * SIDE + k
        if i < m and j < n:
            store(out, j * m + i, load(a, i * n + j))


def tile_kernel(padding: int, dtype: DType) -> Callable:
    """Make `transpose_tiled` (no padding) or `transpose_padded` for a type.

    Batches are for `transpose_copy`: matrix b begins at at + b * batch_step, and its
    columns are `step` elements apart.
    """
    kind, pitch = dtype.numpy.type, SIDE + padding

    def kernel(a, at, batch_step, step, m, n, out):
        # BEGIN SOLUTION a4.5
        tile = cuda.shared.array((SIDE, pitch), kind)
        x = cuda.threadIdx.x % SIDE
        y = cuda.threadIdx.x // SIDE
        across, down = (n + SIDE - 1) // SIDE, (m + SIDE - 1) // SIDE
        line = cuda.blockIdx.x // across
        left = (cuda.blockIdx.x - line * across) * SIDE  # of the tile, in `a`
        batch = line // down
        top = (line - batch * down) * SIDE
        first = at + batch * batch_step
        for k in range(y, SIDE, LINES):
            if top + k < m and left + x < n:
                tile[k, x] = load(a, first + (top + k) * step + left + x)
        cuda.syncthreads()
        for k in range(y, SIDE, LINES):
            if left + k < n and top + x < m:
                store(out, batch * m * n + (left + k) * m + top + x, tile[x, k])
        # END SOLUTION a4.5

    return kernel


def transpose_tiled(dtype: DType) -> Callable:
    """Through a tile in shared memory: rows come in, columns go out.

    # a [m, n] -> out [n, m]

        a:  . . . . . .        out:  . . . .        a tile is read row by row,
            . A A . . .              . A A .        and written row by row, both
            . A A . . .              . A A .        in pieces of SIDE elements

    A block moves a tile of SIDE x SIDE. Neighbouring threads read neighbours in a row
    of `a`, and after the barrier write neighbours in a row of `out`; the crooked way is
    gone in shared memory, which can give any 32 words at once, as long as they are in
    32 different banks. Here they are not: SIDE elements of a column are all in the same
    bank, and come one after the other.
    """
    return tile_kernel(0, dtype)


def transpose_padded(dtype: DType) -> Callable:
    """`transpose_tiled` with rows of SIDE + 1 elements in shared memory.

    # a [m, n] -> out [n, m]

        bank of tile[x, k]:  (x * 32 + k) % 32 = k              all the same
                             (x * 33 + k) % 32 = (x + k) % 32   all different

    So a column is read as fast as a row.
    """
    return tile_kernel(1, dtype)


def transpose_vectorized(dtype: DType) -> Callable:
    """`transpose_padded` with 16 bytes for each load and store.

    # a [B, m, n], m and n multiples of 4 -> out [B, n, m]

    A block moves a tile of WIDE x WIDE elements; a thread reads four neighbours of a
    row as one vector, and later writes four neighbours of a column of the tile as one.
    That makes a quarter of the instructions, and four times as many bytes under way for
    each thread, on which the speed of the memory depends (Little's law).

    Rows have WIDE + 1 elements in shared memory, and go there one by one. Threads j and
    j + 8 of a warp meet in a bank; two words each in two rounds are still faster than
    the memory.
    """
    kind, pitch = dtype.numpy.type, WIDE + 1

    def kernel(a, at, batch_step, step, m, n, out):
        tile = cuda.shared.array((WIDE, pitch), kind)
        x = cuda.threadIdx.x % QUADS * 4
        y = cuda.threadIdx.x // QUADS
        across, down = (n + WIDE - 1) // WIDE, (m + WIDE - 1) // WIDE
        line = cuda.blockIdx.x // across
        left = (cuda.blockIdx.x - line * across) * WIDE
        batch = line // down
        top = (line - batch * down) * WIDE
        first = at + batch * batch_step
        for k in range(y, WIDE, WIDE_LINES):
            if top + k < m and left + x < n:
                x0, x1, x2, x3 = load4(a, first + (top + k) * step + left + x)
                tile[k, x], tile[k, x + 1] = x0, x1
                tile[k, x + 2], tile[k, x + 3] = x2, x3
        cuda.syncthreads()
        for k in range(y, WIDE, WIDE_LINES):
            if left + k < n and top + x < m:
                p = batch * m * n + (left + k) * m + top + x
                store4(
                    out, p, tile[x, k], tile[x + 1, k], tile[x + 2, k], tile[x + 3, k]
                )

    return kernel


def _kernels(template: Callable, threads: int) -> dict[DType, Kernel]:
    """The template's kernel for each element type; tests compile float32's."""
    text = "T[] int64 int64 int64 int64 int64 T[]"
    return {
        dtype: Kernel(
            template(dtype),
            f"{template.__name__}[{dtype.name}]",
            [text.replace("T", dtype.name)] if dtype is float32 else (),
            threads,
        )
        for dtype in ALL
    }


TILED = _kernels(transpose_tiled, SIDE * LINES)
PADDED = _kernels(transpose_padded, SIDE * LINES)
VECTORIZED = _kernels(transpose_vectorized, QUADS * WIDE_LINES)

# ------------------------------------------------------------------------- launchers


def transpose_copy(a: TensorData, out: Any) -> bool:
    """out[...] = a, row by row, where `a` is a batch of transposed matrices.

    a [*, N, M] with strides (*, 1, step), from `.mT` or `permute`; `out` is a flat
    array for its elements, of the same type. Says whether it did: False, and nothing
    done, for any other layout, and where a side is shorter than a vector.
    """
    if a.dims < 2 or a.strides[-2] != 1 or min(a.shape[-2:]) < 4:
        return False
    (n, m), step = a.shape[-2:], a.strides[-1]
    batches = math.prod(a.shape[:-2])
    batch_step = _batch_step(a)
    if batch_step is None or step < n or batches == 0:
        return False
    _transpose(a.storage.array, a.offset, batch_step, step, batches, m, n, out, a.dtype)
    return True


def _batch_step(a: TensorData) -> int | None:
    """The step from one matrix to the next, if it is always the same."""
    step: int | None = None
    for size, stride in zip(reversed(a.shape[:-2]), reversed(a.strides[:-2])):
        if size == 1:
            continue
        if step is None:
            step, expected = stride, stride
        elif stride != expected:
            return None
        expected *= size
    return step or 0


def _transpose(
    x: Any, at: int, batch_step: int, step: int, batches: int, m: int, n: int, out: Any,
    dtype: DType,
) -> None:  # fmt: skip
    """`batches` matrices [m, n], rows `step` apart -> [n, m]: the best rung."""
    four = m % 4 == n % 4 == step % 4 == batch_step % 4 == at % 4 == 0
    if four and dtype.itemsize == 4 and is_aligned(x) and is_aligned(out):
        blocks = ceil_div(m, WIDE) * ceil_div(n, WIDE) * batches
        threads, kernels = QUADS * WIDE_LINES, VECTORIZED
    else:
        blocks = ceil_div(m, SIDE) * ceil_div(n, SIDE) * batches
        threads, kernels = SIDE * LINES, PADDED
    kernels[dtype][blocks, threads](x, at, batch_step, step, m, n, out)


def _made(name: str, a: TensorData) -> TensorData:
    """The output of a rung; an error where it cannot take `a`."""
    if a.dims != 2 or not a.is_contiguous():
        raise ValueError(
            f"{name}: a is {a.shape}; expected a contiguous matrix (contiguous() takes "
            f"any layout)"
        )
    out = allocate(a.size, a.dtype)
    return TensorData(Storage(out, a.dtype, a.device), (a.shape[1], a.shape[0]))


def _blocks(a: TensorData, side: int) -> int:
    return ceil_div(a.shape[0], side) * ceil_div(a.shape[1], side)


def uncoalesced(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_uncoalesced`."""
    out = _made("uncoalesced", a)
    transpose_uncoalesced[_blocks(a, SIDE), SIDE * LINES](
        a.flat(), out.storage.array, *a.shape
    )
    return out


def tiled(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_tiled`."""
    out = _made("tiled", a)
    m, n = a.shape
    TILED[a.dtype][_blocks(a, SIDE), SIDE * LINES](
        a.flat(), 0, 0, n, m, n, out.storage.array
    )
    return out


def padded(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_padded`."""
    out = _made("padded", a)
    m, n = a.shape
    PADDED[a.dtype][_blocks(a, SIDE), SIDE * LINES](
        a.flat(), 0, 0, n, m, n, out.storage.array
    )
    return out


def vectorized(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_vectorized`, or `transpose_padded` where M or
    N is no multiple of 4 or an element has no 4 bytes."""
    out = _made("vectorized", a)
    m, n = a.shape
    if out.size:
        _transpose(a.flat(), 0, 0, n, 1, m, n, out.storage.array, a.dtype)
    return out


LADDER: tuple[Callable[[TensorData], TensorData], ...] = (
    uncoalesced,
    tiled,
    padded,
    vectorized,
)
