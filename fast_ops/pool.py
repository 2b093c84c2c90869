"""Pooling over windows of a plane, forward and backward.

With this file the backend takes the maximum (`max_pool2d`) or the mean (`avg_pool2d`)
of each window of x [N, C, H, W], and brings gradients back to x (`max_pool2d_backward`,
`avg_pool2d_backward`); the launchers of `KERNELS`, and what `numbers` says, are in
`minitorch/backend/host/pool.py`.

Planes do not touch each other, so one task is one plane of N * C: forward it writes its
own outputs, backward it adds into its own part of the gradient, in the order of the
windows. Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import both, device_function


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


@device_function
def sizes(numbers):
    """H, W, OH, OW, and the height and the width of a window."""
    return numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]


@device_function
def max_of_plane(x, out, index, numbers):
    """Maxima of windows of one plane, and their places.

    # x [H, W] -> out [OH, OW], index [OH, OW]

        for oh, kh, kw, ow:
            out[oh, ow] = max(itself, x[oh*s0 - p0 + kh*d0, ow*s1 - p1 + kw*d1])

    The loop over a row of outputs is the innermost one, and has no branch: what a
    window keeps is a choice between two numbers, for many windows at a time. The row of
    out and index stays in the first-level cache for all taps. `valid` keeps to the
    outputs whose tap is not in the padding.
    """
    H, W, OH, OW, k0, k1 = sizes(numbers)
    s0, s1, p0, p1 = numbers[7], numbers[8], numbers[9], numbers[10]
    d0, d1 = numbers[11], numbers[12]
    for oh in range(OH):
        out[oh * OW : (oh + 1) * OW] = -np.inf
        index[oh * OW : (oh + 1) * OW] = -1
        for kh in range(k0):
            h = oh * s0 - p0 + kh * d0
            if h < 0 or h >= H:
                continue
            for kw in range(k1):
                first, last = valid(kw * d1, p1, s1, W, OW)
                at = h * W + first * s1 + kw * d1 - p1
                line = x[at : (h + 1) * W]
                best = out[oh * OW + first : oh * OW + last]
                where = index[oh * OW + first : oh * OW + last]
                for i in range(best.size):
                    value, old, place = line[i * s1], best[i], where[i]
                    take = beats(value, old) | (place < 0)
                    best[i] = value if take else old
                    where[i] = at + i * s1 if take else place
        for i in range(oh * OW, (oh + 1) * OW):
            index[i] = max(index[i], 0)  # where there was padding alone


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


def _max_pool2d(x, out, index, numbers):
    """Maxima of windows and their places; task p makes plane p.

    # x [P, H, W] -> out [P, OH, OW], index [P, OH, OW]

    Windows of 2 x 2 side by side, the ones most networks have, get loops without a
    branch, which work on whole vectors; what they hand over stays in the first-level
    cache.
    """
    P, H, W, OH, OW = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    squares = W % 2 == 0
    for i in range(4):
        squares &= numbers[5 + i] == 2 and numbers[9 + i] == i // 2
    for task in prange(P):
        p = np.int64(task)
        plane = x[p * H * W : (p + 1) * H * W]
        best = out[p * OH * OW : (p + 1) * OH * OW]
        places = index[p * OH * OW : (p + 1) * OH * OW]
        if squares:
            squares_of_plane(plane, H, W, best, places)
        else:
            max_of_plane(plane, best, places, numbers)


def _max_pool2d_backward(grad, index, dx, numbers):
    """dx[p, index[p, i]] += grad[p, i]; task p makes plane p.

    # grad [P, OH * OW], index [P, OH * OW] -> dx [P, H * W]
    """
    size, outputs = numbers[1] * numbers[2], numbers[3] * numbers[4]
    for task in prange(numbers[0]):
        p = np.int64(task)
        plane = dx[p * size : (p + 1) * size]
        for i in range(size):
            plane[i] = 0
        for i in range(p * outputs, (p + 1) * outputs):
            plane[index[i]] += grad[i]


@device_function
def mean_of_plane(x, out, numbers):
    """Means of windows of one plane.

    # x [H, W] -> out [OH, OW]

        for oh, ow:  out = sum of the window's x / how many it counts
    """
    H, W, OH, OW, k0, k1 = sizes(numbers)
    s0, s1, p0, p1 = numbers[7], numbers[8], numbers[9], numbers[10]
    for oh in range(OH):
        top, bottom = max(oh * s0 - p0, 0), min(oh * s0 - p0 + k0, H)
        total = out[oh * OW : (oh + 1) * OW]
        total[:] = 0
        for h in range(top, bottom):
            for kw in range(k1):
                first, last = valid(kw, p1, s1, W, OW)
                line = x[h * W + first * s1 - p1 + kw : (h + 1) * W]
                some = total[first:last]
                for i in range(some.size):
                    some[i] += line[i * s1]
        for ow in range(OW):
            left, right = max(ow * s1 - p1, 0), min(ow * s1 - p1 + k1, W)
            count = k0 * k1 if numbers[13] else (bottom - top) * (right - left)
            total[ow] /= count


def _avg_pool2d(x, out, numbers):
    """`mean_of_plane` for all planes: # x [P, H, W] -> out [P, OH, OW]"""
    size, outputs = numbers[1] * numbers[2], numbers[3] * numbers[4]
    for task in prange(numbers[0]):
        p = np.int64(task)
        mean_of_plane(
            x[p * size : (p + 1) * size], out[p * outputs : (p + 1) * outputs], numbers
        )


@device_function
def spread_over_plane(grad, dx, numbers):
    """Each window's gradient, divided among its elements.

    # grad [OH, OW] -> dx [H, W]
    """
    H, W, OH, OW, k0, k1 = sizes(numbers)
    s0, s1, p0, p1 = numbers[7], numbers[8], numbers[9], numbers[10]
    dx[:] = 0
    for oh in range(OH):
        top, bottom = max(oh * s0 - p0, 0), min(oh * s0 - p0 + k0, H)
        for ow in range(OW):
            left, right = max(ow * s1 - p1, 0), min(ow * s1 - p1 + k1, W)
            count = k0 * k1 if numbers[13] else (bottom - top) * (right - left)
            each = dx.dtype.type(grad[oh * OW + ow] / count)
            for h in range(top, bottom):
                for w in range(left, right):
                    dx[h * W + w] += each


def _avg_pool2d_backward(grad, dx, numbers):
    """`spread_over_plane` for all planes: # grad [P, OH, OW] -> dx [P, H, W]"""
    size, outputs = numbers[1] * numbers[2], numbers[3] * numbers[4]
    for task in prange(numbers[0]):
        p = np.int64(task)
        spread_over_plane(
            grad[p * outputs : (p + 1) * outputs],
            dx[p * size : (p + 1) * size],
            numbers,
        )


KERNELS = both(_max_pool2d, _max_pool2d_backward, _avg_pool2d, _avg_pool2d_backward)
