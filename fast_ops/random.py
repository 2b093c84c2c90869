"""Random numbers: counted, not stepped, so that all threads draw one sequence."""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import compile_kernel, device_function
from fast_ops.memory import contiguous, empty
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

philox = device_function(operators.philox)
box_muller = device_function(operators.box_muller)

LOW_32 = 0xFFFFFFFF


def _uniform(key0: int, key1: int, offset: int, out: np.ndarray) -> None:
    n = out.size
    for unsigned in prange((n + 3) // 4):
        b = np.int64(unsigned)
        block = offset + b
        words = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
        for j in range(min(4, n - 4 * b)):
            out[4 * b + j] = (words[j] >> 8) * 2.0**-24


def _normal(key0: int, key1: int, offset: int, out: np.ndarray) -> None:
    n = out.size
    for unsigned in prange((n + 3) // 4):
        b = np.int64(unsigned)
        block = offset + b
        w0, w1, w2, w3 = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
        x0, x1 = box_muller(w0, w1)
        x2, x3 = box_muller(w2, w3)
        four = (x0, x1, x2, x3)
        for j in range(min(4, n - 4 * b)):
            out[4 * b + j] = four[j]


def _randint(
    key0: int, key1: int, offset: int, low: int, span: int, out: np.ndarray
) -> None:
    n = out.size
    for unsigned in prange((n + 3) // 4):
        b = np.int64(unsigned)
        block = offset + b
        words = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
        for j in range(min(4, n - 4 * b)):
            out[4 * b + j] = low + ((words[j] * span) >> 32)


def _dropout(
    key0: int, key1: int, offset: int, x: np.ndarray, limit: float, scale: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    n = out.size
    for unsigned in prange((n + 3) // 4):
        b = np.int64(unsigned)
        block = offset + b
        words = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
        for j in range(min(4, n - 4 * b)):
            i = 4 * b + j
            out[i] = x[i] * scale[0] if words[j] >= limit else 0.0


uniform_blocks = compile_kernel(_uniform, parallel=True)
normal_blocks = compile_kernel(_normal, parallel=True)
randint_blocks = compile_kernel(_randint, parallel=True)
dropout_blocks = compile_kernel(_dropout, parallel=True)


def _keys(seed: int) -> tuple[int, int]:
    return seed & LOW_32, (seed >> 32) & LOW_32


def uniform(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Uniform numbers in [0, 1): element i from word i % 4 of Philox block
    `offset + i // 4` as (word >> 8) / 2**24."""
    out = empty(shape, dtype)
    uniform_blocks(*_keys(seed), offset, out.flat())
    return out


def normal(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Standard normal numbers by Box and Muller, two from two words."""
    out = empty(shape, dtype)
    normal_blocks(*_keys(seed), offset, out.flat())
    return out


def randint(
    low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
) -> TensorData:
    """Integers in [low, high): low + (word * (high - low) >> 32)."""
    out = empty(shape, dtype)
    randint_blocks(*_keys(seed), offset, low, high - low, out.flat())
    return out


def dropout(x: TensorData, p: float, seed: int, offset: int) -> TensorData:
    """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0."""
    out = empty(x.shape, x.dtype)
    scale = np.array([1.0 / (1.0 - p) if p < 1 else 0.0], x.dtype.numpy)
    dropout_blocks(
        *_keys(seed), offset, contiguous(x).flat(), p * 2.0**32, scale, out.flat()
    )
    return out
