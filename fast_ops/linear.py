"""Bias and activation: what follows the matrix product of a layer, in one pass.

With this file one can add a bias to every row of a matrix and apply a function of one
number to the sums (`bias_activation`), and carry a gradient back through that function
(`bias_activation_backward`). Written as two operations, the sums are stored and loaded
once more; here they only ever exist in registers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, Kernels
from fast_ops.memory import contiguous, copy_into, empty, overlap
from minitorch import operators
from minitorch.tensor_data import TensorData


def bias_rows(fn: Callable) -> Callable:
    """Make the loop out[r, j] = fn(x[r, j] + bias[j]).

    # x [R, N], bias [N] -> out [R, N]

    Threads share rows. The bias, 4 N bytes, stays in the first-level cache while the
    rows pass by. Slices tell LLVM that a row has no gaps, so it adds 16 at once.
    """

    def loop(x: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
        # BEGIN SOLUTION a8.1
        n = bias.size
        for r in prange(out.size // n):
            first = np.int64(r) * n
            a, z = x[first : first + n], out[first : first + n]
            for j in range(n):
                z[j] = fn(a[j] + bias[j])
        # END SOLUTION a8.1

    return loop


def bias_rows_in_place(fn: Callable) -> Callable:
    """Make the loop x[r, j] = fn(x[r, j] + bias[j]).

    `bias_rows` with out = x would be right too, but its vector code only runs after a
    check that the two do not overlap.
    """

    def loop(x: np.ndarray, bias: np.ndarray) -> None:
        # BEGIN SOLUTION a8.1
        n = bias.size
        for r in prange(x.size // n):
            first = np.int64(r) * n
            a = x[first : first + n]
            for j in range(n):
                a[j] = fn(a[j] + bias[j])
        # END SOLUTION a8.1

    return loop


def bias_rows_backward(fn: Callable) -> Callable:
    """Make the loop out[r, j] = fn(grad[r, j], x[r, j] + bias[j]); as `bias_rows`."""

    def loop(
        grad: np.ndarray, x: np.ndarray, bias: np.ndarray, out: np.ndarray
    ) -> None:
        # BEGIN SOLUTION a8.1
        n = bias.size
        for r in prange(out.size // n):
            first = np.int64(r) * n
            last = first + n
            g, a, z = grad[first:last], x[first:last], out[first:last]
            for j in range(n):
                z[j] = fn(g[j], a[j] + bias[j])
        # END SOLUTION a8.1

    return loop


ROWS = (Kernels(bias_rows), Kernels(bias_rows, parallel=True))
IN_PLACE = (Kernels(bias_rows_in_place), Kernels(bias_rows_in_place, parallel=True))
BACKWARD = (Kernels(bias_rows_backward), Kernels(bias_rows_backward, parallel=True))


def bias_activation(
    x: TensorData,
    bias: TensorData,
    fn: Callable | None,
    out: TensorData | None = None,
) -> TensorData:
    """out = fn(x + bias), or x + bias where `fn` is None, for x [R, N] and bias [N].

    Into `out` [R, N] if given, which may be x.
    """
    fn = fn or operators.identity
    bias = contiguous(bias)
    given = out is not None
    if out is None:
        out = empty(x.shape, x.storage.dtype)
    size = out.size
    if size == 0:
        return out
    parallel = size >= SERIAL_LIMIT
    if given and (not out.is_contiguous() or overlap(bias, out)):
        copy_into(out, bias_activation(x, bias, fn))
    elif given and _same(x, out):
        IN_PLACE[parallel][fn](out.flat(), bias.flat())
    elif given and overlap(x, out):
        copy_into(out, bias_activation(x, bias, fn))
    else:
        ROWS[parallel][fn](contiguous(x).flat(), bias.flat(), out.flat())
    return out


def _same(x: TensorData, out: TensorData) -> bool:
    """Whether x is `out` itself, element by element; `out` is contiguous."""
    return x is out or (
        x.storage is out.storage and x.offset == out.offset and x.is_contiguous()
    )


def bias_activation_backward(
    grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
) -> TensorData:
    """The gradient for x [R, N]: fn_backward(grad, x + bias), bias [N]."""
    out = empty(x.shape, x.storage.dtype)
    size = out.size
    if size:
        BACKWARD[size >= SERIAL_LIMIT][fn_backward](
            contiguous(grad).flat(),
            contiguous(x).flat(),
            contiguous(bias).flat(),
            out.storage.array,
        )
    return out
