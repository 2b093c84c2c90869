"""Indexing: read and write elements whose positions are in another tensor.

With this file one can look single elements up (`gather`), add to them or overwrite them
(`scatter_add`, `scatter`), and read, add to or overwrite whole slices (`index_select`,
`index_add`, `index_copy_`; the first two are an embedding's forward and backward pass).

All kernels see a tensor as [outer, n, inner], with the indexed dimension in the middle.
Sums are deterministic: they are those of a loop over the indices in their order, to the
last bit, and no float is added atomically. Halves that are only moved, not added, move
as words.

A bad index is found by the kernel that uses it; the IndexError comes when the host next
waits for the device (`index_errors.py`). Until then bad indices count as absent: their
elements of a result have no particular value, and nothing is added or written for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from numba import cuda, int64

from cuda_ops.block.intrinsics import (
    WARP,
    add_equal,
    device,
    is_aligned,
    is_last,
    load,
    load4,
    store,
    store4,
    sync_warp,
    wait_for_previous,
)
from cuda_ops.half import bits
from cuda_ops.index_errors import after_launch, bad_index, notes, number
from cuda_ops.memory import contiguous, copy, copy_into, empty, full, split
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from cuda_ops.sort import end_of_run, sort_keys
from minitorch import dtypes
from minitorch.backend.host.memory import merged
from minitorch.backend.indexing import cat_shape, cropped, line_of
from minitorch.tensor_data import TensorData, lies_row_by_row

THREADS = 32 if TINY else 256
# Rows that a thread of `copy_slices` has in flight.
ROWS = 4
# What kernels do that add to elements or overwrite them, as notes of errors name it.
ADD, PUT = number("scatter_add"), number("scatter")
# Enough lines for a thread each in `scatter_add`.
THREAD_EACH = 40 if TINY else 65536
# Enough of them for a warp each.
WARP_EACH = 4 if TINY else 256
# Indices that every thread of `put_few` and `add_few` looks at.
FEW = 4 if TINY else 64
# Elements up to which tensors are copied together by one kernel, by one each.
SMALL = 2**8 if TINY else 2**16

_FLOAT = ("float32", "float64")
_ALL = (*_FLOAT, "int64", "int32", "bool")


# ------------------------------------------------------------------- single elements

_GATHER = [
    f"{t}[] int64 int64 {i}[] int64 {t}[] int64[] int64"
    for t in _ALL
    for i in ("int64", "int32")
]


@kernel(examples=_GATHER)
def gather_elements(a, n, inner, index, m, out, notes, dim):
    """out[o, j, k] = a[o, index[o, j, k], k].

    # a [outer, n, inner], index and out [outer, m, inner]

    One thread for each element: index is read and out written in order, a is read
    wherever it is.
    """
    e = cuda.grid(1)
    if e < out.size:
        i = index[e]
        if i < 0 or i >= n:
            bad_index(notes, 0, i, n, dim)
        else:
            line, k = split(e, inner)
            outer, _ = split(line, m)
            out[e] = a[(outer * n + i) * inner + k]


def gather(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """out[i, j] = a[index[i, j], j] for dim = 0; out has index's shape."""
    out = empty(index.shape, a.dtype)
    if a.dims == 0:
        a, index, dim = line_of(a), line_of(contiguous(index)), 0
    a = contiguous(cropped(a, dim, index.shape))
    gather_elements[ceil_div(out.size, THREADS), THREADS](
        bits(a.flat()), a.shape[dim], math.prod(index.shape[dim + 1 :]),
        contiguous(index).flat(), index.shape[dim], bits(out.flat()), notes(), dim,
    )  # fmt: skip
    after_launch()
    return out


_SCATTER = "T[] int64 int64 int64[] int64 T[] int64 int64[] int64"


@kernel(examples=[_SCATTER.replace("T", t) for t in _ALL])
def scatter_lines(out, n, inner, index, m, src, operation, notes, dim):
    """out[o, index[o, j, k], k] += src[o, j, k], or = where the operation is PUT.

    # out [outer, n, inner], index and src [outer, m, inner]

    A thread takes a line (o, k) and goes through j from 0 up. Two elements that go to
    one place are in one line, so no two threads write to the same place. Neighbouring
    threads have neighbouring k, so their loads are coalesced where inner is large.
    """
    line = cuda.grid(1)
    if line * m < index.size:
        outer, k = split(line, inner)
        for j in range(m):
            e = (outer * m + j) * inner + k
            i = index[e]
            target = (outer * n + i) * inner + k
            if i < 0 or i >= n:
                bad_index(notes, operation, i, n, dim)
            elif operation == ADD:
                out[target] += src[e]
            else:
                out[target] = src[e]


@kernel(examples=[_SCATTER.replace("T", t) for t in _ALL], threads=THREADS)
def scatter_by_warps(out, n, inner, index, m, src, operation, notes, dim):
    """`scatter_lines` with a warp for each line (o, k), where lines are few and long.

    # out [outer, n, inner], index and src [outer, m, inner]

    Lane l takes j = l, l + 32, ...: 32 elements at a time. They meet in shared memory,
    where `add_equal` adds them up in the order of j, or the last of those with one
    place is the one that writes. Then the next 32; the barrier of the warp makes the
    others' sums seen.
    """
    places = cuda.shared.array(THREADS, int64)
    numbers = cuda.shared.array(THREADS, src.dtype)
    tid = cuda.threadIdx.x
    warp = tid - tid % WARP
    line = (cuda.blockIdx.x * THREADS + tid) // WARP
    outer, k = split(line, inner)
    length = m if line * m < index.size else 0
    for start in range(0, length, WARP):
        j = start + tid - warp
        place, number = int64(-1), src.dtype.type(0)
        if j < m:
            e = (outer * m + j) * inner + k
            place, number = int64(load(index, e)), load(src, e)
            if place < 0 or place >= n:
                bad_index(notes, operation, place, n, dim)
                place = int64(-1)
        places[tid] = place
        numbers[tid] = number
        sync_warp()
        target = (outer * n + place) * inner + k
        if place >= 0 and operation == ADD:
            add_equal(out, target, places, numbers, place, warp, tid, warp + WARP)
        elif place >= 0 and is_last(places, place, tid, warp + WARP):
            store(out, target, number)
        sync_warp()  # All have read the numbers, before the next ones come.


@kernel(examples=["int64[] int64 int64 int64 int64[] int64 int64[] int64"])
def flat_positions(index, n, inner, m, positions, operation, notes, dim):
    """positions[e] = where index[e] points to in the flat out, or -1 for a bad index.

    # index, positions [outer, m, inner]; one thread for each element
    """
    e = cuda.grid(1)
    if e < index.size:
        i = index[e]
        if i < 0 or i >= n:
            bad_index(notes, operation, i, n, dim)
            positions[e] = -1
        else:
            line, k = split(e, inner)
            outer, _ = split(line, m)
            positions[e] = (outer * n + i) * inner + k


def scatter_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0; a itself, if it is
    `out`."""
    return _scattered(a, dim, index, src, out, ADD)


def scatter(
    a: TensorData, dim: int, index: TensorData, src: TensorData,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """`scatter_add`, but that the elements are overwritten; the last one wins."""
    return _scattered(a, dim, index, src, out, PUT)


def _scattered(
    a: TensorData, dim: int, index: TensorData, src: TensorData,
    result: TensorData | None, operation: int,
) -> TensorData:  # fmt: skip
    """A line along `dim` is done by a thread where there are many lines, by a warp
    where there are some. Where there are few, the elements are sorted by where they go,
    and added as in `index_add`; or overwritten as in `index_copy_`. The results are
    those of the loop in all three.
    """
    out = result = copy(a, a.dtype) if result is None else result
    if index.size == 0:
        return out
    if a.dims == 0:
        out, index, src, dim = line_of(out), line_of(index), line_of(src), 0
    index = contiguous(index)
    src = contiguous(cropped(src, -1, index.shape))
    window = cropped(out, dim, index.shape)
    target = contiguous(window)
    n, m, inner = target.shape[dim], index.shape[dim], math.prod(index.shape[dim + 1 :])
    lines = index.size // m
    call: Any = target.flat(), n, inner, index.flat(), m, src.flat(), operation
    if lines >= THREAD_EACH or m == 1:
        scatter_lines[ceil_div(lines, THREADS), THREADS](*call, notes(), dim)
    elif lines >= WARP_EACH or m <= 1024:
        blocks = ceil_div(WARP * lines, THREADS)
        scatter_by_warps[blocks, THREADS](*call, notes(), dim)
    else:
        places = empty((index.size,), dtypes.int64)
        flat_positions[ceil_div(index.size, THREADS), THREADS](
            index.flat(), n, inner, m, places.flat(), operation, notes(), dim
        )
        line = target.flat()
        if operation == ADD:
            _add_sorted(line, 1, len(line), 1, places, src.flat(), -1, 0)
        else:
            _put(bits(line), len(line), 1, places, bits(src.flat()), -1, 0)
    after_launch()
    if target is not window:
        copy_into(window, target)
    return result


# ---------------------------------------------------------------------- whole slices

_SELECT = [
    f"{t}[] int64 int64 {i}[] int64 bool {t}[] int64[] int64"
    for t in _ALL
    for i in ("int64", "int32")
]


@kernel(examples=_SELECT)
def copy_slices(a, n, inner, index, rows, quads, out, notes, dim):
    """out[o, j, :] = a[o, index[j], :]: the rows of an embedding.

    # a [outer, n, inner], index [m], out [outer, m, inner], rows = outer * m

    A thread copies the same unit of ROWS rows: 16 bytes of each where inner is a
    multiple of 4 (`quads`), else one element. The rows' indices are read first, then
    the units of all rows are on their way together. Neighbouring threads have
    neighbouring units, so that reading and writing are coalesced.
    """
    units = inner // 4 if quads else inner
    task, unit = split(cuda.grid(1), units)
    for r in range(task * ROWS, min(task * ROWS + ROWS, rows)):
        outer, j = split(r, index.size)
        i = index[j]
        if i < 0 or i >= n:
            bad_index(notes, 2, i, n, dim)
        elif quads:
            x0, x1, x2, x3 = load4(a, (outer * n + i) * inner + 4 * unit)
            store4(out, r * inner + 4 * unit, x0, x1, x2, x3)
        else:
            out[r * inner + unit] = a[(outer * n + i) * inner + unit]


def _in_quads(inner: int, *arrays: Any) -> bool:
    """Whether slices of `inner` elements are whole 16-byte vectors in all arrays."""
    return inner % 4 == 0 and all(
        array.itemsize >= 2 and is_aligned(array) for array in arrays
    )


@kernel(examples=["int64[] int64 int64[] int64", "int32[] int64 int64[] int64"])
def check_slices(index, n, notes, dim):
    """Report an index outside [0, n), where slices are empty and nothing is copied."""
    j = cuda.grid(1)
    if j < index.size and (index[j] < 0 or index[j] >= n):
        bad_index(notes, 2, index[j], n, dim)


def index_select(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""
    if a.dims == 0:
        a, dim = line_of(a), 0
    m = index.size
    out = empty((*a.shape[:dim], m, *a.shape[dim + 1 :]), a.dtype)
    if out.size:
        inner = math.prod(a.shape[dim + 1 :])
        rows = out.size // inner
        x, y = bits(contiguous(a).flat()), bits(out.flat())
        quads = _in_quads(inner, x)
        threads = ceil_div(rows, ROWS) * (inner // 4 if quads else inner)
        copy_slices[ceil_div(threads, THREADS), THREADS](
            x, a.shape[dim], inner, contiguous(index).flat(), rows, quads, y, notes(),
            dim,
        )  # fmt: skip
        after_launch()
    elif m:
        places = contiguous(index).flat()
        check_slices[ceil_div(m, THREADS), THREADS](places, a.shape[dim], notes(), dim)
        after_launch()
    return out


_ADD = [
    f"{t}[] int64 int64 int64[] int64[] bool {t}[] int64 int64[] int64"
    for t in _ALL[:4]
]


@kernel(examples=_ADD)
def add_runs(out, n, inner, keys, order, quads, src, operation, notes, dim):
    """out[o, keys[s], :] += src[o, order[s], :]: an embedding's backward pass.

    # out [outer, n, inner], keys and order [m] (ascending), src [outer, m, inner]

        keys      1   1   1   4   6   6       the indices, sorted
        order     0   2   5   1   3   4       whose slices these are
                  ^           ^   ^           the first of each run adds its run up

    A thread takes a unit of a slice: four columns, or one where they are no multiple
    of 4. It works only if s is the first of a run of equal keys; then it is the only
    one that writes to out's slice. The sort was stable, so slices are added in the
    order of the indices. Four of them are on their way at a time.
    """
    units = inner // 4 if quads else inner
    s, unit = split(cuda.grid(1), units)
    m = keys.size
    if s < m and (s == 0 or keys[s - 1] != keys[s]):
        i = keys[s]
        if i < 0 or i >= n:
            if operation >= 0:
                bad_index(notes, operation, i, n, dim)
        else:
            end = end_of_run(keys, s)
            target = (cuda.blockIdx.y * n + i) * inner
            source = cuda.blockIdx.y * m * inner
            if quads:
                add_quads(out, target + 4 * unit, src, source + 4 * unit, inner,
                          order, s, end)  # fmt: skip
            else:
                total = out[target + unit]
                for t in range(s, end):
                    total += src[source + order[t] * inner + unit]
                out[target + unit] = total


@device
def add_quads(out, target, src, source, inner, order, s, end):
    """out[target:][:4] += src[source + order[t] * inner:][:4] for s <= t < end."""
    a0, a1, a2, a3 = load4(out, target)
    t = s
    while t + 4 <= end:
        x0, x1, x2, x3 = load4(src, source + order[t] * inner)
        y0, y1, y2, y3 = load4(src, source + order[t + 1] * inner)
        z0, z1, z2, z3 = load4(src, source + order[t + 2] * inner)
        w0, w1, w2, w3 = load4(src, source + order[t + 3] * inner)
        a0 = (((a0 + x0) + y0) + z0) + w0
        a1 = (((a1 + x1) + y1) + z1) + w1
        a2 = (((a2 + x2) + y2) + z2) + w2
        a3 = (((a3 + x3) + y3) + z3) + w3
        t += 4
    while t < end:
        x0, x1, x2, x3 = load4(src, source + order[t] * inner)
        a0 += x0
        a1 += x1
        a2 += x2
        a3 += x3
        t += 1
    store4(out, target, a0, a1, a2, a3)


@kernel(examples=[f"{t}[] int64 int64 int64[] {t}[] int64 int64[] int64" for t in _ALL])
def add_few(out, n, inner, index, src, operation, notes, dim):
    """out[o, index[j], :] += src[o, j, :] where indices are few, without a sort.

    # out [outer, n, inner], index [m], src [outer, m, inner]

    One thread for each element of src looks through all indices. The first of those
    with one place adds for all of them, in their order.
    """
    e = cuda.grid(1)
    if e < src.size:
        row, k = split(e, inner)
        outer, mine = split(row, index.size)
        i = index[mine]
        first = 0 <= i < n
        if not first and operation >= 0:
            bad_index(notes, operation, i, n, dim)
        for j in range(mine):
            first = first and index[j] != i
        if first:
            target = (outer * n + i) * inner + k
            total = out[target]
            for j in range(mine, index.size):
                if index[j] == i:
                    total += src[e + (j - mine) * inner]
            out[target] = total


def _add_sorted(
    out: Any, outer: int, n: int, inner: int, index: TensorData, src: Any,
    operation: int, dim: int,
) -> None:  # fmt: skip
    """Add src [outer, m, inner] to the slices index [m] of out [outer, n, inner]."""
    if index.size <= FEW:
        add_few[ceil_div(src.size, THREADS), THREADS](
            out, n, inner, index.flat(), src, operation, notes(), dim
        )
        return
    keys, order = sort_keys(index)
    quads = _in_quads(inner, out, src)
    threads = index.size * (inner // 4 if quads else inner)
    add_runs[(ceil_div(threads, THREADS), outer), THREADS](
        out, n, inner, keys.flat(), order.flat(), quads, src, operation, notes(), dim
    )


def _sliced(
    out: TensorData, dim: int, index: TensorData, src: TensorData
) -> tuple[TensorData, TensorData, int, int, int]:
    """out and src with at least one dimension, dim, and the sizes outer and inner."""
    if out.dims == 0:
        out, dim = line_of(out), 0
        src = contiguous(src)
        src = TensorData(src.storage, (index.size,), (1,), src.offset)
    outer = math.prod(out.shape[:dim])
    return out, src, dim, outer, math.prod(out.shape[dim + 1 :])


def index_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """A copy of a with src's slice i added to slice index[i] of `dim`; a itself, if it
    is `out`."""
    result = copy(a, a.dtype) if out is None else out
    out, src, dim, outer, inner = _sliced(result, dim, index, src)
    if src.size:
        index = contiguous(index)
        if index.dtype is not dtypes.int64:
            index = copy(index, dtypes.int64)
        _add_sorted(
            out.flat(), outer, out.shape[dim], inner, index, contiguous(src).flat(),
            number("index_add"), dim,
        )  # fmt: skip
        after_launch()
    return result


@kernel(examples=["int64[] int64 int64[] int64 int64[] int64"])
def claim_slices(index, n, winner, operation, notes, dim):
    """winner[i] = the largest j with index[j] == i: winner [n + 1] is -1 before.

    One thread for each j. The maximum of integers does not depend on the order in which
    threads come. winner[n] becomes 0 if any index is bad, which the operation -1 has
    said already.
    """
    j = cuda.grid(1)
    if j < index.size:
        i = index[j]
        if i < 0 or i >= n:
            winner[n] = 0
            if operation >= 0:
                bad_index(notes, operation, i, n, dim)
        else:
            cuda.atomic.max(winner, i, j)


@kernel(examples=[f"{t}[] int64 int64 int64[] int64[] {t}[]" for t in _ALL])
def put_slices(out, n, inner, index, winner, src):
    """out[o, index[j], :] = src[o, j, :] if j is the winner of its slice.

    # out [outer, n, inner], index [m], winner [n + 1], src [outer, m, inner]

    One thread for each element of src. Nothing is written if an index was bad.
    """
    e = cuda.grid(1)
    if e < src.size and winner[n] < 0:
        row, k = split(e, inner)
        outer, j = split(row, index.size)
        i = index[j]
        if 0 <= i < n and winner[i] == j:
            out[(outer * n + i) * inner + k] = src[e]


@kernel(examples=[f"{t}[] int64 int64 int64[] {t}[] int64 int64[] int64" for t in _ALL],
        overlaps=True)  # fmt: skip
def put_few(out, n, inner, index, src, operation, notes, dim):
    """`put_slices` where indices are few: each thread looks through all of them, for
    one that comes later to its own place, and the first for bad ones, too."""
    e = cuda.grid(1)
    wait_for_previous()
    if e < src.size:
        row, k = split(e, inner)
        outer, mine = split(row, index.size)
        wins = True
        for j in range(index.size):
            bad = index[j] < 0 or index[j] >= n
            wins = wins and not bad and (j <= mine or index[j] != index[mine])
            if bad and e == 0 and operation >= 0:
                bad_index(notes, operation, index[j], n, dim)
        if wins:
            out[(outer * n + index[mine]) * inner + k] = src[e]


def index_copy_(out: TensorData, dim: int, index: TensorData, src: TensorData) -> None:
    """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""
    out, src, dim, _, inner = _sliced(out, dim, index, src)
    if src.size == 0:
        return
    if index.dtype is not dtypes.int64:
        index = copy(index, dtypes.int64)
    src = copy(src, src.dtype) if src.storage is out.storage else contiguous(src)
    target = contiguous(out)
    _put(
        bits(target.flat()), out.shape[dim], inner, contiguous(index), bits(src.flat()),
        number("index_copy_"), dim,
    )  # fmt: skip
    after_launch()
    if target is not out:
        copy_into(out, target)


def _put(
    out: Any, n: int, inner: int, index: TensorData, src: Any, operation: int, dim: int
) -> None:
    """Write src [outer, m, inner] to the slices index [m] of out [outer, n, inner]."""
    places, blocks = index.flat(), ceil_div(src.size, THREADS)
    if places.size <= FEW:  # a token's keys, in each step of generation
        put_few[blocks, THREADS](out, n, inner, places, src, operation, notes(), dim)
    else:
        winner = full((n + 1,), -1, dtypes.int64).flat()
        claim_slices[ceil_div(places.size, THREADS), THREADS](
            places, n, winner, operation, notes(), dim
        )
        put_slices[blocks, THREADS](out, n, inner, places, winner, src)


# -------------------------------------------------------------- one after the other


@kernel(examples=["T[] T[] T[] T[] 4*int64 4*int64 T[] int64 int64".replace("T", t)
                  for t in (*_ALL, "uint16")])  # fmt: skip
def cat_four(a, b, c, d, ends, steps, out, start, width):
    """out[r, start : start + ends[3]] = a[r, :], b[r, :], c[r, :], d[r, :].

    # a [R, ends[0]], b [R, ends[1] - ends[0]], c, d likewise -> out [R, width]

    Rows of an input are `steps` apart. One thread for each element.
    """
    r, x = split(cuda.grid(1), ends[3])
    if r * width < out.size:
        at = r * width + start + x
        if x < ends[0]:
            out[at] = a[r * steps[0] + x]
        elif x < ends[1]:
            out[at] = b[r * steps[1] + x - ends[0]]
        elif x < ends[2]:
            out[at] = c[r * steps[2] + x - ends[1]]
        else:
            out[at] = d[r * steps[3] + x - ends[2]]


def cat_small(tensors: Sequence[TensorData], dim: int) -> TensorData | None:
    """Tensors one after the other along `dim`; None if large, or not all in rows."""
    shape = cat_shape(tensors, dim)
    size, rows = math.prod(shape), math.prod(shape[:dim])
    parts: list[Any] = [_rows(a, dim) for a in tensors if a.size]
    if not 0 < size <= SMALL or None in parts:
        return None
    out, start = empty(shape, tensors[0].dtype), 0
    z: Any = bits(out.storage.array)
    parts += [(z, 0, 0)] * (-len(parts) % 4)
    for i in range(0, len(parts), 4):
        arrays, sizes, steps = zip(*parts[i : i + 4])
        ends = tuple(accumulate(sizes))
        cat_four[ceil_div(rows * ends[3], THREADS), THREADS](
            *arrays, ends, steps, z, start, size // rows
        )
        start += ends[3]
    return out


@kernel(examples=["float32[] int64 int64 int64 float32[]"], threads=THREADS)
def roll_flat(a, n, inner, first, out):
    """out[o, i, k] = a[o, (i + first) % n, k] for 0 <= first < n; a thread each.

    # a [O, n, inner] -> out [O, n, inner]
    """
    e = cuda.grid(1)
    if e < out.size:
        row, _ = split(e, inner)
        _, i = split(row, n)
        out[e] = a[e + (first if i + first < n else first - n) * inner]


def roll(a: TensorData, shifts: Sequence[int], dims: Sequence[int]) -> TensorData:
    """A copy with elements moved on along `dims`; what falls off comes in again."""
    out = contiguous(a) if dims else copy(a, a.dtype)
    for shift, dim in zip(shifts, dims if a.size else ()):
        n, x, out = a.shape[dim], bits(out.flat()), empty(a.shape, a.dtype)
        z = bits(out.storage.array)
        roll_flat[ceil_div(len(z), THREADS), THREADS](
            x, n, math.prod(a.shape[dim + 1 :]), -shift % n, z
        )
    return out


def _rows(a: TensorData, dim: int) -> tuple[Any, int, int] | None:
    """Where `a` begins, the size of its rows from `dim` on, and the step of one."""
    outer = merged(zip(a.shape[:dim], zip(a.strides))) or [(1, (0,))]
    (_, (step,)), shape = outer[0], a.shape[dim:]
    if step < 0 or len(outer) > 1 or not lies_row_by_row(shape, a.strides[dim:]):
        return None
    x = a.flat() if a.contiguous else a.storage.array[a.offset :]
    return bits(x), math.prod(shape), step
