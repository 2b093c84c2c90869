"""Sorting: a stable merge sort along one dimension; and the middle of the order.

With this file one can `sort` lines, find the `first` few of their order by insertion,
and the one in its middle (`median`) by selection, which sorts nothing.
"""

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


# ------------------------------------------------------------------------- the middle

FEW = 48  # of so many, it is quicker to count for each what is below it
MULTIPLIER, INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


@device_function
def to_front(v: np.ndarray, pivot: float, equal: bool) -> int:
    """Move what is below `pivot`, or is `equal`, to the front; how many these are.

    Each element changes places with the first one that is not there yet; whether it
    counts is added, and no branch has to be guessed. (A branch costs most of the time
    where numbers come in any order.) The index is unsigned as in `at`.
    """
    count = np.uint64(0)
    for i in range(v.size):
        x = v[i]
        v[i] = v[count]
        v[count] = x
        count += np.uint64((x < pivot) | (equal & (x == pivot)))
    return np.int64(count)


@device_function
def nth(v: np.ndarray, k: int) -> float:
    """The element that stands at place `k` of v's order, without NaN; v is reordered.

    Quickselect: the pivot is the middle one of three elements, whose places no data can
    foresee; only the side that has place k goes on. Source: Hoare, "Algorithm 65:
    Find", 1961.
    """
    seed = np.uint64(k)
    while v.size > FEW:
        seed = seed * MULTIPLIER + INCREMENT
        x = v[np.int64(seed >> np.uint64(33)) % v.size]
        y, z = v[np.int64(seed >> np.uint64(13)) % v.size], v[v.size // 2]
        pivot = max(min(x, y), min(max(x, y), z))
        count = to_front(v, pivot, False)
        if count == 0:  # it is the lowest
            count = to_front(v, pivot, True)
            if k < count:
                return pivot
        if k < count:
            v = v[:count]
        else:
            v, k = v[count:], k - count
    for i in range(v.size):
        x, below, same = v[i], np.float32(0), np.float32(0)
        for j in range(v.size):  # in float32, since Numba would count in int64
            below += np.float32(v[j] < x)
            same += np.float32(v[j] == x)
        if below <= k < below + same:
            break
    return x


def _median_rows(a: np.ndarray, n: int, values: np.ndarray, index: np.ndarray) -> None:
    """The middle one of each row of n, and where it is. Threads share rows."""
    for r in prange(index.size):
        x = a[r * n : r * n + n]
        w = np.empty_like(x)
        unknown = np.float32(0)
        for i in range(n):
            w[i] = x[i]
            unknown += np.float32(x[i] != x[i])
        middle, place = (n - 1) // 2, 0
        if unknown > 0:
            while x[place] == x[place]:
                place += 1
        else:
            best = nth(w, middle)
            for i in range(n):
                middle -= x[i] < best
            # Of those that equal it, number `middle`.
            while x[place] != best or middle > 0:
                middle -= x[place] == best
                place += 1
        values[r] = x[place]
        index[r] = place


MEDIAN_ROWS = compile_kernel(_median_rows), compile_kernel(_median_rows, parallel=True)


def median(a: TensorData, dim: int) -> tuple[TensorData, TensorData]:
    """The middle one along `dim` (kept as 1), and where it is; see the contract."""
    rows, n = last(a, dim), a.shape[dim]
    shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
    values, index = empty(shape, a.dtype), empty(shape, int64)
    if index.size:
        kernel = MEDIAN_ROWS[rows.size >= MANY and index.size > 1]
        kernel(rows.flat(), n, values.flat(), index.flat())
    return values, index
