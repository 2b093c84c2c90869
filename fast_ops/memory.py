"""Memory of the CPU: make tensors, exchange them with NumPy, copy them.

With this file one can make tensors (`empty`, `full`, `from_numpy`), look at them as
NumPy arrays without a copy (`to_numpy`), and lay any strided window out row by row
(`copy`, `copy_into`, `contiguous`).

It also holds what every strided kernel of this package needs: `plan`, which turns the
strides of some operands of one shape into four loops that one compiled kernel runs for
tensors of any number of dimensions.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, device_function
from fast_ops.simd import GROUP, VECTOR_BYTES, transpose_lines
from fast_ops.workspace import Buffer, line_buffer
from minitorch.dtypes import DType, from_numpy_dtype
from minitorch.tensor_data import Shape, Storage, Strides, TensorData

RANK = 4  # loops in a strided kernel; more dimensions are looped over in Python
# Elements of a row that one thread does in one go. With gaps between the elements every
# one may be in a cache line of its own: 256 lines, 16 KiB, stay in the L1 cache until
# the next row needs their other elements.
PIECE = 8192
PIECE_WITH_GAPS = 256
TILE = 32  # rows and columns of a tile that is transposed: 64 cache lines
MIN_TILE = 8  # sizes from which tiles pay


# ------------------------------------------------------------- reuse of large memory

# Bytes from which on memory is reused. Without a global lock in the interpreter, counts
# of references are not exact at every moment, and nothing is.
GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
POOLED = 1024 * 1024 if GIL else sys.maxsize
IDLE_LIMIT = 2**30  # bytes of unused memory that are kept at most

_pool: dict[int, deque[Buffer]] = {}
_total = [0]  # bytes of all buffers in the pool


def pooled(size: int, dtype: DType) -> np.ndarray:
    """A flat array of `size` elements on a buffer that nobody uses any more.

    New memory from the system costs a page fault for every 4 KiB (0.1 us each, more
    than an addition takes), so buffers of `POOLED` bytes or more stay in a pool. Every
    array on a buffer, and every view of one, keeps a reference to the buffer itself;
    so a buffer is free exactly when nothing but the pool refers to it.

    A buffer leaves its queue before it is looked at, so that two threads never take
    the same one.
    """
    step = max(1 << (size * dtype.itemsize).bit_length() - 4, 4096)  # waste < 1/8
    space = -(-size * dtype.itemsize // step) * step
    queue = _pool.get(space)
    if queue is None:
        queue = _pool.setdefault(space, deque())
    for _ in range(len(queue)):
        try:
            entry = queue.popleft()
        except IndexError:  # another thread emptied it
            break
        idle = _idle(entry)
        array = np.ndarray(size, dtype.numpy, *entry) if idle else None
        queue.append(entry)
        if array is not None:
            return array
    if _total[0] > IDLE_LIMIT:
        release()
    entry = line_buffer(space)
    array = np.ndarray(size, dtype.numpy, *entry)
    _total[0] += entry[0].size
    queue.append(entry)
    return array


def _idle(entry: Buffer) -> bool:
    return getrefcount(entry[0]) == 2  # the entry's reference and getrefcount's own


def release() -> None:
    """Give all unused buffers back to the system."""
    for queue in list(_pool.values()):
        for _ in range(len(queue)):
            try:
                entry = queue.popleft()
            except IndexError:
                break
            if _idle(entry):
                _total[0] -= entry[0].size
            else:
                queue.append(entry)


# ------------------------------------------------------------------ making tensors


def empty(shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor whose elements have no particular value."""
    size = math.prod(shape)
    small = size * dtype.itemsize < POOLED
    array = np.empty(size, dtype.numpy) if small else pooled(size, dtype)
    return TensorData.around(array, dtype, "cpu", shape)


def wrap(array: np.ndarray, shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor of `shape` on a flat array that it takes over."""
    return TensorData.around(array, dtype, "cpu", shape)


def full(shape: Shape, value: float, dtype: DType) -> TensorData:
    """A contiguous tensor with `value` everywhere."""
    out = empty(shape, dtype)
    out.storage.array.fill(value)
    return out


def number(value: float, dtype: DType) -> TensorData:
    """`value` as a tensor without dims, the same one each time."""
    return _number(value, math.copysign(1.0, value), dtype)


@lru_cache(maxsize=1024)
def _number(value: float, sign: float, dtype: DType) -> TensorData:
    return full((), value, dtype)  # -0.0 is equal to 0.0, but for its sign


def from_numpy(array: np.ndarray) -> TensorData:
    """A tensor that shares the array's memory, whatever its (positive) strides.

    Arrays that cannot be shared are copied: read-only ones, unaligned ones, and those
    with negative strides or with strides that are no multiple of the element size.
    """
    dtype = from_numpy_dtype(array.dtype)
    item = array.itemsize
    flags = array.flags
    if not (flags.writeable and flags.aligned) or any(
        step < 0 or step % item for step in array.strides
    ):
        array = np.array(array, order="C")
        flags = array.flags
    if flags.c_contiguous:
        return wrap(array.reshape(-1), array.shape, dtype)
    strides = tuple(step // item for step in array.strides)
    last = sum((n - 1) * step for n, step in zip(array.shape, strides))
    flat = np.lib.stride_tricks.as_strided(array, (last + 1,), (item,))
    return TensorData(Storage(flat, dtype, "cpu"), array.shape, strides)


def to_numpy(a: TensorData) -> np.ndarray:
    """A NumPy array that shares a's memory."""
    return a.flat().reshape(a.shape) if a.contiguous else a.array()


def synchronize() -> None:
    """Nothing is ever under way here when a function has returned."""


# ------------------------------------------------------------------- strided loops


class Plan(NamedTuple):
    """How a kernel of `RANK` loops visits some operands of one shape.

    Attributes:
        shape: `RANK` sizes; the kernel's loops, the last one innermost.
        strides: for each operand `RANK` strides.
        outer: for each call of the kernel, the offset to add for each operand.
        piece: how many elements of the innermost loop make one task.
        transposes: whether the first operand lies along the second loop from inside,
            the last one along the innermost, and both are long.
    """

    shape: Shape
    strides: tuple[Strides, ...]
    outer: tuple[tuple[int, ...], ...]
    piece: int
    transposes: bool


Dim = tuple[int, tuple[int, ...]]  # a size, and the stride of each operand


@lru_cache(maxsize=4096)
def plan(shape: Shape, *strides: Strides) -> Plan:
    """Merge dimensions that lie behind each other in all operands, and pad to `RANK`.

    >>> plan((2, 3, 5), (15, 5, 1), (0, 0, 1)).shape    # a row, added to 6 rows
    (1, 1, 6, 5)
    """
    dims = _ordered(_merged([d for d in zip(shape, zip(*strides)) if d[0] != 1]))
    operands = range(len(strides))
    dims = [(1, (0,) * len(strides))] * (RANK - len(dims)) + dims
    loops, rest = dims[-RANK:], dims[:-RANK]
    outer = [
        tuple(sum(i * steps[k] for i, (_, steps) in zip(index, rest)) for k in operands)
        for index in product(*(range(n) for n, _ in rest))
    ]
    return Plan(
        tuple(n for n, _ in loops),
        tuple(tuple(steps[k] for _, steps in loops) for k in operands),
        tuple(outer),
        PIECE if all(step in (0, 1) for step in loops[-1][1]) else PIECE_WITH_GAPS,
        _transposes(loops[-2], loops[-1]),
    )


def _transposes(second: Dim, innermost: Dim) -> bool:
    (down, steps), (across, inner_steps) = second, innermost
    long = min(down, across) >= MIN_TILE
    return long and steps[0] == 1 and inner_steps[-1] == 1 and inner_steps[0] != 1


def _merged(dims: list[Dim]) -> list[Dim]:
    merged: list[Dim] = []
    for n, steps in dims:
        if merged and all(o == n * s for o, s in zip(merged[-1][1], steps)):
            merged[-1] = (merged[-1][0] * n, steps)
        else:
            merged.append((n, steps))
    return merged


def _ordered(dims: list[Dim]) -> list[Dim]:
    """The innermost loop long, and the next one along the memory of some operand."""
    if len(dims) < 2:
        return dims
    longest = max(range(len(dims)), key=lambda i: dims[i][0])
    if dims[-1][0] < 16 and dims[longest][0] >= 4 * dims[-1][0]:
        dims = [*dims[:longest], *dims[longest + 1 :], dims[longest]]
    if any(step not in (0, 1) for step in dims[-1][1]):
        for i, (_, steps) in enumerate(dims[:-1]):
            if 1 in steps:
                return [*dims[:i], *dims[i + 1 : -1], dims[i], dims[-1]]
    return dims


@device_function
def place(task: int, shape: Shape, pieces: int, piece: int) -> tuple[int, ...]:
    """The indices i, j, k of a task's row, and where its piece of the row starts.

    Tasks that follow each other do the same piece of neighbouring rows, so that they
    find each other's cache lines where a row has gaps.
    """
    rest = task // shape[2]
    k = task - rest * shape[2]
    ij = rest // pieces
    start = (rest - ij * pieces) * piece
    i = ij // shape[1]
    return i, ij - i * shape[1], k, start


@device_function
def position(i: int, j: int, k: int, x: int, steps: Strides) -> int:
    """The position of element (i, j, k, x) from that of (0, 0, 0, 0) on."""
    return i * steps[0] + j * steps[1] + k * steps[2] + x * steps[3]


@device_function
def at(first: int, i: int, step: int) -> int:
    """first + i * step as an unsigned number.

    Numba takes a negative index to count from the end; for an unsigned one it need not
    ask, which saves a comparison for each element.
    """
    return np.uint64(first + i * step)


# ------------------------------------------------------------------------- copying


def _copy_flat(a: np.ndarray, out: np.ndarray) -> None:
    """out[i] = a[i] for flat arrays; each thread takes one piece."""
    for i in prange(out.size):
        out[i] = a[i]


def _copy_strided(
    a: np.ndarray, a_at: int, a_steps: Strides,
    out: np.ndarray, out_at: int, out_steps: Strides,
    shape: Shape, piece: int,
) -> None:  # fmt: skip
    """out[i, j, k, x] = a[i, j, k, x], any strides on both.

    Threads share tasks; one task is up to `piece` elements of one row (i, j, k).
    """
    pieces = (shape[3] + piece - 1) // piece
    sa, so = a_steps[3], out_steps[3]
    for task in prange(shape[0] * shape[1] * shape[2] * pieces):
        i, j, k, start = place(np.int64(task), shape, pieces, piece)
        n = min(piece, shape[3] - start)
        p = a_at + position(i, j, k, start, a_steps)
        q = out_at + position(i, j, k, start, out_steps)
        if sa == 1 and so == 1:
            x, z = a[p : p + n], out[q : q + n]
            for e in range(n):
                z[e] = x[e]
        else:
            for e in range(n):
                out[at(q, e, so)] = a[at(p, e, sa)]


@device_function
def transpose_tile(a, p, across, out, q, step, down, wide):
    """out[q + k * step + x] = a[p + x * across + k] for k < down, x < wide"""
    for x in range(wide):
        y = a[p + x * across : p + x * across + down]
        for k in range(down):
            out[at(q + x, k, step)] = y[k]


@device_function
def transpose_tile_floats(a, p, across, out, q, step, down, wide):
    """`transpose_tile`, a vector of k and GROUP x at a time, the rest one by one."""
    lanes = VECTOR_BYTES // a.itemsize
    vectors, groups = down // lanes * lanes, wide // GROUP * GROUP
    for k in range(0, vectors, lanes):
        for x in range(0, groups, GROUP):
            transpose_lines(
                a, p + x * across + k, across, GROUP, out, q + k * step + x, step, GROUP
            )
    transpose_tile(
        a, p + groups * across, across, out, q + groups, step, vectors, wide - groups
    )
    transpose_tile(
        a, p + vectors, across, out, q + vectors * step, step, down - vectors, wide
    )


def transposing(tile: Callable) -> Callable:
    """Make the loop that copies a transposed matrix, or a stack of them, by tiles.

    out[i, j, k, x] = a[i, j, k, x] where a's k and out's x lie side by side.

    Either a is read or out is written in steps, and each step is on another cache line.
    A tile of TILE x TILE elements touches 2 TILE lines, which the first-level cache
    holds until all their elements are done. Threads share tiles. Source: Lam, Rothberg
    and Wolf, "The cache performance and optimizations of blocked algorithms", 1991.
    """

    def loop(
        a: np.ndarray, a_at: int, a_steps: Strides,
        out: np.ndarray, out_at: int, out_steps: Strides,
        shape: Shape,
    ) -> None:  # fmt: skip
        tiles_x, tiles_k = (shape[3] + TILE - 1) // TILE, (shape[2] + TILE - 1) // TILE
        across, step = a_steps[3], out_steps[2]
        for task in prange(shape[0] * shape[1] * tiles_k * tiles_x):
            rest = np.int64(task) // tiles_x
            x0 = (np.int64(task) - rest * tiles_x) * TILE
            ij = rest // tiles_k
            k0 = (rest - ij * tiles_k) * TILE
            i = ij // shape[1]
            j = ij - i * shape[1]
            p = a_at + position(i, j, k0, x0, a_steps)
            q = out_at + position(i, j, k0, x0, out_steps)
            down, wide = min(TILE, shape[2] - k0), min(TILE, shape[3] - x0)
            tile(a, p, across, out, q, step, down, wide)

    return loop


def _transposing_kernels(tile: Callable) -> tuple[Any, Any]:
    loop, key = transposing(tile), (tile.__name__,)
    return compile_kernel(loop, key), compile_kernel(loop, key, parallel=True)


COPY_TRANSPOSED = (
    _transposing_kernels(transpose_tile),
    _transposing_kernels(transpose_tile_floats),
)
copy_flat = compile_kernel(_copy_flat)
copy_flat_parallel = compile_kernel(_copy_flat, parallel=True)
copy_strided = compile_kernel(_copy_strided)
copy_strided_parallel = compile_kernel(_copy_strided, parallel=True)


def overlap(a: TensorData, b: TensorData) -> bool:
    """Whether writing one may change the other (never False by mistake)."""
    x, y = a.storage.array, b.storage.array
    if x is not y and not np.may_share_memory(x, y):
        return False
    if x is not y:
        return True
    first, last = _span(a)
    other_first, other_last = _span(b)
    return first <= other_last and other_first <= last


def _span(a: TensorData) -> tuple[int, int]:
    """The smallest and the largest storage position in a window."""
    first = last = a.offset
    for n, step in zip(a.shape, a.strides):
        if n == 0:
            return 0, -1
        if step < 0:
            first += (n - 1) * step
        else:
            last += (n - 1) * step
    return first, last


def copy_into(out: TensorData, a: TensorData) -> None:
    """out[...] = a, any strides on both; a already has out's shape and dtype.

    Where both share memory and may overlap, a is copied first.
    """
    if overlap(a, out):
        a = copy(a, a.dtype)
    _move(out, a, out.size)


def copy(a: TensorData, dtype: DType) -> TensorData:
    """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""
    out = empty(a.shape, dtype)
    _move(out, a, out.storage.array.shape[0])
    return out


def contiguous(a: TensorData) -> TensorData:
    """`a` itself if it lies row by row, else a copy that does."""
    return a if a.contiguous else copy(a, a.storage.dtype)


def untransposed(a: TensorData) -> TensorData:
    """`a` itself, or a copy where its last two dimensions lie the other way round.

    An operation that reads it row by row would read one element of each cache line.
    """
    if a.dims < 2 or a.strides[-2] != 1 or a.strides[-1] in (0, 1):
        return a
    return copy(a, a.dtype) if min(a.shape[-2:]) >= MIN_TILE else a


def _move(out: TensorData, a: TensorData, size: int) -> None:
    serial = size < SERIAL_LIMIT
    if a.contiguous and out.contiguous:
        flat: Any = copy_flat if serial else copy_flat_parallel
        flat(a.flat(), out.flat())
        return
    if size == 0:
        return
    way = plan(a.shape, a.strides, out.strides)
    x, y = a.storage.array, out.storage.array
    if way.transposes:
        floats = a.dtype is out.dtype and a.dtype.is_floating_point
        tiled: Any = COPY_TRANSPOSED[floats][not serial]
        for p, q in way.outer:
            tiled(
                x, a.offset + p, way.strides[0], y, out.offset + q, way.strides[1],
                way.shape,
            )  # fmt: skip
        return
    strided: Any = copy_strided if serial else copy_strided_parallel
    for p, q in way.outer:
        strided(
            x, a.offset + p, way.strides[0], y, out.offset + q, way.strides[1],
            way.shape, way.piece,
        )  # fmt: skip
