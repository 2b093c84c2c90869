"""Random numbers: launchers of the kernels in `random.mojo`.

With this file one can fill tensors with uniform, normal or whole random numbers
(`uniform`, `normal`, `randint`), and drop elements at random (`dropout`). They are the
numbers of all other devices, bit for bit.
"""

from __future__ import annotations

import math

import numpy as np

from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, empty

kernels = Library("random")

UNIFORM, NORMAL, INTEGER, DROPOUT = range(4)  # as in random.mojo
LOW_63 = 2**63


def _signed(number: int) -> int:
    """The 64 bits of `number` as the kernel receives them, as a signed integer."""
    return (number + LOW_63) % 2**64 - LOW_63


def _draw(
    kind: int, x: np.ndarray, out: TensorData, seed: int, offset: int,
    low: int = 0, span: int = 0, scale: float = 0.0,
) -> TensorData:  # fmt: skip
    z = out.storage.array
    if len(z):
        kernels.draw(
            out.dtype.name, kind, x, z, len(z), _signed(seed), offset, low, span, scale
        )
    return out


def uniform(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Uniform numbers in [0, 1): element i from word i % 4 of Philox block
    `offset + i // 4` as (word >> 8) / 2**24."""
    out = empty(shape, dtype)
    return _draw(UNIFORM, out.storage.array, out, seed, offset)


def normal(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Standard normal numbers: elements 4b, 4b+1 from `operators.box_muller` of words
    0 and 1 of block offset + b, elements 4b+2, 4b+3 from words 2 and 3."""
    out = empty(shape, dtype)
    return _draw(NORMAL, out.storage.array, out, seed, offset)


def randint(
    low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
) -> TensorData:
    """Integers in [low, high): low + (word * (high - low) >> 32)."""
    out = empty(shape, dtype)
    return _draw(INTEGER, out.storage.array, out, seed, offset, low, high - low)


def dropout(x: TensorData, p: float, seed: int, offset: int) -> TensorData:
    """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0.

    The word belongs to the row-major index of the element. 1 / (1 - p) is rounded to
    x's dtype before it multiplies.
    """
    out = empty(x.shape, x.dtype)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    first_kept = math.ceil(p * 2.0**32)
    flat = contiguous(x).flat()
    return _draw(DROPOUT, flat, out, seed, offset, first_kept, 0, scale)
