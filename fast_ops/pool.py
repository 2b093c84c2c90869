"""Pooling over windows of a plane, forward and backward.

With this file one can take the maximum (`max_pool2d`) or the mean (`avg_pool2d`) of each
window of x [N, C, H, W], and bring gradients back to x (`max_pool2d_backward`,
`avg_pool2d_backward`).

Planes do not touch each other, so one task is one plane of N * C: forward it writes its
own outputs, backward it adds into its own part of the gradient, in the order of the
windows. Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import copy, empty
from minitorch.dtypes import int64
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]


def _planes(a: TensorData) -> np.ndarray:
    """a [N, C, H, W] as an array [N * C, H, W], copied only if it has gaps."""
    dense = a if a.is_contiguous() else copy(a, a.dtype)
    n, c, h, w = a.shape
    return dense.flat().reshape(n * c, h, w)


def _sizes(x_shape: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair):
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    return tuple(
        (x_shape[2 + i] + 2 * padding[i] - reach[i]) // stride[i] + 1 for i in range(2)
    )


@kernel(parallel=True)
def _max_planes(x, out, index, k0, k1, s0, s1, p0, p1, d0, d1):
    """Maxima of windows and their places; task p makes plane p.

    # x [P, H, W] -> out [P, OH, OW], index [P, OH, OW]

        for p, oh, ow:  out = max over kh, kw of x[p, oh*s0 - p0 + kh*d0, ...]
    """
    H, W = x.shape[1], x.shape[2]
    for p in prange(x.shape[0]):
        plane = x[p]
        for oh in range(out.shape[1]):
            top = oh * s0 - p0
            if top < 0:
                top += (-top + d0 - 1) // d0 * d0
            bottom = min(oh * s0 - p0 + (k0 - 1) * d0 + 1, H)
            for ow in range(out.shape[2]):
                left = ow * s1 - p1
                if left < 0:
                    left += (-left + d1 - 1) // d1 * d1
                right = min(ow * s1 - p1 + (k1 - 1) * d1 + 1, W)
                where = top * W + left
                best = plane[top, left]
                for h in range(top, bottom, d0):
                    for w in range(left, right, d1):
                        value = plane[h, w]
                        if value > best or (value != value and best == best):
                            best = value
                            where = h * W + w
                out[p, oh, ow] = best
                index[p, oh, ow] = where


def max_pool2d(
    x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[TensorData, TensorData]:
    """x [N, C, H, W] -> maxima and their int64 positions h * W + w in the plane.

    The first maximum of a window wins; NaN counts as the largest. Padding is never the
    maximum.
    """
    shape = (*x.shape[:2], *_sizes(x.shape, kernel, stride, padding, dilation))
    out, index = empty(shape, x.dtype), empty(shape, int64)
    if out.size:
        _max_planes(
            _planes(x), _planes(out), _planes(index), *kernel, *stride, *padding, *dilation
        )
    return out, index


@kernel(parallel=True)
def _max_planes_backward(grad, index, dx):
    """dx[p, index[p, i]] += grad[p, i]; task p makes plane p.

    # grad [P, OH * OW], index [P, OH * OW] -> dx [P, H * W]
    """
    for p in prange(dx.shape[0]):
        plane = dx[p]
        for i in range(plane.size):
            plane[i] = 0
        for i in range(grad.shape[1]):
            plane[index[p, i]] += grad[p, i]


def max_pool2d_backward(
    grad: TensorData, index: TensorData, x_shape: Shape
) -> TensorData:
    """grad [N, C, OH, OW] added up at the positions `index` of each plane."""
    dx = empty(x_shape, grad.dtype)
    if dx.size:
        n, c, h, w = x_shape
        _max_planes_backward(
            _planes(grad).reshape(n * c, -1),
            _planes(index).reshape(n * c, -1),
            _planes(dx).reshape(n * c, h * w),
        )
    return dx


@kernel(parallel=True)
def _mean_planes(x, out, k0, k1, s0, s1, p0, p1, count_pad):
    """Means of windows; task p makes plane p.

    # x [P, H, W] -> out [P, OH, OW]

        for p, oh, ow:  out = sum of the window's x / how many it counts
    """
    H, W = x.shape[1], x.shape[2]
    for p in prange(x.shape[0]):
        for oh in range(out.shape[1]):
            top, bottom = max(oh * s0 - p0, 0), min(oh * s0 - p0 + k0, H)
            for ow in range(out.shape[2]):
                left, right = max(ow * s1 - p1, 0), min(ow * s1 - p1 + k1, W)
                total = x.dtype.type(0)
                for h in range(top, bottom):
                    for w in range(left, right):
                        total += x[p, h, w]
                count = k0 * k1 if count_pad else (bottom - top) * (right - left)
                out[p, oh, ow] = total / count


def avg_pool2d(
    x: TensorData,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """x [N, C, H, W] -> means of windows; padding counts as 0, or not at all."""
    shape = (*x.shape[:2], *_sizes(x.shape, kernel, stride, padding, (1, 1)))
    out = empty(shape, x.dtype)
    if out.size:
        counted = bool(count_include_pad)
        _mean_planes(_planes(x), _planes(out), *kernel, *stride, *padding, counted)
    return out


@kernel(parallel=True)
def _mean_planes_backward(grad, dx, k0, k1, s0, s1, p0, p1, count_pad):
    """Each window's gradient, shared out to its elements; task p makes plane p.

    # grad [P, OH, OW] -> dx [P, H, W]
    """
    H, W = dx.shape[1], dx.shape[2]
    for p in prange(dx.shape[0]):
        for h in range(H):
            for w in range(W):
                dx[p, h, w] = 0
        for oh in range(grad.shape[1]):
            top, bottom = max(oh * s0 - p0, 0), min(oh * s0 - p0 + k0, H)
            for ow in range(grad.shape[2]):
                left, right = max(ow * s1 - p1, 0), min(ow * s1 - p1 + k1, W)
                count = k0 * k1 if count_pad else (bottom - top) * (right - left)
                share = dx.dtype.type(grad[p, oh, ow] / count)
                for h in range(top, bottom):
                    for w in range(left, right):
                        dx[p, h, w] += share


def avg_pool2d_backward(
    grad: TensorData,
    x_shape: Shape,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """The gradient for x [N, C, H, W] from grad [N, C, OH, OW]."""
    dx = empty(x_shape, grad.dtype)
    if dx.size:
        counted = bool(count_include_pad)
        _mean_planes_backward(
            _planes(grad), _planes(dx), *kernel, *stride, *padding, counted
        )
    return dx
