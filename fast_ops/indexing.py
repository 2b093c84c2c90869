"""Indexing: read and write elements whose positions are in another tensor."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import compile_kernel
from fast_ops.memory import contiguous, copy, copy_into, empty
from minitorch.tensor_data import TensorData


def _out_of_range(name: str, index: TensorData, size: int, dim: int) -> IndexError:
    values = contiguous(index).flat()
    bad = values[(values < 0) | (values >= size)][0]
    return IndexError(
        f"{name}: index {bad} is outside dimension {dim}, which has {size} element(s); "
        f"indices must be from 0 to {size - 1}"
    )


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
    for unsigned in prange(out.size):
        i = np.int64(unsigned)
        outer = i // (m * inner)
        out[i] = a[(outer * n + index[i]) * inner + i % inner]


gather_lines = compile_kernel(_gather, parallel=True)


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
        a, index, dim = a.view((1,)), index.view((1,)), 0
    index = _check("gather", index, a.shape[dim], dim)
    a = contiguous(_crop(a, dim, index.shape))
    inner = math.prod(index.shape[dim + 1 :])
    gather_lines(
        a.flat(), a.shape[dim], inner, index.flat(), index.shape[dim], out.flat()
    )
    return out


def _scatter_add(
    a: np.ndarray, n: int, inner: int, index: np.ndarray, m: int, src: np.ndarray
) -> None:
    lines = index.size // m
    for unsigned in prange(lines):
        line = np.int64(unsigned)
        outer, k = divmod(line, inner)
        for j in range(m):
            i = (outer * m + j) * inner + k
            a[(outer * n + index[i]) * inner + k] += src[i]


scatter_lines = compile_kernel(_scatter_add, parallel=True)


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
            out.view((1,)), index.view((1,)), src.view((1,)), 0,
        )  # fmt: skip
    index = _check("scatter_add", index, out.shape[dim], dim)
    for i in range(src.dims):
        if src.shape[i] != index.shape[i]:
            src = src.slice(i, 0, index.shape[i])
    src = contiguous(src)
    window = _crop(out, dim, index.shape)
    target = contiguous(window)
    scatter_lines(
        target.flat(), target.shape[dim], math.prod(index.shape[dim + 1 :]),
        index.flat(), index.shape[dim], src.flat(),
    )  # fmt: skip
    if target is not window:
        copy_into(window, target)
    return out.view(shape)


def _copy_slices(
    a: np.ndarray, n: int, inner: int, index: np.ndarray, out: np.ndarray
) -> None:
    m = index.size
    for unsigned in prange(out.size // inner):
        row = np.int64(unsigned)
        outer, j = divmod(row, m)
        source = (outer * n + index[j]) * inner
        for k in range(inner):
            out[row * inner + k] = a[source + k]


def _add_slices(
    out: np.ndarray, n: int, inner: int, index: np.ndarray, src: np.ndarray
) -> None:
    m = index.size
    for outer in range(src.size // (m * inner)):
        for j in range(m):
            target = (outer * n + index[j]) * inner
            for k in range(inner):
                out[target + k] += src[(outer * m + j) * inner + k]


def _put_slices(
    out: np.ndarray, n: int, inner: int, index: np.ndarray, src: np.ndarray
) -> None:
    m = index.size
    for outer in range(src.size // (m * inner)):
        for j in range(m):
            target = (outer * n + index[j]) * inner
            for k in range(inner):
                out[target + k] = src[(outer * m + j) * inner + k]


copy_slices = compile_kernel(_copy_slices, parallel=True)
add_slices = compile_kernel(_add_slices)
put_slices = compile_kernel(_put_slices)


def index_select(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""
    if a.dims == 0:
        a, dim = a.view((1,)), 0
    index = _check("index_select", index, a.shape[dim], dim)
    m = index.size
    out = empty((*a.shape[:dim], m, *a.shape[dim + 1 :]), a.dtype)
    if out.size:
        inner = math.prod(a.shape[dim + 1 :])
        copy_slices(
            contiguous(a).flat(), a.shape[dim], inner, index.flat(), out.flat()
        )
    return out


def index_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a with src's slice i added to slice index[i] of `dim`."""
    out = copy(a, a.dtype)
    index = _check("index_add", index, a.shape[dim], dim)
    if src.size:
        inner = math.prod(a.shape[dim + 1 :])
        add_slices(
            out.flat(), a.shape[dim], inner, index.flat(), contiguous(src).flat()
        )
    return out


def index_copy_(
    out: TensorData, dim: int, index: TensorData, src: TensorData
) -> None:
    """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""
    index = _check("index_copy_", index, out.shape[dim], dim)
    if src.size == 0:
        return
    inner = math.prod(out.shape[dim + 1 :])
    target = contiguous(out)
    put_slices(
        target.flat(), out.shape[dim], inner, index.flat(), contiguous(src).flat()
    )
    if target is not out:
        copy_into(out, target)
