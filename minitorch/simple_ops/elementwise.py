"""Apply a function of numbers to every element.

With this file one can `map` a function over a tensor, `zip` two tensors with a function
of two numbers, and choose between two tensors (`where`). What is computed for one
element stands in `minitorch/operators.py`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable

import minitorch.operators as operators
from minitorch.dtypes import DType
from minitorch.simple_ops.lists import read, tensor, write
from minitorch.tensor_data import TensorData, broadcast_shapes


def map(
    fn: Callable,
    a: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given.

    a [*] -> [*]. `out` may be `a` itself: all is read before anything is written.
    """
    # BEGIN SOLUTION a2.3
    values = operators.map(fn, read(a))
    if out is not None:
        return write(out, values)
    return tensor(values, a.shape, dtype or a.dtype)
    # END SOLUTION a2.3


def zip(
    fn: Callable,
    a: TensorData,
    b: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i], b[i]), of type `dtype` (a's if None), into `out` if given.

    a and b broadcast to one shape: a [4, 1], b [3] -> [4, 3]. `out` may be a or b.
    """
    # BEGIN SOLUTION a2.3
    shape = broadcast_shapes(a.shape, b.shape)
    values = operators.zip_with(fn, read(a.expand(shape)), read(b.expand(shape)))
    if out is not None:
        return write(out, values)
    return tensor(values, shape, dtype or a.dtype)
    # END SOLUTION a2.3


def where(
    condition: TensorData, a: TensorData, b: TensorData, out: TensorData | None = None
) -> TensorData:
    """out[i] = a[i] if condition[i] else b[i]; all three broadcast to one shape."""
    shape = broadcast_shapes(condition.shape, a.shape, b.shape)
    choices = read(condition.expand(shape))
    xs, ys = read(a.expand(shape)), read(b.expand(shape))
    values = [operators.where(c, x, y) for c, x, y in builtins.zip(choices, xs, ys)]
    return tensor(values, shape, a.dtype) if out is None else write(out, values)
