"""Layer norm and batch norm, forward and backward.

With this file the backend can bring each row (`layer_norm`) or each channel
(`batch_norm`) to mean 0 and variance 1, and take the gradients; the launchers of
`KERNELS` are in `minitorch/backend/host/norm.py`.

Mean and variance are taken in two passes, sum((x - mean)^2) after the mean is known:
sum(x^2) - sum(x)^2 / n needs one pass, but loses all digits in float32 where the mean
is large against the deviation. The second pass reads from the cache.

Sums over rows (the gradients for weight and bias) are cut into blocks whose number
depends on the shape alone, and the blocks are added in order: the result is the same
for any number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import both, device_function

# ------------------------------------------------------------------------ one line


@device_function
def line_sum(x: np.ndarray) -> float:
    """The sum of a line; 64 partial sums run side by side in vector registers."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@device_function
def line_squares(x: np.ndarray, mean: float) -> float:
    """The sum of (x[i] - mean)^2."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += (x[i] - mean) * (x[i] - mean)
    return total


@device_function
def line_products(x: np.ndarray, mean: float, grad: np.ndarray) -> tuple[float, float]:
    """The sums of grad[i] and of grad[i] * (x[i] - mean)."""
    total = x.dtype.type(0)
    product = x.dtype.type(0)
    for i in range(x.size):
        total += grad[i]
        product += grad[i] * (x[i] - mean)
    return total, product


# ----------------------------------------------------------------------- layer norm


def _layer_norm(x, weight, bias, eps, out, mean, rstd):
    """Normalize rows.

    # x [R, D], weight [D], bias [D] -> out [R, D], mean [R], rstd [R]

        for r:  mean = sum(x[r]) / D;  rstd = 1 / sqrt(sum((x[r] - mean)^2) / D + eps)
            for i:  out[r, i] = (x[r, i] - mean) * rstd * weight[i] + bias[i]

    A thread makes whole rows; a row of a few thousand numbers stays in the first-level
    cache for the second and third pass.
    """
    # BEGIN SOLUTION a8.3
    D = weight.size
    for r in prange(mean.size):
        at = np.int64(r) * D
        row, z = x[at : at + D], out[at : at + D]
        middle = x.dtype.type(line_sum(row) / D)
        scale = x.dtype.type(1.0 / math.sqrt(line_squares(row, middle) / D + eps))
        mean[r] = middle
        rstd[r] = scale
        for i in range(D):
            z[i] = (row[i] - middle) * scale * weight[i] + bias[i]
    # END SOLUTION a8.3


@device_function
def layer_norm_backward_row(grad, x, middle, scale, weight, dx, dw, db):
    """One row's dx, and its shares of dw and db, added to what is there.

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),   g = grad * weight
    dw += grad * xhat;  db += grad,                      xhat = (x - mean) * rstd
    """
    # BEGIN SOLUTION a8.3
    total = x.dtype.type(0)
    product = x.dtype.type(0)
    for i in range(x.size):
        g = grad[i] * weight[i]
        total += g
        product += g * (x[i] - middle)
    size = x.dtype.type(x.size)
    shift = total / size
    slope = product * scale * scale / size
    for i in range(x.size):
        away = x[i] - middle
        dw[i] += grad[i] * (away * scale)
        db[i] += grad[i]
        dx[i] = scale * (grad[i] * weight[i] - shift - away * slope)
    # END SOLUTION a8.3


def _layer_norm_backward(grad, x, mean, rstd, weight, dx, partial, dw, db):
    """The three gradients of `_layer_norm` in one pass over the rows.

    # grad [R, D], x [R, D] -> dx [R, D], dw [D], db [D]; partial [blocks, 2, D]

        for r:  layer_norm_backward_row(...)

    A task is a block of rows, with its own sums for dw and db in `partial`, which stay
    in the cache; the blocks are added in order at the end. A pass over columns instead
    would read grad and x a second time.
    """
    # BEGIN SOLUTION a8.3
    R, D = mean.size, weight.size
    blocks = partial.shape[0]
    for task in prange(blocks):
        block = np.int64(task)
        partial[block] = 0
        for r in range(block * R // blocks, (block + 1) * R // blocks):
            layer_norm_backward_row(
                grad[r * D : r * D + D], x[r * D : r * D + D], mean[r], rstd[r], weight,
                dx[r * D : r * D + D], partial[block, 0], partial[block, 1],
            )  # fmt: skip
    dw[:] = 0
    db[:] = 0
    for block in range(blocks):
        for i in range(D):
            dw[i] += partial[block, 0, i]
            db[i] += partial[block, 1, i]
    # END SOLUTION a8.3


# ----------------------------------------------------------------------- batch norm


def _batch_norm(x, weight, bias, eps, out, mean, variance, size):
    """Normalize channels.

    # x [N, C, L], weight [C], bias [C] -> out [N, C, L], mean [C], variance [C]

        for c:  mean = sum(x[:, c]) / (N L);  variance = sum((x[:, c] - mean)^2) / (N L)
            for n, l:  out[n, c, l] = (x[n, c, l] - mean) / sqrt(variance + eps)
                                      * weight[c] + bias[c]

    A thread makes whole channels. A line of L numbers is added up in float32, the lines
    in float64. The N lines of a channel stay in the second-level cache between passes.
    """
    C = mean.size
    N = x.size // (C * size)
    for task in prange(C):
        c = np.int64(task)
        total = 0.0
        for n in range(N):
            at = (n * C + c) * size
            total += line_sum(x[at : at + size])
        middle = x.dtype.type(total / (N * size))
        total = 0.0
        for n in range(N):
            at = (n * C + c) * size
            total += line_squares(x[at : at + size], middle)
        mean[c] = middle
        variance[c] = total / (N * size)
        scale = x.dtype.type(weight[c] / math.sqrt(total / (N * size) + eps))
        for n in range(N):
            at = (n * C + c) * size
            line, z = x[at : at + size], out[at : at + size]
            for i in range(size):
                z[i] = (line[i] - middle) * scale + bias[c]


def _batch_norm_backward(grad, x, mean, variance, weight, eps, dx, dw, db, size):
    """The three gradients of `_batch_norm`.

    # grad [N, C, L], x [N, C, L] -> dx [N, C, L], dw [C], db [C]

        for c:  db = sum(grad);  dw = sum(grad * xhat),  xhat = (x - mean) / deviation
            for n, l:  dx = weight / deviation * (grad - db / (N L) - xhat * dw / (N L))

    A thread makes whole channels, in two passes; nothing is shared.
    """
    C = mean.size
    N = x.size // (C * size)
    kind = x.dtype.type
    for task in prange(C):
        c = np.int64(task)
        total, product = 0.0, 0.0
        for n in range(N):
            at = (n * C + c) * size
            g, gx = line_products(x[at : at + size], mean[c], grad[at : at + size])
            total += g
            product += gx
        scale = 1.0 / math.sqrt(variance[c] + eps)
        dw[c] = product * scale
        db[c] = total
        shift = kind(total / (N * size))
        slope = kind(product * scale * scale / (N * size))
        factor, middle = kind(weight[c] * scale), mean[c]
        for n in range(N):
            at = (n * C + c) * size
            line, given, z = (
                x[at : at + size],
                grad[at : at + size],
                dx[at : at + size],
            )
            for i in range(size):
                z[i] = factor * (given[i] - shift - (line[i] - middle) * slope)


def _batch_norm_inference(x, mean, variance, weight, bias, eps, out, size):
    """out[n, c, l] = x[n, c, l] * scale[c] + shift[c], in one pass over x.

    # x [N, C, L] -> out [N, C, L], the others [C]
    """
    C = mean.size
    scale, shift = np.empty(C, x.dtype), np.empty(C, x.dtype)
    for c in range(C):
        scale[c] = weight[c] / math.sqrt(variance[c] + eps)
        shift[c] = bias[c] - mean[c] * scale[c]
    for task in prange(x.size // max(C, 1) if size == 1 else x.size // max(size, 1)):
        n = np.int64(task)
        if size == 1:  # a row of channels
            row, z = x[n * C : n * C + C], out[n * C : n * C + C]
            for c in range(C):
                z[c] = row[c] * scale[c] + shift[c]
        else:
            line, z = x[n * size : (n + 1) * size], out[n * size : (n + 1) * size]
            factor, more = scale[n % C], shift[n % C]
            for i in range(size):
                z[i] = line[i] * factor + more


KERNELS = both(
    _layer_norm, _layer_norm_backward, _batch_norm, _batch_norm_backward,
    _batch_norm_inference,
)  # fmt: skip
