"""Convolution kernels for small groups: a thread or a block makes one number.

With this file `conv.py` runs depthwise convolutions and others whose groups have only a
few channels (`conv_direct`, `conv_direct_input`, `conv_direct_weight`). A tile of a
matrix product would be nearly empty there, and there is little to reuse: the kernels
read from memory what they need, and the caches serve the pixels that windows share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cuda, int32, int64

from cuda_ops.block.intrinsics import device, load
from cuda_ops.block.rows import KernelFamily
from cuda_ops.conv.tiles import NUMBERS, divide, inside
from cuda_ops.runtime.launch import TINY, Kernel
from minitorch.dtypes import DType, float32, float64

Pair = tuple[int, int]

# Threads of a block, a power of two, and pixels of a plane that a block makes.
THREADS = 8 if TINY else 256
CHUNK = 4 * THREADS

ARRAYS = "float32[] float32[] float32[]"

# Windows whose loops are unrolled.
USUAL = ((3, 3), (5, 5))
ANY = (0, 0)


def direct_template(taps: Pair) -> Callable:
    """The Python function of `conv_direct` for one size of kernel, or for any."""
    rows, cols = taps
    any_size = taps == ANY

    def conv_direct(x, weight, bias, out, image, window, options, axes, has_bias):
        """A thread makes outputs of one plane, `THREADS` pixels apart.

        # x [N, C, H, W], weight [O, K, KH, KW] -> out [N, O, OH, OW]
        # image: C, H, W, K; window: O, OH, OW, KH, KW, outputs of a group, OH * OW
        # options: stride, padding, dilation, each for rows and columns
        # axes: magic of OW, two numbers that this kernel does not need

            for n, o, p, q:  out = bias[o] + sum over k, i, j of
                x[n, first of o's group + k, p * stride + i * dilation - padding, ..]
                * weight[o, k, i, j]

        The grid's x is the plane n * O + o, its y the part of the plane. Neighbouring
        threads make neighbouring pixels; all threads of a block read the same weights.
        """
        C, H, W, K = image
        O, _, OW, KH, KW, outs, positions = window
        n, o = divmod(int64(cuda.blockIdx.x), O)
        source = (n * C + o // outs * K) * H * W
        begin = int64(cuda.blockIdx.y) * CHUNK
        last = min(begin + CHUNK, positions)
        for at in range(begin + cuda.threadIdx.x, last, THREADS):
            p = divide(at, axes[0], axes[1])
            top = int32(p * options[0] - options[2])
            left = int32((at - p * OW) * options[1] - options[3])
            total = x.dtype.type(0)
            for k in range(K):
                start = source + k * H * W + top * W + left
                tap = (o * K + k) * KH * KW
                for i in range(KH if any_size else rows):
                    there = inside(int32(top + i * options[4]), H)
                    for j in range(KW if any_size else cols):
                        if there & inside(int32(left + j * options[5]), W):
                            at_x = start + i * options[4] * W + j * options[5]
                            total += load(x, at_x) * load(weight, tap + i * KW + j)
            if has_bias:
                total += bias[o]
            out[int64(cuda.blockIdx.x) * positions + at] = total

    return conv_direct


def input_template(taps: Pair, unit: bool) -> Callable:
    """The Python function of `conv_direct_input`; `unit` is for strides of 1."""
    rows, cols = taps
    any_size = taps == ANY

    def conv_direct_input(grad, weight, out, image, window, options, axes):
        """A thread makes pixels of one plane of the input's gradient.

        # grad [N, O, OH, OW], weight [O, K, KH, KW] -> out [N, C, H, W]
        # image, window, options: as in `conv_direct`; axes: magic of W and both strides

            for n, c, h, w:  out = sum over o of c's group, i, j of
                grad[n, o, (h + padding - i * dilation) / stride, ..]
                * weight[o, k, i, j]

        where both divisions leave no rest: the windows that cover the pixel. A pixel
        gathers what the windows would scatter, so no two threads write to one place.
        """
        C, H, W, K = image
        O, OH, OW, KH, KW, outs, positions = window
        n, c = divmod(int64(cuda.blockIdx.x), C)
        group, k = divmod(c, K)
        begin = int64(cuda.blockIdx.y) * CHUNK
        for at in range(begin + cuda.threadIdx.x, min(begin + CHUNK, H * W), THREADS):
            h = divide(at, axes[0], axes[1])
            w = at - h * W + options[3]
            h += options[2]
            total = grad.dtype.type(0)
            for o in range(group * outs, group * outs + outs):
                plane, tap = (n * O + o) * positions, (o * K + k) * KH * KW
                for i in range(KH if any_size else rows):
                    p, rest = h - i * options[4], int64(0)
                    if not unit:
                        down, p = p, divide(max(p, 0), axes[2], axes[3])
                        rest = down - p * options[0]
                    there = inside(int32(p), OH) & (rest == 0)
                    for j in range(KW if any_size else cols):
                        q, rest = w - j * options[5], int64(0)
                        if not unit:
                            right, q = q, divide(max(q, 0), axes[4], axes[5])
                            rest = right - q * options[1]
                        if there & inside(int32(q), OW) & (rest == 0):
                            value = load(grad, plane + p * OW + q)
                            total += value * load(weight, tap + i * KW + j)
            out[int64(cuda.blockIdx.x) * H * W + at] = total

    return conv_direct_input


@cache
def direct_kernel(taps: Pair) -> Kernel:
    """The kernel `conv_direct` for kernels of this size."""
    size = taps if taps in USUAL else ANY
    return Kernel(
        direct_template(size),
        f"conv_direct[{size[0]}x{size[1]}]",
        examples=[f"{ARRAYS} float32[] 4*int64 7*int64 6*int64 4*int64 bool"],
        threads=THREADS,
    )


@cache
def input_kernel(taps: Pair, unit: bool) -> Kernel:
    """The kernel `conv_direct_input` for kernels of this size; strides 1 if `unit`."""
    size = taps if taps in USUAL else ANY
    return Kernel(
        input_template(size, unit),
        f"conv_direct_input[{size[0]}x{size[1]}{' unit' if unit else ''}]",
        examples=[f"{ARRAYS} 4*int64 7*int64 6*int64 6*int64"],
        threads=THREADS,
    )


def sum_of_block(dtype: Any) -> Any:
    """A device function: the sum of all threads' numbers, for thread 0."""

    def sum_block(value):
        # BEGIN TWIN a4.3
        shared = cuda.shared.array(THREADS, dtype)
        thread = cuda.threadIdx.x
        shared[thread] = value
        half = THREADS // 2
        while half > 0:
            cuda.syncthreads()
            if thread < half:
                shared[thread] += shared[thread + half]
            half //= 2
        return shared[0]
        # END TWIN a4.3

    return device(sum_block)


def conv_direct_weight(dtype: DType) -> Callable:
    """A block makes one number of the weight's gradient.

    # grad [N, O, OH, OW], x [N, C, H, W] -> out [O, K, KH, KW]
    # image, window, options: as in `conv_direct`; axes: magic of OH * OW and OW

        for o, k, i, j:  out = sum over n, p, q of
            grad[n, o, p, q] * x[n, c, p * stride + i * dilation - padding, ..]

    Thread t adds the positions t, t + THREADS, ..., and the threads' sums meet in a
    tree: a fixed order, without atomics.
    """
    sum_block = sum_of_block(NUMBERS[dtype.name])

    def kernel(grad, x, out, image, window, options, axes, total_m):
        C, H, W, K = image
        O, _, OW, KH, KW, outs, positions = window
        rest, j = divmod(int64(cuda.blockIdx.x), KW)
        rest, i = divmod(rest, KH)
        o, k = divmod(rest, K)
        source = (o // outs * K + k) * H * W
        top, left = i * options[4] - options[2], j * options[5] - options[3]
        total = grad.dtype.type(0)
        for m in range(cuda.threadIdx.x, total_m, THREADS):
            n = divide(m, axes[0], axes[1])
            at = m - n * positions
            p = divide(at, axes[2], axes[3])
            row = p * options[0] + top
            col = (at - p * OW) * options[1] + left
            if 0 <= row < H and 0 <= col < W:
                pixel = x[n * C * H * W + source + row * W + col]
                total += grad[(n * O + o) * positions + at] * pixel
        total = sum_block(total)
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = total

    return kernel


DIRECT_WEIGHT = KernelFamily(
    conv_direct_weight, "T[] T[] T[] 4*int64 7*int64 6*int64 4*int64 int64",
    (float32,), (float64,), threads=THREADS,
)  # fmt: skip


def _register() -> None:
    """Make the kernels that tests compile and `minitorch inspect` shows."""
    for taps in (USUAL[0], ANY):
        direct_kernel(taps)
        for unit in (True, False):
            input_kernel(taps, unit)


_register()
