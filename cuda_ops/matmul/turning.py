"""Matrices turned around, where a product gains more by that than the copy takes.

With this file one can bring large operands into the direction in which the kernels are
fastest (`turned`). `matmul_vectorized` multiplies one column of a by one row of b at a
time, and so it likes a to lie along M and b along N; `matmul_tensor_core` is slow only
where both lie along K.
"""

from __future__ import annotations

from cuda_ops.memory import copy
from minitorch import precision
from minitorch.dtypes import float32
from minitorch.tensor_data import TensorData

# Elements of a from which on a look at this pays.
TURN_LEAST = 2**18
# Fma that a product gains of all that it has, if a or b is turned around. On an H200 it
# is 0.16 and 0.08 where both come from memory; some must be left.
GAINS = (1 / 9, 1 / 18)
# What costs as long as so many fma: a launch, and an element that is read and written.
LAUNCH, ELEMENT = 2**26, 64


def turned(a: TensorData, b: TensorData) -> tuple[TensorData, TensorData]:
    """a [M, K] and b [K, N] of float32, or copies that lie in the other direction."""
    if a.dtype is not float32:
        return a, b
    along_k = a.strides[1] == 1 != a.strides[0], b.strides[0] == 1 != b.strides[1]
    if precision.state.allow_tf32:
        along_k = all(along_k), False
    fma = a.size * b.shape[1]
    x, y = (
        _transposed(x) if along and fma * gain > LAUNCH + ELEMENT * x.size else x
        for x, along, gain in zip((a, b), along_k, GAINS)
    )
    return x, y


def _transposed(a: TensorData) -> TensorData:
    """The same matrix, by columns if it was by rows, and the other way round."""
    if a.strides[1] == 1:
        return copy(a.permute((1, 0)), a.dtype).permute((1, 0))
    return copy(a, a.dtype)
