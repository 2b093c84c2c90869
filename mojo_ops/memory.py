"""Memory of the device "mojo": NumPy arrays on the host, as on "cpu".

With this file one can make tensors (`empty`, `full`), and lay strided windows out row
by row (`copy`, `copy_into`, `contiguous`), as `minitorch/backend/host/memory.py` says;
the loops that a strided window needs are planned there too. The copying itself is done
by the Mojo kernels of `elementwise.mojo`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minitorch.backend.host.memory import HostMemory, plan
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, Strides, TensorData
from mojo_ops.bridge import Library

kernels = Library("elementwise")


class MojoMemory(HostMemory):
    """Tensors of the device "mojo"."""

    _device = "mojo"

    def _move(self, out: TensorData, a: TensorData) -> None:
        run_map(_cast(a.storage.dtype, out.storage.dtype), a, out)


_mojo = MojoMemory()
empty, full, copy = _mojo.empty, _mojo.full, _mojo.copy
copy_into, contiguous = _mojo.copy_into, _mojo.contiguous


def relabelled(a: TensorData) -> TensorData:
    """`a`, made by another backend of the host, as a tensor of this device."""
    a.storage.device = MojoMemory._device
    return a


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
    """The four loops over operands with these strides (see `plan`)."""
    found = plan(shape, *strides)
    words = [*found.shape, *(step for steps in found.strides for step in steps)]
    return Loops(np.array(words, np.int64), found.outer)


@lru_cache(maxsize=64)
def _cast(source: DType, target: DType) -> int:
    """The address of the loop that converts one type to the other."""
    if source is target:
        # The elements are moved as they are, NaN and all their bits.
        name = {1: "int8", 4: "int32", 8: "int64"}[source.itemsize]
        return int(kernels.find_cast(name, name))
    return int(kernels.find_cast(source.name, target.name))


def run_map(row: int, a: TensorData, out: TensorData) -> None:
    """Call the loop at `row` on all elements of `a` and `out`, of one shape."""
    if a.is_contiguous() and out.is_contiguous():
        kernels.map_flat(row, a.flat(), out.flat())
        return
    if 0 in out.shape:
        return
    x, z = a.storage.array, out.storage.array
    plan, outer = loops(out.shape, a.strides, out.strides)
    for p, q in outer:
        kernels.map_strided(row, plan, x, a.offset + p, z, out.offset + q)
