"""Elementwise operations: one scalar function, applied to every element.

With this file one can apply a function of one number to a tensor (`map`), of two
numbers to two tensors that broadcast (`zip`), and of three (`zip3`). Choosing between
two tensors is a kernel here (`_where_flat`), whose launcher is
`minitorch/backend/host/elementwise.py`.

`map` and `zip` are higher-order: a *template* such as `zip_flat` is the loop, and
`fast_ops.launch.specialize` compiles it once for each scalar function. There is one
template for each way the operands can lie:

    zip_flat        same shape, both without gaps     one loop over the storage
    zip_second      b is one number                   the same, with b in a register
    zip_first       a is one number
    zip_lines       b is a row or a column of a       lines of a
    zip_strided     everything else                   rows of one merged dimension

A tensor below `SERIAL_LIMIT` elements is done by the calling thread, because waking the
others takes longer than the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, Kernels, both
from fast_ops.memory import (
    at,
    copy,
    copy_into,
    empty,
    place,
    position,
    untransposed,
)
from minitorch.backend.host.memory import CHUNK, overlap, plan, same_window
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, Strides, TensorData, broadcast_shapes

# ---------------------------------------------------------------------- templates


def map_flat(fn: Callable) -> Callable:
    """Make the loop out[i] = fn(a[i]) over flat arrays.

    Each thread takes one contiguous chunk of i, so that no two write to one cache line
    (but at the seams), and LLVM turns the chunk into vector instructions.
    """

    def loop(a: np.ndarray, out: np.ndarray) -> None:
        # BEGIN SOLUTION a3.1
        for i in prange(out.size):
            out[i] = fn(a[i])
        # END SOLUTION a3.1

    return loop


def zip_flat(fn: Callable) -> Callable:
    """Make the loop out[i] = fn(a[i], b[i]) over flat arrays; threads as `map_flat`."""

    def loop(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        # BEGIN SOLUTION a3.1
        for i in prange(out.size):
            out[i] = fn(a[i], b[i])
        # END SOLUTION a3.1

    return loop


def map_in_place(fn: Callable) -> Callable:
    """Make the loop a[i] = fn(a[i]).

    `map_flat` with out = a would be right too, but its vector code only runs after a
    check that the two do not overlap.
    """

    def loop(a: np.ndarray) -> None:
        for i in prange(a.size):
            a[i] = fn(a[i])

    return loop


def zip_in_place(fn: Callable) -> Callable:
    """Make the loop a[i] = fn(a[i], b[i])."""

    def loop(a: np.ndarray, b: np.ndarray) -> None:
        for i in prange(a.size):
            a[i] = fn(a[i], b[i])

    return loop


def zip_second(fn: Callable) -> Callable:
    """Make the loop out[i] = fn(a[i], b[0]), with b[0] in a register."""

    def loop(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        y = b[0]
        for i in prange(out.size):
            out[i] = fn(a[i], y)

    return loop


def zip_second_in_place(fn: Callable) -> Callable:
    """Make the loop a[i] = fn(a[i], b[0])."""

    def loop(a: np.ndarray, b: np.ndarray) -> None:
        y = b[0]
        for i in prange(a.size):
            a[i] = fn(a[i], y)

    return loop


def zip_first(fn: Callable) -> Callable:
    """Make the loop out[i] = fn(a[0], b[i]), with a[0] in a register."""

    def loop(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        x = a[0]
        for i in prange(out.size):
            out[i] = fn(x, b[i])

    return loop


def zip_lines(fn: Callable) -> Callable:
    """Make the loop out[r, x] = fn(a[r, x], b[x]), or fn(a[r, x], b[r]).

    `zip_strided` for the two broadcasts that come most often, a row and a column, with
    few arguments, since the calls take longer than the work for a small tensor. `b` is
    a column if it has one number for each line of `n`; where `a` is one, and `b` a row,
    this is the outer product. Threads share lines.
    """

    def loop(
        a: np.ndarray, b: np.ndarray, out: np.ndarray, n: int, column: bool
    ) -> None:
        for r in prange(out.size // n):
            p = np.int64(r) * n
            z = out[p : p + n]
            if a.size < out.size:
                x0, y = a[np.int64(r)], b[:n]
                for e in range(n):
                    z[e] = fn(x0, y[e])
                continue
            x = a[p : p + n]
            if column:
                y0 = b[np.int64(r)]
                for e in range(n):
                    z[e] = fn(x[e], y0)
            else:
                y = b[:n]
                for e in range(n):
                    z[e] = fn(x[e], y[e])

    return loop


def zip_strided(fn: Callable) -> Callable:
    """Make the loop out[i, j, k, x] = fn(a[i, j, k, x], b[i, j, k, x]), any strides.

    Threads share tasks: one is up to `chunk` elements of one row (i, j, k). A stride of
    0 repeats an element, which is all that broadcasting is. Rows whose elements lie
    side by side, or where b is one number, get loops of their own: only for them can
    LLVM load and store whole vectors.
    """

    def loop(
        a: np.ndarray, a_at: int, a_steps: Strides,
        b: np.ndarray, b_at: int, b_steps: Strides,
        out: np.ndarray, out_at: int, out_steps: Strides,
        shape: Shape, chunk: int,
    ) -> None:  # fmt: skip
        # BEGIN SOLUTION a3.1
        chunks = (shape[3] + chunk - 1) // chunk
        sa, sb, so = a_steps[3], b_steps[3], out_steps[3]
        for task in prange(shape[0] * shape[1] * shape[2] * chunks):
            i, j, k, start = place(np.int64(task), shape, chunks, chunk)
            n = min(chunk, shape[3] - start)
            p = a_at + position(i, j, k, start, a_steps)
            q = b_at + position(i, j, k, start, b_steps)
            r = out_at + position(i, j, k, start, out_steps)
            if sa == 1 and sb == 1 and so == 1:
                x, y, z = a[p : p + n], b[q : q + n], out[r : r + n]
                for e in range(n):
                    z[e] = fn(x[e], y[e])
            elif sa == 1 and sb == 0 and so == 1:
                x, y0, z = a[p : p + n], b[q], out[r : r + n]
                for e in range(n):
                    z[e] = fn(x[e], y0)
            else:
                for e in range(n):
                    out[at(r, e, so)] = fn(a[at(p, e, sa)], b[at(q, e, sb)])
        # END SOLUTION a3.1

    return loop


def zip3_lines(fn: Callable) -> Callable:
    """Make the loop out[r, x] = fn(a[r, x], b[r, x], c[r, x], value).

    Lines have `n` elements, the last one perhaps fewer. `c` is as long as `out`, or a
    row of n that all lines have, or one number. None for `a` is `out` itself (as in
    `map_in_place`; the other branch is not compiled then). Threads share lines.
    """

    def loop(
        a: np.ndarray | None, b: np.ndarray, c: np.ndarray, value: float,
        out: np.ndarray, n: int,
    ) -> None:  # fmt: skip
        v = out.dtype.type(value)
        for r in prange((out.size + n - 1) // n):
            p = np.int64(r) * n
            y, z = b[p : p + n], out[p : p + n]
            x = z if a is None else a[p : p + n]
            if c.size == 1:
                w0 = c[0]
                for e in range(z.size):
                    z[e] = fn(x[e], y[e], w0, v)
            else:
                q = p % c.size
                w = c[q : q + n]
                for e in range(z.size):
                    z[e] = fn(x[e], y[e], w[e], v)

    return loop


MAP_FLAT = (Kernels(map_flat), Kernels(map_flat, parallel=True))
MAP_IN_PLACE = (Kernels(map_in_place), Kernels(map_in_place, parallel=True))
ZIP_FLAT = (Kernels(zip_flat), Kernels(zip_flat, parallel=True))
ZIP_IN_PLACE = (Kernels(zip_in_place), Kernels(zip_in_place, parallel=True))
ZIP_SECOND = (Kernels(zip_second), Kernels(zip_second, parallel=True))
ZIP_SECOND_IN_PLACE = (
    Kernels(zip_second_in_place),
    Kernels(zip_second_in_place, parallel=True),
)
ZIP_FIRST = (Kernels(zip_first), Kernels(zip_first, parallel=True))
ZIP_LINES = (Kernels(zip_lines), Kernels(zip_lines, parallel=True))
ZIP_STRIDED = (Kernels(zip_strided), Kernels(zip_strided, parallel=True))
ZIP3_LINES = (Kernels(zip3_lines), Kernels(zip3_lines, parallel=True))


# ---------------------------------------------------------------------- launchers


def map(
    fn: Callable,
    a: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""
    if out is not None:
        return _map_into(fn, a, out)
    if not a.contiguous:
        a = copy(a, a.storage.dtype)
    out = empty(a.shape, dtype or a.storage.dtype)
    z = out.storage.array
    x = a.storage.array
    n = len(z)
    if len(x) != n:
        x = x[a.offset : a.offset + n]
    MAP_FLAT[n >= SERIAL_LIMIT][fn](x, z)
    return out


def _map_into(fn: Callable, a: TensorData, out: TensorData) -> TensorData:
    if out.is_contiguous() and a.is_contiguous():
        z, x = out.flat(), a.flat()
        parallel = len(z) >= SERIAL_LIMIT
        if a.storage is out.storage and a.offset == out.offset:
            MAP_IN_PLACE[parallel][fn](z)
            return out
        if not overlap(a, out):
            MAP_FLAT[parallel][fn](x, z)
            return out
    copy_into(out, map(fn, a, out.dtype))
    return out


def zip(
    fn: Callable,
    a: TensorData,
    b: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""
    if out is not None:
        return _zip_into(fn, a, b, out)
    shape = a.shape
    dtype = dtype or a.storage.dtype
    alike = shape == b.shape
    if (alike or not b.shape) and a.contiguous and b.contiguous:
        out = empty(shape, dtype)
        z = out.storage.array
        x = a.storage.array
        y = b.storage.array
        n = len(z)
        m = n if alike else 1
        if len(x) != n:
            x = x[a.offset : a.offset + n]
        if len(y) != m:
            y = y[b.offset : b.offset + m]
        (ZIP_FLAT if alike else ZIP_SECOND)[n >= SERIAL_LIMIT][fn](x, y, z)
        return out
    out = empty(broadcast_shapes(shape, b.shape), dtype)
    _zip_broadcast(fn, a, b, out)
    return out


def _zip_broadcast(fn: Callable, a: TensorData, b: TensorData, out: TensorData) -> None:
    """Choose the loop for operands that do not both lie as `out` does."""
    n = out.size
    parallel = n >= SERIAL_LIMIT
    x, y = _elements(a), _elements(b)
    if out.contiguous and x is not None and y is not None:
        z = out.flat()
        if len(y) == 1 and len(x) == n:
            ZIP_SECOND[parallel][fn](x, y, z)
            return
        if len(x) == 1 and len(y) == n:
            ZIP_FIRST[parallel][fn](x, y, z)
            return
        width, column = lines(a.shape, b.shape)
        if len(x) * len(y) == n and a.shape[-1:] == (1,) and b.shape[-1:] == y.shape:
            width = n and len(y)
        if width and a.contiguous and b.contiguous:
            ZIP_LINES[parallel][fn](x, y, z, width, column)
            return
    if n == 0:
        return
    a, b = untransposed(a), untransposed(b)
    if a.shape == b.shape and a.contiguous and b.contiguous:
        if out.contiguous:
            ZIP_FLAT[parallel][fn](a.flat(), b.flat(), out.flat())
            return
    a = a if a.shape == out.shape else a.expand(out.shape)
    b = b if b.shape == out.shape else b.expand(out.shape)
    loops = plan(out.shape, a.strides, b.strides, out.strides)
    run: Any = ZIP_STRIDED[parallel][fn]
    x, y, z = a.storage.array, b.storage.array, out.storage.array
    for p, q, r in loops.outer:
        run(
            x, a.offset + p, loops.strides[0],
            y, b.offset + q, loops.strides[1],
            z, out.offset + r, loops.strides[2],
            loops.shape, loops.chunk,
        )  # fmt: skip


def _elements(a: TensorData) -> np.ndarray | None:
    """All elements, or the one that is everywhere, as the gradient of a sum is; else
    None."""
    if a.contiguous:
        return a.flat()
    return None if any(a.strides) else a.storage.array[a.offset : a.offset + 1]


MIN_LINES, MIN_LINE = 32, 16  # a matrix with fewer or shorter lines is cut otherwise


@lru_cache(maxsize=4096)
def lines(shape: Shape, other: Shape) -> tuple[int, bool]:
    """How long a line of `shape` is to which `other` gives a row, or one number.

    With it comes whether it is one number, a column; (0, False) for other broadcasts.

    >>> lines((64, 20), (20,)), lines((64, 20), (64, 1))
    ((20, False), (20, True))
    """
    while other[:1] == (1,) and len(other) > 1:
        other = other[1:]
    width, column = math.prod(other), False
    if len(other) == len(shape) and other == (*shape[:-1], 1):
        width, column = shape[-1], True
    elif not other or shape[-len(other) :] != other:
        return 0, False
    if width < MIN_LINE or math.prod(shape) < MIN_LINES * width:
        return 0, False
    return width, column


def _zip_into(
    fn: Callable, a: TensorData, b: TensorData, out: TensorData
) -> TensorData:
    if a.shape == out.shape and (
        b is out or not overlap(b, out) or same_window(b, out)
    ):
        in_place = a is out or same_window(a, out)
        if in_place and out.contiguous:
            z = out.flat()
            parallel = len(z) >= SERIAL_LIMIT
            if b.size == 1:
                ZIP_SECOND_IN_PLACE[parallel][fn](z, b.flat())
                return out
            if b.shape == out.shape and b.contiguous:
                ZIP_IN_PLACE[parallel][fn](z, b.flat())
                return out
        if in_place or not overlap(a, out):
            _zip_broadcast(fn, a, b, out)
            return out
    copy_into(out, zip(fn, a, b, out.dtype))
    return out


def zip3(
    fn: Callable, a: TensorData, b: TensorData, c: TensorData, value: float,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """out[i] = fn(a[i], b[i], c[i], value); all broadcast."""
    if out is not None:
        in_place = out.contiguous and (a is out or same_window(a, out))
        if not in_place or overlap(b, out) or overlap(c, out):
            copy_into(out, zip3(fn, a, b, c, value))
            return out
    shape, n = a.shape, CHUNK
    if not shape == b.shape == c.shape:
        shape, n = _rows(shape, b.shape, c.shape)
    x = _spread(a, shape) if out is None else None
    y = _spread(b, shape)
    w = c.flat() if n and c.contiguous else _spread(c, shape)
    if out is None:
        out = empty(shape, a.storage.dtype)
    z = out.flat()
    ZIP3_LINES[len(z) >= SERIAL_LIMIT][fn](x, y, w, value, z, n or CHUNK)
    return out


@lru_cache(maxsize=4096)
def _rows(a: Shape, b: Shape, c: Shape) -> tuple[Shape, int]:
    """The shape of all three, and how long its lines are to which c gives a row.

    That is CHUNK where c is one number, and 0 where it gives no row.
    """
    shape = broadcast_shapes(a, b, c)
    width, column = lines(shape, c)
    if math.prod(c) == 1:
        return shape, width or CHUNK
    return shape, 0 if column else width


def _spread(a: TensorData, shape: Shape) -> np.ndarray:
    """The elements of `a`, expanded to `shape`."""
    if a.shape == shape and a.contiguous:
        return a.flat()
    return copy(a.expand(shape), a.storage.dtype).flat()


# -------------------------------------------------------------------------- where


def _where_flat(
    condition: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> None:
    """out[i] = a[i] if condition[i] else b[i]; a and b may be one number each."""
    one_a, one_b = a.size == 1, b.size == 1
    for i in prange(out.size):
        x = a[0] if one_a else a[i]
        y = b[0] if one_b else b[i]
        out[i] = x if condition[i] else y


KERNELS = both(_where_flat)
