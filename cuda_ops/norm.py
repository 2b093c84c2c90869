"""Layer norm and batch norm, forward and backward, on the GPU.

With this file one can bring each row (`layer_norm`) or each channel (`batch_norm`, from
`batch_norm.py`) to mean 0 and variance 1, take the gradients, and do what stands
between two layers of a transformer in one kernel (`dropout_residual_layer_norm`).

    layer_norm_rows            a row in the registers of a warp or a block: read once,
                               written once
    layer_norm_backward_rows   the same for two rows; each group of threads keeps its
                               sums for weight and bias in registers, over many rows
    layer_norm_long            rows that no block's registers can hold

While a row is in registers, its variance is taken after its mean is known, which costs
no further reading and loses no digits where the mean is large.

Sums over rows are cut into parts whose number depends on the shape alone, and the parts
are added in order: results are the same to the last bit in every run.

Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from numba import cuda

from cuda_ops.batch_norm import batch_norm, batch_norm_backward
from cuda_ops.block.intrinsics import device
from cuda_ops.block.rows import (
    BLOCK,
    WARP,
    Fit,
    FlatKernels,
    RowKernels,
    barrier,
    fitting,
    row_centred,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.elementwise import zip as zip_elements
from cuda_ops.memory import contiguous, empty, flat_or, full
from cuda_ops.random import LOW_32, block_base, draw, dropout
from cuda_ops.runtime.launch import SIMULATED, ceil_div, device_function
from minitorch import operators
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import TensorData

__all__ = [
    "batch_norm",
    "batch_norm_backward",
    "dropout_residual_layer_norm",
    "dropout_residual_layer_norm_backward",
    "layer_norm",
    "layer_norm_backward",
]

Three = tuple[TensorData, TensorData, TensorData]
Four = tuple[TensorData, TensorData, TensorData, TensorData]

HELD = 8 if SIMULATED else 16  # numbers that a thread has of rows that are too long
PARTS = 8 if SIMULATED else 264  # groups that share the rows in backward: 2 for each SM
PART_ROWS = 4  # rows of such a group, at least
LINES = 16 if SIMULATED else 32  # columns side by side in a block of `fold_parts`
SHARES = 4 if SIMULATED else 8  # threads that share one of these columns

sqrt = device_function(operators.sqrt)

# ------------------------------------------------------------------------- layer norm


def affine(fit: Fit, scaled: bool, shifted: bool) -> Any:
    """Make `finish(x, scale, weight, bias, n, t, y)`: x = x * scale * weight + bias.

    Only what there is (`scaled`, `shifted`) is read; the first-level cache has it after
    the first row. `y` is room for a row.
    """
    held, zero = fit.held, fit.kind(0)
    read = row_reader(fit.width, fit.group, held)

    def finish(x, scale, weight, bias, n, t, y):
        for k in range(held):
            x[k] *= scale
        if scaled:
            read(weight, 0, n, t, zero, y)
            for k in range(held):
                x[k] *= y[k]
        if shifted:
            read(bias, 0, n, t, zero, y)
            for k in range(held):
                x[k] += y[k]

    return device(finish)


def row_normalized(fit: Fit, scaled: bool, shifted: bool) -> Any:
    """Make `normalize(z, y, eps, weight, bias, n, t, cells, more_cells)`.

    `z` is a row, 0 behind its end. It becomes (z - mean) * rstd * weight + bias; mean
    and rstd are returned, to all threads of the group. `y` is room for a row, and
    `cells` and `more_cells` are for one sum over the group each.
    """
    kind, held, zero, one = fit.kind, fit.held, fit.kind(0), fit.kind(1)
    centre, total_of = row_centred(fit.width, fit.group, held), summed(fit.group)
    finish = affine(fit, scaled, shifted)

    def normalize(z, y, eps, weight, bias, n, t, cells, more_cells):
        # BEGIN SOLUTION a8.3
        total = zero
        for k in range(held):
            total += z[k]
        mean = total_of(total, t, cells) / kind(n)
        centre(z, mean, n, t)
        total = zero
        for k in range(held):
            total += z[k] * z[k]
        variance = total_of(total, t, more_cells) / kind(n)
        rstd = one / sqrt(variance + eps)
        finish(z, rstd, weight, bias, n, t, y)
        return mean, rstd
        # END SOLUTION a8.3

    return device(normalize)


def layer_norm_rows(fit: Fit, scaled: bool, shifted: bool) -> Callable:
    """Layer norm of rows that fit into the registers of a warp or a block.

    # x [R, n], weight, bias [n] -> out [R, n], mean [R], rstd [R]

        for r:  mean = sum(x[r]) / n;  rstd = 1 / sqrt(sum((x[r] - mean)^2) / n + eps)
                for i:  out[r, i] = (x[r, i] - mean) * rstd * weight[i] + bias[i]

    A group of threads makes a row, with up to 32 numbers of it in the registers of each
    (`rows.py`). Mean and variance are two sums over the group, each with one barrier;
    memory sees 8 bytes for each number, the least possible, where three passes have 16.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read, write = (f(fit.width, group, held) for f in (row_reader, row_writer))
    normalize, zero = row_normalized(fit, scaled, shifted), kind(0)

    def kernel(x, weight, bias, eps, out, mean, rstd, n):
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, mean.size - 1) * n
        read(x, at, n, t, zero, z)
        middle, scale = normalize(z, y, eps, weight, bias, n, t, cells, more_cells)
        if r < mean.size:
            write(out, at, n, t, z)
            if t == 0:
                mean[r] = middle
                rstd[r] = scale

    return kernel


def dropper(fit: Fit) -> Any:
    """Make `drop(z, key0, key1, offset, base, at, n, t, limit, scale)`: the dropout.

    Number e of the tensor is multiplied by `scale` where word e % 4 of Philox block
    base[0] + offset + e // 4 is at least `limit`, else it becomes 0. Four numbers that
    are loaded together need one block.
    """
    group, held, zero = fit.group, fit.held, fit.kind(0)

    def drop_4(z, key0, key1, offset, base, at, n, t, limit, scale):
        for v in range(held // 4):
            block = at // 4 + v * group + t
            w0, w1, w2, w3 = draw(key0, key1, offset, base, block)
            k = 4 * v
            z[k] = z[k] * scale if w0 >= limit else zero
            z[k + 1] = z[k + 1] * scale if w1 >= limit else zero
            z[k + 2] = z[k + 2] * scale if w2 >= limit else zero
            z[k + 3] = z[k + 3] * scale if w3 >= limit else zero

    def drop_1(z, key0, key1, offset, base, at, n, t, limit, scale):
        for v in range(held):
            e = at + v * group + t
            w0, w1, w2, w3 = draw(key0, key1, offset, base, e // 4)
            low = w0 if e % 2 == 0 else w1
            high = w2 if e % 2 == 0 else w3
            word = low if e % 4 < 2 else high
            z[v] = z[v] * scale if word >= limit else zero

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
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read, write = (f(fit.width, group, held) for f in (row_reader, row_writer))
    normalize, drop = row_normalized(fit, scaled, shifted), dropper(fit)
    zero = kind(0)

    def kernel(
        key0, key1, offset, base, limit, keep, x, residual, weight, bias, eps, out,
        mean, rstd, n,
    ):  # fmt: skip
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, mean.size - 1) * n
        read(x, at, n, t, zero, z)
        read(residual, at, n, t, zero, y)
        drop(z, key0, key1, offset, base, at, n, t, limit, keep)
        for k in range(held):
            z[k] += y[k]
        middle, scale = normalize(z, y, eps, weight, bias, n, t, cells, more_cells)
        if r < mean.size:
            write(out, at, n, t, z)
            if t == 0:
                mean[r] = middle
                rstd[r] = scale

    return kernel


def layer_norm_long(fit: Fit, scaled: bool, shifted: bool) -> Callable:
    """`layer_norm_rows` for rows that are too long for registers: three passes.

    # x [R, n], weight, bias [n] -> out [R, n], mean [R], rstd [R]

    A block makes a row. Its second and third reading come from the second-level cache,
    as far as the rows of all blocks fit into it.
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read, centre = (f(fit.width, group, held) for f in (row_reader, row_centred))
    write, total_of = row_writer(fit.width, group, held), summed(group)
    zero, one = kind(0), kind(1)

    def kernel(x, weight, bias, eps, out, mean, rstd, n):
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        at = cuda.blockIdx.x * n
        total = zero
        for i in range(0, n, group * held):
            read(x, at + i, n - i, t, zero, z)
            for k in range(held):
                total += z[k]
        middle = total_of(total, t, cells) / kind(n)
        total = zero
        for i in range(0, n, group * held):
            read(x, at + i, n - i, t, zero, z)
            centre(z, middle, n - i, t)
            for k in range(held):
                total += z[k] * z[k]
        scale = one / sqrt(total_of(total, t, more_cells) / kind(n) + eps)
        for i in range(0, n, group * held):
            read(x, at + i, n - i, t, zero, z)
            for k in range(held):
                z[k] = (z[k] - middle) * scale
            if scaled:
                read(weight, i, n - i, t, zero, y)
                for k in range(held):
                    z[k] *= y[k]
            if shifted:
                read(bias, i, n - i, t, zero, y)
                for k in range(held):
                    z[k] += y[k]
            write(out, at + i, n - i, t, z)
        if t == 0:
            mean[cuda.blockIdx.x] = middle
            rstd[cuda.blockIdx.x] = scale

    return kernel


# ---------------------------------------------------------------- layer norm, backward


def row_slope(fit: Fit, scaled: bool) -> Any:
    """Make `slope(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)`.

    `g` is a row of grad and `z` of x - mean. dw += grad * xhat and db += grad, with
    xhat = z * scale; then g becomes the gradient for x,

        dx = scale * (grad * weight - mean(grad * weight)
                      - xhat * mean(grad * weight * xhat))
    """
    kind, held, zero = fit.kind, fit.held, fit.kind(0)
    read, total_of = row_reader(fit.width, fit.group, held), summed(fit.group)

    def slope(g, z, y, scale, weight, dw, db, n, t, cells, more_cells):
        # BEGIN SOLUTION a8.3
        if scaled:
            read(weight, 0, n, t, zero, y)
        total, product = zero, zero
        for k in range(held):
            z[k] *= scale
            dw[k] += g[k] * z[k]
            db[k] += g[k]
            if scaled:
                g[k] *= y[k]
            total += g[k]
            product += g[k] * z[k]
        total = total_of(total, t, cells) / kind(n)
        product = total_of(product, t, more_cells) / kind(n)
        for k in range(held):
            g[k] = scale * (g[k] - total - z[k] * product)
        # END SOLUTION a8.3

    return device(slope)


def layer_norm_backward_rows(fit: Fit, scaled: bool) -> Callable:
    """The three gradients of layer norm in one pass over memory.

    # grad, x [R, n], mean, rstd [R], weight [n] -> dx [R, n]; partial [groups, 2, n]

        for r:  dx[r] = ...  (see `row_slope`)
                dweight += grad[r] * xhat;  dbias += grad[r],  xhat = (x - mean) * rstd

    A group of threads takes the rows p, p + groups, p + 2 groups, ..., so that a thread
    always has the same columns: its sums for dweight and dbias stay in registers, next
    to its part of a row of grad and of x, and are written once, to `partial`. A second
    kernel adds the groups' sums in order. Memory sees 12 bytes for each number; sums
    over columns in a kernel of their own would read 8 more.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read, centre = (f(fit.width, group, held) for f in (row_reader, row_centred))
    write, slope = row_writer(fit.width, group, held), row_slope(fit, scaled)
    zero = kind(0)

    def kernel(grad, x, mean, rstd, weight, dx, partial, groups, n):
        g = cuda.local.array(held, kind)
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        dw = cuda.local.array(held, kind)
        db = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        p = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        for k in range(held):
            dw[k] = zero
            db[k] = zero
        for first in range(0, mean.size, groups):
            r = first + p  # the same number of turns for all, as there are barriers
            known = r < mean.size and p < groups
            at = r * n if known else 0
            read(grad, at, n, t, zero, g)
            read(x, at, n, t, zero, z)
            centre(z, mean[r if known else 0], n, t)
            if not known:
                for k in range(held):
                    g[k] = zero
            scale = rstd[r if known else 0]
            slope(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)
            write(dx, at, n if known else 0, t, g)
            if group > WARP:
                barrier()  # before the next row's sums take the cells
        if p < groups:
            write(partial, 2 * p * n, n, t, dw)
            write(partial, (2 * p + 1) * n, n, t, db)

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
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read, centre = (f(fit.width, group, held) for f in (row_reader, row_centred))
    write, slope = row_writer(fit.width, group, held), row_slope(fit, scaled)
    drop, zero = dropper(fit), kind(0)

    def kernel(
        key0, key1, offset, base, limit, keep, grad, x, residual, mean, rstd, weight,
        dx, dresidual, partial, groups, n,
    ):  # fmt: skip
        g = cuda.local.array(held, kind)
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        dw = cuda.local.array(held, kind)
        db = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        p = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        for k in range(held):
            dw[k] = zero
            db[k] = zero
        for first in range(0, mean.size, groups):
            r = first + p
            known = r < mean.size and p < groups
            at = r * n if known else 0
            read(x, at, n, t, zero, z)
            read(residual, at, n, t, zero, y)
            drop(z, key0, key1, offset, base, at, n, t, limit, keep)
            for k in range(held):
                z[k] += y[k]
            centre(z, mean[r if known else 0], n, t)
            read(grad, at, n, t, zero, g)
            if not known:
                for k in range(held):
                    g[k] = zero
            scale = rstd[r if known else 0]
            slope(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)
            write(dresidual, at, n if known else 0, t, g)
            drop(g, key0, key1, offset, base, at, n, t, limit, keep)
            write(dx, at, n if known else 0, t, g)
            if group > WARP:
                barrier()
        if p < groups:
            write(partial, 2 * p * n, n, t, dw)
            write(partial, (2 * p + 1) * n, n, t, db)

    return kernel


def layer_norm_backward_long(fit: Fit, scaled: bool) -> Callable:
    """The gradient for x of rows that are too long for registers: two passes.

    # grad, x [R, n], mean, rstd [R], weight [n] -> dx [R, n]

    A block makes a row. `layer_norm_columns` makes the other gradients.
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read = row_reader(fit.width, group, held)
    write, total_of = row_writer(fit.width, group, held), summed(group)
    zero = kind(0)

    def kernel(grad, x, mean, rstd, weight, dx, n):
        g = cuda.local.array(held, kind)
        z = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x
        middle, scale = mean[r], rstd[r]
        total, product = zero, zero
        for i in range(0, n, group * held):
            read(grad, r * n + i, n - i, t, zero, g)
            read(x, r * n + i, n - i, t, middle, z)
            if scaled:
                read(weight, i, n - i, t, zero, y)
            for k in range(held):
                value = g[k] * y[k] if scaled else g[k]
                total += value
                product += value * ((z[k] - middle) * scale)
        total = total_of(total, t, cells) / kind(n)
        product = total_of(product, t, more_cells) / kind(n)
        for i in range(0, n, group * held):
            read(grad, r * n + i, n - i, t, zero, g)
            read(x, r * n + i, n - i, t, middle, z)
            if scaled:
                read(weight, i, n - i, t, zero, y)
            for k in range(held):
                value = g[k] * y[k] if scaled else g[k]
                g[k] = scale * (value - total - (z[k] - middle) * scale * product)
            write(dx, r * n + i, n - i, t, g)

    return kernel


def layer_norm_columns(dtype: DType) -> Callable:
    """Sums over the rows of each part, for the gradients of weight and bias.

    # grad, x [R, n], mean, rstd [R] -> partial [parts, 2, n]

        for p, i:  partial[p, 0, i] = sum over rows r of part p of grad[r, i] * xhat
                   partial[p, 1, i] = sum of grad[r, i]

    A thread makes two sums of one column and one part; neighbours in neighbouring
    columns. Block b makes columns of part b // ceil(n / BLOCK).
    """
    zero = dtype.numpy.type(0)

    def kernel(grad, x, mean, rstd, partial, parts, n):
        across = (n + BLOCK - 1) // BLOCK
        p = cuda.blockIdx.x // across
        i = (cuda.blockIdx.x - p * across) * BLOCK + cuda.threadIdx.x
        if i < n:
            total, product = zero, zero
            for r in range(p * mean.size // parts, (p + 1) * mean.size // parts):
                g = grad[r * n + i]
                total += g
                product += g * ((x[r * n + i] - mean[r]) * rstd[r])
            partial[2 * p * n + i] = product
            partial[(2 * p + 1) * n + i] = total

    return kernel


def fold_parts(dtype: DType) -> Callable:
    """Add the parts' sums for weight and bias in order.

    # partial [parts, 2, n] -> dweight [n], dbias [n]

    A block makes LINES of the 2 n columns. SHARES threads share each: each adds every
    SHARES-th part, and their sums are added in shared memory, in order.
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(partial, parts, n, dweight, dbias):
        totals = cuda.shared.array((SHARES, LINES), kind)
        j = cuda.threadIdx.x % LINES
        s = cuda.threadIdx.x // LINES
        i = cuda.blockIdx.x * LINES + j
        total = zero
        if i < 2 * n:
            for p in range(s, parts, SHARES):
                total += partial[2 * p * n + i]
        totals[s, j] = total
        barrier()
        if s == 0 and i < 2 * n:
            for k in range(1, SHARES):
                total += totals[k, j]
            if i < n:
                dweight[i] = total
            else:
                dbias[i - n] = total

    return kernel


# ---------------------------------------------------------------------------- kernels

WITH = ((False, False), (True, False), (False, True), (True, True))  # weight, bias
FULL_ROWS = (
    Fit(float32, 4, WARP, 8),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, 1, BLOCK, 16),
    Fit(float64, 1, BLOCK, 8),
)
FOUR_ROWS = (
    Fit(float32, 4, WARP, 16),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, 1, WARP, 4),
    Fit(float64, 1, BLOCK, 8),
)
LONG = (Fit(float32, 4, BLOCK, HELD), Fit(float64, 1, BLOCK, HELD))
PHILOX = "int64 int64 int64 int64[] int64 T"


def _forms(
    name: str, template: Callable, example: str, fits: Sequence[Fit], resident: int = 1
) -> Any:
    """Kernels of a forward template by (whether there is a weight, a bias), and fit.

    `resident`: blocks that share a multiprocessor for rows of up to 4,096 numbers.
    """
    return {
        (scaled, shifted): RowKernels(
            name + "+weight" * scaled + "+bias" * shifted,
            partial(template, scaled=scaled, shifted=shifted),
            example,
            fits if scaled and shifted else (),
            {Fit(float32, 4, BLOCK, 16): resident},
        )
        for scaled, shifted in WITH
    }


def _scaled_forms(
    name: str, template: Callable, example: str, fits: Sequence[Fit]
) -> Any:
    """Kernels of a backward template by whether there is a weight, and fit."""
    return {
        scaled: RowKernels(
            name + "+weight" * scaled,
            partial(template, scaled=scaled),
            example,
            fits if scaled else (),
        )
        for scaled in (False, True)
    }


LAYER_NORM = _forms(
    "layer_norm_rows", layer_norm_rows, "T[] T[] T[] T T[] T[] T[] int64", FULL_ROWS, 4
)
LAYER_NORM_LONG = _forms(
    "layer_norm_long", layer_norm_long, "T[] T[] T[] T T[] T[] T[] int64", LONG
)
FUSED = _forms(
    "dropout_residual_layer_norm_rows", dropout_residual_layer_norm_rows,
    f"{PHILOX} T[] T[] T[] T[] T T[] T[] T[] int64", FULL_ROWS, 3,
)  # fmt: skip
LAYER_NORM_BACKWARD = _scaled_forms(
    "layer_norm_backward_rows", layer_norm_backward_rows,
    "T[] T[] T[] T[] T[] T[] T[] int64 int64", FOUR_ROWS,
)  # fmt: skip
LAYER_NORM_BACKWARD_LONG = _scaled_forms(
    "layer_norm_backward_long", layer_norm_backward_long,
    "T[] T[] T[] T[] T[] T[] int64", LONG,
)  # fmt: skip
FUSED_BACKWARD = _scaled_forms(
    "dropout_residual_layer_norm_backward_rows",
    dropout_residual_layer_norm_backward_rows,
    f"{PHILOX} T[] T[] T[] T[] T[] T[] T[] T[] T[] int64 int64", FOUR_ROWS[:3],
)  # fmt: skip


LAYER_NORM_COLUMNS = FlatKernels(
    layer_norm_columns, "T[] T[] T[] T[] T[] int64 int64", (float32,)
)
FOLD_PARTS = FlatKernels(fold_parts, "T[] int64 int64 T[] T[]", (float32,))

# -------------------------------------------------------------- launchers: layer norm


def layer_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> Three:
    """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

    out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps) with the
    biased variance of each row.
    """
    (rows, n), dtype = x.shape, x.dtype
    out, mean, rstd = (empty(s, dtype) for s in (x.shape, (rows,), (rows,)))
    if out.size == 0:
        return out, full((rows,), math.nan, dtype), full((rows,), math.nan, dtype)
    a = contiguous(x).flat()
    w, b = flat_or(weight, a), flat_or(bias, a)
    width = width_of(n, dtype, a, w, b)
    fit = fitting(n, dtype, width)
    kernels = LAYER_NORM
    if fit is None:
        kernels, fit = LAYER_NORM_LONG, Fit(dtype, width, BLOCK, HELD)
    kernels[weight is not None, bias is not None][fit][fit.launch(rows)](
        a, w, b, fit.kind(eps), out.storage.array, mean.storage.array,
        rstd.storage.array, n,
    )  # fmt: skip
    return out, mean, rstd


@lru_cache(maxsize=1024)
def _groups(rows: int, fit: Fit) -> int:
    """How many groups of threads share the rows in backward."""
    return max(1, min(PARTS * fit.rows, ceil_div(rows, PART_ROWS)))


def _folded(part: TensorData, parts: int, n: int) -> tuple[TensorData, TensorData]:
    """The sums of all parts: dweight and dbias [n]."""
    dweight, dbias = empty((n,), part.dtype), empty((n,), part.dtype)
    FOLD_PARTS[part.dtype,][ceil_div(2 * n, LINES), LINES * SHARES](
        part.storage.array, parts, n, dweight.storage.array, dbias.storage.array
    )
    return dweight, dbias


def layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
) -> Three:
    """Gradients for x [R, D], weight [D] and bias [D]."""
    (rows, n), dtype = x.shape, x.dtype
    dx = empty(x.shape, dtype)
    if dx.size == 0:
        return dx, full((n,), 0, dtype), full((n,), 0, dtype)
    g, a = contiguous(grad).flat(), contiguous(x).flat()
    w, mu, r = flat_or(weight, a), contiguous(mean).flat(), contiguous(rstd).flat()
    width = width_of(n, dtype, g, a, w)
    fit = fitting(n, dtype, width, 4)
    if fit is None:
        return dx, *_long_backward(g, a, mu, r, w, weight is not None, dx, width)
    groups = _groups(rows, fit)
    part = empty((groups * 2 * n,), dtype)
    LAYER_NORM_BACKWARD[weight is not None][fit][fit.launch(groups)](
        g, a, mu, r, w, dx.storage.array, part.storage.array, groups, n
    )
    return dx, *_folded(part, groups, n)


def _long_backward(
    g: Any, a: Any, mu: Any, r: Any, w: Any, scaled: bool, dx: TensorData, width: int
) -> tuple[TensorData, TensorData]:
    """`layer_norm_backward` for rows that are too long for registers."""
    (rows, n), dtype = dx.shape, dx.dtype
    fit = Fit(dtype, width, BLOCK, HELD)
    LAYER_NORM_BACKWARD_LONG[scaled][fit][rows, BLOCK](
        g, a, mu, r, w, dx.storage.array, n
    )
    parts = max(1, min(PARTS, ceil_div(rows, PART_ROWS)))
    part = empty((parts * 2 * n,), dtype)
    LAYER_NORM_COLUMNS[dtype,][parts * ceil_div(n, BLOCK), BLOCK](
        g, a, mu, r, part.storage.array, parts, n
    )
    return _folded(part, parts, n)


# ----------------------------------------------------------- launchers: all in one


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
    """layer_norm(dropout(x, p) + residual): x, residual [R, D], weight, bias [D]
    -> out [R, D], mean [R], rstd [R].

    The mask is that of `dropout(x, p, seed, offset)`, and takes as many Philox blocks,
    (R D + 3) // 4. Backward needs x, residual, mean, rstd and the same p, seed, offset.
    """
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
    groups = _groups(rows, fit)
    part = empty((groups * 2 * n,), dtype)
    FUSED_BACKWARD[weight is not None][fit][fit.launch(groups)](
        *_mask(p, seed, offset, dtype), *flats, w, dx.storage.array,
        dresidual.storage.array, part.storage.array, groups, n,
    )  # fmt: skip
    return dx, dresidual, *_folded(part, groups, n)
