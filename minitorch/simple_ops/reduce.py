"""Fold many elements into one, or into running totals.

With this file one can `reduce` dimensions with any function of two numbers (`add` gives
a sum, `maximum` a maximum), find where a line has its extremes (`argmax`, `argmin`),
and add up or multiply along a line (`cumsum`, `cumprod`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import minitorch.operators as operators
from minitorch.dtypes import DType, int64
from minitorch.simple_ops.lists import keep_dim, lines, read, tensor
from minitorch.tensor_data import TensorData, contiguous_strides, iter_positions


def reduce(
    fn: Callable,
    a: TensorData,
    dims: Sequence[int],
    start: float,
    dtype: DType | None = None,
) -> TensorData:
    """out = fn(... fn(fn(start, a0), a1) ...) over all elements of `dims`.

    a [M, N, K], dims (0, 2) -> [1, N, 1], of type `dtype` (a's if None). `start` is the
    identity of `fn`, and the result where there is nothing to fold.
    """
    dtype = dtype or a.dtype
    if not dtype.is_floating_point and math.isfinite(start):
        start = int(start)  # so that whole numbers stay exact, however large
    # BEGIN SOLUTION a2.3
    kept = tuple(1 if i in dims else size for i, size in enumerate(a.shape))
    folded = tuple(size if i in dims else 1 for i, size in enumerate(a.shape))
    values, strides = read(a), contiguous_strides(a.shape)
    results = []
    for first in iter_positions(kept, strides, 0):
        group = [values[p] for p in iter_positions(folded, strides, first)]
        results.append(operators.reduce(fn, group, start))
    return tensor(results, kept, dtype)
    # END SOLUTION a2.3


def argmax(a: TensorData, dim: int) -> TensorData:
    """a [M, N], dim 1 -> int64 [M, 1]: the first maximum of each line; NaN wins."""
    return _first_best(operators.gt, a, dim)


def argmin(a: TensorData, dim: int) -> TensorData:
    """a [M, N], dim 1 -> int64 [M, 1]: the first minimum of each line; NaN wins."""
    return _first_best(operators.lt, a, dim)


def _first_best(better: Callable, a: TensorData, dim: int) -> TensorData:
    values = read(a)
    positions = []
    for line in lines(a.shape, dim):
        best = 0
        for i in range(1, len(line)):
            if beats(better, values[line[i]], values[line[best]]):
                best = i
        positions.append(best)
    return tensor(positions, keep_dim(a.shape, dim), int64)


def beats(better: Callable, x: float, y: float) -> bool:
    """Whether x takes the place of y: it is better, or it is the first NaN."""
    return better(x, y) or (x != x and y == y)


def cumsum(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] + ... + a[i] along `dim`; each sum is rounded once."""
    return _running(operators.add, 0, a, dim)


def cumprod(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] * ... * a[i] along `dim`; each product is rounded once."""
    return _running(operators.mul, 1, a, dim)


def _running(fn: Callable, start: float, a: TensorData, dim: int) -> TensorData:
    values = read(a)
    for line in lines(a.shape, dim):
        total = start
        for i in line:
            total = fn(total, values[i])
            values[i] = total
    return tensor(values, a.shape, a.dtype)
