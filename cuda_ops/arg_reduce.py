"""Positions of extremes on the GPU.

With this file one can find where the first maximum (`argmax`) or minimum (`argmin`)
along a dimension is, and what it is (`extreme`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    is_aligned,
    kind_of,
    load,
    load4,
    shuffle_xor,
    store,
    wait_for_previous,
)
from cuda_ops.block.rows import BLOCK, barrier
from cuda_ops.layouts import lane_shift
from cuda_ops.memory import contiguous, copy, empty, full, split
from cuda_ops.reduce import splits_of
from cuda_ops.runtime.launch import TINY, Kernels, ceil_div
from minitorch import operators
from minitorch.dtypes import bool_, int8, int32, int64
from minitorch.tensor_data import Shape, TensorData

# Threads that keep a chip's memory busy.
FILLING = 2**10 if TINY else 2**16
# Longer rows have a block, or several with chunks of so many elements at least; but
# not if there are so many that warps fill the chip.
LONG = 64 if TINY else 1024
LEAST = 8 * LONG
# Threads of a block that has a long row for itself, and what is not too long for it.
MOST = 128 if TINY else 1024
LONGEST = 64 * MOST


def better_of(better: Callable) -> Any:
    """Make `wins(x, i, y, j)`: whether x at place i goes before y at place j.

    It does if it is better, or NaN where y is not; of equals, the first one does.
    """

    def wins(x, i, y, j):
        same = x == y or (x != x and y != y)
        return (i < j) if same else (better(x, y) or x != x)

    return device(wins)


def better_later(better: Callable) -> Any:
    """Make `wins(x, y)`: the same for an x whose place is behind that of y.

    Two comparisons: that y is a number, and that it is neither better nor equal, which
    NaN is not.
    """

    def wins(x, y):
        return y == y and not (better(y, x) or x == y)

    return device(wins)


def group_winner(wins: Any) -> Any:
    """Make `winner(best, place, lanes, t, bests, places)`: what wins of `lanes`
    neighbouring threads, a part of a warp or the block, and its place.

    They go through the registers, and from warp to warp through shared memory, [WARP].
    """

    def of_lanes(best, place, lanes):
        while lanes > 1:
            lanes >>= 1
            other, x = shuffle_xor(place, lanes), shuffle_xor(best, lanes)
            if wins(x, other, best, place):
                best, place = x, other
        return best, place

    of_lanes = device(of_lanes)

    def winner(best, place, lanes, t, bests, places):
        best, place = of_lanes(best, place, min(lanes, WARP))
        if lanes > WARP:  # in all threads, or in none
            if t % WARP == 0:
                store(bests, t // WARP, best)
                store(places, t // WARP, place)
            barrier()
            lanes //= WARP
            t &= lanes - 1
            best, place = of_lanes(load(bests, t), load(places, t), lanes)
        return best, place

    return device(winner)


def row_finder(better: Callable) -> Any:
    """Make `search(a, begin, end, t, lanes)`: the best of thread t's elements of
    a[begin : end], and its place in a.

    A thread has four vectors of 16 bytes under way and remembers which four had the
    best; at the end it reads these again, and looks for the place in them. So there is
    one comparison for each element, and one place for 16 of them. Vectors begin at
    multiples of 4 elements; the up to six elements at the ends are shared out.
    """
    later, wins = better_later(better), better_of(better)

    def of_four(x):
        x0, x1, x2, x3 = x
        x0 = x1 if later(x1, x0) else x0
        x2 = x3 if later(x3, x2) else x2
        return x2 if later(x2, x0) else x0

    def place_of(x, best, i, place):
        """`place`, if it is known; else where x, from i on, has `best`."""
        for k in range(4):
            if place < 0 and (x[k] == best or (best != best and x[k] != x[k])):
                place = i + k
        return place

    of_four, place_of = device(of_four), device(place_of)

    def search(a, begin, end, t, lanes):
        head = min(-begin & 3, end - begin)
        whole = (end - begin - head) & -4
        last, step = begin + head + whole - 4, 4 * lanes
        best, four, place = load(a, begin), begin, begin
        for i in range(begin + head + 4 * t, last + 4, 4 * step):
            # Past the end, the last vector is looked at again, which changes nothing.
            w, x = load4(a, i), load4(a, min(i + step, last))
            y = load4(a, min(i + 2 * step, last))
            z = load4(a, min(i + 3 * step, last))
            x0 = of_four((of_four(w), of_four(x), of_four(y), of_four(z)))
            if later(x0, best):
                best, four, place = x0, i, -1
        if place < 0:
            for k in range(4):
                i = min(four + k * step, last)
                place = place_of(load4(a, i), best, i, place)
        for e in range(t, end - begin - whole, lanes):
            i = begin + e + (0 if e < head else whole)
            x0 = load(a, i)
            if wins(x0, i, best, place):
                best, place = x0, i
        return best, place

    return device(search)


def first_in_rows(better: Callable) -> Callable:
    """Find the first extreme of each row, or of each chunk of a row.

    # a [R, n] from `at` on -> out [R, splits], places in 0 .. n - 1, or what is in
    # `known` [R, n] at these if `mapped`; and values [R, splits] if `keep`

        for r, s:  out[r, s] = first place of the extreme of a[r, chunk s]

    2**shift neighbouring threads, 1 to 32 or all of a block, share a chunk. A second
    launch finds the best of the chunks' values, of which the first one has the first
    place.
    """
    search, winner = row_finder(better), group_winner(better_of(better))

    def kernel(a, at, n, splits, chunk, shift, known, mapped, out, values, keep):
        bests = cuda.shared.array(WARP, kind_of(a))
        places = cuda.shared.array(WARP, np.int64)
        lanes = 1 << shift
        t = cuda.threadIdx.x & (lanes - 1)
        q = cuda.blockIdx.x * (cuda.blockDim.x >> shift) + (cuda.threadIdx.x >> shift)
        r, s = split(min(q, out.size - 1), splits)
        wait_for_previous()
        row = at + r * n
        begin, end = row + s * chunk, row + min(s * chunk + chunk, n)
        best, place = search(a, begin, end, t, lanes)
        best, place = winner(best, place, lanes, t, bests, places)
        if t == 0 and q < out.size:
            place -= row
            out[q] = load(known, r * n + place) if mapped else place
            if keep:
                store(values, q, best)

    return kernel


def first_in_columns(better: Callable) -> Callable:
    """Find the first extreme along a dimension that is not the last.

    # a [O, n, I] from `at` on -> out [O * I], places in 0 .. n - 1; values if `keep`

    A thread makes a column, with four loads under way; its neighbours read neighbouring
    columns.
    """
    later = better_later(better)

    def kernel(a, at, n, inner, out, values, keep):
        q = cuda.grid(1)
        wait_for_previous()
        if q < out.size:
            outer, k = split(q, inner)
            at += outer * n * inner + k
            place, best = 0, load(a, at)
            for i in range(0, n, 4):
                # Past the end, the last element is looked at again, which cannot win.
                j, l, m = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
                x0, x1 = load(a, at + i * inner), load(a, at + j * inner)
                x2, x3 = load(a, at + l * inner), load(a, at + m * inner)
                if later(x0, best):
                    best, place = x0, i
                if later(x1, best):
                    best, place = x1, j
                if later(x2, best):
                    best, place = x2, l
                if later(x3, best):
                    best, place = x3, m
            out[q] = place
            if keep:
                store(values, q, best)

    return kernel


_BOTH = (operators.gt, operators.lt)
_ROWS = f"float32[] {5 * 'int64 '}int64[] bool int64[] float32[] bool"
FIRST_IN_ROWS = Kernels(
    first_in_rows, _BOTH,
    [_ROWS, _ROWS.replace("float32", "float64")], launch_bounds=MOST, threads=BLOCK,
    overlaps=True,
)  # fmt: skip
FIRST_IN_COLUMNS = Kernels(
    first_in_columns, _BOTH, ["float32[] int64 int64 int64 int64[] float32[] bool"],
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
    if a.dims == 0:
        return copy(a, a.dtype), full((), 0, int64)
    better = operators.gt if largest else operators.lt
    values = empty((*a.shape[:dim], 1, *a.shape[dim + 1 :]), a.dtype)
    return values, _first(better, "extreme", a, dim, values)


@lru_cache(maxsize=1024)
def _plan(shape: Shape, dim: int) -> tuple[Shape, int, int, int, int]:
    """The shape of the result, the elements behind `dim`, how many threads share a row
    or chunk (their logarithm), and into how many chunks of which size rows are split.

    About four blocks run on each multiprocessor. A thread has 16 vectors, or of rows
    so few that these would not fill the chip, four. A second launch costs more than a
    large block that reads a row of a vocabulary.
    """
    out, n = (*shape[:dim], 1, *shape[dim + 1 :]), shape[dim]
    inner, rows = math.prod(shape[dim + 1 :]), math.prod(out)
    if inner > 1 or 0 in shape or n <= LONG or 2 * rows * WARP >= FILLING:
        lanes = max(ceil_div(n, 64), min(ceil_div(n, 16), FILLING // max(rows, 1)))
        return out, inner, lane_shift(lanes), 1, n
    splits = splits_of(2 * rows, n, LEAST)
    if splits > 1 and n <= LONGEST and rows * MOST <= FILLING:
        return out, inner, MOST.bit_length() - 1, 1, n
    chunk = ceil_div(n, splits)
    return out, inner, BLOCK.bit_length() - 1, ceil_div(n, chunk), chunk


def _first(
    better: Callable, name: str, a: TensorData, dim: int,
    values: TensorData | None = None,
) -> TensorData:  # fmt: skip
    if a.dims == 0:
        return full((), 0, int64)
    n, (shape, inner, shift, splits, chunk) = a.shape[dim], _plan(a.shape, dim)
    out = empty(shape, int64)
    places = found = out.storage.array
    if len(found) == 0:
        return out
    if n == 0:
        raise ValueError(f"{name}: dimension {dim} of {a.shape} has no elements")
    # Lanes exchange words of four bytes at least.
    a = copy(a, int32) if a.dtype in (bool_, int8) else contiguous(a)
    if not is_aligned(a.storage.array):
        a = copy(a, a.dtype)
    x, keep = a.storage.array, values is not None
    best = x if values is None else values.storage.array
    if inner > 1:
        FIRST_IN_COLUMNS[better][ceil_div(len(found), BLOCK), BLOCK](
            x, a.offset, n, inner, found, best, keep
        )
        return out
    kernel, parts = FIRST_IN_ROWS[better], best
    if splits > 1:
        places = empty((len(found) * splits,), int64).storage.array
        parts = empty((len(places),), a.dtype).storage.array
    threads = max(BLOCK, 1 << shift)
    kernel[ceil_div(len(places) << shift, threads), threads](
        x, a.offset, n, splits, chunk, shift, found, False, places, parts,
        keep or splits > 1,
    )  # fmt: skip
    if splits > 1:
        shift = lane_shift(ceil_div(splits, 4))
        kernel[ceil_div(len(found) << shift, BLOCK), BLOCK](
            parts, 0, splits, 1, splits, shift, places, True, found, best, keep
        )
    return out
