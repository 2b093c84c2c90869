"""Bias and activation in one pass: calls of `linear.mojo`.

With this file the backend adds a bias to every row of a matrix and applies a function
of one number to the sums (`bias_rows`), and carries a gradient back through that
function (`bias_rows_backward`). An operator that `elementwise.mojo` lacks, such as a
user's own, is applied in a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from minitorch import operators
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.elementwise import MAP, TESTS, ZIP, map, zip
from mojo_ops.memory import contiguous

kernels = Library("linear")


def bias_rows(fn: Callable, x: TensorData, bias: TensorData, out: TensorData) -> None:
    """out = fn(x + bias) for x [R, N], which may be `out`."""
    sums_alone = fn is operators.identity or not _in_one_pass(fn, x)
    row = 0 if sums_alone else MAP[fn, x.dtype]
    x = contiguous(x)
    _bias_rows(x, x, bias, out, row, 0)
    if not row and fn is not operators.identity:
        map(fn, out, out=out)


def bias_rows_backward(
    fn: Callable, grad: TensorData, x: TensorData, bias: TensorData, out: TensorData
) -> None:
    """out = fn(grad, x + bias) for x [R, N]."""
    row = ZIP[fn, x.dtype] if _in_one_pass(fn, x) else 0
    _bias_rows(contiguous(grad), contiguous(x), bias, out, 0, row)
    if not row:
        zip(fn, grad, out, out=out)


def _in_one_pass(fn: Callable, x: TensorData) -> bool:
    """Whether sums and results are numbers of the kernel's types."""
    return x.dtype.is_floating_point and fn not in TESTS


def _bias_rows(
    grad: TensorData, x: TensorData, bias: TensorData, out: TensorData,
    map_row: int, zip_row: int,
) -> None:  # fmt: skip
    """out = x + bias, then the row function on it; see `BiasRows`."""
    if not x.dtype.is_floating_point:
        zip(operators.add, x, bias, out=out)
    else:
        kernels.bias_rows(
            grad.flat(), x.flat(), contiguous(bias).flat(), out.flat(), map_row,
            zip_row, *x.shape, x.dtype.itemsize,
        )  # fmt: skip
