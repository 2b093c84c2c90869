"""Memory of the CPU: make tensors, exchange them with NumPy, copy them.

With this file one can make tensors (`empty`, `full`, `from_numpy`), look at them as
NumPy arrays without a copy (`to_numpy`), and lay any strided window out row by row
(`copy`, `copy_into`, `contiguous`).

It also holds what every strided kernel of this package needs: `plan`, which turns the
strides of some operands of one shape into four loops that one compiled kernel runs for
tensors of any number of dimensions.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel
from minitorch.dtypes import DType, from_numpy_dtype
from minitorch.tensor_data import Shape, Storage, Strides, TensorData

RANK = 4  # loops in a strided kernel; more dimensions are looped over in Python


# ------------------------------------------------------------------ making tensors


def empty(shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor whose elements have no particular value."""
    size = 1
    for n in shape:
        size *= n
    return TensorData(Storage(np.empty(size, dtype.numpy), dtype, "cpu"), shape)


def wrap(array: np.ndarray, shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor of `shape` on a flat array that it takes over."""
    return TensorData(Storage(array, dtype, "cpu"), shape)


def full(shape: Shape, value: float, dtype: DType) -> TensorData:
    """A contiguous tensor with `value` everywhere."""
    out = empty(shape, dtype)
    out.storage.array.fill(value)
    return out


def from_numpy(array: np.ndarray) -> TensorData:
    """A tensor that shares the array's memory, whatever its (positive) strides.

    Arrays that cannot be shared are copied: read-only ones, unaligned ones, and those
    with negative strides or with strides that are no multiple of the element size.
    """
    dtype = from_numpy_dtype(array.dtype)
    item = array.itemsize
    flags = array.flags
    if not (flags.writeable and flags.aligned) or any(
        step < 0 or step % item for step in array.strides
    ):
        array = np.array(array, order="C")
        flags = array.flags
    if flags.c_contiguous:
        return wrap(array.reshape(-1), array.shape, dtype)
    strides = tuple(step // item for step in array.strides)
    last = sum((n - 1) * step for n, step in zip(array.shape, strides))
    flat = np.lib.stride_tricks.as_strided(array, (last + 1,), (item,))
    return TensorData(Storage(flat, dtype, "cpu"), array.shape, strides)


def to_numpy(a: TensorData) -> np.ndarray:
    """A NumPy array that shares a's memory."""
    if a.is_contiguous():
        return a.flat().reshape(a.shape)
    return a.array()


def synchronize() -> None:
    """Nothing is ever under way here when a function has returned."""


# ------------------------------------------------------------------- strided loops


class Plan(NamedTuple):
    """How a kernel of `RANK` loops visits some operands of one shape.

    Attributes:
        shape: `RANK` sizes; the kernel's loops, the last one innermost.
        strides: for each operand `RANK` strides.
        outer: for each call of the kernel, the offset to add for each operand.
    """

    shape: Shape
    strides: tuple[Strides, ...]
    outer: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def plan(shape: Shape, *strides: Strides) -> Plan:
    """Merge dimensions that lie behind each other in all operands, and pad to `RANK`.

    >>> plan((2, 3, 5), (15, 5, 1), (0, 0, 1)).shape    # a row, added to 6 rows
    (1, 1, 6, 5)
    """
    dims = [
        (n, steps) for n, steps in zip(shape, zip(*strides)) if n != 1
    ]
    merged: list[tuple[int, tuple[int, ...]]] = []
    for n, steps in dims:
        if merged:
            outer_n, outer_steps = merged[-1]
            if all(o == n * s for o, s in zip(outer_steps, steps)):
                merged[-1] = (outer_n * n, steps)
                continue
        merged.append((n, steps))
    zeros = (0,) * len(strides)
    merged = [(1, zeros)] * (RANK - len(merged)) + merged
    loops, rest = merged[-RANK:], merged[:-RANK]
    outer = tuple(
        tuple(
            sum(i * steps[k] for i, (_, steps) in zip(index, rest))
            for k in range(len(strides))
        )
        for index in product(*(range(n) for n, _ in rest))
    )
    return Plan(
        tuple(n for n, _ in loops),
        tuple(tuple(steps[k] for _, steps in loops) for k in range(len(strides))),
        outer,
    )


# ------------------------------------------------------------------------- copying


def _copy_flat(a: np.ndarray, out: np.ndarray) -> None:
    """out[i] = a[i] for flat arrays; each thread takes one piece."""
    for i in prange(out.size):
        out[i] = a[i]


def _copy_strided(
    a: np.ndarray,
    a_at: int,
    a_steps: Strides,
    out: np.ndarray,
    out_at: int,
    out_steps: Strides,
    shape: Shape,
) -> None:
    """out[i, j, k, l] = a[i, j, k, l], any strides on both.

    Threads share the rows (i, j, k); a row is one loop over l.
    """
    for unsigned in prange(shape[0] * shape[1] * shape[2]):
        row = np.int64(unsigned)
        ij, k = divmod(row, shape[2])
        i, j = divmod(ij, shape[1])
        p = a_at + i * a_steps[0] + j * a_steps[1] + k * a_steps[2]
        q = out_at + i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
        for x in range(shape[3]):
            out[q + x * out_steps[3]] = a[p + x * a_steps[3]]


copy_flat = compile_kernel(_copy_flat)
copy_flat_parallel = compile_kernel(_copy_flat, parallel=True)
copy_strided = compile_kernel(_copy_strided)
copy_strided_parallel = compile_kernel(_copy_strided, parallel=True)


def copy_into(out: TensorData, a: TensorData) -> None:
    """out[...] = a, any strides on both; a already has out's shape and dtype.

    Where both share a storage, a is copied first, unless they do not overlap.
    """
    size = out.size
    if size == 0:
        return
    if a.storage is out.storage or np.may_share_memory(
        a.storage.array, out.storage.array
    ):
        a = copy(a, a.dtype)
    _move(out, a, size)


def copy(a: TensorData, dtype: DType) -> TensorData:
    """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""
    out = empty(a.shape, dtype)
    _move(out, a, out.storage.array.shape[0])
    return out


def contiguous(a: TensorData) -> TensorData:
    """`a` itself if it lies row by row, else a copy that does."""
    return a if a.is_contiguous() else copy(a, a.dtype)


def _move(out: TensorData, a: TensorData, size: int) -> None:
    serial = size < SERIAL_LIMIT
    if a.is_contiguous() and out.is_contiguous():
        flat: Any = copy_flat if serial else copy_flat_parallel
        flat(a.flat(), out.flat())
        return
    if size == 0:
        return
    strided: Any = copy_strided if serial else copy_strided_parallel
    way = plan(a.shape, a.strides, out.strides)
    x, y = a.storage.array, out.storage.array
    for p, q in way.outer:
        strided(
            x, a.offset + p, way.strides[0], y, out.offset + q, way.strides[1],
            way.shape,
        )  # fmt: skip
