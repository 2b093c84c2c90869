"""Reductions: fold one or more dimensions of a tensor into single elements.

With this file one can fold any scalar function over any dimensions (`reduce`), find the
position of an extreme (`argmax`, `argmin`), and add up along a dimension (`cumsum`).

`reduce` may take the elements in any order, so `fn` must be associative and commutative
(up to rounding). The order depends only on shapes and strides: work is cut into blocks
of fixed size, each folded by one thread, and the blocks' results are folded in order.
So the result is the same, to the last bit, on any number of threads. float32 is summed
in float64, so only the last rounding is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, Kernels, compile_kernel
from fast_ops.memory import Dim, at, contiguous, empty
from minitorch import operators
from minitorch.dtypes import DType, float32, float64, int64
from minitorch.tensor_data import Shape, Strides, TensorData, contiguous_strides

LANES = 512  # accumulators of one thread: 4 KiB of float64, well inside the L1 cache
STRETCH = 16_384  # contiguous elements folded in one go
MAX_BLOCKS = 64  # parts into which the fold of one output is cut, at most
SHORT = 32  # rows below this length are folded many at a time, one lane for each

# ---------------------------------------------------------------------- templates


def fold_stretches(fn: Callable) -> Callable:
    """Make the loop that folds contiguous stretches of memory, lane by lane.

    A stretch of `length` elements is laid out in lines of `lanes`, and the lines are
    folded onto each other:

        a a a a a a a a      lane j holds fn(... fn(start, x[j]) ..., x[3 * lanes + j])
        a a a a a a a a
        a a a a a a a a      lanes = 8, length = 27
        a a a

    Lanes do not wait for each other, so that LLVM folds 16 at once, which it may not do
    with `total = fn(total, x)`. Where several outputs lie side by side in memory (a sum
    over the first dimension of [R, width]), lane j belongs to output j % width.

    Threads share tasks: one output (or `width` of them) and one block of its stretches.
    """

    def loop(
        a: np.ndarray, first: int, kept: Shape, a_steps: Strides, out_steps: Strides,
        width: int, out_width: int, lanes: int,
        folded: Shape, folded_steps: Strides, length: int, piece: int,
        blocks: int, start: np.ndarray, out: np.ndarray, partial: np.ndarray,
    ) -> None:  # fmt: skip
        pieces = (length + piece - 1) // piece
        stretches = folded[0] * folded[1] * pieces
        for task in prange(kept[0] * kept[1] * kept[2] * blocks):
            group = np.int64(task) // blocks
            block = np.int64(task) - group * blocks
            ij = group // kept[2]
            k = group - ij * kept[2]
            i = ij // kept[1]
            j = ij - i * kept[1]
            total = np.full(lanes, start[0])
            for s in range(
                block * stretches // blocks, (block + 1) * stretches // blocks
            ):
                uv = s // pieces
                u = uv // folded[1]
                begin = (s - uv * pieces) * piece
                p = first + i * a_steps[0] + j * a_steps[1] + k * a_steps[2] + begin
                p += u * folded_steps[0] + (uv - u * folded[1]) * folded_steps[1]
                x = a[p : p + min(piece, length - begin)]
                whole = x.size // lanes * lanes
                for line in range(0, whole, lanes):
                    y = x[line : line + lanes]
                    for e in range(lanes):
                        total[e] = fn(total[e], y[e])
                for e in range(x.size - whole):
                    total[e] = fn(total[e], x[whole + e])
            used = lanes
            while used > width:  # fold the upper half of the groups onto the lower
                half = (used // width + 1) // 2 * width
                for e in range(used - half):
                    total[e] = fn(total[e], total[half + e])
                used = half
            q = i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
            for e in range(width):
                if blocks == 1:
                    out[q + e * out_width] = total[e]
                else:
                    partial[block, q + e * out_width] = total[e]
        if blocks > 1:
            for q in range(out.size):
                result = start[0]
                for block in range(blocks):
                    result = fn(result, partial[block, q])
                out[q] = result

    return loop


def fold_strided(fn: Callable) -> Callable:
    """Make the loop that folds any strides, with one lane for each of many outputs.

    Threads share tasks: one task is `lanes` outputs of the innermost kept dimension.
    """

    def loop(
        a: np.ndarray, first: int, kept: Shape, a_steps: Strides, out_steps: Strides,
        folded: Shape, folded_steps: Strides, lanes: int,
        start: np.ndarray, out: np.ndarray,
    ) -> None:  # fmt: skip
        pieces = (kept[2] + lanes - 1) // lanes
        for task in prange(kept[0] * kept[1] * pieces):
            ij = np.int64(task) // pieces
            begin = (np.int64(task) - ij * pieces) * lanes
            i = ij // kept[1]
            j = ij - i * kept[1]
            n = min(lanes, kept[2] - begin)
            total = np.full(lanes, start[0])
            p = first + i * a_steps[0] + j * a_steps[1] + begin * a_steps[2]
            for u in range(folded[0]):
                for v in range(folded[1]):
                    for w in range(folded[2]):
                        r = p + u * folded_steps[0] + v * folded_steps[1]
                        r += w * folded_steps[2]
                        for e in range(n):
                            total[e] = fn(total[e], a[at(r, e, a_steps[2])])
            q = i * out_steps[0] + j * out_steps[1] + begin * out_steps[2]
            for e in range(n):
                out[q + e * out_steps[2]] = total[e]

    return loop


STRETCHES = (Kernels(fold_stretches), Kernels(fold_stretches, parallel=True))
STRIDED = (Kernels(fold_strided), Kernels(fold_strided, parallel=True))


# ----------------------------------------------------------- how to walk a tensor


class Walk(NamedTuple):
    """Sizes and strides of the loops of `fold_stretches` or `fold_strided`."""

    kept: Shape
    a_steps: Strides
    out_steps: Strides
    folded: Shape
    folded_steps: Strides
    width: int  # outputs side by side in one task; 0: take fold_strided
    out_width: int  # their stride in the output
    lanes: int
    length: int
    piece: int
    blocks: int


@lru_cache(maxsize=4096)
def walk(shape: Shape, strides: Strides, dims: tuple[int, ...]) -> Walk | None:
    """Choose the loops for a reduction; None where there are too many dimensions."""
    out_shape = tuple([1 if i in dims else n for i, n in enumerate(shape)])
    out_strides = contiguous_strides(out_shape)
    kept, folded = [], []
    for i, (n, step) in enumerate(zip(shape, strides)):
        if n != 1:
            (folded if i in dims else kept).append((n, (step, out_strides[i])))
    kept = _merge_sorted(kept)
    folded = _merge_sorted([(n, (step, 0)) for n, (step, _) in folded])
    kept_inner = kept[-1][0] if kept else 1
    if folded and folded[-1][1][0] == 1 and (folded[-1][0] >= SHORT or not kept):
        return _stretch_walk(kept, folded[:-1], (1, (0, 0)), folded[-1][0])
    if kept and kept[-1][1][0] == 1:
        if kept_inner >= 2 * SHORT:
            return _stretch_walk(kept[:-1], folded, kept[-1], 0)
        if folded and folded[-1][1][0] == kept_inner:
            length = folded[-1][0] * kept_inner
            return _stretch_walk(kept[:-1], folded[:-1], kept[-1], length)
    if len(kept) > 3 or len(folded) > 3:
        return None
    k, f = _padded(kept, 3), _padded(folded, 3)
    return Walk(*_columns(k), *_columns(f)[:2], 0, 0, min(256, k[-1][0]), 0, 0, 1)


def _stretch_walk(
    kept: list[Dim], folded: list[Dim], inner: Dim, length: int
) -> Walk | None:
    """Loops over stretches. `length` 0: a stretch is one line of `inner`'s elements."""
    if len(kept) > 2 or len(folded) > 2:
        return None
    width, (_, out_width) = inner
    kept = _padded(kept, 2)
    f = _padded(folded, 2)
    if length == 0:
        return _wide_walk(kept, f, inner)
    lanes = max(min(LANES, length) // width, 1) * width
    piece = max(STRETCH // width, 1) * width
    blocks = _blocks(kept, f, length, -(-length // piece))
    loops = _columns([*kept, (1, (0, 0))])
    return Walk(*loops, *_columns(f)[:2], width, out_width, lanes, length, piece, blocks)


def _wide_walk(kept: list[Dim], folded: list[Dim], inner: Dim) -> Walk | None:
    """One lane for each of up to LANES outputs that lie side by side."""
    size, (_, out_width) = inner
    width = next((w for w in range(min(LANES, size), 31, -1) if size % w == 0), 0)
    if width == 0:
        return None
    loops = _columns([*kept, (size // width, (width, width * out_width))])
    blocks = _blocks([*kept, (size // width, (0, 0))], folded, width, 1)
    return Walk(
        *loops, *_columns(folded)[:2], width, out_width, width, width, width, blocks
    )


def _blocks(kept: list[Dim], folded: list[Dim], length: int, pieces: int) -> int:
    """Into how many parts to cut the fold, so that threads have enough to share."""
    tasks = 1
    for n, _ in kept:
        tasks *= n
    stretches = folded[0][0] * folded[1][0] * pieces
    work = stretches * min(length, STRETCH)
    return max(1, min(MAX_BLOCKS // tasks, stretches, work // STRETCH))


def _merge_sorted(dims: list[Dim]) -> list[Dim]:
    """Sort by stride, the smallest last, and merge what lies without gaps."""
    merged: list[Dim] = []
    for n, steps in sorted(dims, key=lambda d: -d[1][0]):
        if merged and all(o == n * s for o, s in zip(merged[-1][1], steps)):
            merged[-1] = (merged[-1][0] * n, steps)
        else:
            merged.append((n, steps))
    return merged


def _padded(dims: list[Dim], rank: int) -> list[Dim]:
    return [(1, (0, 0))] * (rank - len(dims)) + dims


def _columns(dims: list[Dim]) -> tuple[Shape, Strides, Strides]:
    return (
        tuple(n for n, _ in dims),
        tuple(steps[0] for _, steps in dims),
        tuple(steps[1] for _, steps in dims),
    )


# ---------------------------------------------------------------------- launchers

# Folds whose result is one of the operands: nothing is rounded, so a wider accumulator
# would only cost time.
EXACT = {operators.maximum, operators.minimum}
NO_PARTIAL = {d: np.empty((1, 1), d) for d in ("float32", "float64", "int64", "int32")}
NO_PARTIAL["bool"] = np.empty((1, 1), np.bool_)


@lru_cache(maxsize=1024)
def _start(value: float, dtype: DType) -> np.ndarray:
    return np.array([value], dtype.numpy)


def reduce(
    fn: Callable,
    a: TensorData,
    dims: Sequence[int],
    start: float,
    dtype: DType | None = None,
) -> TensorData:
    """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1.

    The result does not depend on the number of threads.
    """
    dims = tuple(dims)
    out_type = dtype or a.storage.dtype
    out = empty(tuple([1 if i in dims else n for i, n in enumerate(a.shape)]), out_type)
    size = a.size
    if size == 0:
        out.storage.array.fill(start)
        return out
    way = walk(a.shape, a.strides, dims)
    if way is None:
        a = contiguous(a.permute([i for i in range(a.dims) if i not in dims] + [*dims]))
        folded = size // out.size
        a = TensorData(a.storage, (out.size, folded), None, a.offset)
        way = walk(a.shape, a.strides, (1,))
        assert way is not None
    wide = float64 if out_type is float32 and fn not in EXACT else out_type
    _run(fn, a, way, size >= SERIAL_LIMIT, _start(start, wide), out.storage.array)
    return out


def _run(
    fn: Callable, a: TensorData, way: Walk, parallel: bool, start: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    if way.width == 0:
        STRIDED[parallel][fn](
            a.storage.array, a.offset, way.kept, way.a_steps, way.out_steps,
            way.folded, way.folded_steps, way.lanes, start, out,
        )  # fmt: skip
        return
    if way.blocks > 1:
        partial = np.empty((way.blocks, len(out)), start.dtype)
    else:
        partial = NO_PARTIAL[start.dtype.name]
    STRETCHES[parallel][fn](
        a.storage.array, a.offset, way.kept, way.a_steps, way.out_steps,
        way.width, way.out_width, way.lanes, way.folded, way.folded_steps,
        way.length, way.piece, way.blocks, start, out, partial,
    )  # fmt: skip


def _arg_rows(a: np.ndarray, n: int, sign: int, out: np.ndarray) -> None:
    for unsigned in prange(out.size):
        r = np.int64(unsigned)
        best = a[r * n]
        where = 0
        for i in range(1, n):
            x = a[r * n + i]
            if best != best:
                break
            if x != x or (x > best if sign > 0 else x < best):
                best = x
                where = i
        out[r] = where


arg_rows = compile_kernel(_arg_rows, parallel=True)


def _arg(a: TensorData, dim: int, sign: int) -> TensorData:
    if a.dims == 0:
        out = empty((), int64)
        out.flat().fill(0)
        return out
    moved = a.permute([*(i for i in range(a.dims) if i != dim), dim])
    rows = contiguous(moved).flat()
    out = empty((*a.shape[:dim], 1, *a.shape[dim + 1 :]), int64)
    arg_rows(rows, a.shape[dim], sign, out.flat())
    return out


def argmax(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""
    return _arg(a, dim, 1)


def argmin(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""
    return _arg(a, dim, -1)


def _cumsum(a: np.ndarray, n: int, inner: int, out: np.ndarray) -> None:
    for unsigned in prange(out.size // n):
        line = np.int64(unsigned)
        at = line // inner * n * inner + line % inner
        total = out[at] = a[at]
        for i in range(1, n):
            at += inner
            total += a[at]
            out[at] = total


cumsum_lines = compile_kernel(_cumsum, parallel=True)


def cumsum(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] + ... + a[i] along `dim`."""
    out = empty(a.shape, a.dtype)
    flat = out.flat()
    if flat.size and a.dims:
        inner = 1
        for n in a.shape[dim + 1 :]:
            inner *= n
        cumsum_lines(contiguous(a).flat(), a.shape[dim], inner, flat)
    elif flat.size:
        flat[0] = contiguous(a).flat()[0]
    return out
