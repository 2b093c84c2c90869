"""Random numbers: counted, not stepped, so that all threads draw one sequence.

With this file the backend fills tensors with uniform, normal or whole random numbers
(`uniform`, `normal`, `randint`), and drops elements at random (`dropout`); the
launchers of `KERNELS` are in `minitorch/backend/host/random.py`.

Block number b of a stream is a function of b and the seed alone (`operators.philox`):
four 32-bit words, for elements 4b to 4b + 3. No thread waits for another's numbers,
and any number of threads, on any device, makes the same tensor.

A task is `GROUP` blocks: its words go to a small array first, element by element of the
four, so that LLVM computes the blocks side by side in vector registers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import both, device_function
from minitorch import operators

philox = device_function(operators.philox)

LOW_32 = 0xFFFFFFFF
LOG_2 = math.log(2.0)
GROUP = 64  # blocks in a task: 256 elements


# 1 / 3, 1 / 5, ..., and the series of sin and cos, all from the last term on.
ATANH = tuple([1.0 / n for n in range(23, 2, -2)])
SIN = tuple([(-1.0) ** (n // 2) / math.factorial(n) for n in range(17, 0, -2)])
COS = tuple([(-1.0) ** (n // 2) / math.factorial(n) for n in range(16, -1, -2)])


@device_function
def series(terms: Any, x: float) -> float:
    """terms[-1] + x * (terms[-2] + x * ...)"""
    total = terms[0]
    for i in range(1, len(terms)):
        total = total * x + terms[i]
    return total


# `operators.box_muller` to the last bits of a float64, in two parts, each of which LLVM
# turns into vector code.


@device_function
def radius(word0: int) -> float:
    """log(2^n m) = n log 2 + 2 atanh(s) with s = (m - 1) / (m + 1) and m from
    sqrt(1/2) to sqrt(2)."""
    bits = np.float64(word0 + 1).view(np.int64) - 0x3FE6A09E667F3BCD  # sqrt(1/2)
    n = bits >> 52
    m = np.int64((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    log = (n - 32) * LOG_2 + 2.0 * (s + s * s * s * series(ATANH, s * s))
    return math.sqrt(-2.0 * log)


@device_function
def turned(word1: int) -> tuple[float, float]:
    """cos and sin of 2 pi u: some quarters of a turn, and an eighth at most."""
    quarters = (word1 + (1 << 29)) >> 30
    angle = (word1 - (quarters << 30)) * (2.0 * math.pi * 2.0**-32)
    x, y = series(COS, angle * angle), angle * series(SIN, angle * angle)
    x, y = (y, x) if quarters & 1 else (x, y)
    x = -x if (quarters + 1) & 2 else x
    y = -y if quarters & 2 else y
    return x, y


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
        radii, numbers = np.empty(2 * GROUP), np.empty(per_task)
        for i in range(2 * GROUP):
            radii[i] = radius(flat[2 * i])
        for i in range(2 * GROUP):
            x, y = turned(flat[2 * i + 1])
            numbers[2 * i], numbers[2 * i + 1] = radii[i] * x, radii[i] * y
        for i in range(part.size):
            part[i] = numbers[i]


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
    key0: int, key1: int, offset: int, x: np.ndarray, first_kept: int,
    scale: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """out[i] = x[i] * scale[0] where word i >= first_kept, else 0; tasks as above.

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
            part[i] = y[i] * scale[0] if flat[i] >= first_kept else 0.0


KERNELS = both(_uniform, _normal, _randint, _dropout)
