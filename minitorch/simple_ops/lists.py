"""Between tensors and Python lists: the border that every operation here crosses twice.

With this file one can `read` a tensor into a flat list of Python numbers, read it as
lists in lists (`nested`), make a new tensor from a list (`tensor`), or `write` a list
into an existing one. What happens in between is plain Python, in float64 or unbounded
integers; a result is rounded once, when it is stored.

Two helpers describe the paths of loops: `lines` (all lines of a tensor along one
dimension) and `flatten` (the way back from lists in lists).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minitorch.dtypes import DType, bfloat16
from minitorch.simple_ops.half import round_to_bfloat16
from minitorch.tensor_data import Shape, TensorData

DEVICE = "simple"


def read(a: TensorData) -> list[Any]:
    """The elements of `a` as Python numbers, in row-major order."""
    if a.is_contiguous():
        return a.flat().tolist()
    return a.storage.array[list(a.positions())].tolist()


def nested(a: TensorData) -> Any:
    """The elements of `a` as lists in lists: `nested(a)[i][j]` is a[i, j]."""
    return a.array().tolist()


def tensor(values: list[Any], shape: Shape, dtype: DType) -> TensorData:
    """A new contiguous tensor from its elements in row-major order."""
    return TensorData.around(pack(values, dtype), dtype, DEVICE, shape)


def write(out: TensorData, values: list[Any]) -> TensorData:
    """Put `values`, in row-major order, into `out`, which may have any strides."""
    out.storage.array[list(out.positions())] = pack(values, out.dtype)
    return out


def pack(values: list[Any], dtype: DType) -> np.ndarray:
    """A flat array of Python numbers: floats round, integers wrap around."""
    if dtype.is_floating_point:
        with np.errstate(over="ignore"):  # too large for float32: infinity
            if dtype is bfloat16:
                return round_to_bfloat16(np.array(values, np.float32))
            return np.array(values, np.float64).astype(dtype.numpy)
    if dtype.name == "bool":
        return np.array(values, np.bool_)
    half = 2 ** (8 * dtype.itemsize - 1)
    return np.array([wrap_around(value, half) for value in values], dtype.numpy)


def wrap_around(value: float, half: int) -> int:
    """`value` toward zero, then modulo 2 * half into [-half, half), as hardware does.

    NaN and infinity become -half.
    """
    if not isinstance(value, int):
        value = int(value) if math.isfinite(value) else -half
    return (value + half) % (2 * half) - half


def flatten(lists: Any) -> list[Any]:
    """The numbers in lists in lists, in row-major order."""
    if not isinstance(lists, list):
        return [lists]
    return [number for part in lists for number in flatten(part)]


def zeros(*shape: int) -> Any:
    """Lists in lists of zeros: `zeros(2, 3)` is [[0, 0, 0], [0, 0, 0]]."""
    return [zeros(*shape[1:]) for _ in range(shape[0])] if shape else 0


def lines(shape: Shape, dim: int) -> Iterator[range]:
    """For each line along `dim`, where its elements stand in the flat list.

    The lines come in row-major order of the other dimensions, so a list with one result
    for each line is a tensor of `shape` with a 1 at `dim`. The lines of (2, 3):

        dim 1: 0 1 2 | 3 4 5          dim 0: 0 3 | 1 4 | 2 5
    """
    shape = shape or (1,)  # a tensor without dimensions is one line of one element
    length, step = shape[dim], math.prod(shape[dim + 1 :])
    for outer in range(math.prod(shape[:dim])):
        for inner in range(step):
            start = outer * length * step + inner
            yield range(start, start + length * step, step)


def keep_dim(shape: Shape, dim: int) -> Shape:
    """`shape` with a 1 at `dim`: what is left when the lines along `dim` are folded."""
    return tuple(1 if i == dim else size for i, size in enumerate(shape))
