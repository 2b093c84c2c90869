"""Shrink images: one number for each window of pixels.

With this file one can take the maxima (`max_pool2d`) or means (`avg_pool2d`) of
windows, and carry a gradient back through both.
"""

from __future__ import annotations

from itertools import product

import minitorch.operators as operators
from minitorch.backend import Pair
from minitorch.dtypes import int64
from minitorch.simple_ops.conv import out_size, taps
from minitorch.simple_ops.lists import flatten, nested, tensor, zeros
from minitorch.simple_ops.reduce import beats
from minitorch.tensor_data import Shape, TensorData


def max_pool2d(
    x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[TensorData, TensorData]:
    """x [N, C, H, W] -> maxima [N, C, OH, OW] and their positions h * W + w, int64.

    The first maximum of a window wins; NaN counts as the largest. Padding never wins.
    """
    batch, channels, height, width = x.shape
    # BEGIN SOLUTION a6.3
    rows = windows(height, kernel[0], stride[0], padding[0], dilation[0])
    cols = windows(width, kernel[1], stride[1], padding[1], dilation[1])
    image, maxima, positions = nested(x), [], []
    for n, c, ys, xs in product(range(batch), range(channels), rows, cols):
        best, where = -operators.inf, 0
        for first, (h, w) in enumerate(product(ys, xs)):
            value = image[n][c][h][w]
            if first == 0 or beats(operators.gt, value, best):
                best, where = value, h * width + w
        maxima.append(best)
        positions.append(where)
    shape = (batch, channels, len(rows), len(cols))
    return tensor(maxima, shape, x.dtype), tensor(positions, shape, int64)
    # END SOLUTION a6.3


def max_pool2d_backward(
    grad: TensorData, index: TensorData, x_shape: Shape
) -> TensorData:
    """Each element of grad [N, C, OH, OW] added where `index` says -> [N, C, H, W]."""
    # BEGIN SOLUTION a6.3
    width = x_shape[3]
    g, where, out = nested(grad), nested(index), zeros(*x_shape)
    for n, c, y, x in product(*(range(size) for size in grad.shape)):
        h, w = divmod(where[n][c][y][x], width)
        out[n][c][h][w] += g[n][c][y][x]
    return tensor(flatten(out), x_shape, grad.dtype)
    # END SOLUTION a6.3


def avg_pool2d(
    x: TensorData,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """x [N, C, H, W] -> means [N, C, OH, OW].

    The sum of the pixels in a window is divided by the size of the window, or, without
    `count_include_pad`, by the number of its pixels that lie inside of the image.
    """
    batch, channels, height, width = x.shape
    rows = windows(height, kernel[0], stride[0], padding[0])
    cols = windows(width, kernel[1], stride[1], padding[1])
    # BEGIN SOLUTION a6.3
    image, means = nested(x), []
    for n, c, ys, xs in product(range(batch), range(channels), rows, cols):
        total = sum(image[n][c][h][w] for h in ys for w in xs)
        count = kernel[0] * kernel[1] if count_include_pad else len(ys) * len(xs)
        means.append(total / count)
    return tensor(means, (batch, channels, len(rows), len(cols)), x.dtype)
    # END SOLUTION a6.3


def avg_pool2d_backward(
    grad: TensorData,
    x_shape: Shape,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """grad [N, C, OH, OW], each shared out over its window -> [N, C, H, W]."""
    batch, channels, height, width = x_shape
    rows = windows(height, kernel[0], stride[0], padding[0])
    cols = windows(width, kernel[1], stride[1], padding[1])
    # BEGIN SOLUTION a6.3
    g, out = nested(grad), zeros(*x_shape)
    for n, c in product(range(batch), range(channels)):
        for (y, ys), (x, xs) in product(enumerate(rows), enumerate(cols)):
            count = kernel[0] * kernel[1] if count_include_pad else len(ys) * len(xs)
            for h, w in product(ys, xs):
                out[n][c][h][w] += g[n][c][y][x] / count
    return tensor(flatten(out), x_shape, grad.dtype)
    # END SOLUTION a6.3


def windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int = 1
) -> list[list[int]]:
    """Along one axis, the positions inside of the image that each window covers.

    >>> windows(size=3, kernel=2, stride=2, padding=1)
    [[0], [1, 2]]
    """
    found: list[list[int]] = []
    for _ in range(out_size(size, kernel, stride, padding, dilation)):
        found.append([])
    for out, _, position in taps(size, kernel, stride, padding, dilation):
        found[out].append(position)
    return found
