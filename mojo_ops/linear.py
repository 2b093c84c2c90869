"""Bias and activation in one pass: calls of `linear.mojo`.

With this file the backend adds a bias to every row of a matrix and applies a function
of one number to the sums (`bias_rows`), and carries a gradient back through that
function (`bias_rows_backward`). An operator that `elementwise.mojo` lacks, such as a
user's own, is left to the launcher.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitorch import operators
from minitorch.dtypes import from_numpy_dtype
from mojo_ops.bridge import Library
from mojo_ops.elementwise import MAP, TESTS, ZIP, Rows

kernels = Library("linear")


def bias_rows(fn: Callable, x: np.ndarray, bias: np.ndarray, out: np.ndarray) -> bool:
    """out = fn(x + bias) for x [R, N], which may be `out`; see `BiasRows`."""
    row = _row(MAP, fn, out)
    kernels.bias_rows(x, x, bias, out, row, 0)
    return row != 0


def bias_rows_backward(
    fn: Callable, grad: np.ndarray, x: np.ndarray, bias: np.ndarray, out: np.ndarray
) -> bool:
    """out = fn(grad, x + bias) for x [R, N]."""
    row = _row(ZIP, fn, out)
    kernels.bias_rows(grad, x, bias, out, 0, row)
    return row != 0


def _row(rows: Rows, fn: Callable, out: np.ndarray) -> int:
    """The loop of an operator whose results are numbers of the kernel's types, or 0."""
    if fn is operators.identity or fn in TESTS:
        return 0
    return rows[fn, from_numpy_dtype(out.dtype)]
