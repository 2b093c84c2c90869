"""Reductions: fold one or more dimensions of a tensor into a single element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, specialize
from fast_ops.memory import contiguous, empty
from minitorch.dtypes import DType, int64
from minitorch.tensor_data import TensorData


def fold_rows(fn: Callable) -> Callable:
    """out[r] = fn(...fn(start, a[r, 0])..., a[r, n - 1])."""

    def loop(a: np.ndarray, start: float, n: int, out: np.ndarray) -> None:
        for unsigned in prange(out.size):
            r = np.int64(unsigned)
            total = start
            for i in range(n):
                total = fn(total, a[r * n + i])
            out[r] = total

    return loop


def reduce(
    fn: Callable,
    a: TensorData,
    dims: Sequence[int],
    start: float,
    dtype: DType | None = None,
) -> TensorData:
    """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1."""
    kept = [i for i in range(a.dims) if i not in dims]
    rows = contiguous(a.permute([*kept, *dims])).flat()
    n = 1
    for i in dims:
        n *= a.shape[i]
    shape = tuple(1 if i in dims else a.shape[i] for i in range(a.dims))
    out = empty(shape, dtype or a.dtype)
    if not out.dtype.is_floating_point and start == start and abs(start) < 2**63:
        first: float = int(start)
    else:
        first = float(start)
    flat = out.flat()
    run = specialize(fold_rows, fn, rows.size >= SERIAL_LIMIT)
    run(rows, first, n, flat)
    return out


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
