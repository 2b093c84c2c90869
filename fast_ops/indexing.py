"""Indexing: read and write elements whose positions are in another tensor.

With this file the backend looks single elements up (`gather`), adds to them or
overwrites them (`scatter`), and reads, adds to or overwrites whole slices
(`index_select`, `index_add`, `index_copy`); the launchers of `KERNELS` are in
`minitorch/backend/host/indexing.py`.

All kernels see a tensor as [outer, n, inner], with the indexed dimension in the middle.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import both
from fast_ops.memory import at

COLUMNS = 64  # columns that one thread adds: four cache lines of float32


def _first_outside(index: np.ndarray, size: int) -> int:
    """The place of the first index that is not in [0, size), or -1.

    Whether there is one is asked without a branch, of many indices at a time.
    """
    good = True
    for i in range(index.size):
        good &= (index[i] >= 0) & (index[i] < size)
    if not good:
        for i in range(index.size):
            if index[i] < 0 or index[i] >= size:
                return i
    return -1


def _gather(
    a: np.ndarray, index: np.ndarray, out: np.ndarray, n: int, m: int, inner: int
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


def _scatter(
    a: np.ndarray, index: np.ndarray, src: np.ndarray, adds: bool,
    n: int, m: int, inner: int,
) -> None:  # fmt: skip
    """a[o, index[o, j, k], k] += src[o, j, k], or = without `adds`.

    Threads share the lines (o, k), in which j goes from 0 up: two elements that go to
    one place are in one line, so no two threads ever write to the same place, and the
    order of the additions is fixed; the last one wins.
    """
    for unsigned in prange(index.size // m):
        line = np.int64(unsigned)
        outer = line // inner
        k = line - outer * inner
        for j in range(m):
            i = (outer * m + j) * inner + k
            place = (outer * n + index[i]) * inner + k
            if adds:
                a[place] += src[i]
            else:
                a[place] = src[i]


def _index_select(
    a: np.ndarray, index: np.ndarray, out: np.ndarray, n: int, inner: int
) -> None:
    """out[o, j, :] = a[o, index[j], :]; threads share the rows (o, j)."""
    m = index.size
    if inner == 1 and out.size > m:  # whole lines of single elements
        for unsigned in prange(out.size // m):
            line = np.int64(unsigned)
            x, y = a[line * n : (line + 1) * n], out[line * m : (line + 1) * m]
            for j in range(m):
                y[j] = x[index[j]]
        return
    for unsigned in prange(out.size // inner):
        row = np.int64(unsigned)
        outer = row // m
        source = (outer * n + index[row - outer * m]) * inner
        x, y = a[source : source + inner], out[row * inner : (row + 1) * inner]
        for k in range(inner):
            y[k] = x[k]


def _index_add(
    out: np.ndarray, index: np.ndarray, src: np.ndarray, n: int, inner: int
) -> None:
    """out[o, index[j], :] += src[o, j, :], for j from 0 up.

    Threads share chunks of up to COLUMNS columns of a slab o, each for all j, so that
    no two add to the same place and the order of the additions is fixed.
    """
    m = index.size
    chunks = (inner + COLUMNS - 1) // COLUMNS
    for task in prange(src.size // (m * inner) * chunks):
        outer = np.int64(task) // chunks
        low = (np.int64(task) - outer * chunks) * COLUMNS
        width = min(COLUMNS, inner - low)
        for j in range(m):
            target = (outer * n + index[j]) * inner + low
            source = (outer * m + j) * inner + low
            x, y = src[source : source + width], out[target : target + width]
            for k in range(width):
                y[k] += x[k]


def _index_copy(
    out: np.ndarray, index: np.ndarray, src: np.ndarray, n: int, inner: int
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


KERNELS = both(
    _first_outside, _gather, _scatter, _index_select, _index_add, _index_copy
)
