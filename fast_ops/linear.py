"""Bias and activation: what follows the matrix product of a layer, in one pass.

With this file the backend adds a bias to every row of a matrix and applies a function
of one number to the sums (`bias_rows_any`), and carries a gradient back through that
function (`bias_rows_backward_any`). Written as two operations, the sums are stored and
loaded once more; here they only ever exist in registers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, Kernels


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


def bias_rows_any(
    fn: Callable, x: np.ndarray, bias: np.ndarray, out: np.ndarray
) -> bool:
    """out = fn(x + bias) for x [R, N], which may be `out`, by the loop that fits."""
    parallel = len(out) >= SERIAL_LIMIT
    if x is out:
        IN_PLACE[parallel][fn](out, bias)
    else:
        ROWS[parallel][fn](x, bias, out)
    return True


def bias_rows_backward_any(
    fn: Callable, grad: np.ndarray, x: np.ndarray, bias: np.ndarray, out: np.ndarray
) -> bool:
    """out = fn(grad, x + bias) for x [R, N]."""
    BACKWARD[len(out) >= SERIAL_LIMIT][fn](grad, x, bias, out)
    return True
