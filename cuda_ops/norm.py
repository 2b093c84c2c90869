"""Layer norm, forward and backward, on the GPU.

With this file one can bring each row (`layer_norm`) to mean 0 and variance 1, and take
the gradients. `batch_norm.py` does so for channels, and `fused_norm.py` together with a
dropout and a sum.

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
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from types import MappingProxyType
from typing import Any

from numba import cuda

from cuda_ops.batch_norm import TX, TY, Three
from cuda_ops.block.intrinsics import WARP, device, load, store
from cuda_ops.block.rows import (
    BLOCK,
    FITS,
    Fit,
    KernelFamily,
    barrier,
    fitting,
    row_centred,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.elementwise import zip as zip_elements
from cuda_ops.memory import contiguous, copy, copy_into, empty, flat_or, full
from cuda_ops.runtime.arrays import nothing
from cuda_ops.runtime.launch import TINY, ceil_div, device_function, fewest
from cuda_ops.softmax import ITEMS, LONG
from minitorch import operators
from minitorch.dtypes import DType, computed, float32, float64
from minitorch.tensor_data import TensorData

# Multiprocessors that share the rows in backward, and warps on each of them, by the
# numbers of a row that a thread has: as many as registers allow, for while one of them
# waits the others do something. The rows of a group of threads at least, and the parts
# that a thread has under way when their sums are added.
SMS = 1 if TINY else 132
WARPS = {4: 32, 8: 24, 16: 16, 32: 8}
PART_ROWS = 4
AHEAD = 16

sqrt = device_function(operators.sqrt)

# ------------------------------------------------------------------------- layer norm


def affine(fit: Fit, scaled: bool, shifted: bool) -> Any:
    """Make `finish(x, scale, weight, bias, at, n, t, y)`: x * scale * weight + bias.

    Only what there is (`scaled`, `shifted`) is read, n numbers from `at` on; the
    first-level cache has them after the first row. `y` is room for a row.
    """
    items, zero, read = fit.items, fit.kind(0), row_reader(fit)

    def finish(x, scale, weight, bias, at, n, t, y):
        for k in range(items):
            x[k] *= scale
        if scaled:
            read(weight, at, n, t, zero, y)
            for k in range(items):
                x[k] *= y[k]
        if shifted:
            read(bias, at, n, t, zero, y)
            for k in range(items):
                x[k] += y[k]

    return device(finish)


def row_normalized(fit: Fit, scaled: bool, shifted: bool) -> Any:
    """Make `normalize(z, y, eps, weight, bias, n, t, cells, more_cells)`.

    `z` is a row, 0 behind its end. It becomes (z - mean) * rstd * weight + bias; mean
    and rstd are returned, to all threads of the group. `y` is room for a row, and
    `cells` and `more_cells` are for one sum over the group each.
    """
    kind, items, zero, one = fit.kind, fit.items, fit.kind(0), fit.kind(1)
    centre, total_of = row_centred(fit), summed(fit.group)
    finish = affine(fit, scaled, shifted)

    def normalize(z, y, eps, weight, bias, n, t, cells, more_cells):
        # BEGIN SOLUTION a8.3
        total = zero
        for k in range(items):
            total += z[k]
        mean = total_of(total, t, cells) / kind(n)
        centre(z, mean, n, t)
        total = zero
        for k in range(items):
            total += z[k] * z[k]
        variance = total_of(total, t, more_cells) / kind(n)
        rstd = one / sqrt(variance + eps)
        finish(z, rstd, weight, bias, 0, n, t, y)
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
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, zero = row_reader(fit), row_writer(fit), kind(0)
    normalize = row_normalized(fit, scaled, shifted)

    def kernel(x, weight, bias, eps, out, mean, rstd, n):
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
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


def rms_norm_rows(fit: Fit, scaled: bool) -> Callable:
    """RMS norm of rows that fit into registers; threads as in `layer_norm_rows`.

    # x [R, n], weight [n] -> out [R, n], rstd [R]

        for r:  rstd = 1 / sqrt(sum(x[r]^2) / n + eps)
                for i:  out[r, i] = x[r, i] * rstd * weight[i]
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, finish = row_reader(fit), row_writer(fit), affine(fit, scaled, False)
    total_of, zero, one = summed(group), kind(0), kind(1)

    def kernel(x, weight, eps, out, rstd, n):
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, rstd.size - 1) * n
        read(x, at, n, t, zero, z)
        # BEGIN TWIN a8.3
        total = zero
        for k in range(items):
            total += z[k] * z[k]
        scale = one / sqrt(total_of(total, t, cells) / kind(n) + eps)
        finish(z, scale, weight, weight, 0, n, t, y)
        # END TWIN a8.3
        if r < rstd.size:
            write(out, at, n, t, z)
            if t == 0:
                rstd[r] = scale

    return kernel


def layer_norm_long(fit: Fit, scaled: bool, shifted: bool) -> Callable:
    """`layer_norm_rows` for rows that are too long for registers: three passes.

    # x [R, n], weight, bias [n] -> out [R, n], mean [R], rstd [R]

    A block makes a row. Its second and third reading come from the second-level cache,
    as far as the rows of all blocks fit into it.
    """
    kind, group, items = fit.kind, fit.group, fit.items
    read, write, centre = row_reader(fit), row_writer(fit), row_centred(fit)
    total_of, finish = summed(group), affine(fit, scaled, shifted)
    zero, one = kind(0), kind(1)

    def kernel(x, weight, bias, eps, out, mean, rstd, n):
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        at = cuda.blockIdx.x * n
        total = zero
        for i in range(0, n, group * items):
            read(x, at + i, n - i, t, zero, z)
            for k in range(items):
                total += z[k]
        middle = total_of(total, t, cells) / kind(n)
        total = zero
        for i in range(0, n, group * items):
            read(x, at + i, n - i, t, zero, z)
            centre(z, middle, n - i, t)
            for k in range(items):
                total += z[k] * z[k]
        scale = one / sqrt(total_of(total, t, more_cells) / kind(n) + eps)
        for i in range(0, n, group * items):
            read(x, at + i, n - i, t, zero, z)
            for k in range(items):
                z[k] -= middle
            finish(z, scale, weight, bias, i, n - i, t, y)
            write(out, at + i, n - i, t, z)
        if t == 0:
            mean[cuda.blockIdx.x] = middle
            rstd[cuda.blockIdx.x] = scale

    return kernel


# ---------------------------------------------------------------- layer norm, backward


def row_gradient(fit: Fit, scaled: bool) -> Any:
    """Make `gradient(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)`.

    `g` is a row of grad and `z` of x - mean. dw += grad * xhat and db += grad, with
    xhat = z * scale; then g becomes the gradient for x,

        dx = scale * (grad * weight - mean(grad * weight)
                      - xhat * mean(grad * weight * xhat))
    """
    kind, items, zero = fit.kind, fit.items, fit.kind(0)
    read, total_of = row_reader(fit), summed(fit.group)

    def gradient(g, z, y, scale, weight, dw, db, n, t, cells, more_cells):
        # BEGIN SOLUTION a8.3
        if scaled:
            read(weight, 0, n, t, zero, y)
        total, product = zero, zero
        for k in range(items):
            z[k] *= scale
            dw[k] += g[k] * z[k]
            db[k] += g[k]
            if scaled:
                g[k] *= y[k]
            total += g[k]
            product += g[k] * z[k]
        total = total_of(total, t, cells) / kind(n)
        product = total_of(product, t, more_cells) / kind(n)
        for k in range(items):
            g[k] = scale * (g[k] - total - z[k] * product)
        # END SOLUTION a8.3

    return device(gradient)


def layer_norm_backward_rows(fit: Fit, scaled: bool) -> Callable:
    """The three gradients of layer norm in one pass over memory.

    # grad, x, plus [R, n], mean, rstd [R], weight [n] -> dx, rounded [R, n];
    # partial [groups, 2, n]

        for r:  dx[r] = plus[r] + ...  (see `row_gradient`)
                dweight += grad[r] * xhat;  dbias += grad[r],  xhat = (x - mean) * rstd

    A group of threads takes the rows p, p + groups, p + 2 groups, ..., so that a thread
    always has the same columns: its sums for dweight and dbias stay in registers, next
    to its part of a row of grad and of x, and are written once, to `partial`. A second
    kernel adds the groups' sums in order. Memory sees 12 bytes for each number; sums
    over columns in a kernel of their own would read 8 more. All that a row needs is on
    its way before anything waits for it, and all groups are there at the same time.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, centre = row_reader(fit), row_writer(fit), row_centred(fit)
    gradient, zero = row_gradient(fit, scaled), kind(0)

    def kernel(grad, x, mean, rstd, weight, plus, dx, rounded, partial, groups, n):
        g = cuda.local.array(items, kind)
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        more = cuda.local.array(items, kind)
        dw = cuda.local.array(items, kind)
        db = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        p = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        for k in range(items):
            more[k] = dw[k] = db[k] = zero
        for first in range(0, mean.size, groups):
            r = first + p  # the same number of turns for all, as there are barriers
            known = r < mean.size and p < groups
            at = r * n if known else 0
            read(grad, at, n, t, zero, g)
            read(x, at, n, t, zero, z)
            if plus.size > 0:
                read(plus, at, n, t, zero, more)
            centre(z, mean[r if known else 0], n, t)
            if not known:
                for k in range(items):
                    g[k] = zero
            scale = rstd[r if known else 0]
            gradient(g, z, y, scale, weight, dw, db, n, t, cells, more_cells)
            for k in range(items):
                g[k] += more[k]
            write(dx, at, n if known else 0, t, g)
            if rounded.size > 0:
                write(rounded, at, n if known else 0, t, g)
        if p < groups:
            write(partial, 2 * p * n, n, t, dw)
            write(partial, (2 * p + 1) * n, n, t, db)

    return kernel


def layer_norm_backward_long(fit: Fit, scaled: bool) -> Callable:
    """The gradient for x of rows that are too long for registers: two passes.

    # grad, x [R, n], mean, rstd [R], weight [n] -> dx [R, n]

    A block makes a row. `layer_norm_columns` makes the other gradients.
    """
    kind, group, items = fit.kind, fit.group, fit.items
    read, write, total_of = row_reader(fit), row_writer(fit), summed(group)
    zero = kind(0)

    def kernel(grad, x, mean, rstd, weight, dx, n):
        g = cuda.local.array(items, kind)
        z = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x
        middle, scale = mean[r], rstd[r]
        total, product = zero, zero
        for i in range(0, n, group * items):
            read(grad, r * n + i, n - i, t, zero, g)
            read(x, r * n + i, n - i, t, middle, z)
            if scaled:
                read(weight, i, n - i, t, zero, y)
            for k in range(items):
                value = g[k] * y[k] if scaled else g[k]
                total += value
                product += value * ((z[k] - middle) * scale)
        total = total_of(total, t, cells) / kind(n)
        product = total_of(product, t, more_cells) / kind(n)
        for i in range(0, n, group * items):
            read(grad, r * n + i, n - i, t, zero, g)
            read(x, r * n + i, n - i, t, middle, z)
            if scaled:
                read(weight, i, n - i, t, zero, y)
            for k in range(items):
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
                g, value = load(grad, r * n + i), load(x, r * n + i)
                total += g
                product += g * ((value - mean[r]) * rstd[r])
            partial[2 * p * n + i] = product
            partial[(2 * p + 1) * n + i] = total

    return kernel


def fold_parts(dtype: DType) -> Callable:
    """Add the parts' sums for weight and bias in order.

    # partial [parts, 2, n] -> dweight [n], dbias [n]

    A block makes TX of the 2 n columns. TY threads share each: each adds every TY-th
    part, and their sums are added in shared memory, in order.
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(partial, parts, n, dweight, dbias):
        totals = cuda.shared.array((TY, TX), kind)
        values = cuda.local.array(AHEAD, kind)
        tx, ty = cuda.threadIdx.x % TX, cuda.threadIdx.x // TX
        i = cuda.blockIdx.x * TX + tx
        total = zero
        if i < 2 * n:
            for first in range(ty, parts, AHEAD * TY):
                for k in range(AHEAD):
                    p = first + k * TY
                    value = load(partial, 2 * (p if p < parts else 0) * n + i)
                    values[k] = value if p < parts else zero
                for k in range(AHEAD):
                    total += values[k]
        totals[ty, tx] = total
        barrier()
        if ty == 0 and i < 2 * n:
            for k in range(1, TY):
                total += totals[k, tx]
            if i < n:
                store(dweight, i, total)
            else:
                store(dbias, i - n, total)

    return kernel


# ---------------------------------------------------------------------------- kernels

# `FITS` where many rows lie in registers at a time: few numbers of each in a thread.
SPREAD = (
    (WARP, 4), (WARP, 8), (BLOCK // 2, 4), (BLOCK // 2, 8), (BLOCK, 8), (BLOCK, 16),
    *FITS,
)  # fmt: skip
FULL_ROWS = (
    Fit(float32, 4, WARP, 8),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, 1, BLOCK, 16),
    Fit(float64, 1, BLOCK, 8),
)
FOUR_ROWS = (
    Fit(float32, 4, WARP, 16),
    Fit(float32, 4, BLOCK // 2, 8),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, 1, WARP, 4),
    Fit(float64, 1, BLOCK, 8),
)


def by_options(
    template: Callable, example: str, fits: Sequence[Fit], count: int,
    resident: Mapping[Fit, int] = MappingProxyType({}),
) -> Any:  # fmt: skip
    """Kernels of a template by whether there is a weight (and a bias, of 2), and fit.

    Tests compile those that have all. `resident`: as that of `KernelFamily`.
    """
    names = ("scaled", "shifted")[:count]
    return {
        chosen: KernelFamily(
            partial(template, **dict(zip(names, chosen))),
            example,
            *(fits if all(chosen) else ()),
            name=template.__name__
            + "".join(
                word for word, there in zip(("+weight", "+bias"), chosen) if there
            ),
            resident=resident,
        )
        for chosen in product((False, True), repeat=count)
    }


def _resident(fit: Fit) -> int:
    """Blocks on a multiprocessor in backward."""
    return max(1, WARPS[fit.items] * WARP // fit.threads)


_ROWS = "T[] T[] T[] T T[] T[] T[] int64"
LAYER_NORM = by_options(layer_norm_rows, _ROWS, FULL_ROWS, 2, {FULL_ROWS[1]: 4})
RMS_NORM = by_options(rms_norm_rows, "T[] T[] T T[] T[] int64", FULL_ROWS, 1)
LAYER_NORM_LONG = by_options(layer_norm_long, _ROWS, LONG, 2)
LAYER_NORM_BACKWARD = by_options(
    layer_norm_backward_rows,
    "T[] T[] T[] T[] T[] T[] T[] bfloat16[] T[] int64 int64",
    FOUR_ROWS,
    1,
    {fit: _resident(fit) for fit in (Fit(float32, 4, *pair) for pair in SPREAD[:6])},
)
LAYER_NORM_BACKWARD_LONG = by_options(
    layer_norm_backward_long, "T[] T[] T[] T[] T[] T[] int64", LONG, 1
)
LAYER_NORM_COLUMNS = KernelFamily(
    layer_norm_columns, "T[] T[] T[] T[] T[] int64 int64", (float32,)
)
FOLD_PARTS = KernelFamily(fold_parts, "T[] int64 int64 T[] T[]", (float32,))

# -------------------------------------------------------------- launchers: layer norm


def layer_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float,
    dtype: DType | None = None,
) -> Three:  # fmt: skip
    """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

    Of half types mean and rstd are float32.
    """
    (rows, n), kind = x.shape, computed(x.dtype)
    out = empty(x.shape, dtype or x.dtype)
    mean, rstd = empty((rows,), kind), empty((rows,), kind)
    if out.size == 0:
        return out, full((rows,), math.nan, kind), full((rows,), math.nan, kind)
    a = contiguous(x).flat()
    w, b = flat_or(weight, a), flat_or(bias, a)
    width = width_of(n, kind, a, w, b)
    fit = fitting(n, kind, width)
    kernels = LAYER_NORM
    if fit is None:
        kernels, fit = LAYER_NORM_LONG, Fit(kind, width, BLOCK, ITEMS)
    kernels[weight is not None, bias is not None][fit][fit.launch(rows)](
        a, w, b, fit.kind(eps), out.storage.array, mean.storage.array,
        rstd.storage.array, n,
    )  # fmt: skip
    return out, mean, rstd


def rms_norm(
    x: TensorData, weight: TensorData | None, eps: float
) -> tuple[TensorData, TensorData] | None:
    """x [R, D], weight [D] -> out [R, D], rstd [R]; None where rows are too long."""
    (rows, n), dtype = x.shape, x.dtype
    a = contiguous(x).flat()
    w = flat_or(weight, a)
    width = width_of(n, dtype, a, w)
    fit = fitting(n, dtype, width) if x.size else None
    if fit is None:
        return None
    out, rstd = empty(x.shape, x.dtype), empty((rows,), dtype)
    RMS_NORM[weight is not None,][fit][fit.launch(rows)](
        a, w, fit.kind(eps), out.storage.array, rstd.storage.array, n
    )
    return out, rstd


@lru_cache(maxsize=1024)
def group_count(rows: int, fit: Fit) -> int:
    """How many groups of threads share the rows in backward."""
    blocks = fewest(ceil_div(rows, fit.rows), SMS * _resident(fit))
    return max(1, min(blocks * fit.rows, ceil_div(rows, PART_ROWS)))


def fold_partials(
    part: TensorData, parts: int, n: int, dtype: DType
) -> tuple[TensorData, TensorData]:
    """The sums of all parts: dweight and dbias [n], of type `dtype`."""
    dweight, dbias = empty((n,), dtype), empty((n,), dtype)
    FOLD_PARTS[part.dtype,][ceil_div(2 * n, TX), TX * TY](
        part.storage.array, parts, n, dweight.storage.array, dbias.storage.array
    )
    return dweight, dbias


def layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
    plus: TensorData | None = None,
    rounded: TensorData | None = None,
) -> Three:
    """Gradients for x [R, D], to which `plus` is added, weight [D] and bias [D].
    That for x is written to `rounded` [R, D] as well, which has no gaps."""
    (rows, n), dtype = x.shape, computed(x.dtype)
    dx = empty(x.shape, x.dtype)
    if dx.size == 0:
        return dx, full((n,), 0, x.dtype), full((n,), 0, x.dtype)
    g, a = contiguous(grad).flat(), contiguous(x).flat()
    w, mu, r = flat_or(weight, a), contiguous(mean).flat(), contiguous(rstd).flat()
    none = nothing(x.dtype)
    more, also = flat_or(plus, none), flat_or(rounded, none)
    width = width_of(n, dtype, g, a, w, more, also)
    fit = fitting(n, dtype, width, 4, SPREAD)
    if fit is None:
        sums = _long_backward(g, a, mu, r, w, weight is not None, dx, width)
        dx = dx if plus is None else zip_elements(operators.add, dx, plus)
        if rounded is not None:
            copy_into(rounded, copy(dx, rounded.dtype))
        return dx, *sums
    groups = group_count(rows, fit)
    part = empty((groups * 2 * n,), dtype)
    LAYER_NORM_BACKWARD[weight is not None,][fit][fit.launch(groups)](
        g, a, mu, r, w, more, dx.storage.array, also, part.storage.array, groups, n
    )
    return dx, *fold_partials(part, groups, n, x.dtype)


def _long_backward(
    g: Any, a: Any, mu: Any, r: Any, w: Any, scaled: bool, dx: TensorData, width: int
) -> tuple[TensorData, TensorData]:
    """`layer_norm_backward` for rows that are too long for registers."""
    (rows, n), dtype = dx.shape, computed(dx.dtype)
    fit = Fit(dtype, width, BLOCK, ITEMS)
    LAYER_NORM_BACKWARD_LONG[scaled,][fit][rows, BLOCK](
        g, a, mu, r, w, dx.storage.array, n
    )
    parts = max(1, min(4 * SMS, ceil_div(rows, PART_ROWS)))
    part = empty((parts * 2 * n,), dtype)
    LAYER_NORM_COLUMNS[dtype,][parts * ceil_div(n, BLOCK), BLOCK](
        g, a, mu, r, part.storage.array, parts, n
    )
    return fold_partials(part, parts, n, dx.dtype)
