"""Reductions: fold one or more dimensions of a tensor into single elements.

With this file one can fold any scalar function over any dimensions (`reduce`), find the
position of an extreme (`argmax`, `argmin`), and add up or multiply along a dimension
(`cumsum`, `cumprod`).

Sums, products, extremes and logical folds may take their elements in any order. The
order depends only on shapes and strides: work is cut into blocks of fixed size, each
folded by one thread, and the blocks' results are folded in order. So the result is the
same, to the last bit, on any number of threads. float32 is summed in blocks of `BLOCK`
elements (down the columns of a matrix, in fours), and these in float64, so that errors
do not grow with the length. Any other function, a user's own, sees the elements of one
output one by one, in row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, Kernels, device_function, pair
from fast_ops.memory import at, contiguous, empty
from fast_ops.walk import (
    BY_ROWS,
    BY_STRIDES,
    LANES,
    MAX_BLOCKS,
    STRETCH,
    Walk,
    walk,
)
from minitorch import operators
from minitorch.dtypes import COMPUTED, DType, float32, float64
from minitorch.tensor_data import Shape, Strides, TensorData

BLOCK = 512  # elements folded in their own type before they join a wider total
CHUNK = 8_192  # elements that one task folds where a whole tensor becomes one number

# ---------------------------------------------------------------------- templates
#
# Each template is a loop over tasks; what one task does is a function of its own,
# which is compiled once for the serial and the parallel form of the loop.


@device_function
def element(group: int, shape: Shape) -> tuple[int, int, int]:
    """The indices i, j, k of number `group` in row-major order."""
    ij = group // shape[2]
    i = ij // shape[1]
    return i, ij - i * shape[1], group - ij * shape[2]


def fold_flat(fn: Callable) -> Callable:
    """Make the loop out[r] = fold of a[r, 0], ..., a[r, n - 1], for a [rows, n].

    The last row may be shorter. Threads share rows. BLOCK elements at a time are folded
    in the element's own type (16 float32 at once, when LLVM knows that `fn` may be
    reordered), and the blocks' results in the wider type of `start`.
    """

    def loop(
        a: np.ndarray, n: int, start: np.ndarray, narrow: np.ndarray, out: np.ndarray
    ) -> None:
        # BEGIN SOLUTION a3.2
        for r in prange(out.size):
            row = np.int64(r) * n
            end = min(row + n, a.size)
            total = start[0]
            for low in range(row, end, BLOCK):
                x = a[low : min(low + BLOCK, end)]
                part = narrow[0]
                for e in range(x.size):
                    part = fn(part, x[e])
                total = fn(total, part)
            out[r] = total
        # END SOLUTION a3.2

    return loop


@cache
def row_task(fn: Callable) -> Any:
    """Make the fold of stretches number `s` to `last` into one total."""

    @device_function
    def fold(
        a: Any, at: Any, folded: Any, steps: Any, length: Any, chunk: Any, s: Any,
        last: Any, start: Any, narrow: Any,
    ) -> Any:  # fmt: skip
        chunks = (length + chunk - 1) // chunk
        total = start[0]
        for t in range(s, last):
            uv = t // chunks
            u = uv // folded[1]
            begin = (t - uv * chunks) * chunk
            p = at + u * steps[0] + (uv - u * folded[1]) * steps[1] + begin
            x = a[p : p + min(chunk, length - begin)]
            for low in range(0, x.size, BLOCK):
                y = x[low : low + BLOCK]
                part = narrow[0]
                for e in range(y.size):
                    part = fn(part, y[e])
                total = fn(total, part)
        return total

    return fold


def fold_rows(fn: Callable) -> Callable:
    """Make the loop that folds contiguous stretches of memory, one output for each row.

    `fold_flat` for rows with gaps between them, for rows in several stretches, and for
    a few long rows. Threads share tasks: one output, and one block of its stretches, of
    at most `chunk` elements each.
    """
    fold = row_task(fn)

    def loop(
        a: np.ndarray, first: int, kept: Shape, a_steps: Strides, out_steps: Strides,
        folded: Shape, folded_steps: Strides, length: int, chunk: int, blocks: int,
        start: np.ndarray, narrow: np.ndarray, partial: np.ndarray, out: np.ndarray,
    ) -> None:  # fmt: skip
        stretches = folded[0] * folded[1] * ((length + chunk - 1) // chunk)
        for task in prange(kept[0] * kept[1] * kept[2] * blocks):
            group = np.int64(task) // blocks
            block = np.int64(task) - group * blocks
            i, j, k = element(group, kept)
            p = first + i * a_steps[0] + j * a_steps[1] + k * a_steps[2]
            q = i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
            s = block * stretches // blocks
            last = (block + 1) * stretches // blocks
            total = fold(
                a, p, folded, folded_steps, length, chunk, s, last, start, narrow
            )
            if blocks == 1:
                out[q] = total
            else:
                partial[block, q] = total

    return loop


@cache
def line_task(fn: Callable) -> Any:
    """Make the fold of stretches number `s` to `last` into `width` totals."""

    @device_function
    def fold(
        a: Any, at: Any, folded: Any, steps: Any, length: Any, chunk: Any, s: Any,
        last: Any, total: Any, width: Any,
    ) -> Any:  # fmt: skip
        chunks = (length + chunk - 1) // chunk
        lanes = total.size
        for t in range(s, last):
            uv = t // chunks
            u = uv // folded[1]
            begin = (t - uv * chunks) * chunk
            p = at + u * steps[0] + (uv - u * folded[1]) * steps[1] + begin
            x = a[p : p + min(chunk, length - begin)]
            whole = x.size // lanes * lanes
            for line in range(0, whole, lanes):
                y = x[line : line + lanes]
                for e in range(lanes):
                    total[e] = fn(total[e], y[e])
            y = x[whole:]
            for e in range(y.size):
                total[e] = fn(total[e], y[e])
        while lanes > width:  # fold the upper half of the groups onto the lower
            half = (lanes // width + 1) // 2 * width
            for e in range(lanes - half):
                total[e] = fn(total[e], total[half + e])
            lanes = half

    return fold


def fold_lines(fn: Callable) -> Callable:
    """Make the loop that folds lines of memory onto each other, lane by lane.

    `width` outputs lie side by side: a sum over the first dimension of [R, width]. A
    narrow matrix is one stretch of memory, cut into lines of several rows:

        0 1 2 0 1 2      width = 3, lanes = 6, a stretch of 5 rows
        0 1 2 0 1 2
        0 1 2            lane j holds the fold of its column, for output j % width

    A wide one is folded row by row, up to LANES columns in one task. LLVM folds 16
    lanes at once for any `fn`, because lanes do not wait for each other.

    Threads share tasks: `width` outputs, and one block of their stretches.
    """
    fold = line_task(fn)

    def loop(
        a: np.ndarray, first: int, kept: Shape, a_steps: Strides, out_steps: Strides,
        width: int, out_width: int, lanes: int, folded: Shape, folded_steps: Strides,
        length: int, chunk: int, blocks: int, start: np.ndarray,
        partial: np.ndarray, out: np.ndarray,
    ) -> None:  # fmt: skip
        stretches = folded[0] * folded[1] * ((length + chunk - 1) // chunk)
        for task in prange(kept[0] * kept[1] * kept[2] * blocks):
            group = np.int64(task) // blocks
            block = np.int64(task) - group * blocks
            i, j, k = element(group, kept)
            p = first + i * a_steps[0] + j * a_steps[1] + k * a_steps[2]
            q = i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
            total = np.empty(lanes, start.dtype)
            for e in range(lanes):
                total[e] = start[0]
            s = block * stretches // blocks
            last = (block + 1) * stretches // blocks
            fold(a, p, folded, folded_steps, length, chunk, s, last, total, width)
            for e in range(width):
                if blocks == 1:
                    out[q + e * out_width] = total[e]
                else:
                    partial[block, q + e * out_width] = total[e]

    return loop


@cache
def column_task(fn: Callable) -> Any:
    """Make the fold of rows `r` to `last` of a, [*, line], into the columns' totals."""

    @device_function
    def fold(a: Any, r: Any, last: Any, line: Any, low: Any, total: Any) -> None:
        n = total.size
        while r + 4 <= last:
            p = r * line + low
            v, w = a[p : p + n], a[p + line : p + line + n]
            p += 2 * line
            x, y = a[p : p + n], a[p + line : p + line + n]
            for e in range(n):
                four = fn(fn(v[e], w[e]), fn(x[e], y[e]))
                total[e] = fn(total[e], four)
            r += 4
        while r < last:
            v = a[r * line + low : r * line + low + n]
            for e in range(n):
                total[e] = fn(total[e], v[e])
            r += 1

    return fold


def fold_columns(fn: Callable) -> Callable:
    """Make the loop that folds the rows of a contiguous matrix [R, N], N = out.size.

    `fold_lines` for the most frequent case, the sum over the first dimension. Four rows
    are folded in the element's own type, in registers, before they join the totals, so
    a total is loaded, widened and stored once for four elements instead of each time.
    A narrow matrix is read as one of fewer, longer lines, of several rows each:

        0 1 2 0 1 2      N = 3, line = 6; the row that fills no line comes at the end
        0 1 2 0 1 2
        0 1 2

    Threads share tasks: `chunk` columns of one block of lines, and the rows at the end.
    `partial` holds the totals of all blocks, [blocks, line], and those of the last task
    [N]: many totals for each output, which one thread folds in order.
    """
    fold = column_task(fn)

    def loop(
        a: np.ndarray, line: int, chunk: int, blocks: int, start: np.ndarray,
        partial: np.ndarray, out: np.ndarray,
    ) -> None:  # fmt: skip
        n = out.size
        rows, group, chunks = a.size // n, line // n, (line + chunk - 1) // chunk
        lines = rows // group
        for task in prange(chunks * blocks + 1):
            block = np.int64(task) // chunks
            low = (np.int64(task) - block * chunks) * chunk
            at, width, step = block * line + low, min(chunk, line - low), line
            first, last = block * lines // blocks, (block + 1) * lines // blocks
            if block == blocks:
                width, step, first, last = n, n, lines * group, rows
            total = partial[at : at + width]
            for e in range(width):
                total[e] = start[0]
            fold(a, first, last, step, low, total)
        total = partial[:n]
        for p in range(n, partial.size, n):
            part = partial[p : p + n]
            for e in range(n):
                total[e] = fn(total[e], part[e])
        for e in range(n):
            out[e] = total[e]

    return loop


def fold_blocks(fn: Callable) -> Callable:
    """Make the loop that folds the results of blocks, in order: [blocks, size]."""

    def loop(start: np.ndarray, partial: np.ndarray, out: np.ndarray) -> None:
        for q in range(out.size):
            total = start[0]
            for block in range(partial.shape[0]):
                total = fn(total, partial[block, q])
            out[q] = total

    return loop


@cache
def strided_task(fn: Callable) -> Any:
    """Make the fold of any strides into the first `n` elements of `total`."""

    @device_function
    def fold(
        a: Any, first: Any, step: Any, folded: Any, steps: Any, total: Any, n: Any
    ) -> Any:
        for u in range(folded[0]):
            for v in range(folded[1]):
                for w in range(folded[2]):
                    r = first + u * steps[0] + v * steps[1] + w * steps[2]
                    for e in range(n):
                        total[e] = fn(total[e], a[at(r, e, step)])

    return fold


def fold_strided(fn: Callable) -> Callable:
    """Make the loop that folds any strides, with one lane for each of many outputs.

    Threads share tasks: one task is `lanes` outputs of the innermost kept dimension.
    """
    fold = strided_task(fn)

    def loop(
        a: np.ndarray, first: int, kept: Shape, a_steps: Strides, out_steps: Strides,
        folded: Shape, folded_steps: Strides, lanes: int,
        start: np.ndarray, out: np.ndarray,
    ) -> None:  # fmt: skip
        chunks = (kept[2] + lanes - 1) // lanes
        for task in prange(kept[0] * kept[1] * chunks):
            i, j, chunk = element(np.int64(task), (kept[0], kept[1], chunks))
            begin = chunk * lanes
            n = min(lanes, kept[2] - begin)
            total = np.empty(lanes, start.dtype)
            for e in range(n):
                total[e] = start[0]
            p = first + i * a_steps[0] + j * a_steps[1] + begin * a_steps[2]
            fold(a, p, a_steps[2], folded, folded_steps, total, n)
            q = i * out_steps[0] + j * out_steps[1] + begin * out_steps[2]
            for e in range(n):
                out[q + e * out_steps[2]] = total[e]

    return loop


FLAT = (Kernels(fold_flat), Kernels(fold_flat, parallel=True))
ROWS = (Kernels(fold_rows), Kernels(fold_rows, parallel=True))
LINES = (Kernels(fold_lines), Kernels(fold_lines, parallel=True))
COLUMNS = (Kernels(fold_columns), Kernels(fold_columns, parallel=True))
BLOCKS = Kernels(fold_blocks)
STRIDED = (Kernels(fold_strided), Kernels(fold_strided, parallel=True))


# ---------------------------------------------------------------------- launchers

# Folds whose result is one of the operands: nothing is rounded, so a wider accumulator
# would only cost time.
EXACT = {operators.maximum, operators.minimum}

# Folds whose parts may be folded by themselves, in any order, and then with each other.
SPLITTABLE = {
    *EXACT,
    operators.add,
    operators.mul,
    operators.logical_and,
    operators.logical_or,
    operators.logical_xor,
}
NO_PARTIAL = {dtype.numpy: np.empty((1, 1), dtype.numpy) for dtype in COMPUTED}


@lru_cache(maxsize=1024)
def starts(value: float, dtype: DType, rounds: bool) -> tuple[np.ndarray, np.ndarray]:
    """Where a fold begins, in the type of its total and in that of its elements."""
    wide = float64 if dtype is float32 and rounds else dtype
    return np.array([value], wide.numpy), np.array([value], dtype.numpy)


class Cut(NamedTuple):
    """What a shape and the folded dims say, whatever the strides."""

    out_shape: Shape
    size: int  # elements to fold
    length: int  # elements for each output
    trailing: bool  # the folded dims are the last ones
    leading: bool  # ... the first ones


@lru_cache(maxsize=4096)
def _cut(shape: Shape, dims: tuple[int, ...]) -> Cut:
    rank, order = len(shape), sorted(dims)
    out_shape = tuple([1 if i in dims else n for i, n in enumerate(shape)])
    size, outputs = math.prod(shape), math.prod(out_shape)
    trailing = order == list(range(rank - len(dims), rank))
    length = size // outputs if outputs else 0
    return Cut(out_shape, size, length, trailing, order == list(range(len(dims))))


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
    dims, source = tuple(dims), a.storage.dtype
    out_type = dtype or source
    cut = _cut(a.shape, dims)
    out = empty(cut.out_shape, out_type)
    result = out.storage.array
    size, n = cut.size, cut.length
    if size == 0:
        result.fill(start)
        return out
    begin = starts(start, out_type, fn not in EXACT)
    parallel = size >= SERIAL_LIMIT
    if fn not in SPLITTABLE:
        _run(fn, _rows(a, dims), _in_order(len(result), n), parallel, begin, result)
        return out
    if size == n > CHUNK and a.contiguous:
        _fold_all(fn, a.flat(), parallel, begin, result)
        return out
    if n <= STRETCH and a.contiguous and cut.trailing:
        FLAT[parallel][fn](a.flat(), n, begin[0], begin[1], result)
        return out
    if source is out_type and a.contiguous and cut.leading:
        _fold_columns(fn, a.flat(), parallel, begin[0], result)
        return out
    loops = walk(a.shape, a.strides, dims)
    if loops is None:
        FLAT[parallel][fn](_rows(a, dims).flat(), n, *begin, result)
    else:
        _run(fn, a, loops, parallel, begin, result)
    return out


def _rows(a: TensorData, dims: tuple[int, ...]) -> TensorData:
    """`a` with the folded dimensions last, in their order, and without gaps."""
    kept = [i for i in range(a.dims) if i not in dims]
    return contiguous(a.permute([*kept, *sorted(dims)]))


def _in_order(rows: int, n: int) -> Walk:
    """The loops over [rows, n] that take the n elements of a row in order."""
    return Walk(
        BY_STRIDES, (1, 1, rows), (0, 0, n), (0, 0, 1), (1, 1, n), (0, 0, 1),
        lanes=min(64, rows),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _column_cuts(size: int, n: int) -> tuple[int, int, int]:
    """How long a line is, how many columns a task takes, and the number of blocks."""
    line = n * max(1, min(LANES, size) // n)
    chunk = min(line, 2 * LANES)
    tasks = -(-line // chunk)
    return line, chunk, max(1, min(MAX_BLOCKS // tasks, size // max(line, STRETCH)))


def _fold_all(
    fn: Callable,
    a: np.ndarray,
    parallel: bool,
    starts: tuple[np.ndarray, np.ndarray],
    out: np.ndarray,
) -> None:
    """Fold chunks as if they were rows, and then what came out, in order."""
    partial = np.empty((-(-len(a) // CHUNK), 1), starts[0].dtype)
    FLAT[parallel][fn](a, CHUNK, *starts, partial[:, 0])
    BLOCKS[fn](starts[0], partial, out)


def _fold_columns(
    fn: Callable, a: np.ndarray, parallel: bool, start: np.ndarray, out: np.ndarray
) -> None:
    line, chunk, blocks = _column_cuts(len(a), len(out))
    partial = np.empty(blocks * line + len(out), start.dtype)
    COLUMNS[parallel][fn](a, line, chunk, blocks, start, partial, out)


def _run(
    fn: Callable, a: TensorData, loops: Walk, parallel: bool,
    starts: tuple[np.ndarray, np.ndarray], out: np.ndarray,
) -> None:  # fmt: skip
    start, narrow = starts
    common = a.storage.array, a.offset, loops.kept, loops.a_steps, loops.out_steps
    fold = loops.folded, loops.folded_steps
    if loops.kind == BY_STRIDES:
        STRIDED[parallel][fn](*common, *fold, loops.lanes, start, out)
        return
    partial = NO_PARTIAL[start.dtype]
    if loops.blocks > 1:
        partial = np.empty((loops.blocks, len(out)), start.dtype)
    cut = loops.length, loops.chunk, loops.blocks
    if loops.kind == BY_ROWS:
        ROWS[parallel][fn](*common, *fold, *cut, start, narrow, partial, out)
    else:
        lines = loops.width, loops.out_width, loops.lanes
        LINES[parallel][fn](*common, *lines, *fold, *cut, start, partial, out)
    if loops.blocks > 1:
        BLOCKS[fn](start, partial, out)


# --------------------------------------------------------- positions of extremes


def first_extreme(fn: Callable) -> Callable:
    """Make the loop that finds the first place of the fold of each row, a [rows, n].

    Two passes over a row: the extreme itself, 16 elements at once, then the first
    element equal to it. NaN wins the first pass and is found in the second. Threads
    share rows.
    """

    def loop(a: np.ndarray, n: int, out: np.ndarray) -> None:
        for r in prange(out.size):
            row = np.int64(r) * n
            x = a[row : row + n]
            best = x[0]
            for i in range(n):
                best = fn(best, x[i])
            place = 0
            for i in range(n):
                if x[i] == best or x[i] != x[i]:
                    place = i
                    break
            out[r] = place

    return loop


# -------------------------------------------------------------------- running totals


def running(fn: Callable) -> Callable:
    """Make the loop of running totals: sums if `fn` adds, products if it multiplies.

    out[o, i, k] = fold of a[o, 0, k], ..., a[o, i, k] for a [outer, n, inner]

    Threads share the lines (o, k); neighbours k go down together, a cache line wide, so
    that no line of memory is fetched twice.
    """

    def loop(a: np.ndarray, n: int, inner: int, out: np.ndarray) -> None:
        width = min(inner, 16)
        groups = (inner + width - 1) // width
        for task in prange(out.size // (n * inner) * groups):
            o = np.int64(task) // groups
            k = (np.int64(task) - o * groups) * width
            first = o * n * inner + k
            w = min(width, inner - k)
            for e in range(w):
                total = a[first + e]
                out[first + e] = total
            if w == 1:
                for i in range(1, n):
                    total = fn(total, a[at(first, i, inner)])
                    out[at(first, i, inner)] = total
            else:
                for i in range(1, n):
                    p = first + i * inner
                    x, y, z = (
                        out[p - inner : p - inner + w],
                        a[p : p + w],
                        out[p : p + w],
                    )
                    for e in range(w):
                        z[e] = fn(x[e], y[e])

    return loop


KERNELS = SimpleNamespace(
    argmax=pair(first_extreme, operators.maximum),
    argmin=pair(first_extreme, operators.minimum),
    cumsum=pair(running, operators.add),
    cumprod=pair(running, operators.mul),
)
