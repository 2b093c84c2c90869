"""Pooling over windows of a plane, forward and backward.

With this file one can take the maximum (`max_pool2d`) or the mean (`avg_pool2d`) of
each window of x [N, C, H, W], and bring gradients back to x (`max_pool2d_backward`,
`avg_pool2d_backward`).

Three of the four gather: a thread makes one number and reads what it is made of. The
gradient of a maximum cannot, since only the index says where it belongs: it scatters
into a plane in shared memory, one number a pixel at a time (`max_pool_scatter`). Sums
have the order of the CPU's, so the bits agree too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from numba import cuda, float32, float64, int32, int64

from cuda_ops.block.intrinsics import device
from cuda_ops.block.rows import KernelFamily
from cuda_ops.conv.plan import magic, out_size
from cuda_ops.conv.tiles import divide
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div, kernel
from minitorch import dtypes
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]

THREADS = 16 if TINY else 256
# Numbers that one launch makes.
MOST = 1 << 30
NUMBERS = {"float32": float32, "float64": float64}

# Windows that have a kernel of their own, whose loops the compiler unrolls, so that all
# of a window's pixels are on their way at once.
USUAL = ((2, 2), (3, 3))
ANY = (0, 0)


@device
def window_of(i, sizes, window, magics):
    """Where the plane of output i begins in x, and where its window begins there."""
    plane = divide(i, magics[0], magics[1])
    at = i - plane * sizes[2] * sizes[3]
    oh = divide(at, magics[2], magics[3])
    top = oh * window[2] - window[4]
    left = (at - oh * sizes[3]) * window[3] - window[5]
    return plane * sizes[0] * sizes[1], top, left


# ------------------------------------------------------------------------- maxima


def max_template(kernel: Pair, padded: bool) -> Callable:
    """The Python function of `max_pool_windows` for one size of window, or for any."""
    rows, cols = kernel
    any_size = kernel == ANY

    def max_pool_windows(x, out, index, sizes, window, magics, count):
        """Maxima of windows and their places; a thread makes one of each.

        # x [P, H, W] -> out [P, OH, OW], index [P, OH, OW]
        # sizes: H, W, OH, OW; window: kernel, stride, padding, dilation, in pairs
        # magics: of OH * OW and OW

            for p, oh, ow, kh, kw:
                out[p, oh, ow] = max(itself,
                    x[p, oh * s0 - p0 + kh * d0, ow * s1 - p1 + kw * d1])

        Neighbouring threads make neighbouring outputs, so a warp reads whole lines of
        x. Without padding every window lies inside of the plane, and nothing is
        checked.
        """
        i = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if i >= count:
            return
        H, W = sizes[0], sizes[1]
        plane, top, left = window_of(i, sizes, window, magics)
        best, where = out.dtype.type(0), int64(-1)
        for kh in range(window[0] if any_size else rows):
            h = top + kh * window[6]
            for kw in range(window[1] if any_size else cols):
                w = left + kw * window[7]
                if not padded or (0 <= h < H and 0 <= w < W):
                    value = x[plane + h * W + w]
                    larger = not (value <= best) and best == best
                    if where < 0 or larger:
                        best = value
                        where = h * W + w
        if where < 0:
            best = out.dtype.type(-math.inf)
            where = int64(0)
        out[i] = best
        index[i] = where

    return max_pool_windows


def _launches(
    planes: int, sizes: tuple[int, ...], *arrays: Any
) -> Sequence[tuple[Any, ...]]:
    """Planes in portions that 30-bit numbers can count: (planes, arrays' parts ...).

    Args:
        sizes: elements of a plane in each array.
    """
    most = max(1, MOST // max(1, *sizes))
    if planes <= most:
        return ((planes, *arrays),)
    ends = [(first, min(first + most, planes)) for first in range(0, planes, most)]
    return [
        (last - first, *(a[first * n : last * n] for a, n in zip(arrays, sizes)))
        for first, last in ends
    ]


def max_pool2d(
    x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[TensorData, TensorData]:
    """x [N, C, H, W] -> maxima and their int64 positions h * W + w in the plane."""
    shape, sizes, magics, pixels, each = _plan(
        x.shape, kernel, stride, padding, dilation
    )
    out, index = empty(shape, x.dtype), empty(shape, dtypes.int64)
    size = kernel if kernel in USUAL else ANY
    run = window_kernel(max_template, size, padding != (0, 0))
    window = (*kernel, *stride, *padding, *dilation)
    arrays = (contiguous(x).flat(), out.flat(), index.flat())
    for planes, *parts in _launches(shape[0] * shape[1], (pixels, each, each), *arrays):
        count = planes * each
        run[ceil_div(count, THREADS), THREADS](*parts, sizes, window, magics, count)
    return out, index


@lru_cache(maxsize=1024)
def _plan(
    shape: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Shape, tuple[int, ...], tuple[int, ...], int, int]:
    """The shape of the result, what kernels call sizes and magics, and how many pixels
    and windows a plane has."""
    n, c, h, w = shape
    oh, ow = map(out_size, (h, w), kernel, stride, padding, dilation)
    magics = *magic(max(1, oh * ow)), *magic(max(1, ow))
    return (n, c, oh, ow), (h, w, oh, ow), magics, h * w, oh * ow


# Pixels that a block keeps in shared memory.
BAND = 64 if TINY else 4096
# The owner of a pixel that nobody wants to add to.
FREE = 1 << 30


def max_pool_scatter(dtype: DType) -> Callable:
    """Add each gradient at its place; a block makes some planes, or part of one.

    # grad [P, OH * OW], index [P, OH * OW] -> out [P, H * W]
    # sizes: P, OH * OW, H * W, planes of a block, bands of a plane
    # magics: of OH * OW

        for p, i:  out[p, index[p, i]] += grad[p, i]

    Windows may overlap, so several gradients may belong to one pixel. Each thread takes
    one gradient; the threads that want the same pixel draw lots (an atomic minimum of
    their numbers), the lowest adds, and the others try again: sums are in the order of
    the windows, whatever the threads do. Where windows do not overlap the first round
    is the last one.
    """
    number = NUMBERS[dtype.name]

    def kernel(grad, index, out, sizes, magics):
        shared = cuda.shared.array(BAND, number)
        owner = cuda.shared.array(BAND, int32)
        thread = cuda.threadIdx.x
        P, positions, pixels, many, bands = sizes
        portion = int64(cuda.blockIdx.x) // bands
        low = (int64(cuda.blockIdx.x) - portion * bands) * BAND
        first = portion * many
        planes = min(many, P - first)
        pixels_here = min(planes * pixels - low, BAND)
        for i in range(thread, pixels_here, THREADS):
            shared[i] = number(0)
            owner[i] = FREE
        cuda.syncthreads()
        for start in range(0, planes * positions, THREADS):
            i = start + thread
            place, value = int64(-1), number(0)
            if i < planes * positions:
                place = index[first * positions + i] - low
                place += divide(i, magics[0], magics[1]) * pixels
                value = grad[first * positions + i]
            # Every thread takes part in every round, as there are barriers in it.
            waiting = 0 <= place < pixels_here
            while cuda.syncthreads_or(int32(1) if waiting else int32(0)):
                if waiting:
                    cuda.atomic.min(owner, place, thread)
                cuda.syncthreads()
                chosen = waiting and owner[place] == thread
                cuda.syncthreads()
                if chosen:
                    shared[place] += value
                    owner[place] = FREE
                    waiting = False
        cuda.syncthreads()
        for i in range(thread, pixels_here, THREADS):
            out[first * pixels + low + i] = shared[i]

    return kernel


MAX_POOL_SCATTER = KernelFamily(
    max_pool_scatter, "T[] int64[] T[] 5*int64 2*int64",
    (dtypes.float32,), (dtypes.float64,),
    threads=THREADS,
)  # fmt: skip


def max_pool2d_backward(
    grad: TensorData, index: TensorData, x_shape: Shape
) -> TensorData:
    """grad [N, C, OH, OW] added up at the positions `index` of each plane."""
    dx = empty(x_shape, grad.dtype)
    planes, pixels = x_shape[0] * x_shape[1], x_shape[2] * x_shape[3]
    positions = grad.shape[2] * grad.shape[3]
    if dx.size == 0:
        return dx
    # Planes of a block: as many as fit, but no more than keep its threads busy.
    enough = ceil_div(2 * THREADS, max(1, positions))
    many = max(1, min(BAND // pixels, enough, ceil_div(planes, 1024)))
    bands = ceil_div(many * pixels, BAND)
    MAX_POOL_SCATTER[grad.dtype,][ceil_div(planes, many) * bands, THREADS](
        contiguous(grad).flat(), contiguous(index).flat(), dx.flat(),
        (planes, positions, pixels, many, bands), magic(max(1, positions)),
    )  # fmt: skip
    return dx


# -------------------------------------------------------------------------- means


def mean_template(kernel: Pair, padded: bool) -> Callable:
    """The Python function of `mean_pool_windows` for one size of window, or for any."""
    rows, cols = kernel
    any_size = kernel == ANY

    def mean_pool_windows(x, out, sizes, window, magics, count, count_pad):
        """Means of windows; a thread makes one.

        # x [P, H, W] -> out [P, OH, OW]
        # sizes: H, W, OH, OW; window: kernel, stride, padding
        # magics: of OH * OW and OW

            for p, oh, ow:  out = sum of the window's x / how many it counts
        """
        i = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if i >= count:
            return
        H, W = sizes[0], sizes[1]
        plane, top, left = window_of(i, sizes, window, magics)
        total = out.dtype.type(0)
        for kh in range(window[0] if any_size else rows):
            for kw in range(window[1] if any_size else cols):
                h, w = top + kh, left + kw
                if not padded or (0 <= h < H and 0 <= w < W):
                    total += x[plane + h * W + w]
        number = window[0] * window[1]
        if padded and not count_pad:
            down = min(top + window[0], H) - max(top, 0)
            number = down * (min(left + window[1], W) - max(left, 0))
        out[i] = total / out.dtype.type(number)

    return mean_pool_windows


EXAMPLES = {
    max_template: "float32[] float32[] int64[] 4*int64 8*int64 4*int64 int64",
    mean_template: "float32[] float32[] 4*int64 6*int64 4*int64 int64 bool",
}


@cache
def window_kernel(template: Callable, kernel: Pair, padded: bool) -> Kernel:
    """The kernel of a template of `EXAMPLES` for windows of this size, or of any."""
    fn = template(kernel, padded)
    size = "any" if kernel == ANY else f"{kernel[0]}x{kernel[1]}"
    name = f"{fn.__name__}[{size}{' padded' if padded else ''}]"
    return Kernel(fn, name, examples=[EXAMPLES[template]], threads=THREADS)


def avg_pool2d(
    x: TensorData, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: bool,
) -> TensorData:  # fmt: skip
    """x [N, C, H, W] -> means of windows; padding counts as 0, or not at all."""
    shape, sizes, magics, pixels, each = _plan(x.shape, kernel, stride, padding, (1, 1))
    out = empty(shape, x.dtype)
    size = kernel if kernel in USUAL else ANY
    run = window_kernel(mean_template, size, padding != (0, 0))
    arrays = (contiguous(x).flat(), out.flat())
    for planes, *parts in _launches(shape[0] * shape[1], (pixels, each), *arrays):
        count = planes * each
        run[ceil_div(count, THREADS), THREADS](
            *parts, sizes, (*kernel, *stride, *padding), magics, count,
            bool(count_include_pad),
        )  # fmt: skip
    return out


@kernel(
    examples=["float32[] float32[] 4*int64 6*int64 8*int64 int64 bool"],
    threads=THREADS,
)
def mean_pool_gather(grad, out, sizes, window, magics, count, count_pad):
    """The gradient of a mean: a thread adds up what the windows give to one pixel.

    # grad [P, OH, OW] -> out [P, H, W]
    # sizes: H, W, OH, OW; window: kernel, stride, padding
    # magics: of H * W, W and both strides

        for p, h, w:  out = sum over the windows that cover the pixel of
            grad[p, oh, ow] / how many numbers the window counts
    """
    i = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
    if i >= count:
        return
    H, W, OH, OW = sizes
    k0, k1, s0, s1, p0, p1 = window
    plane = divide(i, magics[0], magics[1])
    at = i - plane * H * W
    row = divide(at, magics[2], magics[3])
    h, w = row + p0, at - row * W + p1
    first_h = divide(max(h - k0 + s0, 0), magics[4], magics[5])
    first_w = divide(max(w - k1 + s1, 0), magics[6], magics[7])
    last_h = min(divide(h, magics[4], magics[5]), OH - 1)
    last_w = min(divide(w, magics[6], magics[7]), OW - 1)
    total = out.dtype.type(0)
    for oh in range(first_h, last_h + 1):
        top = oh * s0 - p0
        down = min(top + k0, H) - max(top, 0)
        for ow in range(first_w, last_w + 1):
            left = ow * s1 - p1
            number = k0 * k1
            if not count_pad:
                number = down * (min(left + k1, W) - max(left, 0))
            value = grad[plane * OH * OW + oh * OW + ow]
            total += value / out.dtype.type(number)
    out[i] = total


def avg_pool2d_backward(
    grad: TensorData, x_shape: Shape, kernel: Pair, stride: Pair, padding: Pair,
    count_include_pad: bool,
) -> TensorData:  # fmt: skip
    """The gradient for x [N, C, H, W] from grad [N, C, OH, OW]."""
    n, c, h, w = x_shape
    oh, ow = grad.shape[2:]
    dx = empty(x_shape, grad.dtype)
    arrays = (contiguous(grad).flat(), dx.flat())
    for planes, *parts in _launches(n * c, (oh * ow, h * w), *arrays):
        count = planes * h * w
        magics = (*magic(max(1, h * w)), *magic(max(1, w)))
        mean_pool_gather[ceil_div(count, THREADS), THREADS](
            *parts, (h, w, oh, ow), (*kernel, *stride, *padding),
            (*magics, *magic(stride[0]), *magic(stride[1])), count,
            bool(count_include_pad),
        )  # fmt: skip
    return dx


for _size in (*USUAL, ANY):
    for _padded in (False, True):
        for _template in EXAMPLES:  # for tests to compile, and `minitorch inspect`
            window_kernel(_template, _size, _padded)
