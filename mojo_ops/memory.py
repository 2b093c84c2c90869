"""Memory of the device "mojo": NumPy arrays on the host, as on "cpu".

With this file one can make tensors (`empty`, `full`, `from_numpy`), look at them as
NumPy arrays without a copy (`to_numpy`), and lay strided windows out row by row
(`copy`, `copy_into`, `contiguous`). Arrays come from the pool of `fast_ops.memory`, and
the loops that a strided window needs are planned there too; the copying itself is done
by the Mojo kernels of `elementwise.mojo`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fast_ops import memory as host
from fast_ops.memory import POOLED, overlap, pooled, to_numpy
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, Strides, TensorData
from mojo_ops.bridge import Library

DEVICE = "mojo"
kernels = Library("elementwise")

__all__ = ["copy", "copy_into", "empty", "from_numpy", "full", "to_numpy"]


def empty(shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor whose elements have no particular value."""
    size = math.prod(shape)
    if size * dtype.itemsize < POOLED:
        return TensorData.around(np.empty(size, dtype.numpy), dtype, DEVICE, shape)
    return TensorData.around(pooled(size, dtype), dtype, DEVICE, shape)


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
    return relabelled(host.from_numpy(array))


def relabelled(a: TensorData) -> TensorData:
    """`a`, made by another backend of the host, as a tensor of this device."""
    a.storage.device = DEVICE
    return a


def synchronize() -> None:
    """Nothing is ever under way here when a function has returned."""


# ------------------------------------------------------------------- strided loops


class Loops(NamedTuple):
    """How a strided kernel visits some operands of one shape.

    Attributes:
        plan: four sizes, then four strides for each operand, as the kernel reads them.
        outer: for each call of the kernel, the offset to add for each operand.
    """

    plan: np.ndarray
    outer: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def loops(shape: Shape, *strides: Strides) -> Loops:
    """The four loops over operands with these strides (see `fast_ops.memory.plan`)."""
    way = host.plan(shape, *strides)
    words = [*way.shape, *(step for steps in way.strides for step in steps)]
    return Loops(np.array(words, np.int64), way.outer)


# ------------------------------------------------------------------------- copying


@lru_cache(maxsize=64)
def _cast(source: DType, target: DType) -> int:
    """The address of the loop that converts one type to the other."""
    if source is target:
        # The elements are moved as they are, NaN and all their bits.
        name = {1: "bool", 4: "int32", 8: "int64"}[source.itemsize]
        return int(kernels.find_move(name))
    return int(kernels.find_cast(source.name, target.name))


def copy(a: TensorData, dtype: DType) -> TensorData:
    """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""
    out = empty(a.shape, dtype)
    _move(out, a)
    return out


def copy_into(out: TensorData, a: TensorData) -> None:
    """out[...] = a, any strides on both; a already has out's shape and dtype.

    Where both share memory and may overlap, a is copied first.
    """
    if overlap(a, out):
        a = copy(a, a.dtype)
    _move(out, a)


def contiguous(a: TensorData) -> TensorData:
    """`a` itself if it lies row by row, else a copy that does."""
    return a if a.is_contiguous() else copy(a, a.dtype)


def _move(out: TensorData, a: TensorData) -> None:
    run_map(_cast(a.dtype, out.dtype), a, out)


def run_map(row: int, a: TensorData, out: TensorData) -> None:
    """Call the loop at `row` on all elements of `a` and `out`, of one shape."""
    x_item, z_item = a.dtype.itemsize, out.dtype.itemsize
    if a.is_contiguous() and out.is_contiguous():
        x, z = a.flat(), out.flat()
        kernels.map_flat(row, x, z, x_item, z_item, len(z))
        return
    if 0 in out.shape:
        return
    x, z = a.storage.array, out.storage.array
    plan, outer = loops(out.shape, a.strides, out.strides)
    for p, q in outer:
        kernels.map_strided(
            row, plan, x, a.offset + p, x_item, z, out.offset + q, z_item
        )
