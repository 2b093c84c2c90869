"""Put the elements of lines in order.

With this file one can `sort` a tensor along a dimension and learn where each element
came from.
"""

from __future__ import annotations

import minitorch.operators as operators
from minitorch.dtypes import int64
from minitorch.simple_ops.lists import lines, read, tensor
from minitorch.tensor_data import TensorData


def sort(a: TensorData, dim: int, descending: bool) -> tuple[TensorData, TensorData]:
    """a [M, N] -> sorted values [M, N] and their int64 positions [M, N].

    Equal elements keep their order, in both directions. NaN is above all numbers.
    """
    values = read(a)
    ordered, positions = list(values), [0] * len(values)
    for line in lines(a.shape, dim):
        keys = [(operators.isnan(values[p]), values[p]) for p in line]
        order = sorted(range(len(line)), key=keys.__getitem__, reverse=descending)
        for p, i in zip(line, order):
            ordered[p] = values[line[i]]
            positions[p] = i
    return tensor(ordered, a.shape, a.dtype), tensor(positions, a.shape, int64)
