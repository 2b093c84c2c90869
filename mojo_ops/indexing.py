"""Indexing: launchers of `indexing.mojo`.

With this file one can look single elements up (`gather`), add to them (`scatter_add`),
and read, add to or overwrite whole slices (`index_select`, `index_add`, `index_copy_`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fast_ops.memory import overlap
from minitorch.backend.indexing import index_error
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, copy, copy_into, empty

kernels = Library("indexing")


class Sizes(NamedTuple):
    """A tensor as kernels see it, [outer, n, inner], and m, the number of indices."""

    outer: int
    n: int
    m: int
    inner: int


def _sizes(a: TensorData, dim: int, m: int) -> Sizes:
    shape = a.shape
    return Sizes(math.prod(shape[:dim]), shape[dim], m, math.prod(shape[dim + 1 :]))


def _check(name: str, index: TensorData, size: int, dim: int) -> TensorData:
    """The indices as int64, row by row, all of them from 0 to size - 1."""
    index = contiguous(index) if index.dtype is int64 else copy(index, int64)
    values = index.flat()
    bad = kernels.first_outside(values, index.size, size)
    if bad >= 0:
        raise index_error(name, values[bad], dim, size)
    return index


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
    sizes = _sizes(a, dim, index.shape[dim])
    kernels.gather(a.flat(), index.flat(), out.storage.array, *sizes, a.dtype.itemsize)
    return out


def scatter_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0."""
    out = copy(a, a.dtype)
    if index.size == 0:
        return out
    if a.dims == 0:
        whole, index, src, dim = _line(out), _line(index), _line(src), 0
    else:
        whole = out
    index = _check("scatter_add", index, whole.shape[dim], dim)
    src = _crop(src, dim, index.shape).slice(dim, 0, index.shape[dim])
    window = _crop(whole, dim, index.shape)
    target = contiguous(window)
    kernels.scatter_add(
        target.flat(), index.flat(), contiguous(src).flat(),
        *_sizes(target, dim, index.shape[dim]), a.dtype.name,
    )  # fmt: skip
    if target is not window:
        copy_into(window, target)
    return out


def index_select(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""
    if a.dims == 0:
        a, dim = _line(a), 0
    index = _check("index_select", index, a.shape[dim], dim)
    out = empty((*a.shape[:dim], index.size, *a.shape[dim + 1 :]), a.dtype)
    if out.size:
        kernels.index_select(
            contiguous(a).flat(), index.flat(), out.storage.array,
            *_sizes(a, dim, index.size), a.dtype.itemsize,
        )  # fmt: skip
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
        kernels.index_add(
            out.storage.array, index.flat(), contiguous(src).flat(),
            *_sizes(a, dim, index.size), a.dtype.name,
        )  # fmt: skip
    return out


def index_copy_(out: TensorData, dim: int, index: TensorData, src: TensorData) -> None:
    """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""
    if out.dims == 0:
        out, src, dim = _line(out), _as_line(src, index.size), 0
    index = _check("index_copy_", index, out.shape[dim], dim)
    if src.size == 0:
        return
    if overlap(src, out):
        src = copy(src, src.dtype)
    target = contiguous(out)
    kernels.index_copy(
        target.flat(), index.flat(), contiguous(src).flat(),
        *_sizes(target, dim, index.size), target.dtype.itemsize,
    )  # fmt: skip
    if target is not out:
        copy_into(out, target)
