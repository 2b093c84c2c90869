"""Elementwise operations: one scalar function, applied to every element.

With this file one can apply a function of one number to a tensor (`map`), of two
numbers to two tensors that broadcast (`zip`), and choose between two tensors (`where`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, specialize
from fast_ops.memory import contiguous, empty
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData, broadcast_shapes


def map_flat(fn: Callable) -> Callable:
    """The loop out[i] = fn(a[i]) over flat arrays."""

    def loop(a: np.ndarray, out: np.ndarray) -> None:
        for i in prange(out.size):
            out[i] = fn(a[i])

    return loop


def zip_flat(fn: Callable) -> Callable:
    """The loop out[i] = fn(a[i], b[i]) over flat arrays."""

    def loop(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        for i in prange(out.size):
            out[i] = fn(a[i], b[i])

    return loop


def _where_flat(
    condition: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> None:
    for i in prange(out.size):
        out[i] = a[i] if condition[i] else b[i]


where_flat = compile_kernel(_where_flat)
where_flat_parallel = compile_kernel(_where_flat, parallel=True)


def map(
    fn: Callable,
    a: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""
    from fast_ops.memory import copy_into

    fresh = empty(a.shape, dtype or (out or a).dtype)
    flat = fresh.flat()
    run = specialize(map_flat, fn, flat.size >= SERIAL_LIMIT)
    run(contiguous(a).flat(), flat)
    if out is None:
        return fresh
    copy_into(out, fresh)
    return out


def zip(
    fn: Callable,
    a: TensorData,
    b: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""
    from fast_ops.memory import copy_into

    shape = broadcast_shapes(a.shape, b.shape)
    fresh = empty(shape, dtype or (out or a).dtype)
    flat = fresh.flat()
    run = specialize(zip_flat, fn, flat.size >= SERIAL_LIMIT)
    run(contiguous(a.expand(shape)).flat(), contiguous(b.expand(shape)).flat(), flat)
    if out is None:
        return fresh
    copy_into(out, fresh)
    return out


def where(condition: TensorData, a: TensorData, b: TensorData) -> TensorData:
    """out[i] = a[i] if condition[i] else b[i]; all three broadcast."""
    shape = broadcast_shapes(condition.shape, a.shape, b.shape)
    out = empty(shape, a.dtype)
    flat = out.flat()
    run = where_flat if flat.size < SERIAL_LIMIT else where_flat_parallel
    c, x, y = (contiguous(t.expand(shape)).flat() for t in (condition, a, b))
    run(c, x, y, flat)
    return out
