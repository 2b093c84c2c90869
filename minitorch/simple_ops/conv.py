"""Convolve images.

With this file one can slide small windows of weights over a batch of images (`conv2d`),
and carry a gradient back to the images (`conv2d_backward_input`) or to the weights
(`conv2d_backward_weight`).

A convolution is a long list of products, and `products` walks over all of them:

    out[n, o, p, q]  +=  image[n, c, row, col] * weight[o, k, i, j]

Each of the three functions reads two of these tensors and adds to the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from minitorch.backend import Pair
from minitorch.simple_ops.lists import flatten, nested, tensor, zeros
from minitorch.tensor_data import Shape, TensorData


def conv2d(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """x [N, C, H, W], weight [O, C/groups, KH, KW], bias [O] -> [N, O, OH, OW].

    out[n, o, p, q] = bias[o] + sum over k, i, j of
                      image[n, c, row, col] * weight[o, k, i, j]

    where c is the k-th channel of o's group, row = p * stride + i * dilation - padding,
    col likewise, and pixels outside of the image are 0.
    """
    # BEGIN SOLUTION a6.2
    height = out_size(x.shape[2], weight.shape[2], stride[0], padding[0], dilation[0])
    width = out_size(x.shape[3], weight.shape[3], stride[1], padding[1], dilation[1])
    shape = (x.shape[0], weight.shape[0], height, width)
    image, w, out = nested(x), nested(weight), zeros(*shape)
    if bias is not None:
        b = nested(bias)
        for n, o, p, q in product(*(range(size) for size in shape)):
            out[n][o][p][q] = b[o]
    for n, o, c, k, p, q, i, j, row, col in products(
        x.shape, weight.shape, stride, padding, dilation, groups
    ):
        out[n][o][p][q] += image[n][c][row][col] * w[o][k][i][j]
    return tensor(flatten(out), shape, x.dtype)
    # END SOLUTION a6.2


def conv2d_backward_input(
    grad: TensorData,
    weight: TensorData,
    x_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """grad [N, O, OH, OW], weight [O, C/groups, KH, KW] -> gradient [N, C, H, W]."""
    # BEGIN SOLUTION a6.2
    g, w, out = nested(grad), nested(weight), zeros(*x_shape)
    for n, o, c, k, p, q, i, j, row, col in products(
        x_shape, weight.shape, stride, padding, dilation, groups
    ):
        out[n][c][row][col] += g[n][o][p][q] * w[o][k][i][j]
    return tensor(flatten(out), x_shape, grad.dtype)
    # END SOLUTION a6.2


def conv2d_backward_weight(
    grad: TensorData,
    x: TensorData,
    weight_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """grad [N, O, OH, OW], x [N, C, H, W] -> gradient [O, C/groups, KH, KW]."""
    # BEGIN SOLUTION a6.2
    g, image, out = nested(grad), nested(x), zeros(*weight_shape)
    for n, o, c, k, p, q, i, j, row, col in products(
        x.shape, weight_shape, stride, padding, dilation, groups
    ):
        out[o][k][i][j] += g[n][o][p][q] * image[n][c][row][col]
    return tensor(flatten(out), weight_shape, grad.dtype)
    # END SOLUTION a6.2


def products(
    x_shape: Shape,
    weight_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Iterator[tuple[int, ...]]:
    """The indices (n, o, c, k, p, q, i, j, row, col) of all products, in order."""
    # BEGIN SOLUTION a6.2
    (batch, _, height, width), (out_channels, depth, kh, kw) = x_shape, weight_shape
    vertical = taps(height, kh, stride[0], padding[0], dilation[0])
    horizontal = taps(width, kw, stride[1], padding[1], dilation[1])
    for n, o, k in product(range(batch), range(out_channels), range(depth)):
        group = o // (out_channels // groups)
        c = group * depth + k
        for (p, i, row), (q, j, col) in product(vertical, horizontal):
            yield n, o, c, k, p, q, i, j, row, col
    # END SOLUTION a6.2


def taps(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> list[tuple[int, int, int]]:
    """Along one axis, all (output, weight, input) positions that meet in a product.

    >>> taps(size=3, kernel=2, stride=2, padding=1, dilation=1)
    [(0, 1, 0), (1, 0, 1), (1, 1, 2)]
    """
    # BEGIN SOLUTION a6.1
    found = []
    for out in range(out_size(size, kernel, stride, padding, dilation)):
        for i in range(kernel):
            position = out * stride + i * dilation - padding
            if 0 <= position < size:  # else it is padding, which is 0
                found.append((out, i, position))
    return found
    # END SOLUTION a6.1


def out_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows fit along one axis."""
    # BEGIN SOLUTION a6.1
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    # END SOLUTION a6.1
