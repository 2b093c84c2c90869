"""Batch norm, forward and backward, on the GPU.

With this file one can bring each channel of a batch to mean 0 and variance 1
(`batch_norm`), and take the gradients. A channel is too large for registers, and lies
in as many places as there are images, so there are three launches:

    moments_of_rows/columns   mean and variance of parts of each channel, many blocks
    moments_of_parts          those of the channels, from those of the parts, in order
    batch_norm_flat           every element by itself

and backward `gradient_sums_of_rows/columns`, `gradient_sums_of_parts` and
`batch_norm_backward_flat`. "Rows" are for images; "columns" are for [N, C] and images
of less than SHORT elements, where the columns of a matrix [N, C L] are read side by
side.

The variance of a few numbers in registers is taken after their mean is known; such
parts are put together by `joined`, where sum(x^2) - sum(x)^2 would lose all digits if
the mean is large. For the same reason each channel is measured from its first number:
a mean of 10,000 itself is only known to 0.001 in float32. The number of parts depends
on the shape alone, so results are the same to the last bit in every run.

Sources: Ioffe and Szegedy, "Batch normalization", 2015; Chan, Golub and LeVeque,
"Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import WARP, device, load4, store4
from cuda_ops.block.rows import BLOCK, KernelFamily, barrier, summed, width_of
from cuda_ops.memory import contiguous, empty, flat_or, full, split
from cuda_ops.runtime.launch import TINY, ceil_div, device_function
from minitorch import operators
from minitorch.dtypes import DType, float32
from minitorch.tensor_data import TensorData

Three = tuple[TensorData, TensorData, TensorData]

# Columns side by side in a block, and threads that share one of them.
TX = 16 if TINY else 32
TY = 4 if TINY else 8
# Numbers that a thread has in flight.
AHEAD = 8
# Images with fewer pixels than this are walked through as columns.
SHORT = 32
# Blocks for the moments of all channels, 8 for each multiprocessor, and numbers in such
# a block at least.
SPLITS = 8 if TINY else 1056
SPLIT_SIZE = 128 if TINY else 4096

sqrt = device_function(operators.sqrt)

# ---------------------------------------------------------------------------- forward


@device
def joined(count, mean, squares, more, other_mean, other_squares):
    """Count, mean and sum of squared deviations of two parts together (Chan, 1979)."""
    whole = count + more
    if more > 0:
        away = other_mean - mean
        fraction = more / whole
        mean += away * fraction
        squares += other_squares + away * away * count * fraction
    return whole, mean, squares


@device
def place_of(e, length, c, channels):
    """Where element e of channel c of x [N, channels, length] lies."""
    image, i = split(e, length)
    return (image * channels + c) * length + i


@device
def column_of_thread(columns):
    """A thread's place (x, y) in its block, its part of the rows, and its column: as it
    would be, and inside of the matrix."""
    tx, ty = cuda.threadIdx.x % TX, cuda.threadIdx.x // TX
    across = (columns + TX - 1) // TX
    p = cuda.blockIdx.x // across
    i = (cuda.blockIdx.x - p * across) * TX + tx
    return tx, ty, p, i, min(i, columns - 1)


def moments_of_few(kind: Any) -> Any:
    """Make `few(x, count)` -> mean and squared deviations of x[: count], at least 1."""
    zero = kind(0)

    def few(x, count):
        total, squares = zero, zero
        for k in range(AHEAD):
            total += x[k] if k < count else zero
        mean = total / kind(count)
        for k in range(AHEAD):
            away = x[k] - mean if k < count else zero
            squares += away * away
        return mean, squares

    return device(few)


def block_joined(kind: Any) -> Any:
    """Make `join(count, mean, squares, cells)`: of all threads of a block of BLOCK.

    Each half joins the other's, in shared memory [3, BLOCK]; known to thread 0.
    """

    def join(count, mean, squares, cells):
        t = cuda.threadIdx.x
        cells[0, t], cells[1, t], cells[2, t] = count, mean, squares
        half = BLOCK // 2
        while half > 0:
            barrier()
            if t < half:
                count, mean, squares = joined(
                    count, mean, squares,
                    cells[0, t + half], cells[1, t + half], cells[2, t + half],
                )  # fmt: skip
                cells[0, t], cells[1, t], cells[2, t] = count, mean, squares
            half //= 2
        return mean, squares

    return device(join)


def moments_of_rows(dtype: DType, width: int) -> Callable:
    """Mean and squared deviations of the parts of each channel, for large images.

    # x [N, C, L] -> means, squares [C, parts]

        for c, p:  means[c, p] = mean of x - x[0, c, 0] over part p of x[:, c, :]
                   squares[c, p] = sum of (x - x[0, c, 0] - means[c, p])^2

    A block makes a part; its threads take AHEAD numbers at a time, from images that
    lie C L apart. Mean and squares of so few are taken in registers, in two steps, and
    joined with what the thread has: one division for AHEAD numbers, and one reading.
    """
    kind, units = dtype.numpy.type, AHEAD // width
    zero, few, join = kind(0), moments_of_few(kind), block_joined(kind)

    def kernel(x, channels, length, parts, means, squares):
        z = cuda.local.array(AHEAD, kind)
        cells = cuda.shared.array((3, BLOCK), kind)
        c = cuda.blockIdx.x // parts
        p = cuda.blockIdx.x - c * parts
        size = x.size // channels // width  # of a channel, in units of `width` numbers
        first, last = p * size // parts, (p + 1) * size // parts
        count, mean, square = zero, zero, zero
        origin = x[c * length]
        for u in range(first + cuda.threadIdx.x, last, BLOCK * units):
            for k in range(units):
                e = u + k * BLOCK
                at = place_of((e if e < last else first) * width, length, c, channels)
                if width == 4:
                    z[4 * k], z[4 * k + 1], z[4 * k + 2], z[4 * k + 3] = load4(x, at)
                else:
                    z[k] = x[at]
            more = min(units, (last - u + BLOCK - 1) // BLOCK) * width
            for k in range(AHEAD):
                z[k] -= origin
            here, away = few(z, more)
            count, mean, square = joined(count, mean, square, kind(more), here, away)
        mean, square = join(count, mean, square, cells)
        if cuda.threadIdx.x == 0:
            means[cuda.blockIdx.x] = mean
            squares[cuda.blockIdx.x] = square

    return kernel


def moments_of_columns(dtype: DType) -> Callable:
    """The same for small images: of parts of the columns of a matrix [N, C L].

    # x [N, C L] -> means, squares [parts, C L]

    A block makes TX columns of a part of the rows; TY threads share each.
    """
    kind = dtype.numpy.type
    zero, few = kind(0), moments_of_few(kind)

    def kernel(x, rows, columns, length, parts, means, squares):
        z = cuda.local.array(AHEAD, kind)
        cells = cuda.shared.array((3, TY, TX), kind)
        tx, ty, p, i, column = column_of_thread(columns)
        first, last = p * rows // parts, (p + 1) * rows // parts
        count, mean, square = zero, zero, zero
        origin = x[column // length * length]
        for r in range(first + ty, last, TY * AHEAD):
            for k in range(AHEAD):
                row = r + k * TY
                z[k] = x[(row if row < last else first) * columns + column] - origin
            more = min(AHEAD, (last - r + TY - 1) // TY)
            here, away = few(z, more)
            count, mean, square = joined(count, mean, square, kind(more), here, away)
        cells[0, ty, tx], cells[1, ty, tx], cells[2, ty, tx] = count, mean, square
        barrier()
        if ty == 0 and i < columns:
            for k in range(1, TY):
                count, mean, square = joined(
                    count, mean, square,
                    cells[0, k, tx], cells[1, k, tx], cells[2, k, tx],
                )  # fmt: skip
            means[p * columns + i] = mean
            squares[p * columns + i] = square

    return kernel


def moments_of_parts(dtype: DType) -> Callable:
    """Mean and biased variance of each channel, from those of its parts, in order.

    # x [N, C, L], means, squares -> mean [C], variance [C]

    A thread makes a channel. Its parts are (p, l) for p < parts and l < inner, at
    p * part_step + c * step + l; part p has the numbers p * size // parts to
    (p + 1) * size // parts, in units of `width`.
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(
        x, length, means, squares, size, width, parts, part_step, step, inner, mean,
        variance,
    ):  # fmt: skip
        c = cuda.blockIdx.x * BLOCK + cuda.threadIdx.x
        if c < mean.size:
            count, middle, square = zero, zero, zero
            for p in range(parts):
                more = ((p + 1) * size // parts - p * size // parts) * width
                for i in range(inner):
                    at = p * part_step + c * step + i
                    count, middle, square = joined(
                        count, middle, square, kind(more), means[at], squares[at]
                    )
            mean[c] = x[c * length] + middle
            variance[c] = square / count

    return kernel


def batch_norm_flat(dtype: DType, width: int, scaled: bool, shifted: bool) -> Callable:
    """Normalize every number with the statistics of its channel.

    # x [N, C, L], mean, variance, weight, bias [C] -> out [N, C, L]

        out = (x - mean[c]) * (weight[c] / sqrt(variance[c] + eps)) + bias[c]

    A thread makes `width` neighbours; the channels' numbers come from the cache.
    """
    zero, one = dtype.numpy.type(0), dtype.numpy.type(1)

    def kernel(x, mean, variance, weight, bias, eps, length, out):
        e = cuda.grid(1) * width
        if e < x.size:
            line, _ = split(e, length)
            _, c = split(line, mean.size)
            middle, scale = mean[c], one / sqrt(variance[c] + eps)
            if scaled:
                scale *= weight[c]
            shift = bias[c] if shifted else zero
            if width == 4:
                a0, a1, a2, a3 = load4(x, e)
                store4(
                    out, e,
                    (a0 - middle) * scale + shift, (a1 - middle) * scale + shift,
                    (a2 - middle) * scale + shift, (a3 - middle) * scale + shift,
                )  # fmt: skip
            else:
                out[e] = (x[e] - middle) * scale + shift

    return kernel


def gradient_sums_of_rows(dtype: DType, width: int) -> Callable:
    """The sums for the gradients of the parts of each channel, for large images.

    # grad, x [N, C, L], mean [C] -> totals, products [C, parts]

        for c, p:  totals[c, p] = sum of grad over part p of the N L numbers of c
                   products[c, p] = sum of grad * (x - mean[c])

    Threads as in `moments_of_rows`; their sums are added with `summed`.
    """
    kind, units = dtype.numpy.type, AHEAD // width
    zero, total_of = kind(0), summed(BLOCK)

    def kernel(grad, x, mean, length, parts, totals, products):
        g = cuda.local.array(AHEAD, kind)
        z = cuda.local.array(AHEAD, kind)
        cells = cuda.shared.array(WARP, kind)
        more_cells = cuda.shared.array(WARP, kind)
        c = cuda.blockIdx.x // parts
        p = cuda.blockIdx.x - c * parts
        size = x.size // mean.size // width
        first, last = p * size // parts, (p + 1) * size // parts
        middle, total, product = mean[c], zero, zero
        for u in range(first + cuda.threadIdx.x, last, BLOCK * units):
            for k in range(units):
                e = u + k * BLOCK
                at = place_of((e if e < last else first) * width, length, c, mean.size)
                if width == 4:
                    z[4 * k], z[4 * k + 1], z[4 * k + 2], z[4 * k + 3] = load4(x, at)
                    g[4 * k], g[4 * k + 1], g[4 * k + 2], g[4 * k + 3] = load4(grad, at)
                else:
                    z[k] = x[at]
                    g[k] = grad[at]
            for k in range(AHEAD):
                value = g[k] if u + k // width * BLOCK < last else zero
                total += value
                product += value * (z[k] - middle)
        total = total_of(total, cuda.threadIdx.x, cells)
        product = total_of(product, cuda.threadIdx.x, more_cells)
        if cuda.threadIdx.x == 0:
            totals[cuda.blockIdx.x] = total
            products[cuda.blockIdx.x] = product

    return kernel


def gradient_sums_of_columns(dtype: DType) -> Callable:
    """The same for small images: of parts of the columns of matrices [N, C L].

    # grad, x [N, C L], mean [C] -> totals, products [parts, C L]

    Threads as in `moments_of_columns`.
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(grad, x, mean, rows, length, parts, totals, products):
        sums = cuda.shared.array((TY, TX), kind)
        more_sums = cuda.shared.array((TY, TX), kind)
        columns = mean.size * length
        tx, ty, p, i, column = column_of_thread(columns)
        middle, total, product = mean[column // length], zero, zero
        for r in range(p * rows // parts + ty, (p + 1) * rows // parts, TY):
            g = grad[r * columns + column]
            total += g
            product += g * (x[r * columns + column] - middle)
        sums[ty, tx], more_sums[ty, tx] = total, product
        barrier()
        if ty == 0 and i < columns:
            for k in range(1, TY):
                total += sums[k, tx]
                product += more_sums[k, tx]
            totals[p * columns + i] = total
            products[p * columns + i] = product

    return kernel


def gradient_sums_of_parts(dtype: DType) -> Callable:
    """dweight and dbias of each channel, from the sums of its parts, in order.

    # totals, products, variance [C] -> dweight [C], dbias [C]

    A thread makes a channel; where its parts are, `moments_of_parts` says.
    """
    zero, one = dtype.numpy.type(0), dtype.numpy.type(1)

    def kernel(
        totals, products, variance, eps, parts, part_step, step, inner, dweight, dbias
    ):
        c = cuda.blockIdx.x * BLOCK + cuda.threadIdx.x
        if c < variance.size:
            total, product = zero, zero
            for p in range(parts):
                for i in range(inner):
                    at = p * part_step + c * step + i
                    total += totals[at]
                    product += products[at]
            dweight[c] = product * (one / sqrt(variance[c] + eps))
            dbias[c] = total

    return kernel


def batch_norm_backward_flat(dtype: DType, width: int, scaled: bool) -> Callable:
    """The gradient for x, every number by itself.

    # grad, x [N, C, L], mean, variance, weight, dweight, dbias [C] -> dx [N, C, L]

        dx = weight / deviation * (grad - dbias / (N L) - xhat * dweight / (N L))
        xhat = (x - mean) / deviation,  deviation = sqrt(variance + eps)

    A thread makes `width` neighbours. `weight_of_one` is 1 / (N L).
    """
    one = dtype.numpy.type(1)

    def kernel(
        grad, x, mean, variance, weight, dweight, dbias, eps, weight_of_one, length, dx
    ):
        e = cuda.grid(1) * width
        if e < x.size:
            line, _ = split(e, length)
            _, c = split(line, mean.size)
            middle, scale = mean[c], one / sqrt(variance[c] + eps)
            along_x = dweight[c] * weight_of_one * scale
            shift = dbias[c] * weight_of_one
            if scaled:
                scale *= weight[c]
            if width == 4:
                a0, a1, a2, a3 = load4(x, e)
                g0, g1, g2, g3 = load4(grad, e)
                store4(
                    dx, e,
                    scale * (g0 - shift - (a0 - middle) * along_x),
                    scale * (g1 - shift - (a1 - middle) * along_x),
                    scale * (g2 - shift - (a2 - middle) * along_x),
                    scale * (g3 - shift - (a3 - middle) * along_x),
                )  # fmt: skip
            else:
                dx[e] = scale * (grad[e] - shift - (x[e] - middle) * along_x)

    return kernel


# ---------------------------------------------------------------------------- kernels

MOMENTS_OF_ROWS = KernelFamily(
    moments_of_rows, "T[] int64 int64 int64 T[] T[]", (float32, 1), (float32, 4)
)
MOMENTS_OF_COLUMNS = KernelFamily(
    moments_of_columns, "T[] int64 int64 int64 int64 T[] T[]", (float32,)
)
MOMENTS_OF_PARTS = KernelFamily(
    moments_of_parts,
    "T[] int64 T[] T[] int64 int64 int64 int64 int64 int64 T[] T[]", (float32,),
)  # fmt: skip
BATCH_NORM_FLAT = KernelFamily(
    batch_norm_flat, "T[] T[] T[] T[] T[] T int64 T[]",
    (float32, 1, True, True), (float32, 4, True, True),
)  # fmt: skip
GRADIENT_SUMS_OF_ROWS = KernelFamily(
    gradient_sums_of_rows, "T[] T[] T[] int64 int64 T[] T[]", (float32, 1), (float32, 4)
)
GRADIENT_SUMS_OF_COLUMNS = KernelFamily(
    gradient_sums_of_columns, "T[] T[] T[] int64 int64 int64 T[] T[]", (float32,)
)
GRADIENT_SUMS_OF_PARTS = KernelFamily(
    gradient_sums_of_parts, "T[] T[] T[] T int64 int64 int64 int64 T[] T[]", (float32,)
)
BATCH_NORM_BACKWARD_FLAT = KernelFamily(
    batch_norm_backward_flat, "T[] T[] T[] T[] T[] T[] T[] T T int64 T[]",
    (float32, 1, True), (float32, 4, True),
)  # fmt: skip

# -------------------------------------------------------------------------- launchers


@lru_cache(maxsize=1024)
def _parts(channels: int, size: int, rows: int | None = None) -> int:
    """Into how many parts a channel of `size` numbers is cut."""
    wanted = min(ceil_div(SPLITS, channels), ceil_div(size, SPLIT_SIZE))
    return max(1, min(wanted, rows or wanted))


def _layout(x: TensorData, aligned: int) -> tuple[int, int, int, int, int, int]:
    """How channels are cut: rows (0: by images), parts, and where the parts' numbers
    are: part_step, step, inner, and the width of a unit."""
    images, channels, length = x.shape
    if length < SHORT:
        parts = _parts(ceil_div(channels * length, TX), images * TX, images)
        return images, parts, channels * length, length, length, 1
    parts = _parts(channels, images * length)
    return 0, parts, 1, parts, 1, aligned


def batch_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> Three:
    """x [N, C, L], weight and bias [C] -> out, mean [C], biased variance [C]."""
    (images, channels, length), dtype = x.shape, x.dtype
    out, mean, variance = (empty(s, dtype) for s in (x.shape, (channels,), (channels,)))
    if out.size == 0:
        nothing = [full((channels,), math.nan, dtype) for _ in range(2)]
        return out, nothing[0], nothing[1]
    a = contiguous(x).flat()
    w, b = flat_or(weight, a), flat_or(bias, a)
    mu, var = mean.storage.array, variance.storage.array
    width = width_of(length, dtype, a)
    rows, parts, part_step, step, inner, unit = _layout(x, width)
    size = channels * parts * inner
    means, squares = (empty((size,), dtype).storage.array for _ in range(2))
    if rows:
        blocks = parts * ceil_div(channels * length, TX)
        MOMENTS_OF_COLUMNS[dtype,][blocks, TX * TY](
            a, rows, channels * length, length, parts, means, squares
        )
    else:
        MOMENTS_OF_ROWS[dtype, unit][channels * parts, BLOCK](
            a, channels, length, parts, means, squares
        )
    MOMENTS_OF_PARTS[dtype,][ceil_div(channels, BLOCK), BLOCK](
        a, length, means, squares, rows or images * length // unit, unit, parts,
        part_step, step, inner, mu, var,
    )  # fmt: skip
    _normalize(a, mu, var, w, b, weight, bias, eps, length, width, out)
    return out, mean, variance


def _normalize(
    a: Any, mu: Any, var: Any, w: Any, b: Any, weight: Any, bias: Any, eps: float,
    length: int, width: int, out: TensorData,
) -> None:  # fmt: skip
    """`out` from flat arrays; of w and b one without a weight or a bias is not read."""
    key = out.dtype, width, weight is not None, bias is not None
    BATCH_NORM_FLAT[key][ceil_div(out.size, width * BLOCK), BLOCK](
        a, mu, var, w, b, out.dtype.numpy.type(eps), length, out.storage.array
    )


def batch_norm_inference(
    x: TensorData, mean: TensorData, variance: TensorData, weight: TensorData | None,
    bias: TensorData | None, eps: float,
) -> TensorData:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias: x [N, C, L], others [C]."""
    out = empty(x.shape, x.dtype)
    if out.size:
        a, mu, var = (contiguous(t).flat() for t in (x, mean, variance))
        w, b, length = flat_or(weight, a), flat_or(bias, a), x.shape[2]
        width = width_of(length, x.dtype, a)
        _normalize(a, mu, var, w, b, weight, bias, eps, length, width, out)
    return out


def batch_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    variance: TensorData,
    weight: TensorData | None,
    eps: float,
) -> Three:
    """Gradients for x [N, C, L], weight [C] and bias [C] in training mode."""
    (images, channels, length), dtype = x.shape, x.dtype
    dx, dw, db = (empty(s, dtype) for s in (x.shape, (channels,), (channels,)))
    if dx.size == 0:
        return dx, full((channels,), 0, dtype), full((channels,), 0, dtype)
    g, a, mu, var = (contiguous(t).flat() for t in (grad, x, mean, variance))
    kind, w = dtype.numpy.type, flat_or(weight, a)
    width = width_of(length, dtype, a, g)
    rows, parts, part_step, step, inner, unit = _layout(x, width)
    size = channels * parts * inner
    totals, products = (empty((size,), dtype).storage.array for _ in range(2))
    if rows:
        blocks = parts * ceil_div(channels * length, TX)
        GRADIENT_SUMS_OF_COLUMNS[dtype,][blocks, TX * TY](
            g, a, mu, rows, length, parts, totals, products
        )
    else:
        GRADIENT_SUMS_OF_ROWS[dtype, unit][channels * parts, BLOCK](
            g, a, mu, length, parts, totals, products
        )
    GRADIENT_SUMS_OF_PARTS[dtype,][ceil_div(channels, BLOCK), BLOCK](
        totals, products, var, kind(eps), parts, part_step, step, inner,
        dw.storage.array, db.storage.array,
    )  # fmt: skip
    key = dtype, width, weight is not None
    BATCH_NORM_BACKWARD_FLAT[key][ceil_div(dx.size, width * BLOCK), BLOCK](
        g, a, mu, var, w, dw.storage.array, db.storage.array, kind(eps),
        kind(1 / (images * length)), length, dx.storage.array,
    )  # fmt: skip
    return dx, dw, db
