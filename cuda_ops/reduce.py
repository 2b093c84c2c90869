"""Reductions on the GPU: fold one or more dimensions of a tensor into single elements.

With this file one can fold any scalar function over any dimensions (`reduce`), and in
the same launch change the elements before, and the results afterwards (`mean`,
`vector_norm`). `row_folds.py` has what reads a row twice: variances and `logsumexp`.
`arg_reduce.py` finds positions of extremes, and `cumsum.py` has running totals.

Each template is a kernel for one way in which the folded elements can lie in memory:

    fold_short      rows of up to `SHORT` elements    some lanes of a warp a row
    fold_rows       long rows                         a block a row, or a chunk of it
    fold_stretches  several stretches for an output   a block a chunk of them
    fold_columns    the first dimension               neighbours fold neighbours
    fold_narrow     the same, with few columns        in one long stretch
    fold_strided    everything else                   a thread for each output

Each element x is folded as before(x), and a total is written as after(total, number).

Sums, products, extremes and logical folds may take their elements in any order. The
order depends on shapes and strides alone: where several blocks share an output, each
leaves its result in its own place, and a second launch folds these in order. Nothing is
added atomically, so the result is the same, to the last bit, in every run. Any other
function, a user's own, sees the elements of one output one by one, in row-major order.

The steps that lead to these kernels are in `ladders/reduce.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    is_aligned,
    kind_of,
    load,
    load4,
    same_type,
    shuffle_xor,
    store,
)
from cuda_ops.block.rows import BLOCK, barrier
from cuda_ops.layouts import (
    COLUMNS,
    COPY,
    ROWS,
    Layout,
    in_rows,
    is_wide,
    lane_shift,
    layout_of,
)
from cuda_ops.memory import empty, fill, split
from cuda_ops.runtime.launch import TINY, Kernels, ceil_div
from minitorch import operators
from minitorch.dtypes import DType, bool_, computed, int8, rounded
from minitorch.tensor_data import Shape, Strides, TensorData

WARPS = BLOCK // WARP
STEPS = WARPS.bit_length() - 1
# The longest row for a part of a warp.
SHORT = 256 if TINY else 1024
# Blocks that fill the GPU: 8 for each of 132 multiprocessors.
BLOCKS = 8 if TINY else 1056
# Elements that a block folds at a time, 4 vectors a thread, and elements of a chunk at
# least, where blocks share an output.
STEP = 16 * BLOCK
LEAST = 4 * STEP
# Threads side by side in `fold_columns`, threads that share a column there, rows of it
# that a thread has under way, and rows of a part at least.
TX = 8 if TINY else 32
TY = BLOCK // TX
AHEAD = 8
LEAST_ROWS = 4 * TY
# Columns up to which `fold_narrow` is used.
NARROW = BLOCK // 4

# ------------------------------------------------------------------ within a block


def kept(fn: Callable, before: Any = None) -> Any:
    """Make `step(total, x)`: fn(total, before(x)) in the type of `total`.

    Numba makes an int64 of two int32, and a bool of a comparison; registers are only
    exchanged between threads if they hold numbers of 4 or 8 bytes.
    """

    def step(total, x):
        return same_type(fn(total, x), total)

    def mapped(total, x):
        return same_type(fn(total, before(x)), total)

    return device(mapped if before else step)


@device
def itself(x):
    """What becomes of an element, where nothing is said about that."""
    return x


@device
def unchanged(total, number):
    """What becomes of a total, where nothing is said about that."""
    return total


def square(x: float) -> float:
    """x^2"""
    return x * x


def root(total: float, number: float) -> float:
    """The square root of a total."""
    return math.sqrt(total)


def block_fold(fn: Callable) -> Any:
    """Make `fold(total, cells)`: all threads' totals, known to every thread.

    Five exchanges within each warp, one cell of shared memory for each warp, a barrier,
    and the same exchanges for the cells, [WARPS].
    """

    def fold(total, cells):
        t = cuda.threadIdx.x
        for k in range(5):
            total = fn(total, shuffle_xor(total, 16 >> k))
        if t % WARP == 0:
            store(cells, t // WARP, total)
        barrier()
        total = same_type(load(cells, t % WARPS), total)
        for k in range(STEPS):
            total = fn(total, shuffle_xor(total, 1 << k))
        return total

    return device(fold)


def stretch_fold(join: Callable, before: Callable | None = None) -> Any:
    """Make `fold(total, a, begin, end, t, threads, wide)`: thread t's part of a
    stretch, a[begin : end].

    `wide`: begin and end are multiples of 4 elements, at 16 bytes: the thread loads
    four vectors of 16 bytes before it folds the first, and has four totals that need
    not wait for each other.
    """
    fn = kept(join, before)

    def fold(total, a, begin, end, t, threads, wide):
        if wide:
            i, step = begin + 4 * t, 4 * threads
            p, q, r, s = total, total, total, total
            while i + 3 * step < end:
                a0, a1, a2, a3 = load4(a, i)
                b0, b1, b2, b3 = load4(a, i + step)
                c0, c1, c2, c3 = load4(a, i + 2 * step)
                d0, d1, d2, d3 = load4(a, i + 3 * step)
                p = fn(fn(fn(fn(p, a0), a1), a2), a3)
                q = fn(fn(fn(fn(q, b0), b1), b2), b3)
                r = fn(fn(fn(fn(r, c0), c1), c2), c3)
                s = fn(fn(fn(fn(s, d0), d1), d2), d3)
                i += 4 * step
            while i < end:
                a0, a1, a2, a3 = load4(a, i)
                p, q, r, s = fn(p, a0), fn(q, a1), fn(r, a2), fn(s, a3)
                i += step
            total = join(join(p, q), join(r, s))
        else:
            i = begin + t
            p, q = total, total
            while i + 3 * threads < end:
                a0, a1 = load(a, i), load(a, i + threads)
                a2, a3 = load(a, i + 2 * threads), load(a, i + 3 * threads)
                p, q = fn(fn(p, a0), a1), fn(fn(q, a2), a3)
                i += 4 * threads
            while i < end:
                p = fn(p, load(a, i))
                i += threads
            total = join(p, q)
        return total

    return device(fold)


# ----------------------------------------------------------------------------- rows


def fold_short(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold short rows, several of them in a warp.

    # a [R, n], rows `step` apart -> out [R]

        for r:  out[r] = fold of a[r, 0], ..., a[r, n - 1]

    2**shift neighbouring threads (1 to 32 lanes of a warp) make a row: they read it
    together, and fold their totals through each other's registers, with no shared
    memory and no barrier. Rows of 8 elements keep all 32 lanes of a warp busy so. A
    shift, because a division by a number that is known only now takes a hundred
    instructions, more than the rest of a short row.
    """
    fn = kept(fn)
    stretch = stretch_fold(fn, before)

    def kernel(a, at, step, n, shift, wide, start, number, out):
        lanes = 1 << shift
        # Threads behind the last row fold the first one: all meet in the exchanges.
        t = cuda.threadIdx.x & (lanes - 1)
        r = cuda.blockIdx.x * (BLOCK >> shift) + (cuda.threadIdx.x >> shift)
        begin = at + (r if r < out.size else 0) * step
        total = stretch(start, a, begin, begin + n, t, lanes, wide)
        while lanes > 1:
            lanes >>= 1
            total = fn(total, shuffle_xor(total, lanes))
        if t == 0 and r < out.size:
            store(out, r, after(total, number))

    return kernel


def fold_rows(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold long rows, each by a block, or by several blocks chunk by chunk.

    # a [R, n], rows `step` apart -> out [R, splits]

        for r, s:  out[r, s] = fold of a[r, s * chunk : (s + 1) * chunk]

    A thread has four loads of 16 bytes under way, and eight blocks of a multiprocessor
    128 KB; to hide the memory's latency takes about 25 KB (Little's law). Then the
    block's threads fold their totals with one barrier.

    Source of the idea: Harris, "Optimizing parallel reduction in CUDA", 2007; Luitjens,
    "Faster parallel reductions on Kepler", 2014.
    """
    fn = kept(fn)
    stretch, block = stretch_fold(fn, before), block_fold(fn)

    def kernel(a, at, step, n, splits, chunk, wide, start, number, out):
        cells = cuda.shared.array(WARPS, kind_of(out))
        r = cuda.blockIdx.x // splits
        first = (cuda.blockIdx.x - r * splits) * chunk
        begin, end = at + r * step + first, at + r * step + min(first + chunk, n)
        total = stretch(start, a, begin, end, cuda.threadIdx.x, BLOCK, wide)
        total = block(total, cells)
        if cuda.threadIdx.x == 0:
            store(out, cuda.blockIdx.x, after(total, number))

    return kernel


def fold_stretches(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold several stretches of memory into each output: the sum over N, H and W.

    # a [R, U, n], rows `step` and stretches `outer_stride` apart -> out [R, splits]

        for r, s:  out[r, s] = fold of chunk s of the U n elements a[r]

    A block takes a chunk. Its threads count through the elements (or vectors of 4) as
    if they were one stretch, four at a time, so that stretches that are no multiple of
    the block leave no thread idle.
    """
    fn, before = kept(fn), before or itself
    block = block_fold(fn)

    def kernel(
        a, at, row_step, outer_stride, count, n, splits, wide, start, number, out
    ):
        cells = cuda.shared.array(WARPS, kind_of(out))
        width = 4 if wide else 1
        r = cuda.blockIdx.x // splits
        p = cuda.blockIdx.x - r * splits
        # A unit is a vector of 4, or an element; chunks are equal to within one unit.
        units = count * n // width
        end = (p + 1) * units // splits
        first = at + r * row_step
        total = start
        for u in range(p * units // splits + cuda.threadIdx.x, end, 4 * BLOCK):
            for k in range(4):
                unit = u + k * BLOCK
                if unit < end:
                    row, i = split(unit * width, n)
                    if wide:
                        a0, a1, a2, a3 = load4(a, first + row * outer_stride + i)
                        a0, a1 = before(a0), before(a1)
                        a2, a3 = before(a2), before(a3)
                        total = fn(total, fn(fn(a0, a1), fn(a2, a3)))
                    else:
                        x = before(load(a, first + row * outer_stride + i))
                        total = fn(total, x)
        total = block(total, cells)
        if cuda.threadIdx.x == 0:
            store(out, cuda.blockIdx.x, after(total, number))

    return kernel


# -------------------------------------------------------------------------- columns


def column_kernel(
    fn: Callable, before: Callable | None, after: Callable, width: int
) -> Callable:
    """Make `fold_columns` with `width` columns for each thread."""
    join, fn = kept(fn), kept(fn, before)
    span = TX * width  # columns of a block
    room, ahead = TY * span, AHEAD * width

    def kernel(a, at, batch_step, step, rows, n, batches, parts, start, number, out):
        totals = cuda.local.array(width, kind_of(out))
        values = cuda.local.array(ahead, kind_of(a))
        cells = cuda.shared.array(room, kind_of(out))
        # The grid counts column blocks fastest, then matrices, then parts of the rows.
        across = (n + span - 1) // span
        matrix = cuda.blockIdx.x // across
        tx, ty = cuda.threadIdx.x % TX, cuda.threadIdx.x // TX
        i = ((cuda.blockIdx.x - matrix * across) * TX + tx) * width
        part = matrix // batches
        # Threads behind the last column read the first one, and come to the barrier.
        first = at + (matrix - part * batches) * batch_step + (i if i < n else 0)
        for k in range(width):
            store(totals, k, start)
        end = (part + 1) * rows // parts
        for r in range(part * rows // parts + ty, end, AHEAD * TY):
            for k in range(AHEAD):
                # Behind the end the last row is read again, without a branch.
                p, e = first + min(r + k * TY, end - 1) * step, k * width
                if width == 4:
                    a0, a1, a2, a3 = load4(a, p)
                    values[e], values[e + 1] = a0, a1
                    values[e + 2], values[e + 3] = a2, a3
                else:
                    values[e] = load(a, p)
            for k in range(AHEAD):
                for j in range(width):
                    total = fn(totals[j], values[k * width + j])
                    store(totals, j, total if r + k * TY < end else totals[j])
        for k in range(width):
            store(cells, ty * span + tx * width + k, totals[k])
        barrier()
        # The first row of threads folds what the others left in their columns.
        if ty == 0 and i < n:
            for k in range(width):
                total = totals[k]
                for y in range(1, TY):
                    total = join(total, load(cells, y * span + tx * width + k))
                store(out, matrix * n + i + k, after(total, number))

    return kernel


def fold_columns(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold the rows of matrices, column by column.

    # a [B, R, n], matrices `batch_step` and rows `step` apart -> out [parts, B, n]

        for p, b, i:  out[p, b, i] = fold of a[b, r, i] over the rows r of part p

    A block makes TX neighbouring columns of a part of the rows, and TY threads share
    each column. Neighbouring threads read neighbouring columns, so that a warp's load
    is coalesced:

        row 0     thread   0   1   2 ...  31
        row 1     thread  32  33  34 ...  63
        row 2     thread  64 ...

    A thread has eight rows under way, its total stays in a register. The TY totals of a
    column meet in shared memory, once at the end. Rows are divided into parts so
    that a few columns keep all multiprocessors busy, too; a second launch folds the
    parts.
    """
    return column_kernel(fn, before, after, 1)


def fold_columns_wide(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """`fold_columns` with four neighbouring columns for each thread, which are one load
    of 16 bytes: 128 columns for a warp, and 128 bytes under way for each thread.

    # a [B, R, n] -> out [parts, B, n]
    """
    return column_kernel(fn, before, after, 4)


def fold_narrow(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold the rows of a matrix with few columns, which is one stretch of memory.

    # a [R, n], n <= NARROW -> out [parts, n]

        0 1 2 0 1 2 0 1 2 ...      n = 3: element e is of column e % 3

    A block reads BLOCK // n whole rows at once, side by side, and goes on by as many,
    so that each thread stays in its column. A warp's load is coalesced, which it would
    not be with a warp for each of three columns.
    """
    join, fn = kept(fn), kept(fn, before)

    def kernel(a, at, rows, n, parts, start, number, out):
        cells = cuda.shared.array(BLOCK, kind_of(out))
        t = cuda.threadIdx.x
        # A multiple of n, so that a step of as many elements stays in the column.
        lanes = BLOCK // n * n
        part = cuda.blockIdx.x
        total = start
        if t < lanes:
            end = at + (part + 1) * rows // parts * n
            i = at + part * rows // parts * n + t
            while i + 3 * lanes < end:
                x, y = load(a, i), load(a, i + lanes)
                z, w = load(a, i + 2 * lanes), load(a, i + 3 * lanes)
                total = fn(fn(fn(fn(total, x), y), z), w)
                i += 4 * lanes
            while i < end:
                total = fn(total, load(a, i))
                i += lanes
        store(cells, t, total)
        barrier()
        if t < n:
            for other in range(t + n, lanes, n):
                total = join(total, cells[other])
            store(out, part * n + t, after(total, number))

    return kernel


def fold_strided(
    fn: Callable, before: Callable | None = None, after: Callable = unchanged
) -> Callable:
    """Fold any strides, one thread for each output, in row-major order.

    # a -> out; kept and folded have three sizes each, with the strides of `a`

        for u, v, w:  out[i, j, k] = fn(out[i, j, k], a[i, j, k, u, v, w])
    """
    fn = kept(fn, before)

    def kernel(a, at, kept, kept_steps, folded, folded_steps, start, number, out):
        e = cuda.grid(1)
        if e < out.size:
            ij, k = split(e, kept[2])
            i, j = split(ij, kept[1])
            first = at + i * kept_steps[0] + j * kept_steps[1] + k * kept_steps[2]
            total = start
            for u in range(folded[0]):
                for v in range(folded[1]):
                    p = first + u * folded_steps[0] + v * folded_steps[1]
                    for _ in range(folded[2]):
                        total = fn(total, load(a, p))
                        p += folded_steps[2]
            store(out, e, after(total, number))

    return kernel


class Fold(NamedTuple):
    """What to fold with, and the kernels that do it.

    Attributes:
        fn: of a total and an element.
        once: where one launch does it all; as (fn, before, after).
        first, last: where a second launch folds what the first one left.
    """

    fn: Callable
    once: Any
    first: Any
    last: Any


MEAN = Fold(
    operators.add, (operators.add, None, operators.div), operators.add,
    (operators.add, None, operators.div),
)  # fmt: skip
NORM = Fold(
    operators.add, (operators.add, square, root), (operators.add, square),
    (operators.add, None, root),
)  # fmt: skip

# Compiled by tests.
SUMS = (operators.add, operators.maximum)
_ENDS = "float32 float32 float32[]"  # start, number, out
FOLD_SHORT = Kernels(
    fold_short, (*SUMS, MEAN.once, NORM.once),
    [f"float32[] int64 int64 int64 int64 bool {_ENDS}"], threads=BLOCK,
)  # fmt: skip
FOLD_ROWS = Kernels(
    fold_rows, SUMS,
    [f"float32[] int64 int64 int64 int64 int64 bool {_ENDS}"], threads=BLOCK,
)  # fmt: skip
FOLD_STRETCHES = Kernels(
    fold_stretches, SUMS,
    [f"float32[] int64 int64 int64 int64 int64 int64 bool {_ENDS}"], threads=BLOCK,
)  # fmt: skip
_COLUMNS = f"float32[] {7 * 'int64 '}{_ENDS}"
FOLD_COLUMNS = Kernels(fold_columns, SUMS, [_COLUMNS], threads=BLOCK)
FOLD_COLUMNS_WIDE = Kernels(fold_columns_wide, SUMS, [_COLUMNS], threads=BLOCK)
FOLD_NARROW = Kernels(
    fold_narrow, SUMS, [f"float32[] int64 int64 int64 int64 {_ENDS}"], threads=BLOCK,
)  # fmt: skip
FOLD_STRIDED = Kernels(
    fold_strided, SUMS,
    [f"float32[] int64 3*int64 3*int64 3*int64 3*int64 {_ENDS}"], threads=BLOCK,
)  # fmt: skip

# ------------------------------------------------------------------------- launchers

# Folds whose parts may be folded by themselves, in any order, and then with each other.
SPLITTABLE = {
    operators.add, operators.mul, operators.maximum, operators.minimum,
    operators.logical_and, operators.logical_or, operators.logical_xor,
}  # fmt: skip


@lru_cache(maxsize=1024)
def _numbers(dtype: DType, *values: float) -> list[Any]:
    """Numbers for kernels: totals of bools and of bytes are kept as int32."""
    kind = np.int32 if dtype in (bool_, int8) else computed(dtype).numpy.type
    return [kind(value) for value in values]


# Nothing but `fn`, which also folds what a first launch has left.
_plain = cache(lambda fn: Fold(fn, fn, fn, fn))


def reduce(
    fn: Callable, a: TensorData, dims: Sequence[int], start: float,
    dtype: DType | None = None,
) -> TensorData:  # fmt: skip
    """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1.

    The result is the same in every run.
    """
    return _reduce(_plain(fn), a, dims, start, 0, dtype or a.storage.dtype)


def mean(x: TensorData, dims: Sequence[int], count: float) -> TensorData:
    """The sum over `dims`, which keep a size of 1, by `count`."""
    start = math.nan if 0 in x.shape else 0
    return _reduce(MEAN, x, dims, start, count, x.storage.dtype)


def vector_norm(x: TensorData, dims: Sequence[int]) -> TensorData:
    """The square root of the sum of squares over `dims`, which keep a size of 1."""
    return _reduce(NORM, x, dims, 0, 0, x.storage.dtype)


def _reduce(
    fold: Fold, a: TensorData, dims: Sequence[int], start: float, number: float,
    out_type: DType,
) -> TensorData:  # fmt: skip
    ordered = fold.fn not in SPLITTABLE
    shape, layout, short = plan_of(a.shape, a.strides, tuple(dims), ordered)
    out = empty(shape, out_type)
    result = out.storage.array
    if 0 in a.shape:
        if len(result):
            fill(result, rounded(start, out_type))
        return out
    numbers = _numbers(out_type, start, number)
    if short is not None:
        step, n, wide, blocks, shift = short
        x = a.storage.array
        if wide and (a.offset % 4 or not is_aligned(x)):
            wide, (blocks, shift) = False, _short_grid(len(result), n, 4)
        FOLD_SHORT[fold.once][blocks, BLOCK](
            x, a.offset, step, n, shift, wide, *numbers, result
        )
        return out
    if layout.kind == COPY:
        a = in_rows(a, tuple(dims))
        layout = layout_of(a.shape, a.strides, (1,), ordered)
    if layout.kind == ROWS:
        _fold_rows(fold, a, layout, numbers, result, out_type)
    elif layout.kind == COLUMNS:
        _fold_columns(fold, a, layout, numbers, result, out_type)
    else:
        kept, kept_steps = zip(*layout.kept)
        folded, folded_steps = zip(*layout.folded)
        FOLD_STRIDED[fold.once][ceil_div(len(result), BLOCK), BLOCK](
            a.storage.array, a.offset, kept, kept_steps, folded, folded_steps,
            *numbers, result,
        )  # fmt: skip
    return out


@lru_cache(maxsize=4096)
def plan_of(
    shape: Shape, strides: Strides, dims: tuple[int, ...], ordered: bool
) -> tuple[Shape, Layout, tuple[int, int, bool, int, int] | None]:
    """The shape of the result, how to walk the elements, and of short rows in memory
    what `fold_short` needs: step, n, whether in vectors, blocks and shift."""
    out = tuple([1 if i in dims else n for i, n in enumerate(shape)])
    if 0 in shape:
        return out, Layout(COPY, (), ()), None
    layout = layout_of(shape, strides, dims, ordered)
    if layout.kind == ROWS:
        ((_, step),), ((count, _), (n, _)) = layout.kept, layout.folded
        if count == 1 and n <= SHORT:
            wide = step % 4 == 0 and n % 4 == 0
            grid = _short_grid(math.prod(out), n, 8 if wide else 4)
            return out, layout, (step, n, wide, *grid)
    return out, layout, None


def _short_grid(rows: int, n: int, each: int) -> tuple[int, int]:
    """Blocks of `fold_short` where a thread takes so many elements, and its shift."""
    shift = lane_shift(ceil_div(n, each))
    return ceil_div(rows << shift, BLOCK), shift


def splits_of(outputs: int, size: int, least: int) -> int:
    """Into how many chunks to split the fold of each output."""
    return max(1, min(BLOCKS // outputs, size // least))


def _fold_rows(
    fold: Fold, a: TensorData, layout: Layout, numbers: Any, out: Any, dtype: DType
) -> None:
    ((_, step),), ((count, outer_stride), (n, _)) = layout.kept, layout.folded
    x, wide = a.storage.array, is_wide(a, step, outer_stride, n)
    if count == 1 and n <= SHORT:
        blocks, shift = _short_grid(len(out), n, 8 if wide else 4)
        FOLD_SHORT[fold.once][blocks, BLOCK](
            x, a.offset, step, n, shift, wide, *numbers, out
        )
        return
    splits = splits_of(len(out), count * n, LEAST)
    partials, fn = out, fold.first if splits > 1 else fold.once
    if splits > 1:
        partials = empty((len(out) * splits,), computed(dtype)).storage.array
    if count == 1:
        chunk = ceil_div(ceil_div(n, splits), STEP) * STEP
        splits = ceil_div(n, chunk)
        FOLD_ROWS[fn][len(out) * splits, BLOCK](
            x, a.offset, step, n, splits, chunk, wide, *numbers, partials
        )
    else:
        FOLD_STRETCHES[fn][len(out) * splits, BLOCK](
            x, a.offset, step, outer_stride, count, n, splits, wide, *numbers, partials
        )
    if splits > 1:  # partials [R, splits] -> out [R]
        FOLD_SHORT[fold.last][ceil_div(len(out) * WARP, BLOCK), BLOCK](
            partials, 0, splits, splits, lane_shift(WARP), False, *numbers, out
        )


def _fold_columns(
    fold: Fold, a: TensorData, layout: Layout, numbers: Any, out: Any, dtype: DType
) -> None:
    ((batches, batch_step), (n, _)), ((rows, step),) = layout.kept, layout.folded
    x, partials = a.storage.array, out
    if batches == 1 and n <= NARROW and step == n:
        parts = splits_of(1, rows * n, LEAST)
        if parts > 1:
            partials = empty((parts * n,), computed(dtype)).storage.array
        FOLD_NARROW[fold.first if parts > 1 else fold.once][parts, BLOCK](
            x, a.offset, rows, n, parts, *numbers, partials
        )
    else:
        wide = is_wide(a, batch_step, step, n)
        across = ceil_div(n, 4 * TX if wide else TX) * batches
        # Half as many blocks as elsewhere: the second launch has few, and must be
        # short.
        parts = max(1, min(BLOCKS // 2 // across, rows // LEAST_ROWS))
        parts = 1 if parts <= 4 else parts  # a second kernel would take longer
        if parts > 1:
            partials = empty((parts * len(out),), computed(dtype)).storage.array
        kernels = FOLD_COLUMNS_WIDE if wide else FOLD_COLUMNS
        kernels[fold.first if parts > 1 else fold.once][across * parts, BLOCK](
            x, a.offset, batch_step, step, rows, n, batches, parts, *numbers, partials
        )
    if parts > 1:  # [parts, outputs]: one matrix of `parts` rows
        size = len(out)
        FOLD_COLUMNS[fold.last][ceil_div(size, TX), BLOCK](
            partials, 0, 0, size, parts, size, 1, 1, *numbers, out
        )
