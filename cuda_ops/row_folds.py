"""Reductions that need the elements of a row twice: variances and logsumexp.

With this file one can fold rows into their variance (`var`), its root (`std`) and their
log(sum(exp(x))) (`logsumexp`), in one launch and one reading of memory: what fits into
registers stays there (`block/rows.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import WARP, load, store
from cuda_ops.block.rows import (
    BLOCK,
    EXAMPLES,
    Fit,
    KernelFamily,
    fitting,
    merged,
    ragged_width,
    row_reader,
    summed,
    width_of,
)
from cuda_ops.layouts import ROWS, in_rows
from cuda_ops.memory import empty
from cuda_ops.norm import sqrt
from cuda_ops.reduce import plan_of
from cuda_ops.softmax import ITEMS, RAGGED_ROWS, exp, log, partial_finder
from minitorch.tensor_data import TensorData


def var_rows(fit: Fit, rooted: bool) -> Callable:
    """The variance of rows that fit into registers, or its root.

    # x, rows of n `step` apart -> out [R]

        for r:  mean = sum(x[r]) / n;  out[r] = sum((x[r] - mean)^2) / divisor

    Threads as in `norm.layer_norm_rows`: the mean is known before distances are taken,
    so that no digits are lost, and memory is read once.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, total_of, width, zero = row_reader(fit), summed(group), fit.width, kind(0)

    def kernel(x, at, step, n, divisor, out):
        z = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        read(x, at + min(r, out.size - 1) * step, n, t, zero, z)
        # BEGIN TWIN a8.3
        total = zero
        for k in range(items):
            total += z[k]
        mean = total_of(total, t, cells) / kind(n)
        # END TWIN a8.3
        total = zero
        for k in range(items):
            away = z[k] - mean
            total += away * away if width * (k // width * group + t) < n else zero
        total = total_of(total, t, more_cells) / divisor
        if t == 0 and r < out.size:
            store(out, r, sqrt(total) if rooted else total)

    return kernel


def logsumexp_rows(fit: Fit) -> Callable:
    """log(sum(exp(x))) of rows of any length.

    # a, rows of n `step` apart -> out [R]

    As `cross_entropy.cross_entropy_rows`: a running maximum and sum, one reading.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    partial_of, merge = partial_finder(fit), merged(group, exp, kind)

    def kernel(a, offset, step, n, out):
        x = cuda.local.array(items, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = offset + min(r, out.size - 1) * step
        top, total = partial_of(a, at, n, t, x)
        top, total = merge(top, total, t, tops, totals)
        if t == 0 and r < out.size:
            whole = top + log(total)
            if top == kind(np.inf):  # infinity less itself was no number
                whole = top
                for i in range(n):
                    if math.isnan(load(a, at + i)):
                        whole = load(a, at + i)
            store(out, r, whole)

    return kernel


_VAR = "T[] int64 int64 int64 T T[]"
VAR, STD = (
    KernelFamily(partial(var_rows, rooted=rooted), _VAR, *EXAMPLES, name=name)
    for name, rooted in (("var_rows", False), ("std_rows", True))
)
LOGSUMEXP = KernelFamily(
    logsumexp_rows, "T[] int64 int64 int64 T[]", *EXAMPLES, RAGGED_ROWS
)


def _rows(
    a: TensorData, dims: tuple[int, ...]
) -> tuple[tuple[int, ...], int, int] | None:
    """The shape of the result, and the step and the length of rows in memory; None
    where elements lie in another way."""
    shape, layout, _ = plan_of(a.shape, a.strides, dims, False)
    if layout.kind != ROWS or layout.folded[0][0] != 1:
        return None
    return shape, layout.kept[0][1], layout.folded[1][0]


def var(
    x: TensorData, dims: Sequence[int], divisor: float, rooted: bool
) -> TensorData | None:
    """The sum of squared distances from the mean over `dims`, by `divisor`, or its
    root; None where no kernel has that."""
    found, dtype = _rows(x, tuple(dims)), x.dtype
    if found is None:
        return None
    shape, step, n = found
    a = x.storage.array
    width = width_of(math.gcd(n, step, x.offset), dtype, a)
    fit = fitting(n, dtype, width)
    if fit is None:
        return None
    out = empty(shape, dtype)
    (STD if rooted else VAR)[fit][fit.launch(out.size)](
        a, x.offset, step, n, fit.kind(divisor), out.storage.array
    )
    return out


def logsumexp(a: TensorData, dims: Sequence[int]) -> TensorData | None:
    """log(sum(exp(a))) over `dims`, which keep a size of 1; None for no elements."""
    if a.size == 0:
        return None
    dims, dtype = tuple(dims), a.dtype
    shape = plan_of(a.shape, a.strides, dims, False)[0]
    found = _rows(a, dims)
    if found is None:
        a = in_rows(a, dims)
        found = shape, a.shape[1], a.shape[1]
    _, step, n = found
    x, out = a.storage.array, empty(shape, dtype)
    width = ragged_width(n, step if a.offset % 4 == 0 else 1, dtype, x)
    fit = fitting(n, dtype, width) or Fit(dtype, width, BLOCK, ITEMS)
    LOGSUMEXP[fit][fit.launch(out.size)](x, a.offset, step, n, out.storage.array)
    return out
