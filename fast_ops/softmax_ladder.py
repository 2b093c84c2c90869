"""Softmax of rows in three steps: how often does a row come from memory?

With this file one can read, call and time the ways of making a softmax (`LADDER`):

    three_passes   maximum, sum, quotient: a row is read three times
    two_passes     maximum and sum in one, "online": read twice
    in_chunks      the same for chunks of a row, which all threads share

A rung takes a contiguous float32 matrix [R, n] and returns softmax along n. Where rows
fit into the first-level cache, the second reading costs next to nothing, and the
backend (`softmax.py`) makes three passes. The steps count for rows that do not: a row
of a million numbers is 4 MB. The last one is the idea behind attention in blocks
(FlashAttention): what two chunks of a row need to know of each other are two numbers.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from fast_ops.launch import device_function, kernel
from fast_ops.memory import empty
from fast_ops.softmax import exp
from fast_ops.vector_math import maximum_float, scaled
from minitorch import dtypes
from minitorch.tensor_data import TensorData

BLOCK = 1024  # numbers at a time: 4 KiB, which stay in the first-level cache
CHUNKS = 64  # of a row, for `in_chunks`
LOWEST = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


# ----------------------------------------------------------- pairs of top and total


@device_function
def highest(row):
    """The largest number of a row, -inf of none; NaN wins."""
    top = LOWEST
    for i in range(row.size):
        top = maximum_float(top, row[i])
    return top


@device_function
def exp_total(row, top):
    """The sum of exp(row[i] - top)."""
    total = ZERO
    for i in range(row.size):
        total += exp(row[i] - top)
    return total


@device_function
def write_row(row, out, top, total):
    """out[i] = exp(row[i] - top) / total"""
    scale = ONE / total
    for i in range(row.size):
        out[i] = scaled(exp(row[i] - top), scale)


@device_function
def merge(top0, total0, top1, total1):
    """The pair of two groups of numbers from the pairs of both.

    The pair of a group is its maximum `top` and its `total`, the sum of exp(x - top).
    A group that is empty, or has nothing but -inf, has the pair (-inf, 0).
    """
    # BEGIN SOLUTION a8.2
    # Totals can be added when they are relative to the same top, so each is multiplied
    # by exp(its own top - the larger top).
    top = maximum_float(top0, top1)
    if top == LOWEST:
        return top, total0 + total1
    return top, total0 * exp(top0 - top) + total1 * exp(top1 - top)
    # END SOLUTION a8.2


@device_function
def online_pair(row):
    """The pair of a row, which can be empty, reading it from memory once."""
    # BEGIN SOLUTION a8.2
    # Number by number, one that is larger than top would make the total too large a
    # share: total *= exp(top - x); top = x. By blocks it is fast: the maximum, then the
    # sum of exponentials, which comes from the first-level cache, then `merge`.
    top, total = LOWEST, ZERO
    for start in range(0, row.size, BLOCK):
        block = row[start : start + BLOCK]
        best = highest(block)
        part = ZERO if best == LOWEST else exp_total(block, best)
        top, total = merge(top, total, best, part)
    return top, total
    # END SOLUTION a8.2


# ----------------------------------------------------------- the ladder, rung by rung


@kernel(parallel=True)
def _three_passes(a, out, n):
    """The formula as it stands.

    # a [R, n] -> out [R, n]

        parallel for r:  top = max(a[r])
                         total = sum(exp(a[r] - top))
                         out[r] = exp(a[r] - top) / total

    A thread makes whole rows. Each line is a loop over the row: three readings and one
    writing, 16 bytes for each number where the row has left the cache in between.
    """
    for r in prange(out.size // n):
        at = np.int64(r) * n
        row = a[at : at + n]
        top = highest(row)
        write_row(row, out[at : at + n], top, exp_total(row, top))


@kernel(parallel=True)
def _two_passes(a, out, n):
    """Maximum and sum in one loop: 12 bytes for each number.

    # a [R, n] -> out [R, n]

        parallel for r:  top, total = online_pair(a[r])
                         out[r] = exp(a[r] - top) / total
    """
    # BEGIN SOLUTION a8.2
    for r in prange(out.size // n):
        at = np.int64(r) * n
        row = a[at : at + n]
        top, total = online_pair(row)
        write_row(row, out[at : at + n], top, total)
    # END SOLUTION a8.2


@kernel(parallel=True)
def _in_chunks(a, out, n, chunks, tops, totals):
    """Rows in chunks, so that all threads work however few rows there are.

    # a [R, n] -> out [R, n], tops [R * chunks], totals [R * chunks]

        parallel for r, k:  tops[r, k], totals[r, k] = online_pair(chunk k of a[r])
        parallel for r, k:  top, total = all pairs of row r, merged in order
                            out[chunk k of r] = exp(chunk k of a[r] - top) / total

    Piece k of row r goes from r * n + k * n // chunks to the beginning of chunk k + 1.
    The second loop starts when the first is done; a few merges in each of its tasks
    cost less than a third loop.
    """
    # BEGIN SOLUTION a8.2
    for task in prange(tops.size):
        r, k = divmod(np.int64(task), chunks)
        first, last = r * n + k * n // chunks, r * n + (k + 1) * n // chunks
        tops[task], totals[task] = online_pair(a[first:last])
    for task in prange(tops.size):
        r, k = divmod(np.int64(task), chunks)
        first, last = r * n + k * n // chunks, r * n + (k + 1) * n // chunks
        top, total = LOWEST, ZERO
        for p in range(r * chunks, (r + 1) * chunks):
            top, total = merge(top, total, tops[p], totals[p])
        write_row(a[first:last], out[first:last], top, total)
    # END SOLUTION a8.2


# ------------------------------------------------ the rungs of the ladder, callable


def _checked(name: str, a: TensorData) -> TensorData:
    """The output for `a`; an error where the rungs cannot take it."""
    if a.dims != 2 or a.dtype is not dtypes.float32 or not a.is_contiguous():
        raise ValueError(
            f"{name}: a is {a.dtype.name} {a.shape}; expected a contiguous float32 "
            f"matrix (softmax takes any)"
        )
    return empty(a.shape, a.dtype)


def three_passes(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `_three_passes`."""
    out = _checked("three_passes", a)
    if out.size:
        _three_passes(a.flat(), out.flat(), a.shape[1])
    return out


def two_passes(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `_two_passes`."""
    out = _checked("two_passes", a)
    if out.size:
        _two_passes(a.flat(), out.flat(), a.shape[1])
    return out


def in_chunks(a: TensorData) -> TensorData:
    """a [R, n] -> [R, n], by `_in_chunks`."""
    out = _checked("in_chunks", a)
    tops = np.empty(a.shape[0] * CHUNKS, np.float32)
    totals = np.empty_like(tops)
    if out.size:
        _in_chunks(a.flat(), out.flat(), a.shape[1], CHUNKS, tops, totals)
    return out


LADDER: tuple[Callable[[TensorData], TensorData], ...] = (
    three_passes,
    two_passes,
    in_chunks,
)
