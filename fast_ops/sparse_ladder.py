"""Sparse matrix times vector in four steps: who does a row, and who does a long one?

With this file one can read, call and time the ways of sharing the rows of a CSR matrix
among threads (`LADDER`):

    matvec_serial    one thread does all rows
    matvec_by_rows   each task has as many rows as any other
    matvec_by_work   each task has about as many elements (`sparse.first_row`)
    matvec_merged    each task has as many, because a row may be divided

A rung takes crow [M + 1], col [nnz], values [nnz] and x [K] and returns A @ x [M]. The
backend takes the third: a divided row needs a second step, and pays where one row is
longer than a thread's share of all others. All give the same bits on any number of
threads, since the tasks do not depend on the threads.

Source: Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication",
SC 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import device_function, kernel
from fast_ops.memory import contiguous, empty
from fast_ops.sparse import TASKS, matvec_parallel, part_of_row
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData

# ----------------------------------------------------------- the ladder, rung by rung


@kernel()
def _serial(crow, col, values, x, out):
    """One row after the other.

    # A [M, K] @ x [K] -> out [M]

        for i:  for p in row i:  out[i] += values[p] * x[col[p]]
    """
    for i in range(out.size):
        out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])


@kernel(parallel=True)
def _by_rows(crow, col, values, x, out, tasks):
    """The rows, cut into tasks of equal size.

    # A [M, K] @ x [K] -> out [M]

        parallel for t:  for i in part t of the rows:  out[i] = ...

    Right for any matrix, and fast where rows are alike. Where they are not, the task
    with the long rows is still at work when all others are done.
    """
    # BEGIN SOLUTION a7.2
    for number in prange(tasks):
        t = np.int64(number)
        for i in range(t * out.size // tasks, (t + 1) * out.size // tasks):
            out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
    # END SOLUTION a7.2


@device_function
def merge_row(crow, step):
    """The row at which step `step` of the merge stands; the element is step - row.

    The merge walks through elements and row ends: the end of row i comes after its
    last element, as step crow[i + 1] + i. So the row is the number of row ends that
    come before `step`.
    """
    # BEGIN SOLUTION a7.5
    # The step of a row end rises with the row, so the row is found by halving.
    low, high = 0, crow.size - 1
    while low < high:
        middle = (low + high) // 2
        if crow[middle + 1] + middle < step:
            low = middle + 1
        else:
            high = middle
    return low
    # END SOLUTION a7.5


@kernel(parallel=True)
def _merged(crow, col, values, x, out, carry_row, carry):
    """Every task does the same work, whatever the rows are.

    # A [M, K] @ x [K] -> out [M], carry_row [tasks], carry [tasks]

        elements   a0 a1 a2 | b0 b1 b2 b3 b4 b5 b6 b7 | c0          rows a, b, c
        steps      a0 a1 a2 A b0 | b1 b2 b3 b4 b5 | b6 b7 B c0 C    an end is a step
        tasks      0               1                2

    Task t of T takes the steps from t * (M + nnz) // T to the beginning of task t + 1.
    A row whose end is among them is written by this task, with those of its elements
    that are among them as well. What it has of the row that does not end here, which
    may be nothing, goes to carry[t], and that row's number to carry_row[t] (M after
    the last row). The launcher adds carries to their rows, in order.
    """
    # BEGIN SOLUTION a7.5
    steps, tasks = out.size + col.size, carry.size
    for number in prange(tasks):
        t = np.int64(number)
        start, stop = t * steps // tasks, (t + 1) * steps // tasks
        first, last = merge_row(crow, start), merge_row(crow, stop)
        p = start - first
        for i in range(first, last):
            out[i] = part_of_row(values, col, x, p, crow[i + 1])
            p = crow[i + 1]
        carry_row[t] = last
        carry[t] = part_of_row(values, col, x, p, stop - last)
    # END SOLUTION a7.5


@kernel()
def _add_carries(carry_row, carry, out):
    """out[carry_row[t]] += carry[t] for all tasks in order; there is no row M."""
    for t in range(carry.size):
        if carry_row[t] < out.size:
            out[carry_row[t]] += carry[t]


# ------------------------------------------------ the rungs of the ladder, callable


def _operands(
    crow: TensorData, col: TensorData, values: TensorData, x: TensorData
) -> tuple[tuple[np.ndarray, ...], TensorData]:
    """All four as flat arrays, and the result, not yet written."""
    out = empty((crow.shape[0] - 1,), values.dtype)
    return tuple(contiguous(a).flat() for a in (crow, col, values, x)), out


def matvec_serial(
    crow: TensorData, col: TensorData, values: TensorData, x: TensorData
) -> TensorData:
    """A [M, K] @ x [K] -> [M], by `_serial`."""
    arrays, out = _operands(crow, col, values, x)
    _serial(*arrays, out.flat())
    return out


def matvec_by_rows(
    crow: TensorData, col: TensorData, values: TensorData, x: TensorData
) -> TensorData:
    """A [M, K] @ x [K] -> [M], by `_by_rows`."""
    arrays, out = _operands(crow, col, values, x)
    _by_rows(*arrays, out.flat(), TASKS)
    return out


def matvec_by_work(
    crow: TensorData, col: TensorData, values: TensorData, x: TensorData
) -> TensorData:
    """A [M, K] @ x [K] -> [M], by the backend's kernel for many elements."""
    arrays, out = _operands(crow, col, values, x)
    matvec_parallel(*arrays, out.flat(), TASKS)
    return out


def matvec_merged(
    crow: TensorData, col: TensorData, values: TensorData, x: TensorData
) -> TensorData:
    """A [M, K] @ x [K] -> [M], by `_merged`."""
    arrays, out = _operands(crow, col, values, x)
    carry_row, carry = (empty((TASKS,), t).flat() for t in (int64, values.dtype))
    _merged(*arrays, out.flat(), carry_row, carry)
    _add_carries(carry_row, carry, out.flat())
    return out


# From one thread to any matrix; a benchmark can draw them all.
LADDER: tuple[Any, ...] = (
    matvec_serial,
    matvec_by_rows,
    matvec_by_work,
    matvec_merged,
)
