"""Matrices in compressed sparse rows: products whose work is the non-zeros' alone.

With this file one can multiply a sparse matrix by a dense one (`csr_matmul`), compute a
dense product only at a sparse matrix's places (`csr_sample`; the gradient for the
values), transpose (`csr_transpose`), and go from and to dense matrices (`csr_pattern`,
`csr_gather`, `csr_to_dense`).

    A [M, K]   crow [M + 1], col [nnz], values [nnz]:
               row i holds values[p] in column col[p] for crow[i] <= p < crow[i + 1]

`sparse_ladder.py` has the simpler kernels that lead to `csr_rows` here. Where one row
is much longer than the others, `csr_matmul` takes the ladder's balanced kernel; to know
that it reads the length of the longest row once for each pattern and remembers it.

Every element of a result is summed in an order that only the arguments decide. There
are no atomics: the result is the same, to the last bit, at each run.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numba import cuda, int32

from cuda_ops.block.intrinsics import (
    WARP,
    add_equal,
    ballot,
    is_aligned,
    load,
    load4,
    shuffle_xor,
    store4,
    sync_warp,
)
from cuda_ops.block.intrinsics import device as device_code
from cuda_ops.ladders import sparse as sparse_ladder
from cuda_ops.memory import contiguous, empty, full, to_numpy
from cuda_ops.runtime import device
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from cuda_ops.scan import exclusive_scan
from cuda_ops.sort import sort_keys
from minitorch.dtypes import float32, float64, int64
from minitorch.tensor_data import Storage, TensorData

THREADS = 64 if TINY else 128
WARPS = THREADS // WARP
# At most so many threads share a row in `csr_rows`, with 4 columns each.
LANES = 32
# Elements that a group of threads does in `csr_sample`.
RUN = 8 if TINY else 64
# A row this many times longer than the mean is divided ...
UNEVEN = 16
# ... if it has so many elements, too.
LONG = 64 if TINY else 4096

_INDEX = ("int64", "int32")
_FLOAT = ("float32", "float64")


# ------------------------------------------------------------------ sparse times dense


def csr_rows(lanes: int, value: str) -> Any:
    """The kernel for `lanes` threads (4 to 32, a power of two) a row, and one type."""
    rows_of_warp = WARP // lanes
    rows_of_block = THREADS // lanes

    def rows_kernel(crow, col, values, dense, step, out, columns, parts):
        """A few threads share a row; each sums four neighbouring columns.

        # A [M, K] @ dense [K, N] -> out [M, N], N a multiple of 4

            for i in range(M):
                for p in row i:
                    out[i, part] += values[p] * dense[col[p], part]

        A part is 4 * lanes columns; thread l of a group sums columns 4l to 4l + 3 of
        one part of one row in four registers. For `lanes` elements at a time, thread l
        reads col and values of the l-th (coalesced, and while the last ones are being
        used), and leaves them in shared memory for its group; then all threads read
        four elements with two 16-byte loads, and have four 16-byte loads of `dense` in
        flight (`add_four`). An element costs a group about nine instructions.

            block x = part + parts * (rows / rows_of_block)

        What limits this kernel are the rows of `dense`: 4 N bytes for each element,
        from the second-level cache where nothing else is done. The rows of a matrix
        whose columns are sorted are walked from left to right by all groups of a
        multiprocessor at about the same pace, so a row of `dense` that one group
        fetched is often still in the first-level cache when the others need it.

        A whole warp a row (128 columns) was the fastest on an H200, ahead of 16 and 8
        threads with narrower parts: all lanes have the same loop, and col and values
        are read once. Narrow matrices take as many threads as they have columns for.

        Columns need not be sorted, and rows may be empty; loops of a warp run as long
        as its longest row, with barriers that all of its threads reach.

        Source: Yang, Buluc and Owens, "Design principles for sparse matrix
        multiplication on the GPU", Euro-Par 2018 (rows split, coalesced columns).
        """
        places = cuda.shared.array(THREADS, int32)
        numbers = cuda.shared.array(THREADS, values.dtype)
        tid = cuda.threadIdx.x
        lane = tid % lanes
        group = tid - lane
        part = cuda.blockIdx.x % parts
        i = (cuda.blockIdx.x // parts) * rows_of_block + tid // lanes
        rows = crow.size - 1
        first, last = span(crow, i, rows)
        longest = 0
        for r in range(rows_of_warp):  # the rows of this warp
            low, high = span(crow, i ^ r, rows)
            longest = max(longest, high - low)
        j = (part * lanes + lane) * 4
        # Threads beyond the last column work in vain, on the first.
        mine = dense[j if j < columns else 0 :]
        a0 = a1 = a2 = a3 = values.dtype.type(0)
        place, number = element(col, values, step, first + lane, last)
        for done in range(0, longest, lanes):
            places[tid] = place
            numbers[tid] = number
            sync_warp()  # The group's elements are there.
            p = first + done
            # The next ones are on their way while these are used.
            place, number = element(col, values, step, p + lanes + lane, last)
            u, end = group, group + min(last - p, lanes)
            while u + 4 <= end:
                a0, a1, a2, a3 = add_four(a0, a1, a2, a3, places, numbers, u, mine)
                u += 4
            if u < end:
                a0, a1, a2, a3 = add_rest(a0, a1, a2, a3, places, numbers, u, end, mine)
            sync_warp()  # Nobody reads them any more.
        if i < rows and j < columns:
            store4(out, i * columns + j, a0, a1, a2, a3)

    v = f"{value}[]"
    made = kernel(
        name=f"csr_rows[{lanes}, {value}]",
        examples=[f"{i}[] {i}[] {v} {v} int64 {v} int64 int64" for i in _INDEX],
        threads=THREADS,
    )
    return made(rows_kernel)


@device_code
def span(crow, i, rows):
    """The first element of row i and the one after its last; none beyond the rows."""
    if i < rows:
        return load(crow, i), load(crow, i + 1)
    return load(crow, 0), load(crow, 0)


@device_code
def element(col, values, step, p, last):
    """Where the dense row of element p begins, and the element's value."""
    if p < last:
        return int32(load(col, p) * step), load(values, p)
    return int32(0), values.dtype.type(0)


@device_code
def add_four(a0, a1, a2, a3, places, numbers, u, dense):
    """a += the elements u to u + 3 in shared memory, times their rows of `dense`."""
    q0, q1, q2, q3 = load4(places, u)
    v0, v1, v2, v3 = load4(numbers, u)
    x0, x1, x2, x3 = load4(dense, q0)
    y0, y1, y2, y3 = load4(dense, q1)
    z0, z1, z2, z3 = load4(dense, q2)
    w0, w1, w2, w3 = load4(dense, q3)
    a0 = (((a0 + v0 * x0) + v1 * y0) + v2 * z0) + v3 * w0
    a1 = (((a1 + v0 * x1) + v1 * y1) + v2 * z1) + v3 * w1
    a2 = (((a2 + v0 * x2) + v1 * y2) + v2 * z2) + v3 * w2
    a3 = (((a3 + v0 * x3) + v1 * y3) + v2 * z3) + v3 * w3
    return a0, a1, a2, a3


@device_code
def add_rest(a0, a1, a2, a3, places, numbers, u, end, dense):
    """a += the last elements of a row, one to three, with their loads in flight.

    An element that is not there counts as 0 times 0; nothing is read for it.
    """
    q0, q1, q2, _ = load4(places, u)
    v0, v1, v2, _ = load4(numbers, u)
    x0, x1, x2, x3 = load4(dense, q0)
    y0 = y1 = y2 = y3 = z0 = z1 = z2 = z3 = dense.dtype.type(0)
    if u + 1 < end:
        y0, y1, y2, y3 = load4(dense, q1)
    if u + 2 < end:
        z0, z1, z2, z3 = load4(dense, q2)
    a0 = ((a0 + v0 * x0) + v1 * y0) + v2 * z0
    a1 = ((a1 + v0 * x1) + v1 * y1) + v2 * z1
    a2 = ((a2 + v0 * x2) + v1 * y2) + v2 * z2
    a3 = ((a3 + v0 * x3) + v1 * y3) + v2 * z3
    return a0, a1, a2, a3


WIDTHS = (4, 8, 16, 32)
rows_kernels = {
    float32: {lanes: csr_rows(lanes, "float32") for lanes in WIDTHS},
    float64: {lanes: csr_rows(lanes, "float64") for lanes in WIDTHS},
}


_ANY = [
    f"{i}[] {i}[] {v}[] {v}[] int64 2*int64 {v}[] int64"
    for i in _INDEX
    for v in (*_FLOAT, "int64", "int32")
]


@kernel(examples=_ANY, threads=THREADS)
def csr_rows_any(crow, col, values, dense, offset, steps, out, columns):
    """A warp a row and 32 columns, for any type and any strides of the dense matrix.

    # A [M, K] @ dense [K, N] -> out [M, N]

    Lane l of a warp sums one column; four elements at a time, so that four loads of
    `dense` are in flight. It serves widths that are no multiple of 4, addresses that
    are no multiple of 16 and matrices of more than 2^31 elements.
    """
    parts = (columns + WARP - 1) // WARP
    w = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    i = w // parts
    j = (w - i * parts) * WARP + cuda.threadIdx.x % WARP
    if i < crow.size - 1 and j < columns:
        at = offset + j * steps[1]
        p, last = crow[i], crow[i + 1]
        total = values.dtype.type(0)
        while p + 4 <= last:
            x0 = dense[at + col[p] * steps[0]]
            x1 = dense[at + col[p + 1] * steps[0]]
            x2 = dense[at + col[p + 2] * steps[0]]
            x3 = dense[at + col[p + 3] * steps[0]]
            total += values[p] * x0
            total += values[p + 1] * x1
            total += values[p + 2] * x2
            total += values[p + 3] * x3
            p += 4
        while p < last:
            total += values[p] * dense[at + col[p] * steps[0]]
            p += 1
        out[i * columns + j] = total


def csr_dot(lanes: int) -> Any:
    """The kernel that multiplies by a vector, with `lanes` threads a row."""
    rows_of_block = THREADS // lanes

    def dot_kernel(crow, col, values, x, out):
        """A few threads share a row and add up their sums at the end.

        # A [M, K] @ x [K] -> out [M]

        Thread l of a group adds elements l, l + lanes, ... of its row: neighbours read
        neighbours of col and values. Two sums a thread, so that two reads of x are in
        flight. Then log2(lanes) exchanges add the sums. `lanes` is chosen near the mean
        length of a row, so that few threads are idle.
        """
        i = cuda.blockIdx.x * rows_of_block + cuda.threadIdx.x // lanes
        lane = cuda.threadIdx.x % lanes
        first, last = span(crow, i, out.size)
        total = values.dtype.type(0)
        other = values.dtype.type(0)
        p = first + lane
        while p + lanes < last:
            q0, q1 = load(col, p), load(col, p + lanes)
            v0, v1 = load(values, p), load(values, p + lanes)
            total += v0 * load(x, q0)
            other += v1 * load(x, q1)
            p += 2 * lanes
        if p < last:
            total += load(values, p) * load(x, load(col, p))
        total += other
        if lanes > 16:
            total += shuffle_xor(total, 16)
        if lanes > 8:
            total += shuffle_xor(total, 8)
        if lanes > 4:
            total += shuffle_xor(total, 4)
        if lanes > 2:
            total += shuffle_xor(total, 2)
        total += shuffle_xor(total, 1)
        if lane == 0 and i < out.size:
            out[i] = total

    words = [f"{i}[] {i}[] {v}[] {v}[] {v}[]" for i in _INDEX for v in _FLOAT]
    return kernel(name=f"csr_dot[{lanes}]", examples=words, threads=THREADS)(dot_kernel)


dot_kernels = {lanes: csr_dot(lanes) for lanes in (2, 4, 8, 16, 32)}


def csr_matmul(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> [M, N]; rows of `dense` may be any distance apart."""
    columns = dense.shape[1]
    if values.dtype.is_floating_point and _uneven(crow, col):
        return sparse_ladder.balanced(crow, col, values, dense)
    out = empty((crow.shape[0] - 1, columns), values.dtype)
    if out.size == 0:
        return out
    matrix = (*_indices(crow, col), contiguous(values).flat())
    if columns == 1 and values.dtype.is_floating_point:
        _times_vector(matrix, contiguous(dense).flat(), out)
    elif _in_quads(dense):
        _times_matrix(matrix, dense, out)
    else:
        warps = out.shape[0] * ceil_div(columns, WARP)
        csr_rows_any[ceil_div(warps, WARPS), THREADS](
            *matrix, dense.storage.array, dense.offset, dense.strides, out.flat(),
            columns,
        )  # fmt: skip
    return out


def _times_vector(matrix: tuple[Any, ...], x: Any, out: TensorData) -> None:
    rows, mean = out.size, matrix[1].size // out.size
    lanes = 2
    while lanes < WARP and lanes * 2 <= mean:
        lanes *= 2
    dot_kernels[lanes][ceil_div(rows * lanes, THREADS), THREADS](*matrix, x, out.flat())


def _times_matrix(matrix: tuple[Any, ...], dense: TensorData, out: TensorData) -> None:
    rows, columns = out.shape
    lanes = 4
    while lanes < LANES and 4 * lanes < columns:
        lanes *= 2
    parts = ceil_div(columns, 4 * lanes)
    blocks = ceil_div(rows * lanes, THREADS) * parts
    rows_kernels[dense.dtype][lanes][blocks, THREADS](
        *matrix, _from(dense), dense.strides[0], out.flat(), columns, parts
    )


def _from(a: TensorData) -> Any:
    """The storage from a's first element on."""
    array = a.storage.array
    return array[a.offset : array.size] if a.offset else array


def _in_quads(dense: TensorData) -> bool:
    """Whether each row of `dense` is whole 16-byte vectors at addresses for them."""
    rows, columns = dense.shape
    step = dense.strides[0]
    return (
        columns % 4 == 0
        and dense.strides[1] == 1
        and step % 4 == 0
        and 0 <= step
        and rows * step < 2**31
        and dense.dtype.is_floating_point
        and is_aligned(_from(dense))
    )


def _indices(crow: TensorData, col: TensorData) -> tuple[Any, Any]:
    return contiguous(crow).flat(), contiguous(col).flat()


# The longest row of each pattern that was multiplied by, and the version it had then.
_longest: weakref.WeakKeyDictionary[Storage, tuple[int, int]] = (
    weakref.WeakKeyDictionary()
)


def _uneven(crow: TensorData, col: TensorData) -> bool:
    """Whether a row is so long that one group of threads would work on it at the end.

    Few elements cannot make a long row, so that nothing is asked of the device then.
    """
    rows, nnz = crow.shape[0] - 1, col.shape[0]
    if nnz < LONG:
        return False
    version, longest = _longest.get(crow.storage, (-1, 0))
    if version != crow.storage.version:
        if device.current.capture is not None:
            return False  # a graph is captured: nothing may wait for the device
        longest = _longest_row(crow)
        _longest[crow.storage] = crow.storage.version, longest
    return longest >= LONG and longest * rows > UNEVEN * nnz


def _longest_row(crow: TensorData) -> int:
    starts = to_numpy(crow)
    return int(np.diff(starts).max())


# ------------------------------------------------------ dense product, sparse result


_SAMPLE = [f"{i}[] {i}[] {v}[] {v}[] int64 bool {v}[]" for i in _INDEX for v in _FLOAT]


@kernel(examples=_SAMPLE, threads=THREADS)
def csr_sample_runs(crow, col, a, b, columns, in_quads, out):
    """A dot product of two dense rows for each element of A.

    # a [M, N], b [K, N] -> out [nnz],  out[p] = sum_j a[i, j] * b[col[p], j]

    Groups of eight threads take RUN elements each, one after the other: the work does
    not depend on the rows' lengths. The row of the first is found by halving in crow,
    the rows after it by going along. Thread l adds columns 4l to 4l + 3, then those 32
    further on, with 16-byte loads; three exchanges add up the eight sums. The row of a
    is in the first-level cache after its first element.
    """
    group = (cuda.blockIdx.x * THREADS + cuda.threadIdx.x) // 8
    lane = cuda.threadIdx.x % 8
    p0 = group * RUN
    i = row_of(crow, min(p0, col.size - 1))
    for p in range(p0, p0 + RUN):
        total = a.dtype.type(0)
        if p < col.size:
            while load(crow, i + 1) <= p:
                i += 1
            x, y = i * columns, load(col, p) * columns
            if in_quads:
                for j in range(4 * lane, columns, 32):
                    x0, x1, x2, x3 = load4(a, x + j)
                    y0, y1, y2, y3 = load4(b, y + j)
                    total = (((total + x0 * y0) + x1 * y1) + x2 * y2) + x3 * y3
            else:
                for j in range(lane, columns, 8):
                    total += load(a, x + j) * load(b, y + j)
        total += shuffle_xor(total, 4)
        total += shuffle_xor(total, 2)
        total += shuffle_xor(total, 1)
        if lane == 0 and p < col.size:
            out[p] = total


@device_code
def row_of(crow, p):
    """The row i that element p stands in, crow[i] <= p < crow[i + 1], by halving."""
    low, high = 0, crow.size - 2
    while low < high:
        middle = (low + high) // 2
        if crow[middle + 1] <= p:
            low = middle + 1
        else:
            high = middle
    return low


def csr_sample(
    crow: TensorData, col: TensorData, a: TensorData, b: TensorData
) -> TensorData:
    """a [M, N], b [K, N] -> [nnz]: a @ b^T where A has elements, nowhere else."""
    out = empty(col.shape, a.dtype)
    if out.size:
        a, b = contiguous(a), contiguous(b)
        x, y = a.flat(), b.flat()
        in_quads = a.shape[1] % 4 == 0 and is_aligned(x) and is_aligned(y)
        threads = 8 * ceil_div(out.size, RUN)
        csr_sample_runs[ceil_div(threads, THREADS), THREADS](
            *_indices(crow, col), x, y, a.shape[1], in_quads, out.flat()
        )
    return out


# --------------------------------------------------------------------- the transposed


@kernel(examples=["int64[] int64[]", "int32[] int32[]"], threads=THREADS)
def row_starts(keys, crow):
    """crow[k] = how many of the ascending `keys` are below k; one thread for each k."""
    k = cuda.grid(1)
    if k < crow.size:
        low, high = 0, keys.size
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < k:
                low = middle + 1
            else:
                high = middle
        crow[k] = low


@kernel(examples=["int64[] int64[] int64[]", "int32[] int64[] int32[]"])
def rows_of_elements(crow, order, col_t):
    """col_t[p] = the row in which element order[p] stands; one thread for each p."""
    p = cuda.grid(1)
    if p < order.size:
        col_t[p] = row_of(crow, order[p])


def csr_transpose(
    crow: TensorData, col: TensorData, cols: int
) -> tuple[TensorData, TensorData, TensorData]:
    """crow_t [cols + 1], col_t [nnz] of A^T, and the element order[p] of A for each.

    The elements are sorted by column; the sort is stable, so within a row of A^T they
    keep the order in which they are in A.
    """
    keys, order = sort_keys(contiguous(col))
    crow_t = empty((cols + 1,), crow.dtype)
    col_t = empty(col.shape, col.dtype)
    row_starts[ceil_div(cols + 1, THREADS), THREADS](keys.flat(), crow_t.flat())
    rows_of_elements[ceil_div(order.size, THREADS), THREADS](
        contiguous(crow).flat(), order.flat(), col_t.flat()
    )
    return crow_t, col_t, order


# -------------------------------------------------------------------- dense and sparse

_DENSE = (*_FLOAT, "int64", "int32", "bool")


@device_code
def lanes_below(flag, lane):
    """How many lanes before this one have the flag, and how many have it in all."""
    votes = ballot(flag)
    return cuda.popc(votes & ((1 << lane) - 1)), cuda.popc(votes)


@kernel(examples=[f"{t}[] int64 int64[]" for t in _DENSE], threads=THREADS)
def count_nonzero(a, cols, counts):
    """counts[i] = how many elements of row i are not zero; a warp for each."""
    i = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    lane = cuda.threadIdx.x % WARP
    count = 0
    for start in range(0, cols, WARP):
        k = start + lane
        flag = i < counts.size and k < cols and a[i * cols + k] != 0
        count += lanes_below(flag, lane)[1]
    if lane == 0 and i < counts.size:
        counts[i] = count


@kernel(examples=[f"{t}[] int64 int64[] int64[]" for t in _DENSE], threads=THREADS)
def write_columns(a, cols, crow, col):
    """The columns of the elements of a [M, cols] that are not zero, row after row.

    A warp a row. All lanes vote at once, and a lane's place is the number of votes
    before its own.
    """
    i = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    lane = cuda.threadIdx.x % WARP
    inside = i < crow.size - 1
    place = crow[i] if inside else 0
    for start in range(0, cols, WARP):
        k = start + lane
        flag = inside and k < cols and a[i * cols + k] != 0
        before, total = lanes_below(flag, lane)
        if flag:
            col[place + before] = k
        place += total


@kernel(examples=[f"{i}[] {i}[] {t}[] int64 {t}[]" for i in _INDEX for t in _DENSE])
def csr_gather_elements(crow, col, a, cols, out):
    """out[p] = a[i, col[p]] for the elements p of row i: a [M, cols] -> out [nnz].

    One thread for each element, which looks its row up in crow by halving: about
    log2(M) reads that the first-level cache answers.
    """
    p = cuda.grid(1)
    if p < col.size:
        out[p] = a[row_of(crow, p) * cols + col[p]]


@kernel(
    examples=[f"{i}[] {i}[] {t}[] int64 {t}[]" for i in _INDEX for t in _DENSE[:4]],
    threads=THREADS,
)
def csr_scatter_elements(crow, col, values, cols, out):
    """out[i, col[p]] += values[p] for the elements p of row i: out [M, cols] is 0.

    A warp a row, 32 elements at a time. They meet in shared memory, where `add_equal`
    adds those of equal columns up, in the order of the elements.
    """
    places = cuda.shared.array(THREADS, int32)
    numbers = cuda.shared.array(THREADS, values.dtype)
    tid = cuda.threadIdx.x
    warp = tid - tid % WARP
    i = cuda.blockIdx.x * WARPS + tid // WARP
    first, last = span(crow, i, crow.size - 1)
    for start in range(first, last, WARP):
        p = start + tid - warp
        places[tid] = col[p] if p < last else -1
        numbers[tid] = values[p] if p < last else values.dtype.type(0)
        sync_warp()
        place = places[tid]
        if p < last:
            end = warp + min(WARP, last - start)
            add_equal(out, i * cols + place, places, numbers, place, warp, tid, end)
        sync_warp()  # All have read the numbers, before the next ones come.


def csr_pattern(a: TensorData) -> tuple[TensorData, TensorData]:
    """Where a [M, K] is not zero: crow int64 [M + 1], col int64 [nnz]. NaN is not.

    The host waits for the number of elements, which is the length of col.
    """
    rows, cols = a.shape
    flat = contiguous(a).flat()
    counts = empty((rows,), int64)
    blocks = ceil_div(rows, WARPS)
    count_nonzero[blocks, THREADS](flat, cols, counts.flat())
    crow = exclusive_scan(counts)
    nnz = int(to_numpy(crow.slice(0, rows, 1))[0])
    col = empty((nnz,), int64)
    if nnz:
        write_columns[blocks, THREADS](flat, cols, crow.flat(), col.flat())
    return crow, col


def csr_gather(crow: TensorData, col: TensorData, a: TensorData) -> TensorData:
    """a [M, K] -> [nnz]: the elements of a at A's places."""
    out = empty(col.shape, a.dtype)
    csr_gather_elements[ceil_div(out.size, 256), 256](
        *_indices(crow, col), contiguous(a).flat(), a.shape[1], out.flat()
    )
    return out


def csr_to_dense(
    crow: TensorData, col: TensorData, values: TensorData, cols: int
) -> TensorData:
    """A as a dense matrix [M, cols]; numbers for the same place are added up."""
    rows = crow.shape[0] - 1
    out = full((rows, cols), 0, values.dtype)
    if col.size:
        csr_scatter_elements[ceil_div(rows, WARPS), THREADS](
            *_indices(crow, col), contiguous(values).flat(), cols, out.flat()
        )
    return out
