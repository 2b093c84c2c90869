"""Products with a weight of bytes: few rows times int8, converted in registers.

With this file the backend multiplies a few rows by a quantized weight
(`quantized_linear`). Each number of the weight is used once for each row, so for one
row the time is that of reading the weight from memory: a byte where float32 takes four.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL, both
from fast_ops.memory import contiguous, empty
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


KERNELS = both(_few_rows)


def quantized_linear(
    x: TensorData, weight: TensorData, scale: TensorData, bias: TensorData | None
) -> TensorData | None:
    """As `Backend.quantized_linear` for up to `FEW` rows of x; None for more."""
    (R, K), N, dtype = x.shape, weight.shape[0], x.dtype
    alike = scale.dtype is dtype and (bias is None or bias.dtype is dtype)
    if not (0 < R <= FEW and N and K and alike):
        return None
    out = empty((R, N), dtype)
    given: Any = [contiguous(a).flat() for a in (x, weight, scale)]
    shift = given[2][:0] if bias is None else contiguous(bias).flat()
    KERNELS.few_rows[R * N * K > SERIAL](*given, shift, out.flat(), K)
    return out
