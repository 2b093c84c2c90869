"""Sorting: a stable merge sort along one dimension."""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, device_function
from fast_ops.memory import back, copy, empty, last
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData


def _before(x: float, y: float, descending: bool) -> bool:
    """Whether x must stand before y; NaN is above all numbers."""
    if descending:
        return x > y or (x != x and y == y)
    return x < y or (y != y and x == x)


before = device_function(_before)


def _sort_rows(values: np.ndarray, index: np.ndarray, n: int, descending: bool) -> None:
    for r in prange(values.size // n):
        v = values[r * n : r * n + n]
        p = index[r * n : r * n + n]
        w = np.empty_like(v)
        q = np.empty_like(p)
        for i in range(n):
            p[i] = i
        width = 1
        while width < n:
            for low in range(0, n, 2 * width):
                mid = min(low + width, n)
                high = min(low + 2 * width, n)
                i = low
                j = mid
                for k in range(low, high):
                    if j >= high or (i < mid and not before(v[j], v[i], descending)):
                        w[k] = v[i]
                        q[k] = p[i]
                        i += 1
                    else:
                        w[k] = v[j]
                        q[k] = p[j]
                        j += 1
            for k in range(n):
                v[k] = w[k]
                p[k] = q[k]
            width *= 2


def _first_rows(
    a: np.ndarray, n: int, k: int, descending: bool, values: np.ndarray,
    index: np.ndarray,
) -> None:  # fmt: skip
    """The first k of each row of n, sorted: what comes is put among the best so far."""
    for r in prange(index.size // k):
        x = a[r * n : r * n + n]
        v = values[r * k : r * k + k]
        p = index[r * k : r * k + k]
        for i in range(n):
            if i >= k and not before(x[i], v[k - 1], descending):
                continue
            j = min(i, k - 1)
            while j > 0 and before(x[i], v[j - 1], descending):
                v[j] = v[j - 1]
                p[j] = p[j - 1]
                j -= 1
            v[j] = x[i]
            p[j] = i


FIRST_ROWS = compile_kernel(_first_rows), compile_kernel(_first_rows, parallel=True)
SHORT = 32  # up to so many are inserted faster than runs of them are merged
SORT_ROWS = compile_kernel(_sort_rows), compile_kernel(_sort_rows, parallel=True)
MANY = SERIAL_LIMIT // 8  # an element is moved log2(n) times


def sort(a: TensorData, dim: int, descending: bool) -> tuple[TensorData, TensorData]:
    """Sorted values and their int64 positions; stable; NaN is above all numbers."""
    n = a.shape[dim] if a.dims else 1
    if n <= SHORT:
        return first(a, n, dim, descending)
    rows = last(a, dim)
    values = copy(rows, a.dtype) if rows is a else rows
    index = empty(values.shape, int64)
    size = index.size
    if size:
        SORT_ROWS[size >= MANY](values.flat(), index.flat(), n, descending)
    return back(values, dim), back(index, dim)


def first(
    a: TensorData, k: int, dim: int, descending: bool
) -> tuple[TensorData, TensorData]:
    """The first k of a sort along `dim`, and their int64 positions, by insertion."""
    rows = last(a, dim)
    shape = (*rows.shape[:-1], k) if rows.shape else ()
    values, index = empty(shape, a.dtype), empty(shape, int64)
    size, n = index.size, rows.shape[-1] if rows.shape else 1
    if size:
        kernel = FIRST_ROWS[rows.size >= MANY]
        kernel(rows.flat(), n, k, descending, values.flat(), index.flat())
    return back(values, dim), back(index, dim)
