"""Elementwise operations: one scalar function, applied to every element.

With this file one can apply a function of one number to a tensor (`map`), of two
numbers to two tensors that broadcast (`zip`), and choose between two tensors (`where`).

`map` and `zip` are higher-order: a *template* such as `zip_flat` is the kernel, and
`cuda_ops.runtime.launch.Kernels` makes one of it for each scalar function. There is a
template for each way the operands can lie:

    map_flat, zip_flat           no gaps, the same shape     vectors of 16 bytes
    zip_number                   b is a Python number        b is an argument
    zip_repeated                 b repeats: a row, a column, vectors, b from the cache
                                 a channel, one element
    map_strided, zip_strided     everything else             an element a thread

What limits these kernels is memory. To keep it busy there must be enough bytes under
way: 4.8 TB/s times a latency of 0.6 us is 3 MB, or 22 KB for each of 132 SMs. A load of
4 bytes by each of 2,048 threads is 8 KB; two loads of 16 bytes are 64 KB (Little's
law; Volkov, "Understanding Latency Hiding on GPUs", 2016). So a thread of a flat kernel
loads two vectors of 16 bytes before it stores the first (`*_large`). More is no gain:
blocks of 128 threads with two vectors reached 4.23 TB/s on an H200, 256 with four 4.05.
Below `LARGE` elements there is one vector a thread, so that all SMs get work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, int64, uint32

from cuda_ops.block.intrinsics import device, is_aligned, load, load4, store, store4
from cuda_ops.memory import (
    LIMIT,
    STEP,
    THREADS,
    TILE,
    contiguous,
    copy_into,
    empty,
    overlap,
    place,
    plan,
    position,
    split,
)
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernels, ceil_div, kernel
from minitorch import operators
from minitorch.backend.host.memory import repeats, same_window
from minitorch.backend.low_precision import unrounded
from minitorch.dtypes import DType, computed
from minitorch.tensor_data import Shape, TensorData, broadcast_shapes
from minitorch.todo import unwritten_task

# Elements from which on a thread has two vectors.
LARGE = 2 * TILE if TINY else 2**21

# How `b` of `zip_repeated` lies: see there.
ONE_BY_ONE, ROW, RUN = 0, 1, 2


# -------------------------------------------------------------------------- map


def _map_vector(fn: Callable) -> Callable:
    """out[i : i + 4] = fn(a[i : i + 4]), at once if `vectors`."""

    @device
    def vector(a, out, i, vectors):
        # BEGIN SOLUTION a4.1
        if vectors and i + 4 <= out.size:
            x0, x1, x2, x3 = load4(a, i)
            store4(out, i, fn(x0), fn(x1), fn(x2), fn(x3))
        else:
            for j in range(i, min(i + 4, out.size)):
                store(out, j, fn(load(a, j)))
        # END SOLUTION a4.1

    return vector


def map_flat(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i]) over flat arrays.

    # a [N] -> out [N]

    Thread number t makes the elements 4t to 4t + 3.
    """
    vector = _map_vector(fn)

    def loop(a, out, vectors):
        # BEGIN SOLUTION a4.1
        vector(a, out, int64(cuda.grid(1)) * 4, vectors)
        # END SOLUTION a4.1

    return loop


def map_large(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i]) over large flat arrays.

    # a [N] -> out [N]

    A block makes a tile of `TILE` elements, and each thread two vectors of it, `STEP`
    elements apart: in each load a warp reads 512 bytes side by side. Both loads come
    before the first store, because the compiler may not move them there: for all it
    knows, `out` may be `a`. What is left over for the last block is done vector by
    vector.
    """
    vector = _map_vector(fn)

    def loop(a, out, vectors):
        # BEGIN SOLUTION a4.1
        start = int64(cuda.blockIdx.x) * TILE
        i = start + cuda.threadIdx.x * 4
        if vectors and start + TILE <= out.size:
            a0, a1, a2, a3 = load4(a, i)
            b0, b1, b2, b3 = load4(a, i + STEP)
            store4(out, i, fn(a0), fn(a1), fn(a2), fn(a3))
            store4(out, i + STEP, fn(b0), fn(b1), fn(b2), fn(b3))
        else:
            for j in range(i, min(start + TILE, out.size), STEP):
                vector(a, out, j, vectors)
        # END SOLUTION a4.1

    return loop


def map_strided(fn: Callable) -> Callable:
    """Make the kernel out[e] = fn(a[i, j, k, x]), any strides on a; out has no gaps.

    Thread e makes element e = ((i * J + j) * K + k) * X + x of `out`.
    """

    def loop(a, a_at, a_steps, out, out_at, shape, size):
        # BEGIN SOLUTION a4.2
        e = cuda.grid(1)
        if e < size:
            i, j, k, x = place(e, shape)
            value = load(a, a_at + position(i, j, k, x, a_steps))
            store(out, out_at + e, fn(value))
        # END SOLUTION a4.2

    return loop


# -------------------------------------------------------------------------- zip


def _zip_vector(fn: Callable) -> Callable:
    """out[i : i + 4] = fn(a[i : i + 4], b[i : i + 4]), at once if `vectors`."""

    @device
    def vector(a, b, out, i, vectors):
        # BEGIN SOLUTION a4.1
        if vectors and i + 4 <= out.size:
            x0, x1, x2, x3 = load4(a, i)
            y0, y1, y2, y3 = load4(b, i)
            store4(out, i, fn(x0, y0), fn(x1, y1), fn(x2, y2), fn(x3, y3))
        else:
            for j in range(i, min(i + 4, out.size)):
                store(out, j, fn(load(a, j), load(b, j)))
        # END SOLUTION a4.1

    return vector


def zip_flat(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i], b[i]) over flat arrays; threads as `map_flat`.

    # a [N], b [N] -> out [N]
    """
    vector = _zip_vector(fn)

    def loop(a, b, out, vectors):
        # BEGIN SOLUTION a4.1
        vector(a, b, out, int64(cuda.grid(1)) * 4, vectors)
        # END SOLUTION a4.1

    return loop


def zip_large(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i], b[i]) over large flat arrays.

    # a [N], b [N] -> out [N]

    Threads as `map_large`.
    """
    vector = _zip_vector(fn)

    def loop(a, b, out, vectors):
        # BEGIN SOLUTION a4.1
        start = int64(cuda.blockIdx.x) * TILE
        i = start + cuda.threadIdx.x * 4
        if vectors and start + TILE <= out.size:
            a0, a1, a2, a3 = load4(a, i)
            c0, c1, c2, c3 = load4(a, i + STEP)
            b0, b1, b2, b3 = load4(b, i)
            d0, d1, d2, d3 = load4(b, i + STEP)
            store4(out, i, fn(a0, b0), fn(a1, b1), fn(a2, b2), fn(a3, b3))
            store4(out, i + STEP, fn(c0, d0), fn(c1, d1), fn(c2, d2), fn(c3, d3))
        else:
            for j in range(i, min(start + TILE, out.size), STEP):
                vector(a, b, out, j, vectors)
        # END SOLUTION a4.1

    return loop


def zip_number(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i], y) for a number y; threads as `map_flat`.

    # a [N] -> out [N]
    """

    def loop(a, y, out, vectors):
        # BEGIN TWIN a4.1
        i = int64(cuda.grid(1)) * 4
        if vectors and i + 4 <= out.size:
            x0, x1, x2, x3 = load4(a, i)
            store4(out, i, fn(x0, y), fn(x1, y), fn(x2, y), fn(x3, y))
        else:
            for j in range(i, min(i + 4, out.size)):
                store(out, j, fn(load(a, j), y))
        # END TWIN a4.1

    return loop


def zip_repeated(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(a[i], b[i // inner % M]).

    # a [N], b [M] -> out [N]

    This is a [R, M] with a row b [M] (inner = 1), a [M, inner] with a column b [M, 1],
    images [B, M, inner] with a number for each channel, or one number for all (M = 1).
    Threads as `map_flat`. b is small and stays in the cache. `mode` says how the four
    elements of a thread meet b: four neighbours (ROW: inner is 1, and M a multiple of
    4), one and the same (RUN: inner is a multiple of 4), or ONE_BY_ONE.

    Positions are counted in 32 bits, because divisions of 64 bits are slow.
    """

    def loop(a, b, out, inner, mode):
        # BEGIN SOLUTION a4.2
        i = int64(cuda.grid(1)) * 4
        m, n = uint32(b.size), uint32(inner)
        if i + 4 <= out.size and mode != ONE_BY_ONE:
            x0, x1, x2, x3 = load4(a, i)
            if mode == ROW:
                y0, y1, y2, y3 = load4(b, int64(uint32(i) % m))
                store4(out, i, fn(x0, y0), fn(x1, y1), fn(x2, y2), fn(x3, y3))
            else:
                y = load(b, int64(uint32(uint32(i) // n) % m))
                store4(out, i, fn(x0, y), fn(x1, y), fn(x2, y), fn(x3, y))
        else:
            for j in range(i, min(i + 4, out.size)):
                y = load(b, int64(uint32(uint32(j) // n) % m))
                store(out, j, fn(load(a, j), y))
        # END SOLUTION a4.2

    return loop


def _swapped(fn: Callable) -> Callable:
    @device
    def swapped(x, y):
        return fn(y, x)

    return swapped


def zip_number_first(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(y, a[i]); see `zip_number`."""
    return zip_number(_swapped(fn))


def zip_repeated_first(fn: Callable) -> Callable:
    """Make the kernel out[i] = fn(b[i // inner % M], a[i]); see `zip_repeated`."""
    return zip_repeated(_swapped(fn))


def zip_strided(fn: Callable) -> Callable:
    """Make the kernel out[i, j, k, x] = fn(a[i, j, k, x], b[i, j, k, x]), any strides.

    A stride of 0 repeats an element, which is all that broadcasting is. Threads as
    `map_strided`.
    """

    def loop(a, a_at, a_steps, b, b_at, b_steps, out, out_at, out_steps, shape, size):
        # BEGIN SOLUTION a4.2
        e = cuda.grid(1)
        if e < size:
            i, j, k, x = place(e, shape)
            p = load(a, a_at + position(i, j, k, x, a_steps))
            q = load(b, b_at + position(i, j, k, x, b_steps))
            store(out, out_at + position(i, j, k, x, out_steps), fn(p, q))
        # END SOLUTION a4.2

    return loop


# Whether numbers have kernels of their own; students' editions can lack these.
NUMBERS = not SIMULATED and unwritten_task(zip_number) is None

MAPS = (operators.gelu,)
ZIPS = (operators.add, operators.gelu_backward)
MAP_FLAT = Kernels(map_flat, MAPS, ["float32[] float32[] bool"])
MAP_LARGE = Kernels(
    map_large, (*MAPS, operators.exp, operators.relu), ["float32[] float32[] bool"]
)
MAP_STRIDED = Kernels(
    map_strided, MAPS, ["float32[] int64 4*int64 float32[] int64 4*int64 int64"]
)
ZIP_FLAT = Kernels(zip_flat, ZIPS, ["float32[] float32[] float32[] bool"])
ZIP_LARGE = Kernels(zip_large, ZIPS, ["float32[] float32[] float32[] bool"])
ZIP_NUMBER = Kernels(zip_number, ZIPS[:1], ["float32[] float32 float32[] bool"])
ZIP_NUMBER_FIRST = Kernels(zip_number_first)
ZIP_REPEATED = Kernels(
    zip_repeated, ZIPS[:1], ["float32[] float32[] float32[] int64 int64"]
)
ZIP_REPEATED_FIRST = Kernels(zip_repeated_first)
ZIP_STRIDED = Kernels(
    zip_strided,
    ZIPS[:1],
    [
        "float32[] int64 4*int64 float32[] int64 4*int64 float32[] int64 4*int64 "
        "4*int64 int64"
    ],
)


# ---------------------------------------------------------------------- launchers


def map(
    fn: Callable, a: TensorData, dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""
    if out is not None:
        return _map_into(fn, a, out)
    out = empty(a.shape, dtype or a.storage.dtype)
    if a.contiguous:
        _map_flat(fn, a.flat(), out.storage.array)
    elif out.size:
        _map_strided(fn, a, out)
    return out


def _map_flat(fn: Callable, x: Any, z: Any) -> None:
    n = z.shape[0]
    if n < LARGE:
        MAP_FLAT[fn][-(-n // STEP), THREADS](x, z, is_aligned(x, z))
    else:
        MAP_LARGE[fn][ceil_div(n, TILE), THREADS](x, z, is_aligned(x, z))


def _map_strided(fn: Callable, a: TensorData, out: TensorData) -> None:
    loops = plan(a.shape, a.strides, out.strides)
    run = MAP_STRIDED[fn]
    x, z = a.storage.array, out.storage.array
    for shape, (p, q) in loops.launches:
        size = math.prod(shape)
        run[ceil_div(size, THREADS), THREADS](
            x, a.offset + p, loops.strides[0], z, q, shape, size
        )


def _map_into(fn: Callable, a: TensorData, out: TensorData) -> TensorData:
    if out.is_contiguous() and a.is_contiguous():
        if not overlap(a, out) or (a.storage is out.storage and a.offset == out.offset):
            _map_flat(fn, a.flat(), out.flat())
            return out
    copy_into(out, map(fn, a, out.dtype))
    return out


def zip(
    fn: Callable, a: TensorData, b: TensorData, dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""
    if out is not None:
        return _zip_into(fn, unrounded(a), unrounded(b), out)
    shape = a.shape
    dtype = dtype or a.storage.dtype
    if shape == b.shape:
        out = empty(shape, dtype)
        if a.contiguous and b.contiguous and shape:  # without dims, one may be a number
            _zip_flat(fn, a.flat(), b.flat(), out.storage.array)
            return out
    else:
        out = empty(broadcast_shapes(shape, b.shape), dtype)
    _zip_broadcast(fn, unrounded(a), unrounded(b), out)
    return out


def _zip_flat(fn: Callable, x: Any, y: Any, z: Any) -> None:
    n = z.shape[0]
    if n < LARGE:
        ZIP_FLAT[fn][-(-n // STEP), THREADS](x, y, z, is_aligned(x, y, z))
    else:
        ZIP_LARGE[fn][ceil_div(n, TILE), THREADS](x, y, z, is_aligned(x, y, z))


def _zip_broadcast(fn: Callable, a: TensorData, b: TensorData, out: TensorData) -> None:
    """Choose the kernel for operands that do not both lie as `out` does."""
    if 0 in out.shape:
        return
    if out.is_contiguous():
        if _lies_as(a, out) and _zip_second(fn, a, b, out, False):
            return
        if _lies_as(b, out) and _zip_second(fn, b, a, out, True):
            return
    a, b = a.expand(out.shape), b.expand(out.shape)
    loops = plan(out.shape, a.strides, b.strides, out.strides)
    run = ZIP_STRIDED[fn]
    x, y, z = a.storage.array, b.storage.array, out.storage.array
    for shape, (p, q, r) in loops.launches:
        size = math.prod(shape)
        run[ceil_div(size, THREADS), THREADS](
            x, a.offset + p, loops.strides[0],
            y, b.offset + q, loops.strides[1],
            z, out.offset + r, loops.strides[2],
            shape, size,
        )  # fmt: skip


def _lies_as(a: TensorData, out: TensorData) -> bool:
    return a.is_contiguous() and a.size == out.size


def _zip_second(
    fn: Callable, a: TensorData, b: TensorData, out: TensorData, swap: bool
) -> bool:
    """Run a kernel for an `a` that lies as `out` does, if b is a number or repeats."""
    x, z = a.flat(), out.flat()
    blocks = ceil_div(len(z), STEP)
    number = number_of(b)
    if number is not None:
        run = (ZIP_NUMBER_FIRST if swap else ZIP_NUMBER)[fn]
        run[blocks, THREADS](x, number, z, is_aligned(x, z))
        return True
    found = repeats(b.shape, b.strides, out.shape)
    if found is None or len(z) >= LIMIT:
        return False
    m, inner = found
    y = window(b, m)
    run = (ZIP_REPEATED_FIRST if swap else ZIP_REPEATED)[fn]
    run[blocks, THREADS](x, y, z, inner, repeat_mode(m, inner, x, y, z))
    return True


def window(a: TensorData, m: int) -> Any:
    """The `m` elements from the first of `a` on, one after the other in memory."""
    array, first = a.storage.array, a.offset
    return array if m == array.shape[0] else array[first : first + m]


def number_of(a: TensorData) -> Any:
    """The number that a kernel can take as an argument in the place of `a`, or None."""
    number = a.storage.array.number if NUMBERS else None
    return np.float32(number) if number is not None and a.dtype.half else number


def repeat_mode(m: int, inner: int, x: Any, y: Any, z: Any) -> int:
    """How a thread of `zip_repeated` finds its elements of b [m]."""
    if inner % 4 == 0 and is_aligned(x, z):
        return RUN
    if inner == 1 and m % 4 == 0 and is_aligned(x, y, z):
        return ROW
    return ONE_BY_ONE


def _zip_into(
    fn: Callable, a: TensorData, b: TensorData, out: TensorData
) -> TensorData:
    if a.shape == out.shape and (not overlap(b, out) or same_window(b, out)):
        if a is out or same_window(a, out) or not overlap(a, out):
            if b.shape == out.shape and a.contiguous and b.contiguous:
                if out.contiguous:
                    _zip_flat(fn, a.flat(), b.flat(), out.flat())
                    return out
            _zip_broadcast(fn, a, b, out)
            return out
    copy_into(out, zip(fn, a, b, out.dtype))
    return out


# -------------------------------------------------------------------------- where


@kernel(examples=["bool[] float32[] float32[] float32[] bool bool"], threads=THREADS)
def where_flat(condition, a, b, out, one_a, one_b):
    """out[i] = a[i] if condition[i] else b[i]; a and b may be one number each.

    # condition [N], a [N] or [1], b [N] or [1] -> out [N]

    Thread t makes elements 4t to 4t + 3; only one of a and b is read.
    """
    # BEGIN SOLUTION a4.1
    first = int64(cuda.grid(1)) * 4
    for i in range(first, min(first + 4, out.size)):
        if load(condition, i):
            store(out, i, load(a, 0 if one_a else i))
        else:
            store(out, i, load(b, 0 if one_b else i))
    # END SOLUTION a4.1


@kernel(examples=["bool[] float32[] float32 float32[] bool"], threads=THREADS)
def where_number(condition, a, y, out, swap):
    """out[i] = a[i] if condition[i] else y, or with `swap` y if condition[i] else a[i];
    threads as in `where_flat`."""
    first = int64(cuda.grid(1)) * 4
    for i in range(first, min(first + 4, out.size)):
        if load(condition, i) != swap:
            store(out, i, load(a, i))
        else:
            store(out, i, y)


def where(
    condition: TensorData, a: TensorData, b: TensorData, out: TensorData | None = None
) -> TensorData:
    """out[i] = a[i] if condition[i] else b[i]; all broadcast. `out` may be a or b."""
    shape = broadcast_shapes(condition.shape, a.shape, b.shape)
    out = out or empty(shape, a.dtype)
    chosen, z, swap = expanded(condition, shape), out.flat(), False
    x, y = unrounded(a), unrounded(b)
    blocks, number = ceil_div(len(z), STEP), number_of(y)
    if number is None:
        x, y, swap, number = y, x, True, number_of(x)
    if number is not None:
        where_number[blocks, THREADS](chosen, expanded(x, shape), number, z, swap)
    else:
        x, y = _one_or_all(y, shape), _one_or_all(x, shape)
        where_flat[blocks, THREADS](chosen, x, y, z, a.size == 1, b.size == 1)
    return out


def _one_or_all(a: TensorData, shape: Shape) -> Any:
    if a.size == 1:
        return a.storage.array[a.offset : a.offset + 1]
    return expanded(a, shape)


def expanded(a: TensorData, shape: Shape) -> Any:
    return contiguous(a if a.shape == shape else a.expand(shape)).flat()


# ---------------------------------------------------------------- clamp and band

at_least, at_most = device(operators.maximum), device(operators.minimum)


@kernel(examples=["float32[] float32 float32 float32[]"], threads=THREADS)
def clamp_flat(a, low, high, out):
    """out[i] = min(max(a[i], low), high); threads as in `where_flat`."""
    first = int64(cuda.grid(1)) * 4
    for i in range(first, min(first + 4, out.size)):
        store(out, i, at_most(at_least(load(a, i), low), high))


def clamp(
    a: TensorData, low: Any, high: Any, out: TensorData | None = None
) -> TensorData:
    """a raised to `low`, then lowered to `high`, unless None. `out` has no gaps."""
    out, kind = out or empty(a.shape, a.dtype), computed(a.dtype).numpy
    most: Any = np.iinfo(kind).max if kind.kind == "i" else math.inf
    low, high = (-most - 1 if low is None else low), (most if high is None else high)
    clamp_flat[ceil_div(out.size, STEP), THREADS](
        contiguous(a).flat(), kind.type(low), kind.type(high), out.flat()
    )
    return out


@kernel(examples=[f"{t}[] int64 int64 int64 int64 {t}[]" for t in ("float32", "bool")])
def band_flat(a, rows, cols, low, high, out):
    """out[*, r, c] = a[*, r, c] where low <= c - r <= high, else 0; a thread each.

    # a [*, rows, cols] -> out [*, rows, cols]
    """
    e = cuda.grid(1)
    if e < out.size:
        line, c = split(e, cols)
        _, r = split(line, rows)
        inside = low <= c - r and c - r <= high
        store(out, e, load(a, e) if inside else 0)


def band(a: TensorData, low: int, high: int) -> TensorData:
    """a [*, M, N] where low <= column - row <= high, else 0."""
    out = empty(a.shape, a.dtype)
    x, z = contiguous(a).flat(), out.flat()
    band_flat[ceil_div(len(z), 256), 256](x, *a.shape[-2:], low, high, z)
    return out
