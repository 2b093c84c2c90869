"""Softmax and log-softmax, forward and backward, on the GPU.

With this file one can turn scores into probabilities along a dimension (`softmax`) or
into their logarithms (`log_softmax`).

Such kernels compute little, so the time is that of the bytes. A row is read once, kept
in registers (`cuda_ops/block/rows.py`) and written once, where it has up to 16,384
numbers:

    softmax_rows       the last dimension, in the registers of a warp or of a block
    softmax_long       the last dimension, too long for registers: a block passes twice
    softmax_partials   the same for few rows: many blocks share a row; the first kernel
    softmax_chunks     reads it, the second reads and writes it
    softmax_columns    any other dimension: neighbouring threads in neighbouring columns

and the same for backward; each is made for softmax and for its logarithm. The steps
that lead there are in `ladders/softmax.py`.

All find the maximum and the sum of exponentials in one pass, the "online" way: a sum of
exp(x - top) for a top that was too low is scaled down when a higher one is met. A row
that is -inf everywhere has no maximum to subtract and becomes NaN, as in PyTorch.

Results are the same to the last bit in every run: sums are added in an order that
depends on the shape alone.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import WARP, device, load, store
from cuda_ops.block.rows import (
    BLOCK,
    EXAMPLES,
    LARGE,
    LONGEST,
    RAGGED,
    Fit,
    KernelFamily,
    barrier,
    fitting,
    merged,
    ragged_reader,
    ragged_width,
    ragged_writer,
    row_ends,
    row_mapper,
    row_reader,
    row_writer,
    summed,
)
from cuda_ops.memory import contiguous, copy, empty, full
from cuda_ops.runtime.launch import TINY, ceil_div, device_function
from minitorch import operators
from minitorch.dtypes import DType, computed, float32, float64
from minitorch.tensor_data import TensorData

# Numbers that a thread has in registers where rows are too long for them.
ITEMS = 8 if TINY else 16
# Numbers of a long row that a block takes at least, and blocks that share it at most.
CHUNK = 2 * ITEMS * BLOCK
MOST_SPLITS = 256
# Threads of a block that has a long row for itself, how many rows have that (two for
# each multiprocessor), and how long they are at most, so that caches have room.
MOST = 2 * LARGE
MANY = 4 if TINY else 256
CACHED = 4 * LONGEST
# Columns side by side in a block, threads that share one of them, and the numbers that
# a thread loads at once.
TX = 16 if TINY else 32
TY = 4 if TINY else 8
AHEAD = 4
# Fewer columns than this side by side are moved to the end first.
SHORT_INNER = 4

exp = device_function(operators.exp)
log = device_function(operators.log)


@device
def top_of(x):
    """The largest number of a local array."""
    top = x[0]
    for k in range(1, x.size):
        top = x[k] if x[k] > top else top
    return top


# ----------------------------------------------------------------- rows in registers


def softmax_rows(fit: Fit, logarithm: bool) -> Callable:
    """The kernel for rows that fit into the registers of a warp or a block.

    # a [R, n] -> out [R, n]

        for r:  top = max(a[r]);  total = sum(exp(a[r] - top))
                for i:  out[r, i] = exp(a[r, i] - top) / total
                    or  (a[r, i] - top) - log(total)

    A group of threads makes a row; each has up to 32 numbers of it in registers, loaded
    and stored 16 bytes at a time (`rows.py`). Memory sees 8 bytes for each number,
    which is the least possible; three passes would be 16.

    A thread takes its exponentials relative to its own maximum, at once, without
    waiting for that of the row. All maxima and sums are then merged in one go, with one
    barrier, and the exponentials scaled by exp(own top - row's top) / total. For the
    logarithm the row itself stays in registers. Both a and top may be large there, and
    top + log(total) would be rounded: hence the order.

    Source of the idea: Milakov and Gimelshein, 2018; rows in registers as in Triton's
    tutorial "Fused softmax".
    """
    kind, group, room, rows = fit.kind, fit.group, fit.room, fit.rows
    read, write = ragged_reader(fit), ragged_writer(fit)
    merge = merged(group, exp, kind)
    lowest, zero = kind(-np.inf), kind(0)

    def kernel(a, out, count, n):
        x = cuda.local.array(room, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(a, at, n, t, lowest, x)
        top = top_of(x)
        base = top if top > lowest else zero
        total = zero
        for k in range(room):
            y = exp(x[k] - base)
            total += y
            x[k] = x[k] if logarithm else y
        best, whole = merge(top, total, t, tops, totals)
        rest = log(whole) if logarithm else exp(top - best) / whole
        for k in range(room):
            x[k] = (x[k] - best) - rest if logarithm else x[k] * rest
        write(out, at, n if r < count else 0, t, x)

    return kernel


def softmax_backward_rows(fit: Fit, logarithm: bool) -> Callable:
    """The gradient for rows that fit into registers, together with the output's.

    # grad [R, n], out [R, n] -> dx [R, n]

        for r:  total = sum(grad[r] * out[r])   or  sum(grad[r])
                for i:  dx[r, i] = out[r, i] * (grad[r, i] - total)
                               or  grad[r, i] - exp(out[r, i]) * total

    Threads, registers and loads as in `softmax_rows`, with two rows for each group:
    12 bytes for each number, the least possible.
    """
    kind, group, room, rows = fit.kind, fit.group, fit.room, fit.rows
    read, write = ragged_reader(fit), ragged_writer(fit)
    total_of, zero = summed(group), kind(0)

    def kernel(grad, out, dx, count, n):
        g = cuda.local.array(room, kind)
        y = cuda.local.array(room, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(grad, at, n, t, zero, g)
        read(out, at, n, t, zero, y)
        total = zero
        for k in range(room):
            total += g[k] if logarithm else g[k] * y[k]
        total = total_of(total, t, cells)
        for k in range(room):
            g[k] = g[k] - exp(y[k]) * total if logarithm else y[k] * (g[k] - total)
        write(dx, at, n if r < count else 0, t, g)

    return kernel


# --------------------------------------------------------------- rows in several chunks


def partial_finder(fit: Fit) -> Any:
    """Make `partial_of(a, at, n, t, x)` -> top and total of thread t's part of a chunk.

    The chunk a[at : at + n] is read `items` numbers for each thread at a time; `x` is
    room for those.
    """
    kind, group, items = fit.kind, fit.group, fit.items
    read, ends, lowest, zero = row_reader(fit), row_ends(fit), kind(-np.inf), kind(0)

    def partial_of(a, at, n, t, x):
        first, whole, edge = ends(at, n, t)
        top, total = lowest, zero
        if edge < n:
            top = load(a, at + edge)
            total = exp(top - (top if top > lowest else zero))
        for i in range(0, whole, group * items):
            read(a, at + first + i, whole - i, t, lowest, x)
            best = top_of(x)
            best = best if best > top else top
            base = best if best > lowest else zero
            total *= exp(top - base)
            for k in range(items):
                total += exp(x[k] - base)
            top = best
        return top, total

    return device(partial_of)


@device
def softmax_of(x, about):
    """A number's softmax, from the row's maximum and 1 / its total."""
    top, rest = about
    return exp(x - top) * rest


@device
def log_softmax_of(x, about):
    """The logarithm of a number's softmax, from the maximum and log of the total."""
    top, rest = about
    return (x - top) - rest


def softmax_long(fit: Fit, logarithm: bool) -> Callable:
    """Softmax, or its logarithm, of rows that registers have no room for; many rows.

    # a [R, n] -> out [R, n]

        for r:  top = max(a[r]);  total = sum(exp(a[r] - top))
                for i:  out[r, i] = exp(a[r, i] - top) / total

    A block as large as can be passes over its row twice. The second time the row comes
    from caches, as one such block has a multiprocessor for itself: 132 rows of 50,257
    are 27 MB, of 50 in the second level. So memory sees 8 bytes for each number where
    `softmax_partials` and `softmax_chunks`, which read all rows before they read the
    first one again, move 12.
    """
    kind, items = fit.kind, fit.items
    each = row_mapper(fit, log_softmax_of if logarithm else softmax_of)
    partial_of, merge = partial_finder(fit), merged(fit.group, exp, kind)
    one = kind(1)

    def kernel(a, n, out):
        x = cuda.local.array(items, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t, at = cuda.threadIdx.x, cuda.blockIdx.x * n
        top, total = partial_of(a, at, n, t, x)
        top, total = merge(top, total, t, tops, totals)
        rest = log(total) if logarithm else one / total
        each(a, at, out, at, n, t, x, (top, rest))

    return kernel


def softmax_partials(fit: Fit) -> Callable:
    """The maximum and the sum of exponentials of each chunk of a long row.

    # a [R, n] -> tops, totals [R, splits]

        for r, s:  tops[r, s] = max(chunk);  totals[r, s] = sum(exp(chunk - tops[r, s]))

    A block takes one chunk, `chunk` numbers (the last one of a row may be shorter), so
    that even one row keeps all multiprocessors busy.
    """
    kind, items = fit.kind, fit.items
    partial_of, merge = partial_finder(fit), merged(fit.group, exp, kind)

    def kernel(a, n, splits, chunk, tops, totals):
        x = cuda.local.array(items, kind)
        warp_tops = cuda.shared.array(WARP, kind)
        warp_totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // splits
        first = (cuda.blockIdx.x - r * splits) * chunk
        top, total = partial_of(a, r * n + first, min(chunk, n - first), t, x)
        top, total = merge(top, total, t, warp_tops, warp_totals)
        if t == 0:
            tops[cuda.blockIdx.x] = top
            totals[cuda.blockIdx.x] = total

    return kernel


def softmax_chunks(fit: Fit, logarithm: bool) -> Callable:
    """Softmax, or its logarithm, of long rows from the results of `softmax_partials`.

    # a [R, n], tops, totals [R, splits] -> out [R, n]

    A block merges the partial results of its row, then reads its own chunk again and
    writes it: 12 bytes for each number, 8 of them read. The second time, what fits is
    found in the second-level cache (50 MB on an H100 or H200).
    """
    kind, items = fit.kind, fit.items
    each = row_mapper(fit, log_softmax_of if logarithm else softmax_of)
    merge, lowest = merged(fit.group, exp, kind), kind(-np.inf)
    zero, one = kind(0), kind(1)

    def kernel(a, n, splits, chunk, tops, totals, out):
        x = cuda.local.array(items, kind)
        warp_tops = cuda.shared.array(WARP, kind)
        warp_totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // splits
        top, total = lowest, zero
        if t < splits:  # A row has no more chunks than a block has threads.
            top, total = tops[r * splits + t], totals[r * splits + t]
        top, total = merge(top, total, t, warp_tops, warp_totals)
        rest = log(total) if logarithm else one / total
        begin = (cuda.blockIdx.x - r * splits) * chunk
        at = r * n + begin
        each(a, at, out, at, min(chunk, n - begin), t, x, (top, rest))

    return kernel


def sum_finder(fit: Fit, logarithm: bool) -> Any:
    """Make `sum_of(grad, out, at, n, t, g, y)`: thread t's part of the sum of
    grad * out over [at : at + n], or of grad; `g` and `y` are room for numbers."""
    group, items, zero, one = fit.group, fit.items, fit.kind(0), fit.kind(1)
    read, ends = row_reader(fit), row_ends(fit)

    def sum_of(grad, out, at, n, t, g, y):
        first, whole, edge = ends(at, n, t)
        total = zero
        if edge < n:
            total = load(grad, at + edge)
            total *= one if logarithm else load(out, at + edge)
        for i in range(0, whole, group * items):
            read(grad, at + first + i, whole - i, t, zero, g)
            if not logarithm:
                read(out, at + first + i, whole - i, t, zero, y)
            for k in range(items):
                total += g[k] if logarithm else g[k] * y[k]
        return total

    return device(sum_of)


def slope_writer(fit: Fit, logarithm: bool) -> Any:
    """Make `write_slopes(grad, out, dx, at, n, t, g, y, total)`: thread t's part of
    dx[at : at + n], from the row's sum."""
    group, items, zero = fit.group, fit.items, fit.kind(0)
    read, write, ends = row_reader(fit), row_writer(fit), row_ends(fit)

    @device
    def slope(g, y, total):
        return g - exp(y) * total if logarithm else y * (g - total)

    def write_slopes(grad, out, dx, at, n, t, g, y, total):
        first, whole, edge = ends(at, n, t)
        if edge < n:
            p = at + edge
            store(dx, p, slope(load(grad, p), load(out, p), total))
        for i in range(0, whole, group * items):
            read(grad, at + first + i, whole - i, t, zero, g)
            read(out, at + first + i, whole - i, t, zero, y)
            for k in range(items):
                g[k] = slope(g[k], y[k], total)
            write(dx, at + first + i, whole - i, t, g)

    return device(write_slopes)


def softmax_backward_long(fit: Fit, logarithm: bool) -> Callable:
    """The gradients of many long rows, as `softmax_long`.

    # grad, out [R, n] -> dx [R, n]
    """
    kind, items, total_of = fit.kind, fit.items, summed(fit.group)
    sum_of, write_slopes = sum_finder(fit, logarithm), slope_writer(fit, logarithm)

    def kernel(grad, out, n, dx):
        g = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        t, at = cuda.threadIdx.x, cuda.blockIdx.x * n
        total = total_of(sum_of(grad, out, at, n, t, g, y), t, cells)
        write_slopes(grad, out, dx, at, n, t, g, y, total)

    return kernel


def softmax_backward_partials(fit: Fit, logarithm: bool) -> Callable:
    """The sum over each chunk of a long row that the gradient needs.

    # grad, out [R, n] -> sums [R, splits]

        for r, s:  sums[r, s] = sum(grad * out over the chunk), or sum(grad)

    Blocks as in `softmax_partials`.
    """
    kind, items, total_of = fit.kind, fit.items, summed(fit.group)
    sum_of = sum_finder(fit, logarithm)

    def kernel(grad, out, n, splits, chunk, sums):
        g = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // splits
        begin = (cuda.blockIdx.x - r * splits) * chunk
        size = min(chunk, n - begin)
        total = sum_of(grad, out, r * n + begin, size, t, g, y)
        total = total_of(total, t, cells)
        if t == 0:
            sums[cuda.blockIdx.x] = total

    return kernel


def softmax_backward_chunks(fit: Fit, logarithm: bool) -> Callable:
    """The gradients of long rows from the results of `softmax_backward_partials`.

    # grad, out [R, n], sums [R, splits] -> dx [R, n]
    """
    kind, items, total_of = fit.kind, fit.items, summed(fit.group)
    write_slopes, zero = slope_writer(fit, logarithm), kind(0)

    def kernel(grad, out, n, splits, chunk, sums, dx):
        g = cuda.local.array(items, kind)
        y = cuda.local.array(items, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // splits
        total = sums[r * splits + t] if t < splits else zero
        total = total_of(total, t, cells)
        begin = (cuda.blockIdx.x - r * splits) * chunk
        size = min(chunk, n - begin)
        write_slopes(grad, out, dx, r * n + begin, size, t, g, y, total)

    return kernel


# ------------------------------------------------------------------------ other dims


@device
def column_of_thread(n, inner, size):
    """Where a thread is in its block, and where its column of [O, n, I] begins.

    Threads behind the last column read the first one (`known` is False), so that all
    come to the barrier.
    """
    tx, ty = cuda.threadIdx.x % TX, cuda.threadIdx.x // TX
    column = cuda.blockIdx.x * TX + tx
    known = column * n < size
    column = column if known else 0
    return tx, ty, (column // inner) * n * inner + column % inner, known


def softmax_columns(dtype: DType, logarithm: bool) -> Callable:
    """Softmax along a dimension that is not the last.

    # a [O, n, I] -> out [O, n, I], softmax along n

        for o, k:  top = max(a[o, :, k]);  total = sum(exp(a[o, :, k] - top))
                   for i:  out[o, i, k] = exp(a[o, i, k] - top) / total

    A block makes TX neighbouring columns (o, k), and TY threads share each:

        thread          0   1   2 ...  31      one row of TX numbers is read at once
        thread         32  33  34 ...  63      from neighbouring addresses
        column          0   1   2 ...  31

    A thread takes every TY-th number of its column, `AHEAD` of them in flight, and
    keeps a running maximum and a running sum. The threads of a column meet in shared
    memory. The column is then read a second time, from a cache if it fits.
    """
    kind = dtype.numpy.type
    lowest, zero, one = kind(-np.inf), kind(0), kind(1)

    def kernel(a, n, inner, out):
        x = cuda.local.array(AHEAD, kind)
        tops = cuda.shared.array((TY, TX), kind)
        totals = cuda.shared.array((TY, TX), kind)
        tx, ty, at, known = column_of_thread(n, inner, out.size)
        top, total = lowest, zero
        for first in range(ty, n, TY * AHEAD):
            for k in range(AHEAD):
                i = first + k * TY
                value = load(a, at + (i if i < n else ty) * inner)
                x[k] = value if i < n else lowest
            best = top_of(x)
            best = best if best > top else top
            base = best if best > lowest else zero
            total *= exp(top - base)
            for k in range(AHEAD):
                total += exp(x[k] - base)
            top = best
        tops[ty, tx] = top
        totals[ty, tx] = total
        barrier()
        for k in range(TY):
            top = tops[k, tx] if tops[k, tx] > top else top
        total = zero
        for k in range(TY):
            # Where the maximum is lowest, the total is 0 or NaN, and stays that.
            scale = exp(tops[k, tx] - top) if tops[k, tx] > lowest else one
            total += totals[k, tx] * scale
        rest = log(total) if logarithm else one / total
        for i in range(ty, n if known else 0, TY):
            value = load(a, at + i * inner) - top
            value = value - rest if logarithm else exp(value) * rest
            store(out, at + i * inner, value)

    return kernel


def softmax_backward_columns(dtype: DType, logarithm: bool) -> Callable:
    """The gradient along a dimension that is not the last; as `softmax_columns`.

    # grad, out [O, n, I] -> dx [O, n, I]
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(grad, out, n, inner, dx):
        totals = cuda.shared.array((TY, TX), kind)
        tx, ty, at, known = column_of_thread(n, inner, out.size)
        total = zero
        for i in range(ty, n, TY):
            p = at + i * inner
            g = load(grad, p)
            total += g if logarithm else g * load(out, p)
        totals[ty, tx] = total
        barrier()
        total = zero
        for k in range(TY):
            total += totals[k, tx]
        for i in range(ty, n if known else 0, TY):
            p = at + i * inner
            g, y = load(grad, p), load(out, p)
            g = g - exp(y) * total if logarithm else y * (g - total)
            store(dx, p, g)

    return kernel


# ---------------------------------------------------------------------------- kernels


class Direction(NamedTuple):
    """The kernels of one direction, forward or backward.

    Each is a pair, for softmax and for its logarithm. `sums` is how many partial
    results there are for a chunk, `alone` the results for a tensor without dimensions.
    """

    rows: tuple[KernelFamily, KernelFamily]
    long: tuple[KernelFamily, KernelFamily]
    partials: tuple[KernelFamily, KernelFamily]
    chunks: tuple[KernelFamily, KernelFamily]
    columns: tuple[KernelFamily, KernelFamily]
    sums: int
    alone: tuple[int, int]


LONG = (
    Fit(float32, 4, BLOCK, ITEMS),
    Fit(float32, RAGGED, BLOCK, ITEMS),
    Fit(float64, 1, BLOCK, ITEMS),
)
ALONE = LONG[1]._replace(group=MOST)
RAGGED_ROWS = Fit(float32, RAGGED, LARGE, 32)
TWO_ROWS = (
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, RAGGED, LARGE, 16),
    Fit(float64, 1, BLOCK, 8),
)


def _both(
    template: Callable, example: str, *compiled: tuple[Any, ...], threads: int = BLOCK
) -> tuple[KernelFamily, KernelFamily]:
    """The kernels of a template for softmax, and those for its logarithm."""
    plain, log_ = (
        KernelFamily(
            partial(template, logarithm=logarithm), example, *compiled,
            name="log_" * logarithm + template.__name__, threads=threads,
        )
        for logarithm in (False, True)
    )  # fmt: skip
    return plain, log_


_PARTIALS = KernelFamily(softmax_partials, "T[] int64 int64 int64 T[] T[]", *LONG)
_KINDS = ((float32,), (float64,))
FORWARD = Direction(
    _both(softmax_rows, "T[] T[] int64 int64", *EXAMPLES, RAGGED_ROWS),
    _both(softmax_long, "T[] int64 T[]", ALONE),
    (_PARTIALS, _PARTIALS),
    _both(softmax_chunks, "T[] int64 int64 int64 T[] T[] T[]", *LONG),
    _both(softmax_columns, "T[] int64 int64 T[]", *_KINDS, threads=TX * TY),
    2, (1, 0),
)  # fmt: skip
BACKWARD = Direction(
    _both(softmax_backward_rows, "T[] T[] T[] int64 int64", *TWO_ROWS),
    _both(softmax_backward_long, "T[] T[] int64 T[]", ALONE),
    _both(softmax_backward_partials, "T[] T[] int64 int64 int64 T[]", *LONG),
    _both(softmax_backward_chunks, "T[] T[] int64 int64 int64 T[] T[]", *LONG),
    _both(
        softmax_backward_columns, "T[] T[] int64 int64 T[]", *_KINDS, threads=TX * TY
    ),
    1, (0, 0),
)  # fmt: skip

# -------------------------------------------------------------------------- launchers


def _splits_of(n: int) -> tuple[int, int]:
    """Into how many chunks a long row is split, and how long they are."""
    step = ITEMS * BLOCK
    most = min(MOST_SPLITS, BLOCK)
    length = max(CHUNK, ceil_div(ceil_div(n, most), step) * step)
    return ceil_div(n, length), length


def _launch(
    kernels: Direction, logarithm: bool, given: list[Any], n: int, inner: int,
    dtype: DType, y: Any,
) -> None:  # fmt: skip
    """The kernels for flat arrays that have elements; `inner` columns side by side."""
    count = len(y) // n
    if inner > 1:
        grid = ceil_div(count, TX), TX * TY
        kernels.columns[logarithm][dtype,][grid](*given, n, inner, y)
        return
    width = ragged_width(n, n, dtype, *given, y)
    fit = fitting(n, dtype, width, len(given))
    if fit is not None:
        kernels.rows[logarithm][fit][fit.launch(count)](*given, y, count, n)
        return
    if width > 1 and count >= MANY and n <= CACHED:
        fit = Fit(dtype, width, MOST, ITEMS)
        kernels.long[logarithm][fit][fit.launch(count)](*given, n, y)
        return
    fit = Fit(dtype, width, BLOCK, ITEMS)
    splits, chunk = _splits_of(n)
    sums = [empty((count * splits,), dtype).storage.array for _ in range(kernels.sums)]
    grid, sizes = (count * splits, BLOCK), (n, splits, chunk)
    kernels.partials[logarithm][fit][grid](*given, *sizes, *sums)
    kernels.chunks[logarithm][fit][grid](*given, *sizes, *sums, y)


def _along(
    kernels: Direction, logarithm: bool, dim: int, *given: TensorData
) -> TensorData:
    """Softmax, or its gradient, along `dim` of tensors of one shape and type."""
    a = given[0]
    if a.dims == 0:
        return full((), kernels.alone[logarithm], a.dtype)
    inner = math.prod(a.shape[dim + 1 :])
    if 1 < inner < SHORT_INNER:
        last = a.dims - 1
        order = [*(i for i in range(a.dims) if i != dim), dim]
        moved = [contiguous(x.permute(order)) for x in given]
        out = _along(kernels, logarithm, last, *moved)
        return copy(out.permute([*range(dim), last, *range(dim, last)]), a.dtype)
    out = empty(a.shape, a.dtype)
    if out.size:
        flat = [contiguous(x).flat() for x in given]
        n, y = a.shape[dim], out.storage.array
        _launch(kernels, logarithm, flat, n, inner, computed(a.dtype), y)
    return out


def softmax(a: TensorData, dim: int) -> TensorData:
    """exp(a - max) / sum(exp(a - max)) along `dim`."""
    return _along(FORWARD, False, dim, a)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """a - max - log(sum(exp(a - max))) along `dim`."""
    return _along(FORWARD, True, dim, a)


def softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """out * (grad - sum(grad * out)) along `dim`."""
    return _along(BACKWARD, False, dim, grad, out)


def log_softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """grad - exp(out) * sum(grad) along `dim`."""
    return _along(BACKWARD, True, dim, grad, out)
