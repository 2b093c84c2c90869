"""Sorting: a stable merge sort along one dimension."""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import compile_kernel, device_function
from fast_ops.memory import contiguous, copy, empty
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
            v[:] = w
            p[:] = q
            width *= 2


sort_rows = compile_kernel(_sort_rows, parallel=True)


def sort(a: TensorData, dim: int, descending: bool) -> tuple[TensorData, TensorData]:
    """Sorted values and their int64 positions; stable; NaN is above all numbers."""
    order = [i for i in range(a.dims) if i != dim]
    moved = a.permute([*order, dim]) if a.dims else a
    values = copy(moved, a.dtype)
    index = empty(moved.shape, int64)
    if index.size:
        n = a.shape[dim] if a.dims else 1
        sort_rows(values.flat(), index.flat(), n, descending)
    if not a.dims:
        return values, index
    back = list(range(a.dims - 1))
    back.insert(dim, a.dims - 1)
    return contiguous(values.permute(back)), contiguous(index.permute(back))
