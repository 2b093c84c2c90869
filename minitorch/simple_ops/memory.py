"""Make tensors, copy them, and exchange them with NumPy.

With this file one can create (`empty`, `full`, `from_numpy`), read (`to_numpy`),
convert (`copy`) and overwrite (`copy_into`) tensors. Memory is a flat NumPy array;
NumPy is a container here and does no mathematics.
"""

from __future__ import annotations

import math

import numpy as np

from minitorch.dtypes import DType, bfloat16, from_numpy_dtype
from minitorch.simple_ops.lists import DEVICE, pack, read, tensor, write
from minitorch.tensor_data import Shape, TensorData


def empty(shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor whose elements have no particular value."""
    array = np.empty(math.prod(shape), dtype.numpy)
    return TensorData.around(array, dtype, DEVICE, shape)


def full(shape: Shape, value: float, dtype: DType) -> TensorData:
    """A contiguous tensor with `value` everywhere."""
    array = np.repeat(pack([value], dtype), math.prod(shape))
    return TensorData.around(array, dtype, DEVICE, shape)


def from_numpy(array: np.ndarray) -> TensorData:
    """A tensor that shares the array's memory if that is contiguous and writable."""
    dtype = from_numpy_dtype(array.dtype)
    flat = np.require(array, requirements=["C", "ALIGNED", "WRITEABLE"]).reshape(-1)
    return TensorData.around(flat, dtype, DEVICE, array.shape)


def to_numpy(a: TensorData) -> np.ndarray:
    """A NumPy array of a's shape that shares its memory."""
    return a.array()


def copy(a: TensorData, dtype: DType) -> TensorData:
    """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""
    if dtype is bfloat16:
        return tensor(read(a), a.shape, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        array = a.array().astype(dtype.numpy, order="C")
    return TensorData.around(array.reshape(-1), dtype, DEVICE, a.shape)


def copy_into(out: TensorData, a: TensorData) -> None:
    """out[...] = a, any strides on both, even where the two share memory."""
    write(out, read(a))
