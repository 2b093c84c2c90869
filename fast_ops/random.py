"""Random numbers: counted, not stepped, so that all threads draw one sequence.

With this file one can fill tensors with uniform, normal or whole random numbers
(`uniform`, `normal`, `randint`), and drop elements at random (`dropout`).

Block number b of a stream is a function of b and the seed alone (`operators.philox`):
four 32-bit words, for elements 4b to 4b + 3. No thread waits for another's numbers,
and any number of threads, on any device, makes the same tensor.

A task is `GROUP` blocks: its words go to a small array first, element by element of the
four, so that LLVM computes the blocks side by side in vector registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, device_function
from fast_ops.memory import contiguous, empty
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

philox = device_function(operators.philox)
box_muller = device_function(operators.box_muller)

LOW_32 = 0xFFFFFFFF
GROUP = 64  # blocks in a task: 256 elements


@device_function
def fill_words(words: Any, key0: Any, key1: Any, first: Any) -> Any:
    """words [GROUP, 4] = the blocks from number `first` on."""
    for b in range(GROUP):
        block = first + b
        w0, w1, w2, w3 = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
        words[b, 0] = w0
        words[b, 1] = w1
        words[b, 2] = w2
        words[b, 3] = w3


def _uniform(key0: int, key1: int, offset: int, out: np.ndarray) -> None:
    """out[4 b + j] = top 24 bits of word j of block offset + b, as a fraction of 2^24.

    Threads share tasks; one task is GROUP blocks.
    """
    per_task = 4 * GROUP
    for task in prange((out.size + per_task - 1) // per_task):
        t = np.int64(task)
        words = np.empty((GROUP, 4), np.int64)
        fill_words(words, key0, key1, offset + t * GROUP)
        flat = words.reshape(per_task)
        part = out[t * per_task : (t + 1) * per_task]
        for i in range(part.size):
            part[i] = (flat[i] >> 8) * 2.0**-24


def _normal(key0: int, key1: int, offset: int, out: np.ndarray) -> None:
    """Two words make two normal numbers; tasks as in `_uniform`."""
    per_task = 4 * GROUP
    for task in prange((out.size + per_task - 1) // per_task):
        t = np.int64(task)
        words = np.empty((GROUP, 4), np.int64)
        fill_words(words, key0, key1, offset + t * GROUP)
        flat = words.reshape(per_task)
        part = out[t * per_task : (t + 1) * per_task]
        for i in range(0, part.size, 2):
            x, y = box_muller(flat[i], flat[i + 1])
            part[i] = x
            if i + 1 < part.size:
                part[i + 1] = y


def _randint(
    key0: int, key1: int, offset: int, low: int, span: int, out: np.ndarray
) -> None:
    """out[i] = low + word * span / 2 ** 32, rounded down; tasks as in `_uniform`."""
    per_task = 4 * GROUP
    for task in prange((out.size + per_task - 1) // per_task):
        t = np.int64(task)
        words = np.empty((GROUP, 4), np.int64)
        fill_words(words, key0, key1, offset + t * GROUP)
        flat = words.reshape(per_task)
        part = out[t * per_task : (t + 1) * per_task]
        for i in range(part.size):
            part[i] = low + ((flat[i] * span) >> 32)


def _dropout(
    key0: int, key1: int, offset: int, x: np.ndarray, limit: float, scale: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """out[i] = x[i] * scale[0] where word i >= limit, else 0; tasks as in `_uniform`.

    The mask never exists in memory: it is drawn, used and forgotten, and drawn again
    for the gradient.
    """
    per_task = 4 * GROUP
    for task in prange((out.size + per_task - 1) // per_task):
        t = np.int64(task)
        words = np.empty((GROUP, 4), np.int64)
        fill_words(words, key0, key1, offset + t * GROUP)
        flat = words.reshape(per_task)
        part = out[t * per_task : (t + 1) * per_task]
        y = x[t * per_task : (t + 1) * per_task]
        for i in range(part.size):
            part[i] = y[i] * scale[0] if flat[i] >= limit else 0.0


def _both(fn: Any) -> tuple[Any, Any]:
    return compile_kernel(fn), compile_kernel(fn, parallel=True)


uniform_blocks = _both(_uniform)
normal_blocks = _both(_normal)
randint_blocks = _both(_randint)
dropout_blocks = _both(_dropout)


def _draw(kernels: tuple[Any, Any], seed: int, offset: int, *args: Any) -> None:
    parallel = args[-1].size >= SERIAL_LIMIT
    kernels[parallel](seed & LOW_32, (seed >> 32) & LOW_32, offset, *args)


def uniform(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Uniform numbers in [0, 1): element i from word i % 4 of Philox block
    `offset + i // 4` as (word >> 8) / 2**24."""
    out = empty(shape, dtype)
    _draw(uniform_blocks, seed, offset, out.storage.array)
    return out


def normal(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Standard normal numbers: elements 4b, 4b+1 from `operators.box_muller` of words
    0 and 1 of block offset + b, elements 4b+2, 4b+3 from words 2 and 3."""
    out = empty(shape, dtype)
    _draw(normal_blocks, seed, offset, out.storage.array)
    return out


def randint(
    low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
) -> TensorData:
    """Integers in [low, high): low + (word * (high - low) >> 32)."""
    out = empty(shape, dtype)
    _draw(randint_blocks, seed, offset, low, high - low, out.storage.array)
    return out


def dropout(x: TensorData, p: float, seed: int, offset: int) -> TensorData:
    """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0.

    The word belongs to the row-major index of the element. 1 / (1 - p) is rounded to
    x's dtype before it multiplies.
    """
    out = empty(x.shape, x.dtype)
    scale = np.array([1.0 / (1.0 - p) if p < 1 else 0.0], x.dtype.numpy)
    flat = contiguous(x).flat()
    _draw(dropout_blocks, seed, offset, flat, p * 2.0**32, scale, out.storage.array)
    return out
