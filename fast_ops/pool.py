"""Pooling over windows of a plane, forward and backward.

With this file one can take the maximum (`max_pool2d`) or the mean (`avg_pool2d`) of
each window of x [N, C, H, W], and bring gradients back to x (`max_pool2d_backward`,
`avg_pool2d_backward`).

Planes do not touch each other, so one task is one plane of N * C: forward it writes its
own outputs, backward it adds into its own part of the gradient, in the order of the
windows. Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import device_function, kernel
from fast_ops.memory import contiguous, empty
from minitorch.dtypes import int64
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]


def _planes(a: TensorData) -> np.ndarray:
    """a [N, C, H, W] as an array [N * C, H, W], copied only if it has gaps."""
    n, c, h, w = a.shape
    return contiguous(a).flat().reshape(n * c, h, w)


def _sizes(
    x_shape: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Pair:
    """OH, OW: how many windows fit."""
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    room = [x_shape[2 + i] + 2 * padding[i] - reach[i] for i in range(2)]
    return room[0] // stride[0] + 1, room[1] // stride[1] + 1


@device_function
def valid(tap: int, pad: int, stride: int, size: int, count: int) -> tuple[int, int]:
    """The first output whose tap falls into the plane, and the first after those.

    Output i sees position i * stride + tap - pad.
    """
    first = max(0, (pad - tap + stride - 1) // stride)
    return first, max(first, min(count, (size - 1 + pad - tap) // stride + 1))


@device_function
def beats(second, first):
    """Whether the second of two numbers is the maximum; NaN is the largest.

    `|` and `&` ask both questions of all numbers; `or` and `and` would branch.
    """
    return (second > first) | ((second != second) & (first == first))


@kernel(parallel=True)
def _max_planes(x, out, index, k0, k1, s0, s1, p0, p1, d0, d1):
    """Maxima of windows and their places; task p makes plane p.

    # x [P, H, W] -> out [P, OH, OW], index [P, OH, OW]

        for p, oh, kh, kw, ow:
            out[p, oh, ow] = max(itself, x[p, oh*s0 - p0 + kh*d0, ow*s1 - p1 + kw*d1])

    The loop over a row of outputs is the innermost one, and has no branch: what a
    window keeps is a choice between two numbers, for many windows at a time. The row of
    out and index stays in the first-level cache for all taps. `valid` keeps to the
    outputs whose tap is not in the padding.
    """
    H, W = x.shape[1], x.shape[2]
    for p in prange(x.shape[0]):
        for oh in range(out.shape[1]):
            out[p, oh] = -np.inf
            index[p, oh] = -1
            for kh in range(k0):
                h = oh * s0 - p0 + kh * d0
                if h < 0 or h >= H:
                    continue
                for kw in range(k1):
                    first, last = valid(kw * d1, p1, s1, W, out.shape[2])
                    start = first * s1 + kw * d1 - p1
                    line, at = x[p, h, start:], h * W + start
                    best, where = out[p, oh, first:last], index[p, oh, first:last]
                    for i in range(best.size):
                        value, old, place = line[i * s1], best[i], where[i]
                        take = beats(value, old) | (place < 0)
                        best[i] = value if take else old
                        where[i] = at + i * s1 if take else place


@device_function
def greater_pairs(line, best, right):
    """best[i] = max(line[2 i], line[2 i + 1]); right[i] is 1 where it is the second."""
    for i in range(best.size):
        first, second = line[2 * i], line[2 * i + 1]
        take = beats(second, first)
        best[i] = second if take else first
        right[i] = 1 if take else 0


@device_function
def squares_of_plane(plane, H, W, out, index):
    """Maxima of 2 x 2 windows of one plane, and their places; all flat, W even.

    First the pairs in all rows, then the pairs of those: the first of equal maxima in
    row-major order wins both times. All is loaded before it is chosen from: a load that
    is needed only sometimes would be a branch.
    """
    n = W // 2
    best, second = np.empty(H * n, plane.dtype), np.empty(H * n, np.int32)
    greater_pairs(plane, best, second)
    for oh in range(H // 2):
        up, down = 2 * oh * n, (2 * oh + 1) * n
        for i in range(n):
            u, d, q = np.uint64(up + i), np.uint64(down + i), np.uint64(oh * n + i)
            above, below = best[u], best[d]
            place, place_below = second[u], W + second[d]
            take = beats(below, above)
            out[q] = below if take else above
            index[q] = 2 * (up + i) + (place_below if take else place)


@kernel(parallel=True)
def _max_squares(x, H, W, out, index):
    """`_max_planes` for windows of 2 x 2 side by side, the ones most networks have.

    # x [P, H, W], W even -> out [P, H // 2, W // 2], index [P, H // 2, W // 2]; flat

    The two loops of a plane have no branch and work on whole vectors; what they hand
    over stays in the first-level cache.
    """
    size, made = H * W, (H // 2) * (W // 2)
    for task in prange(out.size // made):
        p = np.int64(task)
        squares_of_plane(
            x[p * size : (p + 1) * size], H, W,
            out[p * made : (p + 1) * made], index[p * made : (p + 1) * made],
        )  # fmt: skip


SQUARES = ((2, 2), (2, 2), (0, 0), (1, 1))


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
        squares = (kernel, stride, padding, dilation) == SQUARES
        if squares and x.shape[3] % 2 == 0:
            flat = contiguous(x).flat()
            _max_squares(flat, *x.shape[2:], out.storage.array, index.storage.array)
        else:
            planes = (_planes(x), _planes(out), _planes(index))
            _max_planes(*planes, *kernel, *stride, *padding, *dilation)
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
            total = out[p, oh]
            total[:] = 0
            for h in range(top, bottom):
                for kw in range(k1):
                    first, last = valid(kw, p1, s1, W, total.size)
                    line, some = x[p, h, first * s1 - p1 + kw :], total[first:last]
                    for i in range(some.size):
                        some[i] += line[i * s1]
            for ow in range(total.size):
                left, right = max(ow * s1 - p1, 0), min(ow * s1 - p1 + k1, W)
                count = k0 * k1 if count_pad else (bottom - top) * (right - left)
                total[ow] /= count


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
