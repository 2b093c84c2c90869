"""A sum on all cores, from one loop to the limit of the memory, and one that is wrong.

With this file one can read, call and time each step to a parallel reduction (`LADDER`):

    sum_serial       one thread, one loop: every addition waits for the one before
    sum_racy         all threads add into one cell, and overwrite each other: wrong
    sum_per_thread   a cell for each thread: right, but the cells share a cache line
    sum_padded       a cache line for each thread's cell
    sum_register     a register for each thread, stored once
    sum_blocks       fixed blocks, summed 16 numbers at once and put together in order

A rung takes a contiguous float32 tensor of any shape and returns the sum of all its
elements, as a tensor without dimensions. The backend sums with `reduce.py`, which is
the last rung's idea for any function and any dimensions.

The middle rungs cut x into one part for each thread, so that their last bits depend on
the number of threads. The first rung and the last one give the same bits on any number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import wrap
from fast_ops.threads import get_num_threads
from minitorch.backend.host.workspace import LINE_BYTES, line_array
from minitorch.dtypes import float32, float64
from minitorch.tensor_data import TensorData

BLOCK = 4096  # elements of a block: 16 KiB of float32
CELL_BYTES = 8  # a cell is a float64
LINE = LINE_BYTES // CELL_BYTES  # cells in a cache line

# The first five kernels keep the order that is written down (`fastmath=False`), so that
# each shows one idea; only the last lets LLVM reorder the additions within a block.

# ----------------------------------------------------------- the ladder, rung by rung


@kernel(fastmath=False)
def _serial(x: np.ndarray, out: np.ndarray) -> None:
    """One loop.

    # x [N] -> out [1]

        for i:  total += x[i]

    One thread makes the output, and `total` stays in a register. An addition can begin
    only when the one before has ended, a few cycles later: the arithmetic waits, and so
    does the memory.
    """
    total = 0.0
    for i in range(x.size):
        total += x[i]
    out[0] = total


@kernel(parallel=True, fastmath=False)
def _racy(x: np.ndarray, cells: np.ndarray, zero: int) -> None:
    """WRONG on purpose: the loop of `_serial`, shared among the threads as it stands.

    # x [N] -> cells [1]

        parallel for i:  cells[0] += x[i]

    Every thread adds into the same cell of memory. `+=` is three steps, and what
    another thread adds between the first and the last of them is lost:

        thread 0:  read 5              add 1   write 6
        thread 1:          read 5      add 2             write 7     (8 is right)

    It is slow as well: the cell's cache line moves from core to core for each addition.

    A plain variable, `total += x[i]`, would be right: Numba recognises a reduction and
    gives each thread a total of its own. It does not for an element of an array. `zero`
    is 0, but the compiler cannot know: else it would keep cells[0] in a register and
    store it once, and only whole parts would get lost.

    Source: "Explicit Parallel Loops" in Numba's manual, on what is no reduction.
    """
    for i in prange(x.size):
        cells[i & zero] += x[i]


@kernel(parallel=True, fastmath=False)
def _cells(x: np.ndarray, cells: np.ndarray, spacing: int, zero: int) -> None:
    """A cell of memory for each thread, so that no update gets lost.

    # x [N] -> cells [T * spacing], of which T are used

        parallel for t:  for i in part t:  cells[t * spacing] += x[i]

    Thread t adds up part t of x. A core that writes takes the whole cache line, 64
    bytes, away from all others, and with it the neighbours' cells:

        spacing 1:   | t0 t1 t2 t3 t4 t5 t6 t7 |      one line: false sharing
        spacing 8:   | t0 -- -- -- -- -- -- -- | t1 -- -- -- -- -- -- -- | ...

    Side by side the threads share no number, and still wait for each other's line at
    every addition. A line for each cell stays with its core. As in `_racy`, `zero` is 0
    and keeps the cell in memory, where such cells are in larger programs.

    Source of the idea: Torrellas, Lam and Hennessy, "False sharing and spatial locality
    in multiprocessor caches", 1994.
    """
    # BEGIN SOLUTION a3.4
    parts = cells.size // spacing
    for task in prange(parts):
        t = np.int64(task)
        for i in range(t * x.size // parts, (t + 1) * x.size // parts):
            cells[t * spacing + (i & zero)] += x[i]
    # END SOLUTION a3.4


@kernel(parallel=True, fastmath=False)
def _register(x: np.ndarray, cells: np.ndarray) -> None:
    """`_cells` with the running total in a register.

    # x [N] -> cells [T]

        parallel for t:  for i in part t:  total += x[i];  cells[t] = total

    Thread t adds up part t of x and writes its cell once, so that it does not matter
    whose line that is. In `_cells` each addition also had to wait until its core could
    read back what it had just written; here it is the loop of `_serial` on each core.

    Source of the idea: Bryant and O'Hallaron, "Computer Systems: A Programmer's
    Perspective", on needless memory references.
    """
    # BEGIN SOLUTION a3.2
    for task in prange(cells.size):
        t = np.int64(task)
        total = 0.0
        for i in range(t * x.size // cells.size, (t + 1) * x.size // cells.size):
            total += x[i]
        cells[t] = total
    # END SOLUTION a3.2


@kernel(parallel=True)
def _blocks(x: np.ndarray, partial: np.ndarray) -> None:
    """Blocks of fixed size, each by some thread.

    # x [N] -> partial [ceil(N / BLOCK)]

        parallel for b:  for i in block b:  partial[b] += x[i]

    A task makes the total of one block. Where blocks begin depends on N alone, and
    `_serial` adds their totals in order: the result has the same bits on any number of
    threads, whoever did which block.

    Within a block LLVM may reorder the additions: it keeps several vectors of totals
    in registers, 16 float32 each with AVX-512, and additions into different ones need
    not wait for each other. Now the memory is the limit. A total of float32 is enough
    for BLOCK elements; those of blocks are added in float64, so that the error does not
    grow with N.

    Source of the idea: Higham, "The accuracy of floating point summation", 1993.
    """
    # BEGIN SOLUTION a3.2
    for task in prange(partial.size):
        first = np.int64(task) * BLOCK
        block = x[first : first + BLOCK]
        total = np.float32(0)
        for e in range(block.size):
            total += block[e]
        partial[task] = total
    # END SOLUTION a3.2


# ------------------------------------------------ the rungs of the ladder, callable


def _elements(name: str, a: TensorData) -> np.ndarray:
    """The elements of `a` as a flat array; an error where the rungs cannot take it."""
    if a.dtype is not float32 or not a.is_contiguous():
        layout = "contiguous" if a.is_contiguous() else "not contiguous"
        raise ValueError(
            f"{name}: a is {a.dtype.name} {a.shape}, {layout}; expected contiguous "
            f"float32 (reduce takes any dtype and strides)"
        )
    return a.flat()


def aligned_cells(count: int) -> np.ndarray:
    """`count` float64 cells of 0, the first one at the beginning of a cache line."""
    cells = line_array(count, float64)
    cells.fill(0)
    return cells


def _in_order(totals: np.ndarray) -> TensorData:
    """The sum of some totals, first to last, rounded to float32."""
    out = np.empty(1)
    _serial(totals, out)
    return wrap(out.astype(np.float32), (), float32)


def sum_serial(a: TensorData) -> TensorData:
    """a [*] -> [], by `_serial`."""
    return _in_order(_elements("sum_serial", a))


def sum_racy(a: TensorData) -> TensorData:
    """a [*] -> [], by `_racy`: wrong, as soon as two threads take part."""
    x, cells = _elements("sum_racy", a), aligned_cells(1)
    _racy(x, cells, 0)
    return _in_order(cells)


def _sum_cells(x: np.ndarray, spacing: int) -> TensorData:
    cells = aligned_cells(get_num_threads() * spacing)
    _cells(x, cells, spacing, 0)
    return _in_order(cells[::spacing].copy())


def sum_per_thread(a: TensorData) -> TensorData:
    """a [*] -> [], by `_cells` with the threads' cells side by side."""
    return _sum_cells(_elements("sum_per_thread", a), 1)


def sum_padded(a: TensorData) -> TensorData:
    """a [*] -> [], by `_cells` with each thread's cell in a cache line of its own."""
    return _sum_cells(_elements("sum_padded", a), LINE)


def sum_register(a: TensorData) -> TensorData:
    """a [*] -> [], by `_register`."""
    x, cells = _elements("sum_register", a), aligned_cells(get_num_threads())
    _register(x, cells)
    return _in_order(cells)


def sum_blocks(a: TensorData) -> TensorData:
    """a [*] -> [], by `_blocks`: the same bits on any number of threads."""
    x = _elements("sum_blocks", a)
    partial = aligned_cells(-(-x.size // BLOCK))
    _blocks(x, partial)
    return _in_order(partial)


# From one loop to the fastest; a benchmark draws them all.
LADDER: tuple[Any, ...] = (
    sum_serial,
    sum_racy,
    sum_per_thread,
    sum_padded,
    sum_register,
    sum_blocks,
)

# Rungs that are wrong on purpose, even though luck may hide it in one call.
WRONG = (sum_racy,)
