"""Running sums along a dimension, on the GPU.

With this file one can add up the elements of a dimension, each with all before it
(`cumsum`).
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
from cuda_ops.reduce import FOLD_ROWS, LEAST, STEP, WARPS, splits_of
from cuda_ops.runtime.launch import Kernel, ceil_div
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData


def scan_rows(group: int) -> Callable:
    """Running sums of rows, each by a warp or a block, or by several blocks.

    # a [R, n], before [R, splits] -> out [R, n]

        for r, i:  out[r, i] = a[r, 0] + ... + a[r, i]

    `group` threads make a chunk of a row, 4 * group elements at a time. A thread adds
    up 4 neighbours; a warp turns its threads' sums into running sums in five steps, in
    which a thread adds what the thread 1, 2, 4, 8, 16 places before it has; the sums of
    the warps before are added from shared memory, and so is what came before the tile:

        1 2 3 4   ->   1 3 5 7   ->   1 3 6 10

    Where blocks share a row, `before[r, s]` is the sum of the chunks up to s, by
    two launches before this one; chunk s starts from before[r, s - 1].

    Source: Hillis and Steele, "Data parallel algorithms", 1986; Harris, Sengupta and
    Owens, "Parallel prefix sum (scan) with CUDA", 2007.
    """
    rows, warps = BLOCK // group, group // WARP

    def kernel(a, n, splits, chunk, before, out):
        cells = cuda.shared.array(WARPS, a.dtype)
        zero = a.dtype.type(0)
        t = cuda.threadIdx.x % group
        q = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        known = q * n < out.size * splits
        r = (q if known else 0) // splits
        s = (q if known else 0) - r * splits
        carry = before[r * splits + s - 1] if s > 0 else zero
        end = min((s + 1) * chunk, n) if known else 0
        for tile in range(s * chunk, min((s + 1) * chunk, n), 4 * group):
            i, at = tile + 4 * t, r * n + tile + 4 * t
            x0 = load(a, at) if i < end else zero
            x1 = x0 + (load(a, at + 1) if i + 1 < end else zero)
            x2 = x1 + (load(a, at + 2) if i + 2 < end else zero)
            x3 = x2 + (load(a, at + 3) if i + 3 < end else zero)
            running = x3
            for k in range(5):
                other = shuffle_up(running, 1 << k)
                running += other if t % WARP >= 1 << k else zero
            total = carry
            if warps > 1:
                # The last lane of a warp has its whole sum.
                if t % WARP == WARP - 1:
                    cells[t // WARP] = running
                barrier()
                for w in range(warps):
                    total += cells[w] if w < t // WARP else zero
            total += running - x3
            if i < end:
                store(out, at, total + x0)
            if i + 1 < end:
                store(out, at + 1, total + x1)
            if i + 2 < end:
                store(out, at + 2, total + x2)
            if i + 3 < end:
                store(out, at + 3, total + x3)
            if warps > 1:
                for w in range(warps):
                    carry += cells[w]
                barrier()  # Before the next tile's sums take the cells.
            else:
                carry += shuffle(running, WARP - 1)

    return kernel


def scan_columns(a, n, inner, out):
    """Running sums along a dimension that is not the last.

    # a [O, n, I] -> out [O, n, I]

    A thread makes a column, with its total in a register; its neighbours make the ones
    beside it, so that a warp's loads and stores are coalesced.
    """
    column = cuda.grid(1)
    if column * n < out.size:
        outer, k = split(column, inner)
        p = outer * n * inner + k
        total = a.dtype.type(0)
        for _ in range(n):
            total += load(a, p)
            store(out, p, total)
            p += inner


SCAN_ROWS = {
    group: Kernel(
        scan_rows(group),
        f"scan_rows[{'warp' if group == WARP else 'block'}]",
        ["float32[] int64 int64 int64 float32[] float32[]"],
        BLOCK,
    )
    for group in (WARP, BLOCK)
}
SCAN_COLUMNS = Kernel(
    scan_columns, "", ["float32[] int64 int64 float32[]"], threads=BLOCK
)


def cumsum(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] + ... + a[i] along `dim`."""
    if a.dims == 0:
        return copy(a, a.dtype)
    out = empty(a.shape, a.dtype)
    y = out.storage.array
    if len(y) == 0:
        return out
    x, n = contiguous(a).flat(), a.shape[dim]
    inner = math.prod(a.shape[dim + 1 :])
    if inner > 1:
        SCAN_COLUMNS[ceil_div(len(y) // n, BLOCK), BLOCK](x, n, inner, y)
    else:
        _scan(x, len(y) // n, n, y, a.dtype)
    return out


def _scan(x: Any, rows: int, n: int, out: Any, dtype: DType) -> None:
    """Running sums of x [rows, n], by one launch, or by three where rows are long."""
    if n <= 8 * WARP:
        SCAN_ROWS[WARP][ceil_div(rows, WARPS), BLOCK](x, n, 1, n, x, out)
        return
    splits = splits_of(rows, n, LEAST)
    chunk = ceil_div(ceil_div(n, splits), STEP) * STEP
    splits = ceil_div(n, chunk)
    before = x
    if splits > 1:
        sums = empty((rows * splits,), dtype).storage.array
        before = empty((rows * splits,), dtype).storage.array
        wide = n % 4 == 0 and is_aligned(x)
        FOLD_ROWS[operators.add][rows * splits, BLOCK](
            x, 0, n, n, splits, chunk, wide, *2 * (dtype.numpy.type(0),), sums
        )
        _scan(sums, rows, splits, before, dtype)
    SCAN_ROWS[BLOCK][rows * splits, BLOCK](x, n, splits, chunk, before, out)
