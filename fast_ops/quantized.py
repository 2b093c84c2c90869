"""Products with a weight of bytes, or of four bits, converted in registers.

With this file the backend multiplies a few rows by a quantized weight
(`quantized_linear`). Each number of the weight is used once for each row, so for one
row the time is that of reading the weight from memory: a byte where float32 takes four,
or half a byte. For many rows a weight of four bits becomes floats (`dequantize`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL, both
from fast_ops.memory import contiguous, empty
from fast_ops.simd import packed_dot
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

# Rows of x up to which converting them all the while is the faster.
FEW = 32
# Rows of the weight in a task.
PART = 32


def _few_rows(x, weight, scale, bias, out, K):
    """A few rows of x times the rows of the weight.

    # x [R, K], weight int8 [N, K], scale [N], bias [N] or [0] -> out [R, N]

        parallel for parts of n:  for fours of r, n, k:
            out[r, n] += x[r, k] * weight[n, k]

    A vector of bytes becomes one of floats on its way to the multiply-adds, with two
    instructions for four rows of x. These stay in the first-level cache (12 KiB for 768
    columns) while the `PART` rows of the weight pass by, which come from memory for the
    first four and then from the cache. Scale and bias wait for the sums. Where less
    than four rows are left, the last is made several times, and written once; a single
    one goes alone.
    """
    N, R = scale.size, out.size // scale.size
    zero = out.dtype.type(0)
    for part in prange((N + PART - 1) // PART):
        first = np.int64(part) * PART
        last = min(first + PART, N)
        for r in range(0, R, 4):
            x0 = x[r * K : r * K + K]
            p, q, s = (
                min(r + 1, R - 1) * K,
                min(r + 2, R - 1) * K,
                min(r + 3, R - 1) * K,
            )
            x1, x2, x3 = x[p : p + K], x[q : q + K], x[s : s + K]
            for n in range(first, last):
                numbers = weight[n * K : n * K + K]
                a = b = c = d = zero
                if r + 1 == R:
                    for k in range(K):
                        a += x0[k] * out.dtype.type(numbers[k])
                else:
                    for k in range(K):
                        number = out.dtype.type(numbers[k])
                        a += x0[k] * number
                        b += x1[k] * number
                        c += x2[k] * number
                        d += x3[k] * number
                factor, after = scale[n], bias[n] if bias.size else zero
                out[min(r + 3, R - 1) * N + n] = d * factor + after
                out[min(r + 2, R - 1) * N + n] = c * factor + after
                out[min(r + 1, R - 1) * N + n] = b * factor + after
                out[r * N + n] = a * factor + after


def _few_rows_packed(x, weight, scale, bias, out, groups, half):
    """As `_few_rows`, for a weight of four bits.

    # x [R, groups * 2 * half], weight int8 [N, groups, half], scale [N, groups],
    # bias [N] or [0] -> out [R, N]
    """
    N, K = scale.size // groups, groups * half * 2
    R = out.size // N
    for part in prange((N + PART - 1) // PART):
        first = np.int64(part) * PART
        last = min(first + PART, N)
        for r in range(0, R, 4):
            for n in range(first, last):
                packed_dot(
                    x, r * K, K, min(4, R - r), weight, n * groups * half, scale,
                    n * groups, groups, half, out, r * N + n, N,
                )  # fmt: skip
        if bias.size:
            for r in range(R):
                for n in range(first, last):
                    out[r * N + n] += bias[n]


def _unpack(weight, scale, out, half):
    """out = scale * the numbers of four bits, in parallel for groups.

    # weight int8 [groups, half], scale [groups] -> out [groups, 2 * half]
    """
    for g in prange(scale.size):
        at, factor = np.int64(g) * half, scale[g]
        packed, made = weight[at : at + half], out[2 * at : 2 * (at + half)]
        for j in range(half):
            made[j] = factor * out.dtype.type((packed[j] & 15) - 8)
            made[half + j] = factor * out.dtype.type(packed[j] >> 4)


KERNELS = both(_few_rows, _few_rows_packed, _unpack)


def quantized_linear(
    x: TensorData, weight: TensorData, scale: TensorData, bias: TensorData | None
) -> TensorData | None:
    """As `Backend.quantized_linear` for up to `FEW` rows of x; None for more."""
    (R, K), N, dtype = x.shape, weight.shape[0], x.dtype
    alike = scale.dtype is dtype and (bias is None or bias.dtype is dtype)
    if not (0 < R <= FEW and N and K and alike):
        return None
    out, kernel, sizes = empty((R, N), dtype), KERNELS.few_rows, weight.shape[1:]
    if len(weight.shape) == 3:
        if sizes[1] % 16:
            return None
        kernel, x = KERNELS.few_rows_packed, _widened(x, 2 * sizes[0] * sizes[1])
    given: Any = [contiguous(a).flat() for a in (x, weight, scale)]
    shift = given[2][:0] if bias is None else contiguous(bias).flat()
    kernel[R * N * K > SERIAL](*given, shift, out.flat(), *sizes)
    return out


def _widened(x: TensorData, columns: int) -> TensorData:
    """x [R, K] with zeros behind each row, [R, columns]."""
    if x.shape[1] == columns:
        return x
    (R, K), made = x.shape, empty((x.shape[0], columns), x.dtype)
    rows: Any = made.flat().reshape(R, columns)
    rows[:, :K], rows[:, K:] = contiguous(x).flat().reshape(R, K), 0
    return made


def dequantize(
    weight: TensorData, scale: TensorData, columns: int, dtype: DType
) -> TensorData | None:
    """As `Backend.dequantize` for a weight of four bits; None for another."""
    if len(weight.shape) == 2 or scale.dtype is not dtype:
        return None
    N, groups, half = weight.shape
    out = empty((N, groups * 2 * half), dtype)
    given: Any = contiguous(weight).flat(), contiguous(scale).flat()
    KERNELS.unpack[out.size > SERIAL](*given, out.flat(), half)
    return out.slice(1, 0, columns)
