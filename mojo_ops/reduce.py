"""Reductions: launchers of the kernels in `reduce.mojo`.

With this file one can fold an operator over any dimensions (`reduce`).

The kernels fold the middle of [outer, n, inner]. Dimensions that lie beside each other
are folded as one, and several runs of them one after the other, the last run first; so
no tensor that lies without gaps is copied, whatever is folded. A function of the user,
whose elements must come in order, is left to the CPU backend's Numba kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fast_ops import reduce as numba
from minitorch import operators
from minitorch.dtypes import DType, bool_, float32, float64
from minitorch.tensor_data import Shape, TensorData
from mojo_ops.bridge import Library
from mojo_ops.fallback import from_cpu
from mojo_ops.memory import contiguous, copy, empty, full

kernels = Library("reduce")

TASK = 16_384  # elements in a task, about
LONG = 16_384  # elements from which on the fold of one output is cut into blocks
MAX_BLOCKS = 64

EXTREMES = {operators.maximum, operators.minimum}
NUMBERS = {operators.add, operators.mul, *EXTREMES}
TRUTH = {operators.logical_and, operators.logical_or, operators.logical_xor}
NO_PARTIAL = np.empty(1)

_reduce_by_cpu = from_cpu(numba.reduce)


@lru_cache(maxsize=1024)
def _start(value: float, dtype: DType) -> np.ndarray:
    return np.array([value], dtype.numpy)


class Fold(NamedTuple):
    """The fold of one run of neighbouring dimensions of a contiguous tensor.

    Attributes:
        out_shape: the tensor's shape, with ones for the run.
        sizes: outer, n, inner, the length of a block of n, and how many units make a
            task (see `Cut` in reduce.mojo). All follow from the shape alone, never from
            the number of threads.
        partials: how many results of blocks there are, 0 if n is not cut.
    """

    out_shape: Shape
    sizes: tuple[int, int, int, int, int]
    partials: int


@lru_cache(maxsize=4096)
def _folds(shape: Shape, dims: tuple[int, ...]) -> tuple[Fold, ...]:
    """Fold the runs of neighbouring dims one after the other, the last one first."""
    folds = []
    for first, last in _runs(shape, dims):
        outer, inner = math.prod(shape[:first]), math.prod(shape[last:])
        n = math.prod(shape[first:last])
        shape = (*shape[:first], *[1] * (last - first), *shape[last:])
        block, per_task = _cut(outer, n, inner)
        blocks = -(-n // block)
        partials = outer * inner * blocks if blocks > 1 else 0
        folds.append(Fold(shape, (outer, n, inner, block, per_task), partials))
    return tuple(folds)


def _runs(shape: Shape, dims: tuple[int, ...]) -> list[tuple[int, int]]:
    """The runs (first, last + 1) of neighbouring folded dims, the last run first.

    Dims of size 1 are neither folded nor in the way.

    >>> _runs((8, 6, 4, 4), (0, 2, 3))
    [(2, 4), (0, 1)]
    """
    runs: list[tuple[int, int]] = []
    for dim in sorted(dims):
        if shape[dim] == 1:
            continue
        if runs and all(n == 1 for n in shape[runs[-1][1] : dim]):
            runs[-1] = (runs[-1][0], dim + 1)
        else:
            runs.append((dim, dim + 1))
    return runs[::-1]


def _cut(outer: int, n: int, inner: int) -> tuple[int, int]:
    """The length of a block of n, and how many units make a task."""
    width = min(inner, 64)
    blocks = min(MAX_BLOCKS, max(1, n * inner // LONG))
    if outer * -(-inner // 64) >= 2 * MAX_BLOCKS:
        blocks = 1  # there is enough to share without
    block = -(-n // blocks)
    return block, max(1, TASK // (block * width))


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
    dims, given = tuple(dims), a.storage.dtype
    out_type = dtype or given
    if 0 in a.shape:
        shape = tuple([1 if i in dims else n for i, n in enumerate(a.shape)])
        return full(shape, start, out_type)
    if fn in NUMBERS and out_type is not bool_:
        return _fold_any(fn, a if given is out_type else copy(a, out_type), dims, start)
    if fn not in TRUTH and fn not in EXTREMES:
        return _reduce_by_cpu(fn, a, dims, start, dtype)
    out = _fold_any(fn, a if given is bool_ else copy(a, bool_), dims, start)
    return out if out_type is bool_ else copy(out, out_type)


def _fold_any(
    fn: Callable, a: TensorData, dims: tuple[int, ...], start: float
) -> TensorData:
    """Fold in the order in which memory lies, where that is another one."""
    if not a.is_contiguous():
        order = sorted(range(a.dims), key=lambda i: -a.strides[i])
        dense = a.permute(order)
        if dense.is_contiguous():
            moved = tuple(order.index(i) for i in dims)
            out = _fold_any(fn, dense, moved, start)
            return contiguous(out.permute([order.index(i) for i in range(a.dims)]))
        a = contiguous(a)
    folds = _folds(a.shape, dims)
    if not folds:
        return copy(a, a.dtype)
    for fold in folds:
        a = _fold(fn, a, fold, start)
    return a


def _fold(fn: Callable, a: TensorData, fold: Fold, start: float) -> TensorData:
    dtype = a.storage.dtype
    out = empty(fold.out_shape, dtype)
    partial = NO_PARTIAL
    if fold.partials:
        wide = float64 if dtype is float32 else dtype
        partial = np.empty(fold.partials, wide.numpy)
    kernels.fold(
        fn.__name__, a.flat(), out.storage.array, partial, _start(start, dtype),
        *fold.sizes,
    )  # fmt: skip
    return out
