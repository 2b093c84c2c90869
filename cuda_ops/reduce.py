"""Reductions on the GPU: fold one or more dimensions of a tensor into single elements.

With this file one can fold any scalar function over any dimensions (`reduce`), find the
position of an extreme (`argmax`, `argmin`), and add up along a dimension (`cumsum`).

Each template is a kernel for one way in which the folded elements can lie in memory:

    fold_short      rows of up to `SHORT` elements    some lanes of a warp a row
    fold_rows       long rows                         a block a row, or a piece of it
    fold_stretches  several stretches for an output   a block a piece of them
    fold_columns    the first dimension               neighbours fold neighbours
    fold_narrow     the same, with few columns        in one long stretch
    fold_strided    everything else                   a thread for each output

Sums, products, extremes and logical folds may take their elements in any order. The
order depends on shapes and strides alone: where several blocks share an output, each
leaves its result in its own place, and a second launch folds these in order. Nothing is
added atomically, so the result is the same, to the last bit, in every run. Any other
function, a user's own, sees the elements of one output one by one, in row-major order.

The steps that lead to these kernels are in `reduce_ladder.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import (
    device,
    is_aligned,
    load,
    load4,
    same_type,
    shuffle,
    shuffle_up,
    shuffle_xor,
    store,
)
from cuda_ops.block.rows import BLOCK, WARP, barrier
from cuda_ops.memory import contiguous, copy, empty, fill, full, split
from cuda_ops.runtime.launch import SIMULATED, Kernel, Kernels, ceil_div
from minitorch import operators
from minitorch.dtypes import DType, bool_, int64
from minitorch.tensor_data import Shape, Strides, TensorData

Dim = tuple[int, tuple[int, int]]  # a size, and its strides in the input and the output

WARPS = BLOCK // WARP
STEPS = WARPS.bit_length() - 1
SHORT = 256 if SIMULATED else 1024  # longest row for a part of a warp
BLOCKS = 8 if SIMULATED else 1056  # blocks that fill the GPU: 8 for each of 132 SMs
PIECE = 16 * BLOCK  # elements that a block folds at a time: 4 vectors a thread
LEAST = 4 * PIECE  # elements of a piece, at least, where blocks share an output
LEAST_PLACES = 16 * WARP  # of a row's piece, at least, that a warp searches
LINES = 8 if SIMULATED else 32  # threads side by side in `fold_columns`
SHARES = BLOCK // LINES  # threads that share a column there
LEAST_ROWS = 4 * SHARES  # rows of a part there, at least
NARROW = BLOCK // 4  # columns up to which `fold_narrow` is used
FEW = 4096  # fewer outputs than this get their elements side by side first

# ------------------------------------------------------------------ within a block


def kept(fn: Callable) -> Any:
    """Make `step(total, x)`: fn(total, x) in the type of `total`.

    Numba makes an int64 of two int32, and a bool of a comparison; registers are only
    exchanged between threads if they hold numbers of 4 or 8 bytes.
    """

    def step(total, x):
        return same_type(fn(total, x), total)

    return device(step)


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


def stretch_fold(fn: Callable) -> Any:
    """Make `fold(total, a, begin, end, t, threads, wide)`: thread t's share of a
    stretch, a[begin : end].

    `wide`: begin and end are multiples of 4 elements, at 16 bytes: the thread loads
    four vectors of 16 bytes before it folds the first, and has four totals that need
    not wait for each other.
    """

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
            total = fn(fn(p, q), fn(r, s))
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
            total = fn(p, q)
        return total

    return device(fold)


# ----------------------------------------------------------------------------- rows


def fold_short(fn: Callable) -> Callable:
    """Fold short rows, several of them in a warp.

    # a [R, n], rows `step` apart -> out [R]

        for r:  out[r] = fold of a[r, 0], ..., a[r, n - 1]

    2**shift neighbouring threads (1 to 32 lanes of a warp) make a row: they read it
    together, and fold their totals through each other's registers, with no shared
    memory and no barrier. Rows of 8 elements keep all 32 lanes of a warp busy that way.
    A shift, because a division by a number that is known only now takes a hundred
    instructions, more than the rest of a short row.
    """
    fn = kept(fn)
    stretch = stretch_fold(fn)

    def kernel(a, at, step, n, shift, wide, start, out):
        lanes = 1 << shift
        t = cuda.threadIdx.x & (lanes - 1)
        r = cuda.blockIdx.x * (BLOCK >> shift) + (cuda.threadIdx.x >> shift)
        begin = at + (r if r < out.size else 0) * step
        total = stretch(start, a, begin, begin + n, t, lanes, wide)
        while lanes > 1:
            lanes >>= 1
            total = fn(total, shuffle_xor(total, lanes))
        if t == 0 and r < out.size:
            store(out, r, total)

    return kernel


def fold_rows(fn: Callable) -> Callable:
    """Fold long rows, each by a block, or by several blocks piece by piece.

    # a [R, n], rows `step` apart -> out [R, pieces]

        for r, p:  out[r, p] = fold of a[r, p * piece : (p + 1) * piece]

    A thread has four loads of 16 bytes under way, and eight blocks of a multiprocessor
    128 KB; to hide the memory's latency takes about 25 KB (Little's law). Then the
    block's threads fold their totals with one barrier.

    Source of the idea: Harris, "Optimizing parallel reduction in CUDA", 2007; Luitjens,
    "Faster parallel reductions on Kepler", 2014.
    """
    fn = kept(fn)
    stretch, block = stretch_fold(fn), block_fold(fn)

    def kernel(a, at, step, n, pieces, piece, wide, start, out):
        cells = cuda.shared.array(WARPS, out.dtype)
        r = cuda.blockIdx.x // pieces
        first = (cuda.blockIdx.x - r * pieces) * piece
        begin, end = at + r * step + first, at + r * step + min(first + piece, n)
        total = stretch(start, a, begin, end, cuda.threadIdx.x, BLOCK, wide)
        total = block(total, cells)
        if cuda.threadIdx.x == 0:
            store(out, cuda.blockIdx.x, total)

    return kernel


def fold_stretches(fn: Callable) -> Callable:
    """Fold several stretches of memory into each output: the sum over N, H and W.

    # a [R, U, n], rows `step` and stretches `hop` apart -> out [R, pieces]

        for r, p:  out[r, p] = fold of piece p of the U n elements a[r]

    A block makes a piece. Its threads count through the elements (or vectors of 4) as
    if they were one stretch, four at a time, so that stretches that are no multiple of
    the block leave no thread idle.
    """
    fn = kept(fn)
    block = block_fold(fn)

    def kernel(a, at, step, hop, count, n, pieces, wide, start, out):
        cells = cuda.shared.array(WARPS, out.dtype)
        width = 4 if wide else 1
        r = cuda.blockIdx.x // pieces
        p = cuda.blockIdx.x - r * pieces
        units = count * n // width
        end = (p + 1) * units // pieces
        first = at + r * step
        total = start
        for u in range(p * units // pieces + cuda.threadIdx.x, end, 4 * BLOCK):
            for k in range(4):
                unit = u + k * BLOCK
                if unit < end:
                    row, i = split(unit * width, n)
                    if wide:
                        a0, a1, a2, a3 = load4(a, first + row * hop + i)
                        total = fn(total, fn(fn(a0, a1), fn(a2, a3)))
                    else:
                        total = fn(total, load(a, first + row * hop + i))
        total = block(total, cells)
        if cuda.threadIdx.x == 0:
            store(out, cuda.blockIdx.x, total)

    return kernel


# -------------------------------------------------------------------------- columns


def column_kernel(fn: Callable, width: int) -> Callable:
    """Make `fold_columns` with `width` columns for each thread."""
    fn = kept(fn)
    span = LINES * width  # columns of a block
    room = SHARES * span

    def kernel(a, at, batch_step, step, rows, n, batches, parts, start, out):
        totals = cuda.local.array(width, out.dtype)
        cells = cuda.shared.array(room, out.dtype)
        across = (n + span - 1) // span
        line = cuda.blockIdx.x // across
        j = cuda.threadIdx.x % LINES
        s = cuda.threadIdx.x // LINES
        i = ((cuda.blockIdx.x - line * across) * LINES + j) * width
        part = line // batches
        first = at + (line - part * batches) * batch_step + (i if i < n else 0)
        for k in range(width):
            store(totals, k, start)
        end = (part + 1) * rows // parts
        r = part * rows // parts + s
        while r + 3 * SHARES < end:
            p = first + r * step
            hop = SHARES * step
            if width == 4:
                a0, a1, a2, a3 = load4(a, p)
                b0, b1, b2, b3 = load4(a, p + hop)
                c0, c1, c2, c3 = load4(a, p + 2 * hop)
                d0, d1, d2, d3 = load4(a, p + 3 * hop)
                store(totals, 0, fn(fn(fn(fn(totals[0], a0), b0), c0), d0))
                store(totals, 1, fn(fn(fn(fn(totals[1], a1), b1), c1), d1))
                store(totals, 2, fn(fn(fn(fn(totals[2], a2), b2), c2), d2))
                store(totals, 3, fn(fn(fn(fn(totals[3], a3), b3), c3), d3))
            else:
                x, y = load(a, p), load(a, p + hop)
                z, w = load(a, p + 2 * hop), load(a, p + 3 * hop)
                store(totals, 0, fn(fn(fn(fn(totals[0], x), y), z), w))
            r += 4 * SHARES
        while r < end:
            for k in range(width):
                store(totals, k, fn(totals[k], load(a, first + r * step + k)))
            r += SHARES
        for k in range(width):
            store(cells, s * span + j * width + k, totals[k])
        barrier()
        if s == 0 and i < n:
            for k in range(width):
                total = totals[k]
                for share in range(1, SHARES):
                    total = fn(total, load(cells, share * span + j * width + k))
                store(out, line * n + i + k, total)

    return kernel


def fold_columns(fn: Callable) -> Callable:
    """Fold the rows of matrices, column by column.

    # a [B, R, n], matrices `batch_step` and rows `step` apart -> out [parts, B, n]

        for p, b, i:  out[p, b, i] = fold of a[b, r, i] over the rows r of part p

    A block makes LINES neighbouring columns of a part of the rows, and SHARES threads
    share each column. Neighbouring threads read neighbouring columns, so that a warp's
    load is one piece of memory:

        row 0     thread   0   1   2 ...  31
        row 1     thread  32  33  34 ...  63
        row 2     thread  64 ...

    A thread has four rows under way, its total stays in a register. The SHARES totals
    of a column meet in shared memory, once at the end. Rows are divided into parts so
    that a few columns keep all multiprocessors busy, too; a second launch folds the
    parts.
    """
    return column_kernel(fn, 1)


def fold_columns_wide(fn: Callable) -> Callable:
    """`fold_columns` with four neighbouring columns for each thread, which are one load
    of 16 bytes: 128 columns for a warp, and 64 bytes under way for each thread.

    # a [B, R, n] -> out [parts, B, n]
    """
    return column_kernel(fn, 4)


def fold_narrow(fn: Callable) -> Callable:
    """Fold the rows of a matrix with few columns, which is one stretch of memory.

    # a [R, n], n <= NARROW -> out [parts, n]

        0 1 2 0 1 2 0 1 2 ...      n = 3: element e is of column e % 3

    A block reads BLOCK // n whole rows at once, side by side, and goes on by as many,
    so that each thread stays in its column. A warp's load is one piece of memory, which
    it would not be with a warp for each of three columns.
    """
    fn = kept(fn)

    def kernel(a, at, rows, n, parts, start, out):
        cells = cuda.shared.array(BLOCK, out.dtype)
        t = cuda.threadIdx.x
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
                total = fn(total, cells[other])
            store(out, part * n + t, total)

    return kernel


def fold_strided(fn: Callable) -> Callable:
    """Fold any strides, one thread for each output, in row-major order.

    # a -> out; kept and folded have three sizes each, with the strides of `a`

        for u, v, w:  out[i, j, k] = fn(out[i, j, k], a[i, j, k, u, v, w])
    """
    fn = kept(fn)

    def kernel(a, at, kept, kept_steps, folded, folded_steps, start, out):
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
            store(out, e, total)

    return kernel


SUMS = (operators.add, operators.maximum)  # compiled by tests
FOLD_SHORT = Kernels(
    fold_short, SUMS, ["float32[] int64 int64 int64 int64 bool float32 float32[]"],
    threads=BLOCK,
)  # fmt: skip
FOLD_ROWS = Kernels(
    fold_rows, SUMS,
    ["float32[] int64 int64 int64 int64 int64 bool float32 float32[]"], threads=BLOCK,
)  # fmt: skip
FOLD_STRETCHES = Kernels(
    fold_stretches, SUMS,
    ["float32[] int64 int64 int64 int64 int64 int64 bool float32 float32[]"],
    threads=BLOCK,
)  # fmt: skip
_COLUMNS = "float32[] int64 int64 int64 int64 int64 int64 int64 float32 float32[]"
FOLD_COLUMNS = Kernels(fold_columns, SUMS, [_COLUMNS], threads=BLOCK)
FOLD_COLUMNS_WIDE = Kernels(fold_columns_wide, SUMS, [_COLUMNS], threads=BLOCK)
FOLD_NARROW = Kernels(
    fold_narrow, SUMS, ["float32[] int64 int64 int64 int64 float32 float32[]"],
    threads=BLOCK,
)  # fmt: skip
FOLD_STRIDED = Kernels(
    fold_strided, SUMS,
    ["float32[] int64 3*int64 3*int64 3*int64 3*int64 float32 float32[]"],
    threads=BLOCK,
)  # fmt: skip

# ----------------------------------------------------------- how to walk a tensor


class Walk(NamedTuple):
    """How a tensor lies, seen from a reduction.

    Attributes:
        kind: `ROWS`, `COLUMNS`, `STRIDES`, or `COPY` where only a copy helps.
        kept, folded: sizes and strides of the dimensions; outputs are row-major in
            `kept`.
    """

    kind: int
    kept: tuple[tuple[int, int], ...]
    folded: tuple[tuple[int, int], ...]


ROWS, COLUMNS, STRIDES, COPY = range(4)
DIMS = 3  # dimensions that `fold_strided` can keep, and fold


@lru_cache(maxsize=4096)
def walk(shape: Shape, strides: Strides, dims: tuple[int, ...], ordered: bool) -> Walk:
    """Choose the kernel; `ordered` keeps the row-major order of the elements."""
    kept_dims = [
        (n, s) for i, (n, s) in enumerate(zip(shape, strides)) if i not in dims
    ]
    folded_dims = [(n, s) for i, (n, s) in enumerate(zip(shape, strides)) if i in dims]
    kept = _merged(kept_dims)
    if not ordered:
        folded_dims.sort(key=lambda dim: -dim[1])
    folded = _merged(folded_dims)
    if not ordered:
        if len(kept) <= 1 and len(folded) <= 2 and folded and folded[-1][1] == 1:
            return Walk(ROWS, _padded(kept, 1), _padded(folded, 2))
        if len(kept) in (1, 2) and len(folded) == 1 and kept[-1][1] == 1:
            return Walk(COLUMNS, _padded(kept, 2), _padded(folded, 1))
    outputs = math.prod(n for n, _ in kept)
    size = math.prod(n for n, _ in folded)
    if len(kept) > DIMS or len(folded) > DIMS:
        return Walk(COPY, (), ())
    if not ordered and outputs < FEW and size > 64:
        return Walk(COPY, (), ())
    return Walk(STRIDES, _padded(kept, DIMS), _padded(folded, DIMS))


def _merged(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without sizes of 1, and with dimensions merged that follow without gaps."""
    out: list[tuple[int, int]] = []
    for n, step in dims:
        if n == 1:
            continue
        if out and out[-1][1] == n * step:
            out[-1] = (out[-1][0] * n, step)
        else:
            out.append((n, step))
    return out


def _padded(dims: list[tuple[int, int]], rank: int) -> tuple[tuple[int, int], ...]:
    return tuple([(1, 0)] * (rank - len(dims)) + dims)


# ------------------------------------------------------------------------- launchers

# Folds whose parts may be folded by themselves, in any order, and then with each other.
SPLITTABLE = {
    operators.add,
    operators.mul,
    operators.maximum,
    operators.minimum,
    operators.logical_and,
    operators.logical_or,
    operators.logical_xor,
}


@lru_cache(maxsize=1024)
def _start(value: float, dtype: DType) -> Any:
    """The identity as a number for kernels: a bool's total is kept as an int32."""
    return np.int32(value) if dtype is bool_ else dtype.numpy.type(value)


def reduce(
    fn: Callable,
    a: TensorData,
    dims: Sequence[int],
    start: float,
    dtype: DType | None = None,
) -> TensorData:
    """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1.

    The result is the same in every run.
    """
    dims = tuple(dims)
    out_type = dtype or a.dtype
    out = empty(tuple([1 if i in dims else n for i, n in enumerate(a.shape)]), out_type)
    result = out.storage.array
    if 0 in a.shape:
        if len(result):
            fill(result, out_type.numpy.type(start))
        return out
    way = walk(a.shape, a.strides, dims, fn not in SPLITTABLE)
    if way.kind == COPY:
        a = _rows(a, dims)
        way = walk(a.shape, a.strides, (1,), fn not in SPLITTABLE)
    first = _start(start, out_type)
    if way.kind == ROWS:
        _fold_rows(fn, a, way, first, result, out_type)
    elif way.kind == COLUMNS:
        _fold_columns(fn, a, way, first, result, out_type)
    else:
        (kept, kept_steps), (folded, folded_steps) = zip(*way.kept), zip(*way.folded)
        FOLD_STRIDED[fn][ceil_div(len(result), BLOCK), BLOCK](
            a.storage.array, a.offset, kept, kept_steps, folded, folded_steps, first,
            result,
        )  # fmt: skip
    return out


def _rows(a: TensorData, dims: tuple[int, ...]) -> TensorData:
    """`a` as [outputs, elements], with the folded dimensions last, without gaps."""
    kept = [i for i in range(a.dims) if i not in dims]
    moved = contiguous(a.permute([*kept, *sorted(dims)]))
    n = math.prod([a.shape[i] for i in dims])
    return TensorData(moved.storage, (a.size // n, n), None, moved.offset)


def _is_wide(a: TensorData, *multiples: int) -> bool:
    """Whether vectors of 4 elements can be loaded: what must be multiples of 4 is."""
    four = all([m % 4 == 0 for m in (a.offset, *multiples)])
    return four and is_aligned(a.storage.array)


def _shift(n: int) -> int:
    """The power of two of lanes of a warp that suits n pieces of work."""
    return min(WARP.bit_length() - 1, max(n - 1, 0).bit_length())


def _pieces_a_fold(outputs: int, size: int, least: int) -> int:
    """Into how many pieces to cut the fold of each output."""
    return max(1, min(BLOCKS // outputs, size // least))


def _fold_rows(
    fn: Callable, a: TensorData, way: Walk, start: Any, out: Any, dtype: DType
) -> None:
    ((_, step),), ((count, hop), (n, _)) = way.kept, way.folded
    x, wide = a.storage.array, _is_wide(a, step, hop, n)
    if count == 1 and n <= SHORT:
        shift = _shift(ceil_div(n, 8 if wide else 4))  # two vectors a lane, or 4
        FOLD_SHORT[fn][ceil_div(len(out) << shift, BLOCK), BLOCK](
            x, a.offset, step, n, shift, wide, start, out
        )
        return
    pieces = _pieces_a_fold(len(out), count * n, LEAST)
    made = out
    if pieces > 1:
        made = empty((len(out) * pieces,), dtype).storage.array
    if count == 1:
        piece = ceil_div(ceil_div(n, pieces), PIECE) * PIECE
        pieces = ceil_div(n, piece)
        FOLD_ROWS[fn][len(out) * pieces, BLOCK](
            x, a.offset, step, n, pieces, piece, wide, start, made
        )
    else:
        FOLD_STRETCHES[fn][len(out) * pieces, BLOCK](
            x, a.offset, step, hop, count, n, pieces, wide, start, made
        )
    if made is not out:
        _fold_parts_of_rows(fn, made, pieces, start, out)


def _fold_parts_of_rows(
    fn: Callable, parts: Any, pieces: int, start: Any, out: Any
) -> None:
    """The second launch: parts [R, pieces] -> out [R]."""
    FOLD_SHORT[fn][ceil_div(len(out) * WARP, BLOCK), BLOCK](
        parts, 0, pieces, pieces, _shift(WARP), False, start, out
    )


def _fold_columns(
    fn: Callable, a: TensorData, way: Walk, start: Any, out: Any, dtype: DType
) -> None:
    ((batches, batch_step), (n, _)), ((rows, step),) = way.kept, way.folded
    x = a.storage.array
    if batches == 1 and n <= NARROW and step == n:
        parts = _pieces_a_fold(1, rows * n, LEAST)
        made = out if parts == 1 else empty((parts * n,), dtype).storage.array
        FOLD_NARROW[fn][parts, BLOCK](x, a.offset, rows, n, parts, start, made)
    else:
        wide = _is_wide(a, batch_step, step, n)
        across = ceil_div(n, 4 * LINES if wide else LINES) * batches
        # Half as many blocks as elsewhere: the second launch has few, and must be
        # short.
        parts = max(1, min(BLOCKS // 2 // across, rows // LEAST_ROWS))
        parts = 1 if parts <= 4 else parts  # a second kernel would take longer
        made = out if parts == 1 else empty((parts * len(out),), dtype).storage.array
        kernels = FOLD_COLUMNS_WIDE if wide else FOLD_COLUMNS
        kernels[fn][across * parts, BLOCK](
            x, a.offset, batch_step, step, rows, n, batches, parts, start, made
        )
    if parts > 1:  # [parts, outputs]: one matrix of `parts` rows
        size = len(out)
        FOLD_COLUMNS[fn][ceil_div(size, LINES), BLOCK](
            made, 0, 0, size, parts, size, 1, 1, start, out
        )


# --------------------------------------------------------- positions of extremes


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


def first_in_rows(better: Callable) -> Callable:
    """Find the first extreme of each line, or of each piece of a line.

    # a [O, n, I] -> out [O * I, pieces], places in 0 .. n - 1

        for o, k, p:  out[o, k, p] = first place of the extreme of a[o, piece p, k]

    2**shift neighbouring threads, 1 to 32, share a piece, with four loads under way
    each. A thread keeps its best element and that one's place; then pairs are exchanged
    between the registers of a warp. Where I > 1, a line is a thread's: its neighbours
    then read neighbouring lines.
    """
    wins, later = better_of(better), better_later(better)

    def kernel(a, n, inner, pieces, piece, shift, out):
        lanes = 1 << shift
        t = cuda.threadIdx.x & (lanes - 1)
        q = cuda.blockIdx.x * (BLOCK >> shift) + (cuda.threadIdx.x >> shift)
        known = q < out.size
        q = q if known else 0
        line, p = split(q, pieces)
        outer, k = split(line, inner)
        at = outer * n * inner + k
        first = p * piece
        last = min(first + piece, n)
        place = first
        best = load(a, at + first * inner)
        for i in range(first + t, last, 4 * lanes):
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
        while lanes > 1:
            lanes >>= 1
            other = shuffle_xor(place, lanes)
            x = load(a, at + other * inner)
            if wins(x, other, best, place):
                best, place = x, other
        if t == 0 and known:
            out[q] = place

    return kernel


def first_of_places(better: Callable) -> Callable:
    """Choose among the places that were found in the pieces of each line.

    # a [R, n], places [R, pieces] -> out [R, groups]; a warp chooses among `each`
    """
    wins = better_of(better)

    def kernel(a, n, places, pieces, groups, each, out):
        t = cuda.threadIdx.x % WARP
        q = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
        known = q < out.size
        r, g = split(q if known else 0, groups)
        row, first = r * n, r * pieces + g * each
        place = load(places, first)
        best = load(a, row + place)
        for i in range(t, min(each, pieces - g * each), WARP):
            other = load(places, first + i)
            x = load(a, row + other)
            if wins(x, other, best, place):
                best, place = x, other
        lanes = WARP
        while lanes > 1:
            lanes >>= 1
            other = shuffle_xor(place, lanes)
            x = load(a, row + other)
            if wins(x, other, best, place):
                best, place = x, other
        if t == 0 and known:
            out[q] = place

    return kernel


_BOTH = (operators.gt, operators.lt)
FIRST_IN_ROWS = Kernels(
    first_in_rows, _BOTH, ["float32[] int64 int64 int64 int64 int64 int64[]"],
    threads=BLOCK,
)  # fmt: skip
FIRST_OF_PLACES = Kernels(
    first_of_places, _BOTH, ["float32[] int64 int64[] int64 int64 int64 int64[]"],
    threads=BLOCK,
)  # fmt: skip


def argmax(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""
    return _first(operators.gt, "argmax", a, dim)


def argmin(a: TensorData, dim: int) -> TensorData:
    """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""
    return _first(operators.lt, "argmin", a, dim)


def _first(better: Callable, name: str, a: TensorData, dim: int) -> TensorData:
    if a.dims == 0:
        return full((), 0, int64)
    n = a.shape[dim]
    out = empty((*a.shape[:dim], 1, *a.shape[dim + 1 :]), int64)
    found = out.storage.array
    if len(found) == 0:
        return out
    if n == 0:
        raise ValueError(f"{name}: dimension {dim} of {a.shape} has no elements")
    x = contiguous(a).flat()
    inner = math.prod(a.shape[dim + 1 :])
    shift = 0 if inner > 1 else _shift(ceil_div(n, 4))
    pieces = 1
    if inner == 1:  # a piece is a warp's
        pieces = max(1, min(BLOCKS * WARPS // len(found), n // LEAST_PLACES))
    piece = ceil_div(n, pieces)
    pieces = ceil_div(n, piece)
    places = found
    if pieces > 1:
        places = empty((len(found) * pieces,), int64).storage.array
    FIRST_IN_ROWS[better][ceil_div(len(places) << shift, BLOCK), BLOCK](
        x, n, inner, pieces, piece, shift, places
    )
    while pieces > 1:  # each launch leaves one place of `each`
        each = min(pieces, 4 * WARP)
        groups = ceil_div(pieces, each)
        chosen = found
        if groups > 1:
            chosen = empty((len(found) * groups,), int64).storage.array
        FIRST_OF_PLACES[better][ceil_div(len(chosen), WARPS), BLOCK](
            x, n, places, pieces, groups, each, chosen
        )
        places, pieces = chosen, groups
    return out


# ---------------------------------------------------------------------- running sums


def scan_rows(group: int) -> Callable:
    """Running sums of rows, each by a warp or a block, or by several blocks.

    # a [R, n], before [R, pieces] -> out [R, n]

        for r, i:  out[r, i] = a[r, 0] + ... + a[r, i]

    `group` threads make a piece of a row, 4 * group elements at a time. A thread adds
    up 4 neighbours; a warp turns its threads' sums into running sums in five steps, in
    which a thread adds what the thread 1, 2, 4, 8, 16 places before it has; the sums of
    the warps before are added from shared memory, and so is what came before the tile:

        1 2 3 4   ->   1 3 5 7   ->   1 3 6 10

    Where blocks share a row, `before[r, p]` is the sum of the pieces up to p, made by
    two launches before this one; piece p starts from before[r, p - 1].

    Source: Hillis and Steele, "Data parallel algorithms", 1986; Harris, Sengupta and
    Owens, "Parallel prefix sum (scan) with CUDA", 2007.
    """
    rows, warps = BLOCK // group, group // WARP

    def kernel(a, n, pieces, piece, before, out):
        cells = cuda.shared.array(WARPS, a.dtype)
        zero = a.dtype.type(0)
        t = cuda.threadIdx.x % group
        q = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        known = q * n < out.size * pieces
        r = (q if known else 0) // pieces
        p = (q if known else 0) - r * pieces
        carry = before[r * pieces + p - 1] if p > 0 else zero
        end = min((p + 1) * piece, n) if known else 0
        for tile in range(p * piece, min((p + 1) * piece, n), 4 * group):
            i, at = tile + 4 * t, r * n + tile + 4 * t
            x0 = load(a, at) if i < end else zero
            x1 = x0 + (load(a, at + 1) if i + 1 < end else zero)
            x2 = x1 + (load(a, at + 2) if i + 2 < end else zero)
            x3 = x2 + (load(a, at + 3) if i + 3 < end else zero)
            running = x3
            for k in range(5):
                other = shuffle_up(running, 1 << k)
                running += other if t % WARP >= 1 << k else zero
            total = carry
            if warps > 1:
                if t % WARP == WARP - 1:
                    cells[t // WARP] = running
                barrier()
                for w in range(warps):
                    total += cells[w] if w < t // WARP else zero
            total += running - x3
            if i < end:
                store(out, at, total + x0)
            if i + 1 < end:
                store(out, at + 1, total + x1)
            if i + 2 < end:
                store(out, at + 2, total + x2)
            if i + 3 < end:
                store(out, at + 3, total + x3)
            if warps > 1:
                for w in range(warps):
                    carry += cells[w]
                barrier()
            else:
                carry += shuffle(running, WARP - 1)

    return kernel


def scan_columns(a, n, inner, out):
    """Running sums along a dimension that is not the last.

    # a [O, n, I] -> out [O, n, I]

    A thread makes a line, with its total in a register; its neighbours make the lines
    beside it, so that a warp's loads and stores are pieces of memory.
    """
    line = cuda.grid(1)
    if line * n < out.size:
        outer, k = split(line, inner)
        p = outer * n * inner + k
        total = a.dtype.type(0)
        for _ in range(n):
            total += load(a, p)
            store(out, p, total)
            p += inner


SCAN_ROWS = {
    group: Kernel(
        scan_rows(group),
        f"scan_rows[{'warp' if group == WARP else 'block'}]",
        ["float32[] int64 int64 int64 float32[] float32[]"],
        BLOCK,
    )
    for group in (WARP, BLOCK)
}
SCAN_COLUMNS = Kernel(
    scan_columns, "", ["float32[] int64 int64 float32[]"], threads=BLOCK
)


def cumsum(a: TensorData, dim: int) -> TensorData:
    """out[i] = a[0] + ... + a[i] along `dim`."""
    if a.dims == 0:
        return copy(a, a.dtype)
    out = empty(a.shape, a.dtype)
    made = out.storage.array
    if len(made) == 0:
        return out
    x, n = contiguous(a).flat(), a.shape[dim]
    inner = math.prod(a.shape[dim + 1 :])
    if inner > 1:
        SCAN_COLUMNS[ceil_div(len(made) // n, BLOCK), BLOCK](x, n, inner, made)
    else:
        _scan(x, len(made) // n, n, made, a.dtype)
    return out


def _scan(x: Any, rows: int, n: int, out: Any, dtype: DType) -> None:
    """Running sums of x [rows, n], by one launch, or by three where rows are long."""
    if n <= 8 * WARP:
        SCAN_ROWS[WARP][ceil_div(rows, WARPS), BLOCK](x, n, 1, n, x, out)
        return
    pieces = _pieces_a_fold(rows, n, LEAST)
    piece = ceil_div(ceil_div(n, pieces), PIECE) * PIECE
    pieces = ceil_div(n, piece)
    before = x
    if pieces > 1:
        sums = empty((rows * pieces,), dtype).storage.array
        before = empty((rows * pieces,), dtype).storage.array
        wide = n % 4 == 0 and is_aligned(x)
        FOLD_ROWS[operators.add][rows * pieces, BLOCK](
            x, 0, n, n, pieces, piece, wide, dtype.numpy.type(0), sums
        )
        _scan(sums, rows, pieces, before, dtype)
    SCAN_ROWS[BLOCK][rows * pieces, BLOCK](x, n, pieces, piece, before, out)
