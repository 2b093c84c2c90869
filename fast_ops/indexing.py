"""Indexing: read and write elements whose positions are in another tensor.

With this file one can look single elements up (`gather`), add to them (`scatter_add`),
and read, add to or overwrite whole slices (`index_select`, `index_add`, `index_copy_`).

All kernels see a tensor as [outer, n, inner], with the indexed dimension in the middle.
Indices are checked in a pass of their own, before anything is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel
from fast_ops.memory import at, contiguous, copy, copy_into, empty, overlap
from minitorch.backend.indexing import index_error
from minitorch.tensor_data import TensorData

COLUMNS = 64  # columns that one thread adds: four cache lines of float32


def _both(fn: Any) -> tuple[Any, Any]:
    """The serial and the parallel form of a kernel; each is compiled when called."""
    return compile_kernel(fn), compile_kernel(fn, parallel=True)


def _out_of_range(name: str, index: TensorData, size: int, dim: int) -> IndexError:
    values = contiguous(index).flat()
    bad = values[(values < 0) | (values >= size)][0]
    return index_error(name, bad, dim, size)


def _in_range(index: np.ndarray, size: int) -> bool:
    good = True
    for i in range(index.size):
        good &= (index[i] >= 0) & (index[i] < size)
    return good


in_range = compile_kernel(_in_range)


def _check(name: str, index: TensorData, size: int, dim: int) -> TensorData:
    flat = contiguous(index)
    if not in_range(flat.flat(), size):
        raise _out_of_range(name, index, size, dim)
    return flat


def _gather(
    a: np.ndarray, n: int, inner: int, index: np.ndarray, m: int, out: np.ndarray
) -> None:
    """out[o, j, k] = a[o, index[o, j, k], k].

    # a [outer, n, inner], index and out [outer, m, inner]

    Threads share rows: the line over k for each (o, j) or, where inner is 1, the line
    over j for each o.
    """
    length, step = (inner, 1) if inner > 1 else (m, 0)
    rows_per_slab = m * inner // length
    for row in prange(out.size // length):
        r = np.int64(row)
        slab = r // rows_per_slab * n * inner
        x, y = index[r * length : (r + 1) * length], out[r * length : (r + 1) * length]
        for k in range(length):
            y[k] = a[at(slab + k * step, x[k], inner)]


gather_lines = _both(_gather)


def _line(a: TensorData) -> TensorData:
    """A tensor without dimensions as one of shape (1,)."""
    return TensorData(a.storage, (1,), (1,), a.offset)


def _as_line(src: TensorData, size: int) -> TensorData:
    """The elements of `src`, row by row, as [size]."""
    src = contiguous(src)
    return TensorData(src.storage, (size,), (1,), src.offset)


def _crop(a: TensorData, dim: int, shape: tuple[int, ...]) -> TensorData:
    """a's first shape[i] indices of every dimension but `dim`."""
    for i in range(a.dims):
        if i != dim and a.shape[i] != shape[i]:
            a = a.slice(i, 0, shape[i])
    return a


def gather(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """out[i, j] = a[index[i, j], j] for dim = 0; out has index's shape."""
    out = empty(index.shape, a.dtype)
    if out.size == 0:
        return out
    if a.dims == 0:
        a, index, dim = _line(a), _line(index), 0
    index = _check("gather", index, a.shape[dim], dim)
    a = contiguous(_crop(a, dim, index.shape))
    inner = math.prod(index.shape[dim + 1 :])
    gather_lines[out.size >= SERIAL_LIMIT](
        a.flat(), a.shape[dim], inner, index.flat(), index.shape[dim], out.flat()
    )
    return out


def _scatter_add(
    a: np.ndarray, n: int, inner: int, index: np.ndarray, m: int, src: np.ndarray
) -> None:
    """a[o, index[o, j, k], k] += src[o, j, k].

    Threads share the lines (o, k), in which j goes from 0 up: two elements that go to
    one place are in one line, so no two threads ever add to the same place, and the
    order of the additions is fixed.
    """
    for unsigned in prange(index.size // m):
        line = np.int64(unsigned)
        outer = line // inner
        k = line - outer * inner
        for j in range(m):
            i = (outer * m + j) * inner + k
            a[(outer * n + index[i]) * inner + k] += src[i]


scatter_lines = _both(_scatter_add)


def scatter_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0."""
    out = copy(a, a.dtype)
    if index.size == 0:
        return out
    shape = a.shape
    if a.dims == 0:
        out, index, src, dim = (
            _line(out), _line(index), _line(src), 0,
        )  # fmt: skip
    index = _check("scatter_add", index, out.shape[dim], dim)
    for i in range(src.dims):
        if src.shape[i] != index.shape[i]:
            src = src.slice(i, 0, index.shape[i])
    src = contiguous(src)
    window = _crop(out, dim, index.shape)
    target = contiguous(window)
    scatter_lines[index.size >= SERIAL_LIMIT](
        target.flat(), target.shape[dim], math.prod(index.shape[dim + 1 :]),
        index.flat(), index.shape[dim], src.flat(),
    )  # fmt: skip
    if target is not window:
        copy_into(window, target)
    return TensorData(out.storage, shape)


def _copy_slices(
    a: np.ndarray, n: int, inner: int, index: np.ndarray, out: np.ndarray
) -> None:
    """out[o, j, :] = a[o, index[j], :]; threads share the rows (o, j)."""
    m = index.size
    for unsigned in prange(out.size // inner):
        row = np.int64(unsigned)
        outer = row // m
        source = (outer * n + index[row - outer * m]) * inner
        x, y = a[source : source + inner], out[row * inner : (row + 1) * inner]
        for k in range(inner):
            y[k] = x[k]


def _add_slices(
    out: np.ndarray, n: int, inner: int, index: np.ndarray, src: np.ndarray
) -> None:
    """out[o, index[j], :] += src[o, j, :], for j from 0 up.

    Threads share pieces of up to COLUMNS columns of a slab o, each for all j, so that
    no two add to the same place and the order of the additions is fixed.
    """
    m = index.size
    pieces = (inner + COLUMNS - 1) // COLUMNS
    for task in prange(src.size // (m * inner) * pieces):
        outer = np.int64(task) // pieces
        low = (np.int64(task) - outer * pieces) * COLUMNS
        width = min(COLUMNS, inner - low)
        for j in range(m):
            target = (outer * n + index[j]) * inner + low
            source = (outer * m + j) * inner + low
            x, y = src[source : source + width], out[target : target + width]
            for k in range(width):
                y[k] += x[k]


def _put_slices(
    out: np.ndarray, n: int, inner: int, index: np.ndarray, src: np.ndarray
) -> None:
    """out[o, index[j], :] = src[o, j, :], for j from 0 up: the last one wins."""
    m = index.size
    for outer in range(src.size // (m * inner)):
        for j in range(m):
            target = (outer * n + index[j]) * inner
            source = (outer * m + j) * inner
            x, y = src[source : source + inner], out[target : target + inner]
            for k in range(inner):
                y[k] = x[k]


copy_slices = _both(_copy_slices)
add_slices = _both(_add_slices)
put_slices = compile_kernel(_put_slices)


def index_select(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""
    if a.dims == 0:
        a, dim = _line(a), 0
    index = _check("index_select", index, a.shape[dim], dim)
    m = index.size
    out = empty((*a.shape[:dim], m, *a.shape[dim + 1 :]), a.dtype)
    if out.size:
        inner = math.prod(a.shape[dim + 1 :])
        copy_slices[out.size >= SERIAL_LIMIT](
            contiguous(a).flat(), a.shape[dim], inner, index.flat(), out.flat()
        )
    return out


def index_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a with src's slice i added to slice index[i] of `dim`."""
    out = copy(a, a.dtype)
    if a.dims == 0:
        a, src, dim = _line(a), _as_line(src, index.size), 0
    index = _check("index_add", index, a.shape[dim], dim)
    if src.size:
        inner = math.prod(a.shape[dim + 1 :])
        add_slices[src.size >= SERIAL_LIMIT](
            out.flat(), a.shape[dim], inner, index.flat(), contiguous(src).flat()
        )
    return out


def index_copy_(out: TensorData, dim: int, index: TensorData, src: TensorData) -> None:
    """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""
    if out.dims == 0:
        out, src, dim = _line(out), _as_line(src, index.size), 0
    index = _check("index_copy_", index, out.shape[dim], dim)
    if src.size == 0:
        return
    inner = math.prod(out.shape[dim + 1 :])
    if overlap(src, out):
        src = copy(src, src.dtype)
    target = contiguous(out)
    put_slices(
        target.flat(), out.shape[dim], inner, index.flat(), contiguous(src).flat()
    )
    if target is not out:
        copy_into(out, target)
