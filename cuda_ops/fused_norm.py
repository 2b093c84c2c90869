"""Dropout, a sum and layer norm in one pass, forward and backward, on the GPU.

With this file one can do what stands between two layers of a transformer in one kernel
(`dropout_residual_layer_norm`), and take its gradients. Rows lie in registers as in
`norm.py`; where they are too long for that, the operations run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda

from cuda_ops.batch_norm import Three
from cuda_ops.block.intrinsics import WARP, device
from cuda_ops.block.rows import (
    Fit,
    barrier,
    fitting,
    row_centred,
    row_reader,
    row_writer,
    width_of,
)
from cuda_ops.elementwise import zip as zip_elements
from cuda_ops.memory import contiguous, empty, flat_or
from cuda_ops.norm import (
    FOUR_ROWS,
    FULL_ROWS,
    by_options,
    fold_partials,
    group_count,
    layer_norm,
    layer_norm_backward,
    row_gradient,
    row_normalized,
)
from cuda_ops.random import LOW_32, block_base, draw, dropout
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

Four = tuple[TensorData, TensorData, TensorData, TensorData]


def dropper(fit: Fit) -> Any:
    """Make `drop(z, key0, key1, offset, base, at, n, t, limit, scale)`: the dropout.

    Number e of the tensor is multiplied by `scale` where word e % 4 of Philox block
    base[0] + offset + e // 4 is at least `limit`, else it becomes 0. Four numbers that
    are loaded together need one block.
    """
    group, items, zero = fit.group, fit.items, fit.kind(0)

    def drop_4(z, key0, key1, offset, base, at, n, t, limit, scale):
        for v in range(items // 4):
            block = at // 4 + v * group + t
            w0, w1, w2, w3 = draw(key0, key1, offset, base, block)
            k = 4 * v
            z[k] = z[k] * scale if w0 >= limit else zero
            z[k + 1] = z[k + 1] * scale if w1 >= limit else zero
            z[k + 2] = z[k + 2] * scale if w2 >= limit else zero
            z[k + 3] = z[k + 3] * scale if w3 >= limit else zero

    def drop_1(z, key0, key1, offset, base, at, n, t, limit, scale):
        # Words become bits first: the long loop stays one, and a loop's index can reach
        # no register, which would send z through memory.
        kept = 0
        for v in range(items):
            e = at + v * group + t
            w0, w1, w2, w3 = draw(key0, key1, offset, base, e // 4)
            low = w0 if e % 2 == 0 else w1
            high = w2 if e % 2 == 0 else w3
            word = low if e % 4 < 2 else high
            kept |= (word >= limit) << v
        for v in range(items):
            z[v] = z[v] * scale if kept >> v & 1 else zero

    return device(drop_4 if fit.width == 4 else drop_1)


def dropout_residual_layer_norm_rows(fit: Fit, scaled: bool, shifted: bool) -> Callable:
    """Three operations between two layers, in one pass over memory.

    # x, residual [R, n], weight, bias [n] -> out [R, n], mean [R], rstd [R]

        for r:  z = dropout(x[r]) + residual[r];  out[r] = layer_norm(z)

    Threads and registers as in `layer_norm_rows`. By themselves the operations move 28
    bytes for each number: dropout 8, the sum 12 and layer norm 8 (PyTorch: 29, with a
    mask). Here it is 12; z and the mask are never in memory. The backward pass makes
    both again, from x, the residual and the seed, which exist anyway.

    Philox needs about 20 instructions for each number, while the memory brings a number
    to each multiprocessor in the time of some 80.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, zero = row_reader(fit), row_writer(fit), kind(0)
    normalize, drop = row_normalized(fit, scaled, shifted), dropper(fit)

    def kernel(
        key0, key1, offset, base, limit, keep, x, residual, weight, bias, eps, out,
        mean, rstd, n,
    ):  # fmt: skip
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, mean.size - 1) * n
        read(x, at, n, t, zero, z)
        read(residual, at, n, t, zero, y)
        drop(z, key0, key1, offset, base, at, n, t, limit, keep)
        for k in range(items):
            z[k] += y[k]
        middle, scale = normalize(z, y, eps, weight, bias, n, t, cells, more_cells)
        if r < mean.size:
            write(out, at, n, t, z)
            if t == 0:
                mean[r] = middle
                rstd[r] = scale

    return kernel


def dropout_residual_layer_norm_backward_rows(fit: Fit, scaled: bool) -> Callable:
    """The gradients of `dropout_residual_layer_norm_rows`, which makes z again.

    # grad, x, residual [R, n], mean, rstd [R], weight [n] -> dx, dresidual [R, n];
    # partial [groups, 2, n]

        for r:  z = dropout(x[r]) + residual[r]
                dresidual[r] = gradient of layer norm for z
                dx[r] = dropout(dresidual[r]), with the same mask

    Threads, registers and sums as in `layer_norm_backward_rows`; Philox is asked twice
    for each mask, as the registers are full of other things.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, centre = row_reader(fit), row_writer(fit), row_centred(fit)
    gradient, drop, zero = row_gradient(fit, scaled), dropper(fit), kind(0)

    def kernel(
        key0, key1, offset, base, limit, keep, grad, x, residual, mean, rstd, weight,
        dx, dresidual, partial, groups, n,
    ):  # fmt: skip
        g = cuda.local.array(items, kind)
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        dw = cuda.local.array(items, kind)
        db = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        p = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        for k in range(items):
            dw[k] = zero
            db[k] = zero
        for first in range(0, mean.size, groups):
            r = first + p
            known = r < mean.size and p < groups
            at = r * n if known else 0
            read(x, at, n, t, zero, z)
            read(residual, at, n, t, zero, y)
            drop(z, key0, key1, offset, base, at, n, t, limit, keep)
            for k in range(items):
                z[k] += y[k]
            centre(z, mean[r if known else 0], n, t)
            read(grad, at, n, t, zero, g)
            if not known:
                for k in range(items):
                    g[k] = zero
            scale = rstd[r if known else 0]
            gradient(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)
            write(dresidual, at, n if known else 0, t, g)
            drop(g, key0, key1, offset, base, at, n, t, limit, keep)
            write(dx, at, n if known else 0, t, g)
            if group > WARP:
                barrier()
        if p < groups:
            write(partial, 2 * p * n, n, t, dw)
            write(partial, (2 * p + 1) * n, n, t, db)

    return kernel


PHILOX = "int64 int64 int64 int64[] int64 T"
FUSED = by_options(
    dropout_residual_layer_norm_rows,
    f"{PHILOX} T[] T[] T[] T[] T T[] T[] T[] int64", FULL_ROWS, 2,
    {FULL_ROWS[1]: 3},
)  # fmt: skip
FUSED_BACKWARD = by_options(
    dropout_residual_layer_norm_backward_rows,
    f"{PHILOX} T[] T[] T[] T[] T[] T[] T[] T[] T[] int64 int64", FOUR_ROWS[:3], 1,
)  # fmt: skip

# -------------------------------------------------------------------------- launchers


def _mask(p: float, seed: int, offset: int, dtype: DType) -> tuple[Any, ...]:
    """What kernels need to draw a dropout mask and to scale what stays."""
    keep = dtype.numpy.type(1.0 / (1.0 - p) if p < 1 else 0.0)
    limit = math.ceil(p * 2.0**32)
    return seed & LOW_32, (seed >> 32) & LOW_32, offset, block_base(), limit, keep


def dropout_residual_layer_norm(
    x: TensorData,
    residual: TensorData,
    weight: TensorData | None,
    bias: TensorData | None,
    p: float,
    seed: int,
    offset: int,
    eps: float,
) -> Three:
    """layer_norm(dropout(x, p) + residual) -> out [R, D], mean [R], rstd [R]."""
    (rows, n), dtype = x.shape, x.dtype
    out, mean, rstd = (empty(s, dtype) for s in (x.shape, (rows,), (rows,)))
    if out.size == 0:
        return layer_norm(x, weight, bias, eps)
    a, b = contiguous(x).flat(), contiguous(residual).flat()
    w, c = flat_or(weight, a), flat_or(bias, a)
    width = width_of(n, dtype, a, b, w, c)
    fit = fitting(n, dtype, width, 2)
    if fit is None:
        total = _dropped_sum(x, residual, p, seed, offset)
        return layer_norm(total, weight, bias, eps)
    FUSED[weight is not None, bias is not None][fit][fit.launch(rows)](
        *_mask(p, seed, offset, dtype), a, b, w, c, fit.kind(eps), out.storage.array,
        mean.storage.array, rstd.storage.array, n,
    )  # fmt: skip
    return out, mean, rstd


def _dropped_sum(
    x: TensorData, residual: TensorData, p: float, seed: int, offset: int
) -> TensorData:
    dropped = dropout(x, p, seed, offset)
    return zip_elements(operators.add, dropped, residual, None, dropped)


def dropout_residual_layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    residual: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
    p: float,
    seed: int,
    offset: int,
) -> Four:
    """Gradients for x [R, D], residual [R, D], weight [D] and bias [D]."""
    (rows, n), dtype = x.shape, x.dtype
    flats = [contiguous(t).flat() for t in (grad, x, residual, mean, rstd)]
    w = flat_or(weight, flats[1])
    width = width_of(n, dtype, *flats[:3], w)
    fit = fitting(n, dtype, width, 4 if width == 4 else 5)
    if x.size == 0 or fit is None:
        total = _dropped_sum(x, residual, p, seed, offset)
        inner, *sums = layer_norm_backward(grad, total, mean, rstd, weight)
        return dropout(inner, p, seed, offset), inner, sums[0], sums[1]
    dx, dresidual = empty(x.shape, dtype), empty(x.shape, dtype)
    groups = group_count(rows, fit)
    part = empty((groups * 2 * n,), dtype)
    FUSED_BACKWARD[weight is not None,][fit][fit.launch(groups)](
        *_mask(p, seed, offset, dtype), *flats, w, dx.storage.array,
        dresidual.storage.array, part.storage.array, groups, n,
    )  # fmt: skip
    return dx, dresidual, *fold_partials(part, groups, n, dtype)
