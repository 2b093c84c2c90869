"""What follows the matrix product of a layer: a bias, and an activation.

With this file one can add a bias to every row of a matrix and apply a function to the
sums (`bias_activation`), and carry a gradient back through that function
(`bias_activation_backward`).
"""

from __future__ import annotations

from collections.abc import Callable

from minitorch import operators
from minitorch.simple_ops.lists import read, tensor, write
from minitorch.tensor_data import TensorData


def bias_activation(
    x: TensorData,
    bias: TensorData,
    fn: Callable | None,
    out: TensorData | None = None,
) -> TensorData:
    """out = fn(x + bias), or x + bias where `fn` is None, for x [R, N] and bias [N].

    Into `out` [R, N] if given, which may be x: all is read before anything is written.
    """
    values = sums(x, bias)
    if fn is not None:
        values = operators.map(fn, values)
    return tensor(values, x.shape, x.dtype) if out is None else write(out, values)


def bias_activation_backward(
    grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
) -> TensorData:
    """The gradient for x [R, N]: fn_backward(grad, x + bias), bias [N]."""
    values = operators.zip_with(fn_backward, read(grad), sums(x, bias))
    return tensor(values, x.shape, x.dtype)


def sums(x: TensorData, bias: TensorData) -> list[float]:
    """The elements of x + bias, row by row; element i stands in column i % N."""
    shifts = read(bias)
    return [value + shifts[i % len(shifts)] for i, value in enumerate(read(x))]
