"""Sorting: a stable merge sort along one dimension.

With this file one can sort a tensor along a dimension and learn where each element came
from (`sort`), find the one in the middle of that order (`median`), and sort a list of
integers for other kernels (`sort_keys`).

    1. Elements become whole numbers in the same order (`order_key`): NaN is the
       largest, -0 and 0 are equal, and for descending order all bits are turned over.
    2. A block sorts a tile of up to TILE elements in shared memory (`sort_tiles`).
    3. Sorted tiles are merged, two by two, then runs of two, four, ... tiles
       (`merge_runs`), until each row is one run.
    4. The values are fetched from where they were (`take_sorted`).

Positions within a row travel with the keys as 32-bit numbers, so a row has fewer than
2^31 elements. Step 2 compares (key, position), which makes it stable; a merge is stable
by taking the left one of equal keys.

Sources: Batcher, "Sorting networks and their applications", 1968 (step 2); Odeh, Green,
Mwassi, Shmueli and Birk, "Merge path", 2012 (step 3).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, int32, int64

from cuda_ops.block.intrinsics import device, kind_of, load, store
from cuda_ops.block.rows import barrier
from cuda_ops.memory import contiguous, empty, split
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from minitorch import dtypes
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

THREADS = 8 if TINY else 256
# Outputs of a thread in `merge_runs`.
EACH = 4 if TINY else 8
TILE = THREADS * EACH
# A tile for short rows, of which there are many.
SMALL = 8 if TINY else 128

# Threads of a block of `median_by_counting`, and elements of its longest line.
COUNTING = 32 if TINY else 128
LONGEST = 80 if TINY else 1024

_KEYS = ("int32", "int64")


@device
def order_key(bits, top, infinity, descending):
    """A whole number whose order is that of the element with these bits.

    Args:
        bits: the element, or a float's bits read as an integer.
        top: the largest integer of that width.
        infinity: the bits of a float's infinity; 0 for integers.
    """
    key = int64(bits)
    if infinity != 0:
        size = key & top
        if size > infinity:
            key = top
        else:
            key = -size if key < 0 else size
    return ~key if descending else key


# ---------------------------------------------------------------- tiles, in one block


def sort_tile_of(size: int) -> Any:
    """The kernel that sorts tiles of `size` elements, a power of two."""
    threads = min(THREADS, size // 2)

    def sort_tiles(bits, n, tiles, top, infinity, descending, keys, order):
        """Sort each tile of each row by (key, position).

        # bits [rows, n] -> keys [rows, n] if there are several tiles, order [rows, n]

        A block takes a tile. It reads the elements once into shared memory (12 bytes
        each at most, 24 KB of the 48 that any chip has), and puts them in order with
        Batcher's bitonic network: log2(size) * (log2(size) + 1) / 2 rounds, in each of
        which all pairs at some distance are compared at once, without branches that
        depend on the data. Missing elements are the largest of all and stay behind.
        """
        key = cuda.shared.array(size, keys.dtype)
        place = cuda.shared.array(size, int32)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x // tiles
        first = (cuda.blockIdx.x - row * tiles) * size
        for x in range(tid, size, threads):
            p = first + x
            place[x] = p
            if p < n:
                key[x] = order_key(bits[row * n + p], top, infinity, descending)
            else:
                key[x] = top
        cuda.syncthreads()
        # Runs of `span` elements become sorted, in turns up and down, so that two of
        # them together are one bitonic run, which the next round sorts.
        span = 2
        while span <= size:
            step = span // 2
            while step > 0:
                for e in range(tid, size // 2, threads):
                    # Pair e is x and x + step: x has no bit `step`.
                    x = 2 * e - (e & (step - 1))
                    y = x + step
                    kx, ky, px, py = key[x], key[y], place[x], place[y]
                    wrong = kx > ky or (kx == ky and px > py)
                    if wrong == ((x & span) == 0):
                        key[x], key[y] = ky, kx
                        place[x], place[y] = py, px
                cuda.syncthreads()
                step //= 2
            span *= 2
        for x in range(tid, size, threads):
            if first + x < n:
                order[row * n + first + x] = place[x]
                if tiles > 1:
                    keys[row * n + first + x] = key[x]

    words = [
        f"{t}[] int64 int64 int64 int64 bool {k}[] int32[]"
        for t, k in (("int32", "int32"), ("int64", "int64"), ("bool", "int32"))
    ]
    made = kernel(name=f"sort_tiles[{size}]", examples=words, threads=threads)
    return made(sort_tiles), threads


tile_kernels = {size: sort_tile_of(size) for size in (SMALL, TILE)}


# ------------------------------------------------------------------------- merging


@device
def merge_split(keys, left, left_size, right, right_size, d):
    """How many of the first d elements of a merge come from the left run, by halving.

    The runs begin at keys[left] and keys[right]; of equal keys the left comes first.
    """
    low = max(d - right_size, 0)
    high = min(d, left_size)
    while low < high:
        middle = (low + high) // 2
        if keys[left + middle] <= keys[right + d - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(
    examples=[f"{k}[] int32[] int64 int64 int64 {k}[] int32[]" for k in _KEYS],
    threads=THREADS,
)
def merge_runs(keys, order, n, width, tiles, keys_out, order_out):
    """Merge neighbouring sorted runs of `width` elements in each row.

    # keys, order [rows, n] -> keys_out, order_out [rows, n]

    A block makes TILE neighbouring outputs. Where they come from in the two runs is
    found by halving on the merge's diagonal (`merge_split`); that part of both runs is
    read into shared memory, coalesced. There each thread finds its own EACH outputs in
    the same way and walks through them; it notes only where each one comes from. Then
    all threads write neighbouring elements, coalesced again. All blocks, and all
    threads, have the same work whatever the data is.
    """
    key = cuda.shared.array(TILE, keys.dtype)
    place = cuda.shared.array(TILE, int32)
    source = cuda.shared.array(TILE, int32)
    bounds = cuda.shared.array(2, int64)
    tid = cuda.threadIdx.x
    row = cuda.blockIdx.x // tiles
    first = (cuda.blockIdx.x - row * tiles) * TILE  # of the row
    base = first - first % (2 * width)
    left_size = min(width, n - base)
    right_size = min(width, n - base - left_size)
    left = row * n + base
    right = left + left_size
    # The block makes outputs d0 to d1 of this merge.
    d0 = first - base
    d1 = min(d0 + TILE, left_size + right_size)
    if tid < 2:
        d = d1 if tid == 1 else d0
        bounds[tid] = merge_split(keys, left, left_size, right, right_size, d)
    cuda.syncthreads()
    l0, l1 = bounds[0], bounds[1]
    lefts = l1 - l0
    for x in range(tid, d1 - d0, THREADS):
        # Of d0 outputs before, l0 came from the left, so d0 - l0 from the right.
        p = left + l0 + x if x < lefts else right + d0 - l0 + x - lefts
        key[x] = keys[p]
        place[x] = order[p]
    cuda.syncthreads()
    d = tid * EACH
    if d < d1 - d0:
        i = merge_split(key, 0, lefts, lefts, d1 - d0 - lefts, d)
        j = lefts + d - i
        for x in range(d, min(d + EACH, d1 - d0)):
            if j >= d1 - d0 or (i < lefts and key[i] <= key[j]):
                source[x] = i
                i += 1
            else:
                source[x] = j
                j += 1
    cuda.syncthreads()
    # Written in the order of the outputs, not of the threads that found them.
    for x in range(tid, d1 - d0, THREADS):
        keys_out[row * n + first + x] = key[source[x]]
        order_out[row * n + first + x] = place[source[x]]


@kernel(
    examples=[
        f"{t}[] int32[] int64 int64 {t}[] int64[]"
        for t in ("float32", "float64", "int64", "int32", "bool")
    ]
)
def take_sorted(a, order, n, k, values, index):
    """values[r, i] = a[r, order[r, i]] for i < k, and the positions; a thread each."""
    x = cuda.grid(1)
    if x < index.size:
        first = x // k * n
        p = order[first + x % k]
        values[x] = a[first + p]
        index[x] = p


@device
def end_of_run(keys, s):
    """The position after the last of the ascending `keys` that equals keys[s].

    Most runs are short, so the steps double from 1 on, and are then halved again.
    """
    key, low, step = keys[s], s, 1
    while low + step < keys.size and keys[low + step] == key:
        low += step
        step *= 2
    while step > 0:
        if low + step < keys.size and keys[low + step] == key:
            low += step
        step //= 2
    return low + 1


# ------------------------------------------------------------------------- the middle


@kernel(
    examples=[
        f"{t}[] int64 int64 int64 int64 {t}[] int64[]"
        for t in ("float32", "float64", "int64", "int32", "bfloat16")
    ],
    threads=COUNTING,
)
def median_by_counting(a, n, inner, rows, parts, values, index):
    """The middle one of each line, or its first NaN, and where it is: without sorting.

    # a [O, n, I] -> values, index [O, I]

        for o, k:  index[o, k] = the i before which (n - 1) // 2 elements j stand:
                   a[o, j, k] < a[o, i, k], or they are equal and j < i

    A thread has an element, and counts those that stand before it. In each line this
    number is the middle's for one thread, which writes. A block has `rows` whole lines,
    or one of the `parts` of a longer one; it reads them into shared memory (8 KB at
    most), where the threads of a line read the same element at a time. n comparisons
    for each element are many, but need one launch and one barrier.
    """
    cells = cuda.shared.array(LONGEST, kind_of(a))
    block = cuda.blockIdx.x // parts
    first = block * rows
    count = min(rows, index.size - first) * n
    for x in range(cuda.threadIdx.x, count, COUNTING):
        r, j = split(x, n)
        outer, k = split(first + r, inner)
        cells[x] = load(a, (outer * n + j) * inner + k)
    barrier()
    e = (cuda.blockIdx.x - block * parts) * COUNTING + cuda.threadIdx.x
    if e < count:
        r, i = split(e, n)
        x, line = cells[e], r * n
        before, unknown = 0, n
        for j in range(n - 1, -1, -1):
            y = load(cells, line + j)
            before += (y < x) | ((y == x) & (j < i))  # by all, without a branch
            unknown = j if y != y else unknown
        if unknown == i or (unknown == n and before == (n - 1) // 2):
            store(values, first + r, x)
            index[first + r] = i


# ----------------------------------------------------------------------- launchers

_INFINITY = {  # its bits
    dtypes.float32: int(np.float32(np.inf).view(np.int32)),
    dtypes.float64: int(np.float64(np.inf).view(np.int64)),
}


def reinterpret(flat: Any, dtype: DType) -> Any:
    """The bits of a flat array as numbers of another type of the same width."""
    if SIMULATED:
        return flat.view(dtype.numpy)
    return ARRAYS[dtype](flat.pointer, flat.size, None, flat)


def _order(flat: Any, dtype: DType, rows: int, n: int, descending: bool) -> Any:
    """The int32 positions, within their rows, of the elements [rows, n] in order."""
    wide = dtype.itemsize == 8
    kind = dtypes.int64 if wide else dtypes.int32
    top = 2**63 - 1 if wide else 2**31 - 1
    infinity = _INFINITY.get(dtype, 0)
    bits = reinterpret(flat, kind) if infinity else flat
    size = SMALL if n <= SMALL else TILE
    sort_tiles, threads = tile_kernels[size]
    tiles = ceil_div(n, size)
    places = empty((rows * n,), dtypes.int32).flat()
    unused = tiles == 1 and dtype.itemsize > 1  # any array of its type will do
    keys = bits if unused else empty((rows * n,), kind).flat()
    sort_tiles[rows * tiles, threads](
        bits, n, tiles, top, infinity, descending, keys, places
    )
    width = size
    while width < n:
        other_keys = empty((rows * n,), kind).flat()
        other = empty((rows * n,), dtypes.int32).flat()
        merge_runs[rows * tiles, THREADS](
            keys, places, n, width, tiles, other_keys, other
        )
        keys, places = other_keys, other
        width *= 2
    return places


def _sorted_rows(
    a: TensorData, n: int, descending: bool, k: int
) -> tuple[TensorData, TensorData]:
    """Each row [n] of a contiguous tensor in order, and the positions; the first k."""
    shape = (*a.shape[:-1], k) if a.dims else ()
    values, index = empty(shape, a.dtype), empty(shape, dtypes.int64)
    if values.size:
        if n >= 2**31:
            raise ValueError(
                f"sort: the dimension has {n} elements; the CUDA backend sorts fewer "
                f"than {2**31}"
            )
        flat = a.flat()
        order = _order(flat, a.dtype, a.size // n, n, descending)
        take_sorted[ceil_div(values.size, 256), 256](
            flat, order, n, k, values.flat(), index.flat()
        )
    return values, index


def sort(a: TensorData, dim: int, descending: bool) -> tuple[TensorData, TensorData]:
    """Sorted values and their int64 positions; stable; NaN is above all numbers."""
    return topk(a, a.shape[dim] if a.dims else 1, dim, descending)


def topk(
    a: TensorData, k: int, dim: int, largest: bool
) -> tuple[TensorData, TensorData]:
    """The first k of a sort along `dim`, and their int64 positions."""
    if dim >= a.dims - 1:
        return _sorted_rows(contiguous(a), math.prod(a.shape[-1:]), largest, k)
    order = [i for i in range(a.dims) if i != dim]
    moved = contiguous(a.permute([*order, dim]))
    values, index = _sorted_rows(moved, a.shape[dim], largest, k)
    back = list(range(a.dims - 1))
    back.insert(dim, a.dims - 1)
    return contiguous(values.permute(back)), contiguous(index.permute(back))


def median(a: TensorData, dim: int) -> tuple[TensorData, TensorData] | None:
    """The middle one along `dim` (kept as 1), and where it is; None for long lines."""
    n = a.shape[dim]
    if n > LONGEST:
        return None
    shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
    values, index = empty(shape, a.dtype), empty(shape, dtypes.int64)
    rows, parts = max(1, COUNTING // max(1, n)), ceil_div(n, COUNTING)
    median_by_counting[ceil_div(index.size, rows) * parts, COUNTING](
        contiguous(a).flat(), n, math.prod(a.shape[dim + 1 :]), rows, parts,
        values.flat(), index.flat(),
    )  # fmt: skip
    return values, index


def sort_keys(keys: TensorData) -> tuple[TensorData, TensorData]:
    """Whole numbers [n] in ascending order, and the int64 position of each; stable."""
    return _sorted_rows(keys, keys.size, False, keys.size)
