"""Weights of four bits as floats, for products of many rows.

With this file a weight becomes floats, once for all rows of x (`dequantize`). A few
rows multiply it as it comes from memory instead (`linear_of_few` in linear.py).
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int64

from cuda_ops.block.intrinsics import from_fours, is_aligned, load, store4
from cuda_ops.block.tiles import quotient
from cuda_ops.linear import words_of
from cuda_ops.memory import LIMIT, THREADS, contiguous, empty
from cuda_ops.runtime.launch import Kernel, ceil_div
from minitorch.dtypes import DType, computed, float32
from minitorch.tensor_data import TensorData


def unpack_fours(w, scale, out, words):
    """out = scale * the numbers of four bits.

    # w [groups * words], scale [groups] -> out [groups * words * 8]

    A thread has a word of a group: eight numbers, in two fours that are half a group
    apart (`Backend.dequantize`). Neighbours write 16 bytes each, behind each other.
    """
    i = int64(cuda.grid(1))
    if i < w.size:
        g = quotient(i, words)
        f, n, at = load(scale, g), from_fours(load(w, i)), (i + g * words) * 4
        store4(out, at, f * n[0], f * n[1], f * n[2], f * n[3])
        store4(out, at + words * 4, f * n[4], f * n[5], f * n[6], f * n[7])


UNPACK = Kernel(
    unpack_fours, "unpack_fours",
    [f"int32[] float32[] {kind}[] int64" for kind in ("float32", "bfloat16")], THREADS,
)  # fmt: skip


def dequantize(
    weight: TensorData, scale: TensorData, columns: int, dtype: DType
) -> TensorData | None:
    """As `Backend.dequantize` for a weight of four bits; None for another."""
    known = len(weight.shape) == 3 and 0 < weight.size < LIMIT
    if not known or weight.shape[2] % 4 or computed(dtype) is not float32:
        return None
    packed: Any = contiguous(weight).flat()
    if not is_aligned(packed):
        return None
    N, groups, half = weight.shape
    out, w = empty((N, groups * 2 * half), dtype), words_of(packed)
    UNPACK[ceil_div(len(w), THREADS), THREADS](
        w, contiguous(scale).flat(), out.flat(), half // 4
    )
    return out.slice(1, 0, columns)
