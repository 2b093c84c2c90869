"""Bias and activation in one pass: launchers of `linear.mojo`.

With this file one can add a bias to every row of a matrix and apply a function of one
number to the sums (`bias_activation`), and carry a gradient back through that function
(`bias_activation_backward`). An operator that `elementwise.mojo` lacks, such as a
user's own, is applied in a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from fast_ops.memory import overlap
from minitorch import operators
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.elementwise import MAP, TESTS, ZIP, map, same_window, zip
from mojo_ops.memory import contiguous, copy_into, empty

kernels = Library("linear")


def bias_activation(
    x: TensorData,
    bias: TensorData,
    fn: Callable | None,
    out: TensorData | None = None,
) -> TensorData:
    """out = fn(x + bias), or x + bias where `fn` is None, for x [R, N] and bias [N].

    Into `out` [R, N] if given, which may be x.
    """
    row = 0 if fn is None or not _in_one_pass(fn, x) else MAP[fn, x.dtype]
    if out is not None and _needs_copy(out, x, bias):
        copy_into(out, bias_activation(x, bias, fn))
        return out
    out = empty(x.shape, x.dtype) if out is None else out
    x = contiguous(x)
    _bias_rows(x, x, bias, out, row, 0)
    if fn is not None and not row:
        map(fn, out, out=out)
    return out


def bias_activation_backward(
    grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
) -> TensorData:
    """The gradient for x [R, N]: fn_backward(grad, x + bias), bias [N]."""
    row = ZIP[fn_backward, x.dtype] if _in_one_pass(fn_backward, x) else 0
    out = empty(x.shape, x.dtype)
    _bias_rows(contiguous(grad), x, bias, out, 0, row)
    return out if row else zip(fn_backward, grad, out, x.dtype)


def _in_one_pass(fn: Callable, x: TensorData) -> bool:
    """Whether sums and results are numbers of the kernel's types."""
    return x.dtype.is_floating_point and fn not in TESTS


def _needs_copy(out: TensorData, x: TensorData, bias: TensorData) -> bool:
    """Whether the kernel cannot write to `out` while it reads the others."""
    clash = overlap(x, out) and not same_window(x, out)
    return clash or overlap(bias, out) or not out.is_contiguous()


def _bias_rows(
    grad: TensorData, x: TensorData, bias: TensorData, out: TensorData,
    map_row: int, zip_row: int,
) -> None:  # fmt: skip
    """out = x + bias, then the row function on it; see `BiasRows`."""
    if not x.dtype.is_floating_point:
        zip(operators.add, x, bias, out=out)
    elif out.size:
        kernels.bias_rows(
            grad.flat(), contiguous(x).flat(), contiguous(bias).flat(), out.flat(),
            map_row, zip_row, *x.shape, x.dtype.itemsize,
        )  # fmt: skip
