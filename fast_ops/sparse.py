"""Matrices in compressed sparse rows: products whose work is the non-zeros' alone.

With this file one can multiply a sparse matrix by a dense one (`csr_matmul`), compute a
dense product only at a sparse matrix's places (`csr_sample`; the gradient for the
values), transpose (`csr_transpose`), and go from and to dense matrices (`csr_pattern`,
`csr_gather`, `csr_to_dense`).

    A [M, K]   crow [M + 1], col [nnz], values [nnz]:
               row i holds values[p] in column col[p] for crow[i] <= p < crow[i + 1]

Threads share rows in tasks of about equal work, since the rows of a sparse matrix can
be of very different lengths (`first_row`). A row is never divided, so a matrix with a
single long row is multiplied by one thread for each block of columns of the dense one.

Every element of a result is summed by one thread, in an order that only the arguments
decide: the result is the same, to the last bit, on any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, device_function
from fast_ops.memory import contiguous, empty, full, wrap
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData

TASKS = 64  # parts of equal work; many more than threads, so that the parts even out
WIDE = 128  # columns of the dense matrix at a time: 512 bytes of float32
ROUND = 16  # float32 numbers in an AVX-512 vector
ROW_COST = 4  # starting a row costs about as much as this many elements


@device_function
def first_row(crow, task, tasks):
    """The first row of a task, for tasks of about equal work.

    The work before row i is crow[i] + ROW_COST * i. The row returned is that at which
    task / tasks of all work is done.
    """
    # BEGIN SOLUTION a7.5
    # The work grows with every row, so the row is found by halving.
    rows = crow.size - 1
    wanted = (crow[rows] + ROW_COST * rows) * task // tasks
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if crow[middle] + ROW_COST * middle < wanted:
            low = middle + 1
        else:
            high = middle
    return low
    # END SOLUTION a7.5


# ------------------------------------------------------------------ sparse times dense


@device_function
def _add_rows(row, first, last, col, values, dense, at, step):
    """row += values[p] * (row col[p] of the dense matrix) for first <= p < last."""
    # BEGIN SOLUTION a7.3
    n = row.size
    p = first
    while p + 4 <= last:
        q0, q1 = at + col[p] * step, at + col[p + 1] * step
        q2, q3 = at + col[p + 2] * step, at + col[p + 3] * step
        x0, x1 = dense[q0 : q0 + n], dense[q1 : q1 + n]
        x2, x3 = dense[q2 : q2 + n], dense[q3 : q3 + n]
        v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
        for j in range(n):
            row[j] += v0 * x0[j] + v1 * x1[j] + v2 * x2[j] + v3 * x3[j]
        p += 4
    while p < last:
        v, q = values[p], at + col[p] * step
        x = dense[q : q + n]
        for j in range(n):
            row[j] += v * x[j]
        p += 1
    # END SOLUTION a7.3


def _matmul(crow, col, values, dense, at, step, out, columns, wide, tasks):
    """Rows of the dense matrix, scaled and added.

    # A [M, K] @ dense [K, N] -> out [M, N]

        parallel for tasks:  for rows i:  for p in row i:
            out[i, block] += values[p] * dense[col[p], block]      a block: 128 columns

    A task is a range of rows and a block of columns of out. The innermost loop runs
    along a row of the dense matrix, so that it is vector code although the columns of A
    are scattered. The chunk of out (512 bytes) stays in the first-level cache while p
    runs; four elements p at a time save three of four loads and stores of it. What is
    left is to read 512 bytes of the dense matrix for each element, mostly from the
    second-level cache.

    The rows of the dense matrix lie `step` apart, from `at` on.
    """
    # BEGIN SOLUTION a7.3
    blocks = (columns + wide - 1) // wide
    for number in prange(blocks * tasks):
        block, task = divmod(np.int64(number), tasks)
        start = block * wide
        width = min(wide, columns - start)
        for i in range(first_row(crow, task, tasks), first_row(crow, task + 1, tasks)):
            row = out[i * columns + start : i * columns + start + width]
            for j in range(width):
                row[j] = 0
            _add_rows(row, crow[i], crow[i + 1], col, values, dense, at + start, step)
    # END SOLUTION a7.3


@device_function
def part_of_row(values, col, x, first, last):
    """The sum of values[p] * x[col[p]] for first <= p < last."""
    # BEGIN SOLUTION a7.2
    row, places = values[first:last], col[first:last]
    total = values.dtype.type(0)
    for p in range(row.size):
        total += row[p] * x[places[p]]
    return total
    # END SOLUTION a7.2


def _matvec(crow, col, values, x, out, tasks):
    """One sum for each row.

    # A [M, K] @ x [K] -> out [M],  out[i] = sum of values[p] * x[col[p]]

    A task is a range of rows. Sixteen elements at a time read their places of x with
    one instruction (a gather); x, 4 K bytes, stays in the cache.
    """
    # BEGIN SOLUTION a7.2
    for number in prange(tasks):
        task = np.int64(number)
        for i in range(first_row(crow, task, tasks), first_row(crow, task + 1, tasks)):
            out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
    # END SOLUTION a7.2


matmul_serial = compile_kernel(_matmul, ("serial",))
matmul_parallel = compile_kernel(_matmul, ("parallel",), parallel=True)
matvec_serial = compile_kernel(_matvec, ("serial",))
matvec_parallel = compile_kernel(_matvec, ("parallel",), parallel=True)


def csr_matmul(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> [M, N]; rows of `dense` may be any distance apart."""
    columns = dense.shape[1]
    out = empty((crow.shape[0] - 1, columns), values.dtype)
    if out.size == 0:
        return out
    matrix = (*_indices(crow, col), contiguous(values).flat())
    serial = col.size * columns + out.size < SERIAL_LIMIT
    if columns == 1:
        run: Any = matvec_serial if serial else matvec_parallel
        run(*matrix, contiguous(dense).flat(), out.flat(), TASKS)
        return out
    run = matmul_serial if serial else matmul_parallel
    dense = dense if dense.strides[1] == 1 else contiguous(dense)
    run(
        *matrix, dense.storage.array, dense.offset, dense.strides[0],
        out.flat(), columns, _width(columns), TASKS,
    )  # fmt: skip
    return out


def _width(columns: int) -> int:
    """The width of a block: at most WIDE, and the last block not much narrower."""
    blocks = max(1, -(-columns // WIDE))
    return -(-columns // (blocks * ROUND)) * ROUND


def _indices(crow: TensorData, col: TensorData) -> tuple[np.ndarray, np.ndarray]:
    return contiguous(crow).flat(), contiguous(col).flat()


# ------------------------------------------------------ dense product, sparse result


def _sample(crow, col, a, b, columns, out, tasks):
    """A dot product of two dense rows for each element of A.

    # a [M, N], b [K, N] -> out [nnz],  out[p] = sum_j a[i, j] * b[col[p], j]

    A task is a range of rows. Four elements of a row at a time share the loads of a's
    row, and their four sums do not wait for each other.
    """
    # BEGIN SOLUTION a7.4
    for number in prange(tasks):
        task = np.int64(number)
        for i in range(first_row(crow, task, tasks), first_row(crow, task + 1, tasks)):
            x = a[i * columns : (i + 1) * columns]
            p, last = crow[i], crow[i + 1]
            while p + 4 <= last:
                q0, q1 = col[p] * columns, col[p + 1] * columns
                q2, q3 = col[p + 2] * columns, col[p + 3] * columns
                y0, y1 = b[q0 : q0 + columns], b[q1 : q1 + columns]
                y2, y3 = b[q2 : q2 + columns], b[q3 : q3 + columns]
                s0 = s1 = s2 = s3 = a.dtype.type(0)
                for j in range(columns):
                    s0 += x[j] * y0[j]
                    s1 += x[j] * y1[j]
                    s2 += x[j] * y2[j]
                    s3 += x[j] * y3[j]
                out[p], out[p + 1], out[p + 2], out[p + 3] = s0, s1, s2, s3
                p += 4
            while p < last:
                y = b[col[p] * columns : (col[p] + 1) * columns]
                s = a.dtype.type(0)
                for j in range(columns):
                    s += x[j] * y[j]
                out[p] = s
                p += 1
    # END SOLUTION a7.4


sample_serial = compile_kernel(_sample, ("serial",))
sample_parallel = compile_kernel(_sample, ("parallel",), parallel=True)


def csr_sample(
    crow: TensorData, col: TensorData, a: TensorData, b: TensorData
) -> TensorData:
    """a [M, N], b [K, N] -> [nnz]: a @ b^T where A has elements, nowhere else."""
    columns = a.shape[1]
    out = empty(col.shape, a.dtype)
    serial = col.size * columns < SERIAL_LIMIT
    run: Any = sample_serial if serial else sample_parallel
    if out.size:
        run(
            *_indices(crow, col), contiguous(a).flat(), contiguous(b).flat(), columns,
            out.flat(), TASKS,
        )  # fmt: skip
    return out


# --------------------------------------------------------------------- the transposed


def _transpose(crow, col, crow_t, col_t, order):
    """Sort the elements by column, by counting.

    One thread does it: a pattern is transposed once and kept.
    """
    # BEGIN SOLUTION a7.1
    # Count the elements of each column; the sums of the counts say where each row of
    # A^T begins. Then walk through A and put each element at the next free place of its
    # row. Meanwhile crow_t[k + 1] is the next free place of row k; at the end that is
    # where row k + 1 begins.
    crow_t[:] = 0
    for p in range(col.size):
        if col[p] + 2 < crow_t.size:
            crow_t[col[p] + 2] += 1
    for k in range(2, crow_t.size):
        crow_t[k] += crow_t[k - 1]
    for i in range(crow.size - 1):
        for p in range(crow[i], crow[i + 1]):
            place = crow_t[col[p] + 1]
            crow_t[col[p] + 1] = place + 1
            col_t[place] = i
            order[place] = p
    # END SOLUTION a7.1


transpose_elements = compile_kernel(_transpose)


def csr_transpose(
    crow: TensorData, col: TensorData, cols: int
) -> tuple[TensorData, TensorData, TensorData]:
    """crow_t [cols + 1], col_t [nnz] of A^T, and the element order[p] of A for each."""
    crow_t = empty((cols + 1,), crow.dtype)
    col_t, order = empty(col.shape, col.dtype), empty(col.shape, int64)
    transpose_elements(*_indices(crow, col), crow_t.flat(), col_t.flat(), order.flat())
    return crow_t, col_t, order


# -------------------------------------------------------------------- dense and sparse


def _count(a, cols, crow):
    """crow[i + 1] = how many elements of row i are not zero: a [M, cols]."""
    # BEGIN SOLUTION a7.1
    for unsigned in prange(crow.size - 1):
        i = np.int64(unsigned)
        row = a[i * cols : (i + 1) * cols]
        count = 0
        for k in range(cols):
            count += row[k] != 0
        crow[i + 1] = count
    # END SOLUTION a7.1


def _columns(a, cols, crow, col):
    """The columns of the elements of a [M, cols] that are not zero, row after row."""
    # BEGIN SOLUTION a7.1
    for unsigned in prange(crow.size - 1):
        i = np.int64(unsigned)
        place = crow[i]
        for k in range(cols):
            if a[i * cols + k] != 0:
                col[place] = k
                place += 1
    # END SOLUTION a7.1


def _gather(crow, col, a, cols, out):
    """out[p] = a[i, col[p]] for the elements p of row i: a [M, cols] -> out [nnz]."""
    for unsigned in prange(crow.size - 1):
        i = np.int64(unsigned)
        for p in range(crow[i], crow[i + 1]):
            out[p] = a[i * cols + col[p]]


def _scatter(crow, col, values, cols, out):
    """out[i, col[p]] += values[p] for the elements p of row i: out [M, cols] is 0."""
    for unsigned in prange(crow.size - 1):
        i = np.int64(unsigned)
        for p in range(crow[i], crow[i + 1]):
            out[i * cols + col[p]] += values[p]


count_row = compile_kernel(_count, parallel=True)
columns_of_row = compile_kernel(_columns, parallel=True)
gather_row = compile_kernel(_gather, parallel=True)
scatter_row = compile_kernel(_scatter, parallel=True)


def csr_pattern(a: TensorData) -> tuple[TensorData, TensorData]:
    """Where a [M, K] is not zero: crow int64 [M + 1], col int64 [nnz]. NaN is not."""
    rows, cols = a.shape
    flat = contiguous(a).flat()
    counts = full((rows + 1,), 0, int64).flat()
    count_row(flat, cols, counts)
    crow = np.cumsum(counts)
    col = empty((int(crow[-1]),), int64)
    columns_of_row(flat, cols, crow, col.flat())
    return wrap(crow, crow.shape, int64), col


def csr_gather(crow: TensorData, col: TensorData, a: TensorData) -> TensorData:
    """a [M, K] -> [nnz]: the elements of a at A's places."""
    out = empty(col.shape, a.dtype)
    if out.size:
        gather_row(*_indices(crow, col), contiguous(a).flat(), a.shape[1], out.flat())
    return out


def csr_to_dense(
    crow: TensorData, col: TensorData, values: TensorData, cols: int
) -> TensorData:
    """A as a dense matrix [M, cols]; numbers for the same place are added up."""
    out = full((crow.shape[0] - 1, cols), 0, values.dtype)
    if col.size:
        scatter_row(*_indices(crow, col), contiguous(values).flat(), cols, out.flat())
    return out
