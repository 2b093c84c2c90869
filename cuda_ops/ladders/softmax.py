"""Softmax of rows in three steps: how often does a row come from memory?

With this file one can read, run and time the ways of making a softmax, by name in
`LADDER`:

    softmax_three_passes   maximum, sum, division: a row is read three times
    softmax_two_passes     maximum and sum in one, "online": read twice
    softmax_one_pass       the row stays in registers: read once

All take a contiguous float32 matrix [R, n] and give softmax along n. A kernel that does
so little arithmetic is as fast as its bytes; per number of the matrix, the rungs move
16, 12 and 8. In all of them a block makes a row, and neighbouring threads read
neighbouring numbers. What the backend uses is in `cuda_ops/softmax.py`.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import cuda, float32

from cuda_ops.block.intrinsics import WARP, device
from cuda_ops.block.rows import BLOCK, barrier, fitting, merged, summed, width_of
from cuda_ops.memory import empty
from cuda_ops.runtime.launch import device_function, kernel
from cuda_ops.softmax import FORWARD
from minitorch import dtypes, operators
from minitorch.tensor_data import TensorData

WARPS = BLOCK // WARP
LOWEST = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)

exp = device_function(operators.exp)
total_of = summed(BLOCK)
merge = merged(BLOCK, exp, np.float32)


@device
def block_max(x, t, cells):
    """The largest x of the block, in a tree over shared memory [BLOCK]."""
    cells[t] = x
    half = BLOCK // 2
    while half > 0:
        barrier()
        if t < half:
            cells[t] = max(cells[t], cells[t + half])
        half //= 2
    barrier()
    return cells[0]


@kernel(examples=["float32[] float32[] int64"], threads=BLOCK)
def softmax_three_passes(a, out, n):
    """The formula as it stands.

    # a [R, n] -> out [R, n]

        for r:  top = max(a[r])
                total = sum(exp(a[r] - top))
                out[r] = exp(a[r] - top) / total

    A block makes a row; thread t has the numbers t, t + BLOCK, ... of it. Each line is
    a loop over the row: three readings and one writing, 16 bytes for each number. Long
    rows have left the first-level cache when they are needed again.
    """
    cells = cuda.shared.array(BLOCK, float32)
    sums = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x * n
    top = LOWEST
    for i in range(t, n, BLOCK):
        top = max(top, a[row + i])
    top = block_max(top, t, cells)
    total = ZERO
    for i in range(t, n, BLOCK):
        total += exp(a[row + i] - top)
    total = total_of(total, t, sums)
    for i in range(t, n, BLOCK):
        out[row + i] = exp(a[row + i] - top) / total


@kernel(examples=["float32[] float32[] int64"], threads=BLOCK)
def softmax_two_passes(a, out, n):
    """Maximum and sum in one loop, the online way.

    # a [R, n] -> out [R, n]

        for r:  top, total = max(a[r]), sum(exp(a[r] - top))       one loop for both
                out[r] = exp(a[r] - top) / total

    The sum is relative to the largest number so far. Each thread has one of its own
    numbers, and the threads' pairs (top, total) are put together (`rows.merged`). One
    reading is saved: 12 bytes for each number.
    """
    # BEGIN SOLUTION a8.2
    # When a larger number comes, the sum so far is scaled down.
    tops = cuda.shared.array(WARPS, float32)
    totals = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x * n
    top, total = LOWEST, ZERO
    for i in range(t, n, BLOCK):
        x = a[row + i]
        if x > top:
            total *= exp(top - x)
            top = x
        if x > LOWEST:
            total += exp(x - top)
    top, total = merge(top, total, t, tops, totals)
    scale = ONE / total
    for i in range(t, n, BLOCK):
        out[row + i] = exp(a[row + i] - top) * scale
    # END SOLUTION a8.2


# --------------------------------------------------------------------------- callable


def _checked(name: str, a: TensorData) -> TensorData:
    """The output for `a`; an error where the rungs cannot take it."""
    if a.dims != 2 or a.dtype is not dtypes.float32 or not a.is_contiguous():
        raise ValueError(
            f"{name}: a is {a.dtype.name} {a.shape}; expected a contiguous float32 "
            f"matrix (softmax takes any)"
        )
    return empty(a.shape, a.dtype)


def three_passes(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `softmax_three_passes`."""
    out = _checked("three_passes", a)
    softmax_three_passes[a.shape[0], BLOCK](a.flat(), out.flat(), a.shape[1])
    return out


def two_passes(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `softmax_two_passes`."""
    out = _checked("two_passes", a)
    softmax_two_passes[a.shape[0], BLOCK](a.flat(), out.flat(), a.shape[1])
    return out


def one_pass(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `softmax_rows` of `cuda_ops/softmax.py`.

    Raises:
        ValueError: rows are too long for registers.
    """
    out = _checked("one_pass", a)
    rows, n = a.shape
    fit = fitting(n, a.dtype, width_of(n, a.dtype, a.flat()))
    if fit is None:
        raise ValueError(f"one_pass: rows of {n} numbers do not fit into registers")
    FORWARD.rows[False][fit][fit.launch(rows)](a.flat(), out.flat(), rows, n)
    return out


LADDER: tuple[Callable[[TensorData], TensorData], ...] = (
    three_passes,
    two_passes,
    one_pass,
)
