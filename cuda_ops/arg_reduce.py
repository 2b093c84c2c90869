"""Positions of extremes on the GPU.

With this file one can find where the first maximum (`argmax`) or minimum (`argmin`)
along a dimension is, and what it is (`extreme`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    load,
    shuffle_xor,
    store,
    wait_for_previous,
)
from cuda_ops.block.rows import BLOCK
from cuda_ops.indexing import gather
from cuda_ops.layouts import lane_shift
from cuda_ops.memory import contiguous, copy, empty, full, split
from cuda_ops.reduce import BLOCKS, WARPS
from cuda_ops.runtime.launch import Kernels, ceil_div
from minitorch import operators
from minitorch.dtypes import bool_, int32, int64
from minitorch.tensor_data import Shape, TensorData

# Elements of a row's chunk, at least, that a warp searches.
LEAST_PLACES = 16 * WARP


def better_of(better: Callable) -> Any:
    """Make `wins(x, i, y, j)`: whether x at place i goes before y at place j.

    It does if it is better, or NaN where y is not; of equals, the first one does.
    """

    def wins(x, i, y, j):
        same = x == y or (x != x and y != y)
        return (i < j) if same else (better(x, y) or x != x)

    return device(wins)


def better_later(better: Callable) -> Any:
    """Make `wins(x, y)`: the same for an x whose place is behind that of y."""

    def wins(x, y):
        return better(x, y) or (x != x and y == y)

    return device(wins)


def warp_winner(wins: Any) -> Any:
    """Make `winner(best, place, lanes)`: the place that wins of `lanes`
    neighbouring threads, known to all of them.

    Places and elements go through the registers: to read an element again at a place
    that has just come would be five loads, each of which waits for the one before.
    """

    def winner(best, place, lanes):
        while lanes > 1:
            lanes >>= 1
            other, x = shuffle_xor(place, lanes), shuffle_xor(best, lanes)
            if wins(x, other, best, place):
                best, place = x, other
        return place

    return device(winner)


def first_in_rows(better: Callable) -> Callable:
    """Find the first extreme of each row, or of each chunk of a row, along n.

    # a [O, n, I] -> out [O * I, splits], places in 0 .. n - 1, and values if `keep`

        for o, k, s:  out[o, k, s] = first place of the extreme of a[o, chunk s, k]

    2**shift neighbouring threads, 1 to 32, share a chunk, with four loads under way
    each. A thread keeps its best element and that one's place; then places are
    exchanged between the registers of a warp. Where I > 1, a row is a thread's: its
    neighbours then read neighbouring rows.
    """
    later, winner = better_later(better), warp_winner(better_of(better))

    def kernel(a, n, inner, splits, chunk, shift, out, values, keep):
        lanes = 1 << shift
        t = cuda.threadIdx.x & (lanes - 1)
        q = cuda.blockIdx.x * (BLOCK >> shift) + (cuda.threadIdx.x >> shift)
        known = q < out.size
        q = q if known else 0
        row, s = split(q, splits)
        outer, k = split(row, inner)
        at = outer * n * inner + k
        first = s * chunk
        wait_for_previous()
        last = min(first + chunk, n)
        place = first
        best = load(a, at + first * inner)
        for i in range(first + t, last, 4 * lanes):
            # Past the end, the last element is looked at again, which cannot win.
            j = min(i + lanes, last - 1)
            k2 = min(i + 2 * lanes, last - 1)
            k3 = min(i + 3 * lanes, last - 1)
            x0, x1 = load(a, at + i * inner), load(a, at + j * inner)
            x2, x3 = load(a, at + k2 * inner), load(a, at + k3 * inner)
            if later(x0, best):
                best, place = x0, i
            if later(x1, best):
                best, place = x1, j
            if later(x2, best):
                best, place = x2, k2
            if later(x3, best):
                best, place = x3, k3
        place = winner(best, place, lanes)
        if t == 0 and known:
            out[q] = place
            if keep:
                store(values, q, load(a, at + place * inner))

    return kernel


def first_of_places(better: Callable) -> Callable:
    """Choose among the places that were found in the chunks of each row.

    # a [R, n], places [R, splits] -> out [R, groups]; a warp chooses among `each`.
    """
    wins = better_of(better)
    winner = warp_winner(wins)

    def kernel(a, n, places, splits, groups, each, out):
        t = cuda.threadIdx.x % WARP
        q = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
        known = q < out.size
        r, g = split(q if known else 0, groups)
        row, first = r * n, r * splits + g * each
        wait_for_previous()
        place = load(places, first)
        best = load(a, row + place)
        for i in range(t, min(each, splits - g * each), WARP):
            other = load(places, first + i)
            x = load(a, row + other)
            if wins(x, other, best, place):
                best, place = x, other
        place = winner(best, place, WARP)
        if t == 0 and known:
            out[q] = place

    return kernel


_BOTH = (operators.gt, operators.lt)
FIRST_IN_ROWS = Kernels(
    first_in_rows, _BOTH,
    ["float32[] int64 int64 int64 int64 int64 int64[] float32[] bool"],
    threads=BLOCK, overlaps=True,
)  # fmt: skip
FIRST_OF_PLACES = Kernels(
    first_of_places, _BOTH, ["float32[] int64 int64[] int64 int64 int64 int64[]"],
    threads=BLOCK, overlaps=True,
)  # fmt: skip


def argmax(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""
    return _first(operators.gt, "argmax", a, dim)


def argmin(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""
    return _first(operators.lt, "argmin", a, dim)


def extreme(a: TensorData, dim: int, largest: bool) -> tuple[TensorData, TensorData]:
    """The first maximum or minimum along `dim` (kept as 1), and where it is."""
    if a.dims == 0 or _plan(a.shape, dim)[3] > 1:
        index = argmax(a, dim) if largest else argmin(a, dim)
        return gather(a, dim, index), index
    better = operators.gt if largest else operators.lt
    values = empty(_plan(a.shape, dim)[0], a.dtype)
    return values, _first(better, "extreme", a, dim, values)


@lru_cache(maxsize=1024)
def _plan(shape: Shape, dim: int) -> tuple[Shape, int, int, int, int]:
    """The shape of the result, the elements behind `dim`, how many lanes share a row
    (their logarithm), and into how many chunks of which size it is split."""
    out, n = (*shape[:dim], 1, *shape[dim + 1 :]), shape[dim]
    inner, splits = math.prod(shape[dim + 1 :]), 1
    if inner > 1 or 0 in shape:
        return out, inner, 0, 1, n
    if n > 2 * LEAST_PLACES:  # A chunk is a warp's; two would wait for a second launch.
        splits = max(1, min(BLOCKS * WARPS // math.prod(out), n // LEAST_PLACES))
    chunk = ceil_div(n, splits)
    return out, inner, lane_shift(ceil_div(n, 4)), ceil_div(n, chunk), chunk


def _first(
    better: Callable, name: str, a: TensorData, dim: int,
    values: TensorData | None = None,
) -> TensorData:  # fmt: skip
    if a.dims == 0:
        return full((), 0, int64)
    n, (shape, inner, shift, splits, chunk) = a.shape[dim], _plan(a.shape, dim)
    out = empty(shape, int64)
    found = out.storage.array
    if len(found) == 0:
        return out
    if n == 0:
        raise ValueError(f"{name}: dimension {dim} of {a.shape} has no elements")
    a = copy(a, int32) if a.dtype is bool_ else contiguous(a)
    x = a.flat()
    places = found
    if splits > 1:
        places = empty((len(found) * splits,), int64).storage.array
    best, keep = (x, False) if values is None else (values.storage.array, True)
    FIRST_IN_ROWS[better][ceil_div(len(places) << shift, BLOCK), BLOCK](
        x, n, inner, splits, chunk, shift, places, best, keep
    )
    while splits > 1:  # Each launch leaves one place of `each`.
        each = min(splits, 4 * WARP)
        groups = ceil_div(splits, each)
        chosen = found
        if groups > 1:
            chosen = empty((len(found) * groups,), int64).storage.array
        FIRST_OF_PLACES[better][ceil_div(len(chosen), WARPS), BLOCK](
            x, n, places, splits, groups, each, chosen
        )
        places, splits = chosen, groups
    return out
