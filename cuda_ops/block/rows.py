"""Rows of numbers in registers: read once, used often, written once.

With this file a kernel can hold a whole row of a matrix in the registers of a group of
threads, put together what the threads of the group found (`summed`, `merged`), and be
made for the lengths of rows that it meets (`KernelFamily`).

A row of n numbers lies in `group` threads, with `items` numbers in each of them:

    width 4 (16 bytes at once)   thread   0     1     2     3     0     1     2 ...
                                 place  0-3   4-7  8-11 12-15 16-19 20-23 24-27 ...
    width 1                      thread   0  1  2  3  0  1  2  3  0 ...

so that the threads of a warp always touch neighbouring addresses. `FITS` lists the
combinations: a warp for a row, a block for a row, a large block for a row. Where
`group` is a warp, a block has several rows. Places behind the end of a row are filled
with a number that changes nothing, and are not written. Rows that begin at any address
(50,257 numbers, one row behind the other) are vectors between two ends (`row_ends`).

Loads are never skipped: a thread behind the end reads the row's first numbers instead.
So there is no branch between one load and the next, and all are on their way at the
same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    is_aligned,
    load,
    load4,
    shuffle_xor,
    store,
    store4,
)
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div
from cuda_ops.simulator.block import current_thread
from minitorch.dtypes import DType, float32, float64

# Threads that share a row which is too long for a warp, and for the longest rows.
BLOCK = 64 if TINY else 256
LARGE = 128 if TINY else 512

# (group, items), the first one that is large enough is taken: tune here.
FITS: tuple[tuple[int, int], ...] = (
    (WARP, 4), (WARP, 8), (WARP, 16), (WARP, 32),
    (BLOCK // 2, 8), (BLOCK // 2, 16), (BLOCK, 8), (BLOCK, 16), (BLOCK, 32),
    (LARGE, 8), (LARGE, 16), (LARGE, 32),
)  # fmt: skip
if TINY:  # where a thread costs more than its work
    FITS = ((WARP, 4), (WARP, 8), (BLOCK, 8), (LARGE, 8))
# The width of rows that begin at any address: 4 numbers at once, and those at the ends.
RAGGED = 5
# Longer rows never fit into registers.
LONGEST = FITS[-1][0] * FITS[-1][1]


def _simulated_barrier() -> None:
    current_thread().syncthreads()


barrier: Any = _simulated_barrier if SIMULATED else cuda.syncthreads


# --------------------------------------------------------------- rows and registers


def row_reader(fit: Fit) -> Any:
    """Make `read(a, at, n, t, fill, x)`: x [items] = thread t's part of a[at : at + n].

    Places behind the row get `fill`. n is 1 or more.
    """
    group, items = fit.group, fit.items

    def read_4(a, at, n, t, fill, x):
        for v in range(items // 4):
            i = 4 * (v * group + t)
            x0, x1, x2, x3 = load4(a, at + (i if i < n else 0))
            x[4 * v] = x0 if i < n else fill
            x[4 * v + 1] = x1 if i < n else fill
            x[4 * v + 2] = x2 if i < n else fill
            x[4 * v + 3] = x3 if i < n else fill

    def read_1(a, at, n, t, fill, x):
        for v in range(items):
            i = v * group + t
            x0 = load(a, at + (i if i < n else 0))
            x[v] = x0 if i < n else fill

    return device(read_1 if fit.width == 1 else read_4)


def row_writer(fit: Fit) -> Any:
    """Make `write(out, at, n, t, x)`: the reverse of `row_reader`."""
    group, items = fit.group, fit.items

    def write_4(out, at, n, t, x):
        for v in range(items // 4):
            i = 4 * (v * group + t)
            if i < n:
                k = 4 * v
                store4(out, at + i, x[k], x[k + 1], x[k + 2], x[k + 3])

    def write_1(out, at, n, t, x):
        for v in range(items):
            i = v * group + t
            if i < n:
                store(out, at + i, x[v])

    return device(write_1 if fit.width == 1 else write_4)


def row_centred(fit: Fit) -> Any:
    """Make `centre(x, mean, n, t)`: x -= mean, and 0 behind the end of the row."""
    width, group, items = fit.width, fit.group, fit.items

    def centre(x, mean, n, t):
        for k in range(items):
            i = width * (k // width * group + t)
            x[k] = x[k] - mean if i < n else mean - mean

    return device(centre)


# ------------------------------------------------------------- rows at any address


def row_ends(fit: Fit) -> Any:
    """Make `ends(at, n, t)` -> first, whole, edge: the parts of a row a[at : at + n].

        at  | . . | 4 4 4 4 | 4 4 4 4 | ... | . |     numbers at the ends, and vectors

    `whole` numbers from at + first on are vectors of 16 bytes. What is left at both
    ends, up to six numbers, is shared out: thread t has that in place `edge`, if this
    is less than n. With other widths than 5 the whole row is in the middle.
    """
    ragged = fit.width == RAGGED

    def ends(at, n, t):
        first, whole, edge = 0, n, n
        if ragged:
            first = min(-at & 3, n)
            whole = (n - first) & -4
            edge = t if t < first else whole + t
        return first, whole, edge

    return device(ends)


def ragged_reader(fit: Fit) -> Any:
    """Make `read(a, at, n, t, fill, x)`: as `row_reader`'s, with the width 5, too:
    then x [fit.room] has its thread's number of the ends behind the others."""
    read, ends, last = row_reader(fit), row_ends(fit), fit.items
    ragged = fit.width == RAGGED

    def read_ragged(a, at, n, t, fill, x):
        first, whole, edge = ends(at, n, t)
        if ragged:
            x[last] = fill
            if edge < n:
                x[last] = load(a, at + edge)
        read(a, at + first, whole, t, fill, x)

    return device(read_ragged)


def ragged_writer(fit: Fit) -> Any:
    """Make `write(out, at, n, t, x)`: the reverse of `ragged_reader`; nothing if n is
    0. What was read at `at` is written at one that leaves the same rest of 4."""
    write, ends, last = row_writer(fit), row_ends(fit), fit.items
    ragged = fit.width == RAGGED

    def write_ragged(out, at, n, t, x):
        first, whole, edge = ends(at, n, t)
        if ragged and edge < n:
            store(out, at + edge, x[last])
        write(out, at + first, whole, t, x)

    return device(write_ragged)


def row_owner(fit: Fit) -> Any:
    """Make `owner(at, n, i)`: the thread that has number i of a[at : at + n]."""
    ends, width, group = row_ends(fit), min(fit.width, 4), fit.group

    def owner(at, n, i):
        first, whole, _ = ends(at, n, 0)
        j = i - first
        if j >= 0 and j < whole:
            return j // width % group
        return i if j < 0 else i - whole

    return device(owner)


def row_mapper(fit: Fit, fn: Callable) -> Any:
    """Make `each(a, at, out, to, n, t, x, args)`: out[to + i] = fn(a[at + i], args)
    for thread t's i in range(n).

    Rows of any length, `items` numbers of a thread at a time, for which `x` is room.
    `at` and `to` leave the same rest of 4 where vectors are read. `out` may be `a`.
    """
    read, write, ends = row_reader(fit), row_writer(fit), row_ends(fit)
    items, step, fill, fn = fit.items, fit.group * fit.items, fit.kind(0), device(fn)

    def each(a, at, out, to, n, t, x, args):
        first, whole, edge = ends(at, n, t)
        if edge < n:
            store(out, to + edge, fn(load(a, at + edge), args))
        for i in range(0, whole, step):
            read(a, at + first + i, whole - i, t, fill, x)
            for k in range(items):
                x[k] = fn(x[k], args)
            write(out, to + first + i, whole - i, t, x)

    return device(each)


# ------------------------------------------------------------------ between threads


def folded(group: int, fn: Callable) -> Any:
    """Make `total(x, t, cells)`: the fold of the threads' x, known to all of them.

    `group`: lanes of a warp, a power of two, or whole warps. Up to five exchanges
    between the registers of a warp; then, if the group has more warps,
    a cell of shared memory for each of them (`cells`, [WARP]), a barrier, and the same
    exchanges for the warps' folds. Every thread folds in the same order.
    """
    warps = group // WARP
    steps = warps.bit_length() - 1
    half = min(group, WARP) // 2
    exchanges = half.bit_length()

    def within_warp(x, t, cells):
        for k in range(exchanges):
            x = fn(x, shuffle_xor(x, half >> k))
        return x

    inner = device(within_warp)

    def within_block(x, t, cells):
        x = inner(x, t, cells)
        if t % WARP == 0:
            cells[t // WARP] = x
        barrier()  # All warps' folds are there; nobody writes to the cells any more.
        x = cells[t % warps]
        for k in range(steps):
            x = fn(x, shuffle_xor(x, 1 << k))
        return x

    return inner if warps <= 1 else device(within_block)


@device
def _plus(x, y):
    return x + y


def summed(group: int) -> Any:
    """`folded` with sums."""
    return folded(group, _plus)


def merged(group: int, exp: Any, kind: Any) -> Any:
    """Make `merge(top, total, t, tops, totals)` -> top and total of all threads.

    The `total` of a thread is a sum of exp(x - top). Two of them are added after the
    one with the lower top is scaled down to the other's:

        top = max(top0, top1)
        total = total0 * exp(top0 - top) + total1 * exp(top1 - top)

    A group without a finite number has the top -inf and the total 0.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    warps = group // WARP
    steps = warps.bit_length() - 1
    lowest, zero = kind(-np.inf), kind(0)

    def exchange(top, total, lanes):
        best = top
        for k in range(lanes):
            other = shuffle_xor(best, 1 << k)
            best = other if other > best else best
        total = total * exp(top - best) if best > lowest else zero + total
        for k in range(lanes):
            total += shuffle_xor(total, 1 << k)
        return best, total

    inner = device(exchange)

    def within_warp(top, total, t, tops, totals):
        return inner(top, total, 5)

    def within_block(top, total, t, tops, totals):
        best, whole = inner(top, total, 5)
        if t % WARP == 0:
            tops[t // WARP] = best
            totals[t // WARP] = whole
        barrier()
        return inner(tops[t % warps], totals[t % warps], steps)

    return device(within_warp if warps == 1 else within_block)


# ---------------------------------------------------------------- kernels for lengths


class Fit(NamedTuple):
    """How rows lie in registers.

    Attributes:
        dtype: the type of the numbers in registers; arrays may have half types.
        width: 4 for 16-byte loads and stores; 5 (`RAGGED`) for those in rows that
            begin anywhere, whose ends are single numbers; else 1.
        group: threads for a row.
        items: numbers of a row in each thread.
    """

    dtype: DType
    width: int
    group: int
    items: int

    @property
    def kind(self) -> Any:
        """The class of one element, in NumPy and in kernels."""
        return self.dtype.numpy.type

    @property
    def room(self) -> int:
        """Registers of a thread for numbers of a row that begins anywhere."""
        return self.items + (self.width == RAGGED)

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return BLOCK // WARP if self.group == WARP else 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows * self.group

    @lru_cache(maxsize=4096)  # noqa: B019 (a Fit is a value)
    def launch(self, rows: int) -> tuple[int, int]:
        """The grid's and the block's size for so many rows."""
        return ceil_div(rows, self.rows), self.threads


@lru_cache(maxsize=4096)
def fitting(
    n: int, dtype: DType, width: int, operands: int = 1, fits: tuple[Any, ...] = FITS
) -> Fit | None:
    """The first of `fits` with room for rows of n numbers; None if there is none.

    `operands` rows lie there at the same time: as many registers are needed. A thread
    of a large block has up to 128 in all, others up to 255; addresses need more of them
    where numbers are loaded one by one.
    """
    for group, items in fits:
        registers = items * operands * dtype.itemsize // 4
        most = 64 if group != LARGE else 16 if width == 1 else 32
        if group * items >= n and registers <= most:
            return Fit(dtype, width, group, items)
    return None


def width_of(n: int, dtype: DType, *arrays: Any) -> int:
    """4 where rows of n float32 numbers begin at multiples of 16 bytes, else 1."""
    if dtype is not float32 or n % 4:
        return 1
    return 4 if is_aligned(*arrays) else 1


def ragged_width(n: int, step: int, dtype: DType, *arrays: Any) -> int:
    """The width for rows of n numbers, `step` apart from the arrays' beginning on. From
    8 numbers on there is a vector in any row."""
    width = width_of(0, dtype, *arrays)
    ragged = width == 4 and (n % 4 or step % 4)
    return (RAGGED if n >= 8 else 1) if ragged else width


# For these, tests compile the kernels of a template.
EXAMPLES = (
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, WARP, 32),
    Fit(float32, 4, BLOCK // 2, 16),
    Fit(float32, 4, BLOCK, 16),
    Fit(float32, 1, BLOCK, 32),
    Fit(float32, 4, LARGE, 32),
    Fit(float64, 1, BLOCK, 16),
)


class KernelFamily(dict):
    """The kernels of one template by its arguments, made when they are asked for:
    `kernels[fit]`, or `kernels[dtype, width]`.

    Args:
        template: takes a `Fit`, or several arguments of which the element type is the
            first, and returns the kernel's Python function.
        example: a signature in which `T` stands for the element type.
        compiled: the arguments for which tests compile it.
        name: what the kernels are called, if not as the template.
        threads: of a block, where there is no `Fit`.
        resident: blocks that share a multiprocessor for some fits: the assembler limits
            the registers to what that leaves.
        fastmath: as `Kernel`'s, for rows that have a `Fit`.
    """

    def __init__(
        self,
        template: Callable,
        example: str,
        *compiled: tuple[Any, ...],
        name: str = "",
        threads: int = BLOCK,
        resident: Mapping[Fit, int] = MappingProxyType({}),
        fastmath: bool = False,
    ) -> None:
        super().__init__()
        self.template, self.resident = template, resident
        self.name = name or template.__name__
        self.threads, self.fastmath = threads, fastmath
        for key in compiled:
            self[key] = self._make(key, [example.replace("T", key[0].name)])

    def _make(self, key: tuple[Any, ...], examples: Sequence[str] = ()) -> Kernel:
        if not isinstance(key, Fit):
            words = ",".join([key[0].name, *map(str, key[1:])])
            fn = self.template(*key)
            return Kernel(fn, f"{self.name}[{words}]", examples, self.threads)
        dtype, width, group, items = key
        name = f"{self.name}[{dtype.name},{width},{group}x{items}]"
        fn, least = self.template(key), self.resident.get(key, 1)
        return Kernel(
            fn, name, examples, key.threads, launch_bounds=key.threads, resident=least,
            fastmath=self.fastmath,
        )  # fmt: skip

    def __missing__(self, key: tuple[Any, ...]) -> Kernel:
        self[key] = self._make(key)
        return self[key]
