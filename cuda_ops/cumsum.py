"""Running totals along a dimension, on the GPU.

With this file one can add up the elements of a dimension, or multiply them, each with
all before it (`cumsum`, `cumprod`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    is_aligned,
    load,
    shuffle,
    shuffle_up,
    store,
)
from cuda_ops.block.rows import BLOCK, barrier
from cuda_ops.memory import contiguous, copy, empty, split
from cuda_ops.reduce import FOLD_ROWS, LEAST, STEP, WARPS, kept, splits_of
from cuda_ops.runtime.launch import Kernels, ceil_div
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData


def row_kernel(fn: Callable, group: int) -> Callable:
    """Make `scan_rows` with `group` threads for a row, or a chunk of it."""
    fn = kept(fn)
    rows, warps = BLOCK // group, group // WARP

    def kernel(a, n, splits, chunk, start, before, out):
        cells = cuda.shared.array(WARPS, a.dtype)
        t = cuda.threadIdx.x % group
        q = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        known = q * n < out.size * splits
        r = (q if known else 0) // splits
        s = (q if known else 0) - r * splits
        carry = before[r * splits + s - 1] if s > 0 else start
        end = min((s + 1) * chunk, n) if known else 0
        for tile in range(s * chunk, min((s + 1) * chunk, n), 4 * group):
            i, at = tile + 4 * t, r * n + tile + 4 * t
            x0 = load(a, at) if i < end else start
            x1 = fn(x0, load(a, at + 1) if i + 1 < end else start)
            x2 = fn(x1, load(a, at + 2) if i + 2 < end else start)
            x3 = fn(x2, load(a, at + 3) if i + 3 < end else start)
            running = x3
            for k in range(5):
                other = shuffle_up(running, 1 << k)
                running = fn(other if t % WARP >= 1 << k else start, running)
            total = carry
            if warps > 1:
                # The last lane of a warp has its whole total.
                if t % WARP == WARP - 1:
                    cells[t // WARP] = running
                barrier()
                for w in range(warps):
                    total = fn(total, cells[w] if w < t // WARP else start)
            other = shuffle_up(running, 1)
            total = fn(total, other if t % WARP > 0 else start)
            if i < end:
                store(out, at, fn(total, x0))
            if i + 1 < end:
                store(out, at + 1, fn(total, x1))
            if i + 2 < end:
                store(out, at + 2, fn(total, x2))
            if i + 3 < end:
                store(out, at + 3, fn(total, x3))
            if warps > 1:
                for w in range(warps):
                    carry = fn(carry, cells[w])
                barrier()  # Before the next tile's totals take the cells.
            else:
                carry = fn(carry, shuffle(running, WARP - 1))

    return kernel


def scan_rows(fn: Callable) -> Callable:
    """Running totals of rows, each by a block, or by several blocks.

    # a [R, n], before [R, splits] -> out [R, n]

        for r, i:  out[r, i] = a[r, 0] + ... + a[r, i]

    or products, which `fn` says, from its identity `start` on. A block makes a chunk of
    a row, 4 * BLOCK elements at a time. A thread adds up 4 neighbours; a warp turns its
    threads' sums into running sums in five steps, in which a thread adds what the
    thread 1, 2, 4, 8, 16 places before it has; the sums of the warps before are added
    from shared memory, and so is what came before the tile:

        1 2 3 4   ->   1 3 5 7   ->   1 3 6 10

    Where blocks share a row, `before[r, s]` is the sum of the chunks up to s, by
    two launches before this one; chunk s starts from before[r, s - 1].

    Source: Hillis and Steele, "Data parallel algorithms", 1986; Harris, Sengupta and
    Owens, "Parallel prefix sum (scan) with CUDA", 2007.
    """
    return row_kernel(fn, BLOCK)


def scan_short_rows(fn: Callable) -> Callable:
    """`scan_rows` with a warp for a row, without shared memory and barriers.

    # a [R, n] -> out [R, n]
    """
    return row_kernel(fn, WARP)


def scan_columns(fn: Callable) -> Callable:
    """Running totals along a dimension that is not the last.

    # a [O, n, I] -> out [O, n, I]

    A thread makes a column, with its total in a register; its neighbours make the ones
    beside it, so that a warp's loads and stores are coalesced.
    """
    fn = kept(fn)

    def kernel(a, n, inner, start, out):
        column = cuda.grid(1)
        if column * n < out.size:
            outer, k = split(column, inner)
            p = outer * n * inner + k
            total = start
            for _ in range(n):
                total = fn(total, load(a, p))
                store(out, p, total)
                p += inner

    return kernel


_BOTH = (operators.add, operators.mul)
_ROWS = "float32[] int64 int64 int64 float32 float32[] float32[]"
SCAN_ROWS = Kernels(scan_rows, _BOTH, [_ROWS], threads=BLOCK)
SCAN_SHORT_ROWS = Kernels(scan_short_rows, _BOTH, [_ROWS], threads=BLOCK)
SCAN_COLUMNS = Kernels(
    scan_columns, _BOTH, ["float32[] int64 int64 float32 float32[]"], threads=BLOCK
)


def cumsum(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] + ... + a[i] along `dim`."""
    return _running(operators.add, 0, a, dim)


def cumprod(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] * ... * a[i] along `dim`."""
    return _running(operators.mul, 1, a, dim)


def _running(fn: Callable, identity: int, a: TensorData, dim: int) -> TensorData:
    if a.dims == 0:
        return copy(a, a.dtype)
    out = empty(a.shape, a.dtype)
    y = out.storage.array
    if len(y) == 0:
        return out
    x, n, start = contiguous(a).flat(), a.shape[dim], a.dtype.numpy.type(identity)
    inner = math.prod(a.shape[dim + 1 :])
    if inner > 1:
        SCAN_COLUMNS[fn][ceil_div(len(y) // n, BLOCK), BLOCK](x, n, inner, start, y)
    else:
        _scan(fn, start, x, len(y) // n, n, y, a.dtype)
    return out


def _scan(
    fn: Callable, start: Any, x: Any, rows: int, n: int, out: Any, dtype: DType
) -> None:
    """Running totals of x [rows, n], by one launch, or by three where rows are long."""
    if n <= 8 * WARP:
        SCAN_SHORT_ROWS[fn][ceil_div(rows, WARPS), BLOCK](x, n, 1, n, start, x, out)
        return
    splits = splits_of(rows, n, LEAST)
    chunk = ceil_div(ceil_div(n, splits), STEP) * STEP
    splits = ceil_div(n, chunk)
    before = x
    if splits > 1:
        totals = empty((rows * splits,), dtype).storage.array
        before = empty((rows * splits,), dtype).storage.array
        wide = n % 4 == 0 and is_aligned(x)
        FOLD_ROWS[fn][rows * splits, BLOCK](
            x, 0, n, n, splits, chunk, wide, start, start, totals
        )
        _scan(fn, start, totals, rows, splits, before, dtype)
    SCAN_ROWS[fn][rows * splits, BLOCK](x, n, splits, chunk, start, before, out)
