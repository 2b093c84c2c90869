"""float32 matrices as three planes of bfloat16, for tensor cores.

With this file one can write a float32 matrix as a sum of three of bfloat16 (`split`),
which `matmul_split` multiplies (`warpgroup.py`). A float32 has 24 bits, a bfloat16 the
same exponents and 8, so that nothing is lost:

    a0 = bfloat16(a)                  rounded to nearest; what is left, a - a0,
    a1 = bfloat16(a - a0)             has 16 bits at most, and then there are
    a2 = a - a0 - a1                  8

Infinity is 1 + 0 + infinity, and its negative -1 + 0 - infinity: a0 b0 + ... + a2 b0 is
then infinite with the sign that it should have, where infinity in the first plane would
meet b1 and b2, which may be 0. What is lost: a product within one percent of the
largest float32 may become infinite, and infinity times less than 2**-134 is NaN.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence
datatype for higher-precision computations", 2019.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import cuda, float32, int64, uint16, uint32

from cuda_ops.block.intrinsics import device, is_aligned, load, load4, store4
from cuda_ops.block.tiles import quotient
from cuda_ops.half import bits, float_of, word_of
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div
from minitorch import dtypes
from minitorch.tensor_data import Shape, Strides, TensorData

THREADS = 32 if TINY else 256
PLANES = 3
# Products of planes that `matmul_split` makes for one.
PRODUCTS = 6
# Words of a vector of 16 bytes, at whose multiples lines begin.
UNIT = 8
# The largest bfloat16: a float32 above it would be rounded to infinity.
LARGEST = np.float32(float.fromhex("0x1.fep127"))
FINITE, NAN = np.finfo(np.float32).max, np.float32(np.nan)


@device
def parts_of(x):
    """The bits of three bfloat16 whose sum is x."""
    high = nearest(max(-LARGEST, min(x, LARGEST)))
    rest = x - high
    middle = nearest(rest)
    low = rest - middle
    if not abs(x) <= FINITE:  # infinity, or NaN
        high, middle = float32(1) if x > 0 else float32(-1), float32(0)
        low = x if x == x else NAN
    return upper(high), upper(middle), upper(low)


@device
def nearest(x):
    """A float32 rounded to bfloat16, still as a float32."""
    return float_of((word_of(x) + uint32(0x8000)) & uint32(0xFFFF0000))


@device
def upper(x):
    return uint16(word_of(x) >> uint32(16))


def split_lines(a, at, pitch, out, n, long, vectors):
    """out[0] + out[1] + out[2] = a, whose lines get zeros at their ends.

    # a [R, n] from `at` on, lines `pitch` apart -> out [3, R, long]

    A thread splits four neighbours, which it reads at once if `vectors`.
    """
    plane = out.size // 3
    i = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * 4
    if i < plane:
        dense = n == pitch == long  # one line for all
        row = 0 if dense else quotient(i, long)
        k = i - row * long
        at += row * pitch + k
        end = plane if dense else n
        x = y = z = w = float32(0)
        if vectors:
            if k < end:
                x, y, z, w = load4(a, at)
        else:
            x = load(a, at) if k < end else x
            y = load(a, at + 1) if k + 1 < end else y
            z = load(a, at + 2) if k + 2 < end else z
            w = load(a, at + 3) if k + 3 < end else w
        x0, x1, x2 = parts_of(x)
        y0, y1, y2 = parts_of(y)
        z0, z1, z2 = parts_of(z)
        w0, w1, w2 = parts_of(w)
        store4(out, i, x0, y0, z0, w0)
        store4(out, plane + i, x1, y1, z1, w1)
        store4(out, 2 * plane + i, x2, y2, z2, w2)


SPLIT = Kernel(
    split_lines, "split_lines",
    ["float32[] int64 int64 uint16[] int64 int64 bool"], THREADS,
)  # fmt: skip


class Planes(NamedTuple):
    """How the planes of a matrix lie: its rows or, `turned`, its columns one behind the
    other, in `lines` of `long` numbers; strides, and how far planes are apart."""

    turned: bool
    lines: int
    long: int
    strides: Strides
    apart: int


@lru_cache(maxsize=4096)
def planes_of(shape: Shape, strides: Strides) -> Planes:
    """Planes for a [*, R, n] with these strides, 0 where batch dims repeat."""
    turned = strides[-1] != 1 and strides[-2] == 1
    rows, n = shape[-2:][:: -1 if turned else 1]
    long = n + -n % UNIT
    batch, lines = [], rows
    for size, step in zip(reversed(shape[:-2]), reversed(strides[:-2])):
        batch.append(0 if step == 0 or size == 1 else lines * long)
        lines *= size if step else 1
    pair = (1, long) if turned else (long, 1)
    return Planes(turned, lines, long, (*reversed(batch), *pair), lines * long)


def flipped(a: TensorData) -> TensorData:
    """a [*, R, n] as [*, n, R]."""
    return a.permute((*range(a.dims - 2), a.dims - 1, a.dims - 2))


def once(a: TensorData) -> TensorData:
    """a [*, R, n] with batch dims of 1 where they repeat."""
    if 0 not in a.strides[:-2]:
        return a
    batch = [1 if s == 0 else n for n, s in zip(a.shape[:-2], a.strides)]
    return TensorData(a.storage, (*batch, *a.shape[-2:]), a.strides, a.offset)


def split(a: TensorData) -> TensorData:
    """The first of three planes of a [*, R, n], with the strides of `planes_of`."""
    planes = planes_of(a.shape, a.strides)
    rows = flipped(once(a)) if planes.turned else once(a)
    if rows.dims != 2 or rows.strides[1] != 1:
        rows = contiguous(rows)
    n = rows.shape[-1]
    pitch = n if rows.contiguous else rows.strides[-2]
    out = empty((PLANES, planes.lines, planes.long), dtypes.bfloat16)
    source, vectors = rows.storage.array, not (n % 4 or pitch % 4 or rows.offset % 4)
    SPLIT[ceil_div(planes.apart, 4 * THREADS), THREADS](
        source, rows.offset, pitch, bits(out.flat()), n, planes.long,
        vectors and is_aligned(source),
    )  # fmt: skip
    return TensorData(out.storage, a.shape, planes.strides)
