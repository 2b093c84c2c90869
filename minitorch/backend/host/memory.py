"""Memory of backends whose tensors are NumPy arrays: make them, exchange them, copy.

With this file such a backend has all of its memory (`HostMemory`) but the kernels that
copy, and its launchers say in a word what a kernel wants: the elements of a tensor one
behind the other (`_flat`), with a dimension moved last (`_last`).

It also holds what every strided kernel needs: `plan`, which turns the strides of some
operands of one shape into four loops that one compiled kernel runs for tensors of any
number of dimensions.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from minitorch.backend import fences
from minitorch.backend.host.workspace import Buffer, line_array, line_buffer
from minitorch.backend.indexing import cat_shape
from minitorch.dtypes import DType, from_numpy_dtype, int64, rounded
from minitorch.tensor_data import Shape, Storage, Strides, TensorData, layouts

# A flat kernel, for one thread and for all; `kernel[size >= SERIAL_LIMIT]` is the one.
FlatKernel = tuple[Any, Any]

# Below this many elements a parallel region costs more than it saves: 1 to 2 us with
# OpenMP, 30 to 60 us with Numba's workqueue.
SERIAL_LIMIT = 32_768

RANK = 4  # loops in a strided kernel; more dimensions are looped over in Python
# Elements of a row that one thread does in one go. With gaps between the elements every
# one may be in a cache line of its own: 256 lines, 16 KiB, stay in the L1 cache until
# the next row needs their other elements.
CHUNK = 8192
CHUNK_WITH_GAPS = 256
FEW = 2048  # elements with gaps that NumPy copies sooner than a plan is found
MIN_TILE = 8  # sizes from which it pays to transpose by tiles


# Names of our own, since those of a module or a class are looked for at every call.
_array, _new = np.empty, object.__new__


# ------------------------------------------------------------- reuse of large memory

# Bytes from which on memory is reused. Without a global lock in the interpreter, counts
# of references are not exact at every moment, and nothing is.
GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
POOLED = 256 * 1024 if GIL else sys.maxsize
IDLE_LIMIT = 2**30  # bytes of unused memory that are kept at most

_pool: dict[int, deque[Buffer]] = {}
_total = [0]  # bytes of all buffers in the pool


def pooled(size: int, dtype: DType) -> np.ndarray:
    """A flat array of `size` elements on a buffer that nobody uses any more.

    New memory from the system costs a page fault for every 4 KiB (0.1 us each, more
    than an addition takes, and many times that in a virtual machine), and malloc gives
    memory back soon. So buffers of `POOLED` bytes or more stay in a pool. Every array
    on a buffer, and every view of one, keeps a reference to the buffer itself; so a
    buffer is free exactly when nothing but the pool refers to it.

    The one that was taken last comes first: it may still be in the cache. A buffer
    leaves its queue before it is looked at, so that two threads never take the same.
    """
    step = max(1 << (size * dtype.itemsize).bit_length() - 4, 4096)  # waste < 1/8
    space = -(-size * dtype.itemsize // step) * step
    queue = _pool.get(space)
    if queue is None:
        queue = _pool.setdefault(space, deque())
    for _ in range(len(queue)):
        try:
            entry = queue.pop()
        except IndexError:  # another thread emptied it
            break
        if _idle(entry):
            array = np.ndarray(size, dtype.numpy, *entry)
            queue.append(entry)
            return array
        queue.appendleft(entry)
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


# --------------------------------------------------------------------- the tensors


class HostMemory(ABC):
    """Tensors on NumPy arrays; a device adds its name and its kernels that copy."""

    _device: str

    @abstractmethod
    def _move(self, out: TensorData, a: TensorData) -> None:
        """out[...] = a, converted; any strides on both, which share no memory."""

    def _convert(self, out: TensorData, a: TensorData) -> None:
        """out[...] = a from or to a half type; compiled kernels know none."""
        plain = out.contiguous and a.contiguous
        x, y = (a.flat(), out.flat()) if plain else (a.array(), out.array())
        with np.errstate(over="ignore", invalid="ignore"):  # too large: infinity
            y[...] = x

    def empty(self, shape: Shape, dtype: DType) -> TensorData:
        """A contiguous tensor whose elements have no particular value."""
        size, strides = layouts[shape]
        if fences.around is not None:
            array = line_array(size, dtype)
        elif size * dtype.itemsize < POOLED:
            array = _array(size, dtype.numpy)
        else:
            array = pooled(size, dtype)
        out = _new(TensorData)  # as `TensorData.around`, but for a call
        out.storage = storage = _new(Storage)
        storage.array = array
        storage.dtype = dtype
        storage.device = self._device
        storage.version = out.offset = 0
        storage.rebased = -1
        storage.shared = False
        out.shape = shape
        out.strides = strides
        out.contiguous = True
        return out

    def wrap(self, array: np.ndarray, shape: Shape, dtype: DType) -> TensorData:
        """A contiguous tensor of `shape` on a flat array that it takes over."""
        return TensorData.around(array, dtype, self._device, shape)

    def full(self, shape: Shape, value: float, dtype: DType) -> TensorData:
        """A contiguous tensor with `value` everywhere."""
        out = self.empty(shape, dtype)
        out.storage.array.fill(rounded(value, dtype) if dtype.half else value)
        return out

    def fill(self, out: TensorData, value: float) -> None:
        """out[...] = value"""
        array = out.flat() if out.contiguous else None
        if array is None or out.storage.dtype.half or len(array) >= SERIAL_LIMIT:
            super().fill(out, value)  # type: ignore[misc]
        else:
            array.fill(value)

    def number(self, value: float, dtype: DType) -> TensorData:
        """`value` as a tensor without dims, the same one each time."""
        return self._number(value, math.copysign(1.0, value), dtype)

    @lru_cache(maxsize=1024)  # noqa: B019 (there is one object for each device)
    def _number(self, value: float, sign: float, dtype: DType) -> TensorData:
        return self.full((), value, dtype)  # -0.0 is equal to 0.0, but for its sign

    def triangle(self, rows: int, cols: int, diagonal: int = 0) -> TensorData:
        """Where j <= i + diagonal; small ones are kept, and nobody writes to them."""
        if rows * cols < SERIAL_LIMIT:
            return self._triangle(rows, cols, diagonal)
        return super().triangle(rows, cols, diagonal)  # type: ignore[misc]

    @lru_cache(maxsize=64)  # noqa: B019 (there is one object for each device)
    def _triangle(self, rows: int, cols: int, diagonal: int) -> TensorData:
        return super().triangle(rows, cols, diagonal)  # type: ignore[misc]

    def cat(self, tensors: Sequence[TensorData], dim: int) -> TensorData:
        """[A, *], [B, *], ... -> [A + B + ..., *] for dim = 0; all of one dtype.

        Small ones in one call, with which one thread is done.
        """
        shape = cat_shape(tensors, dim)
        if math.prod(shape) >= SERIAL_LIMIT:
            return super().cat(tensors, dim)  # type: ignore[misc]
        if dim == 0:  # then the elements of one come after those of the other, too
            parts = []
            for a in tensors:
                parts.append(a.flat() if a.contiguous else a.array().ravel())
            array = np.concatenate(parts)
        else:
            array = np.concatenate([self.to_numpy(a) for a in tensors], dim).ravel()
        return self.wrap(array, shape, tensors[0].storage.dtype)

    def from_numpy(self, array: np.ndarray) -> TensorData:
        """A tensor that shares the array's memory, whatever its (positive) strides.

        Arrays that cannot be shared are copied: read-only ones, unaligned ones, and
        those with negative strides or with strides that are no multiple of the element
        size.
        """
        dtype = from_numpy_dtype(array.dtype)
        item = array.itemsize
        flags = array.flags
        shared = flags.writeable and flags.aligned
        if not (shared and flags.c_contiguous) and not (
            shared and all(step >= 0 and step % item == 0 for step in array.strides)
        ):
            array = np.array(array, order="C")
            flags = array.flags
        if flags.c_contiguous:
            flat = array if array.ndim == 1 else array.reshape(-1)
            return self.wrap(flat, array.shape, dtype)
        strides = tuple(step // item for step in array.strides)
        last = sum((n - 1) * step for n, step in zip(array.shape, strides))
        flat = np.lib.stride_tricks.as_strided(array, (last + 1,), (item,))
        return TensorData(Storage(flat, dtype, self._device), array.shape, strides)

    def to_numpy(self, a: TensorData) -> np.ndarray:
        """A NumPy array that shares a's memory."""
        if not a.shape:  # half the time for what is read most, a loss
            return a.storage.array[a.offset, ...]
        return a.flat().reshape(a.shape) if a.contiguous else a.array()

    def copy(self, a: TensorData, dtype: DType) -> TensorData:
        """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""
        source = a.storage.dtype
        small = a.size if dtype is source and fences.around is None else SERIAL_LIMIT
        if small < SERIAL_LIMIT and a.contiguous:
            return self.wrap(a.flat().copy(), a.shape, dtype)  # one call does it
        if small < FEW:
            return self.wrap(a.array().flatten(), a.shape, dtype)
        out = self.empty(a.shape, dtype)
        if dtype.half or source.half:
            self._convert(out, a)
        else:
            self._move(out, a)
        return out

    def copy_into(self, out: TensorData, a: TensorData) -> None:
        """out[...] = a, any strides on both; a already has out's shape and dtype.

        Where both share memory and may overlap, a is copied first.
        """
        if overlap(a, out):
            a = self.copy(a, a.dtype)
        if a.storage.dtype.half:
            self._convert(out, a)
        else:
            self._move(out, a)

    # ------------------------------------------------- what the launchers ask for

    def contiguous(self, a: TensorData) -> TensorData:
        """`a` itself if it lies row by row, else a copy that does."""
        return a if a.contiguous else self.copy(a, a.storage.dtype)

    def _flat(self, a: TensorData) -> np.ndarray:
        """The elements of `a`, row by row; copied only if it lies otherwise."""
        return (a if a.contiguous else self.copy(a, a.storage.dtype)).flat()

    def _int64s(self, index: TensorData) -> np.ndarray:
        """`_flat`, converted to int64."""
        if index.storage.dtype is int64:
            return self._flat(index)
        return self.copy(index, int64).storage.array

    def _last(self, a: TensorData, dim: int) -> TensorData:
        """`a` with `dim` moved last, row by row; a copy only where that moves it."""
        if dim < a.dims - 1:
            a = a.permute([*(i for i in range(a.dims) if i != dim), dim])
        return self.contiguous(a)

    def _back(self, a: TensorData, dim: int) -> TensorData:
        """The last dimension of `a` moved to `dim`, row by row."""
        if dim >= a.dims - 1:
            return a
        last = a.dims - 1
        return self.contiguous(a.permute([*range(dim), last, *range(dim, last)]))


def same_window(a: TensorData, b: TensorData) -> bool:
    """Whether element i of one is element i of the other, for all i."""
    return (
        a.storage is b.storage
        and a.offset == b.offset
        and a.shape == b.shape
        and (a.strides == b.strides or (a.is_contiguous() and b.is_contiguous()))
    )


def overlap(a: TensorData, b: TensorData) -> bool:
    """Whether writing one may change the other (never False by mistake)."""
    x, y = a.storage.array, b.storage.array
    if x is not y:
        one, two = x.base, y.base
        if one is two is None:
            return False  # each owns its memory
        one, two = x if one is None else one, y if two is None else two
        if one is not two and type(one) is type(two) is np.ndarray:
            if one.base is None and two.base is None:
                return False
        return np.may_share_memory(x, y)  # takes ten times as long
    first, last = span(a)
    other_first, other_last = span(b)
    return first <= other_last and other_first <= last


def span(a: TensorData) -> tuple[int, int]:
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


# ------------------------------------------------------------------- strided loops


class Plan(NamedTuple):
    """How a kernel of `RANK` loops visits some operands of one shape.

    Attributes:
        shape: `RANK` sizes; the kernel's loops, the last one innermost.
        strides: for each operand `RANK` strides.
        outer: for each call of the kernel, the offset to add for each operand.
        chunk: how many elements of the innermost loop make one task.
        transposes: whether the first operand lies along the second loop from inside,
            the last one along the innermost, and both are long.
    """

    shape: Shape
    strides: tuple[Strides, ...]
    outer: tuple[tuple[int, ...], ...]
    chunk: int
    transposes: bool


Dim = tuple[int, tuple[int, ...]]  # a size, and the stride of each operand


@lru_cache(maxsize=4096)
def plan(shape: Shape, *strides: Strides) -> Plan:
    """Merge dimensions that lie behind each other in all operands, and pad to `RANK`.

    >>> plan((2, 3, 5), (15, 5, 1), (0, 0, 1)).shape    # a row, added to 6 rows
    (1, 1, 6, 5)
    """
    dims = _ordered(merged(zip(shape, zip(*strides))))
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
        CHUNK if all(step in (0, 1) for step in loops[-1][1]) else CHUNK_WITH_GAPS,
        _transposes(loops[-2], loops[-1]),
    )


def _transposes(second: Dim, innermost: Dim) -> bool:
    (down, steps), (across, inner_steps) = second, innermost
    long = min(down, across) >= MIN_TILE
    return long and steps[0] == 1 and inner_steps[-1] == 1 and inner_steps[0] != 1


def merged(dims: Iterable[Dim]) -> list[Dim]:
    """Without those of size 1; those that lie behind each other in all operands as one.

    # sizes of `shape`, and strides of a and b: zip(shape, zip(a.strides, b.strides))
    """
    out: list[Dim] = []
    for n, steps in dims:
        if n == 1:
            continue
        if out and all(o == n * s for o, s in zip(out[-1][1], steps)):
            out[-1] = (out[-1][0] * n, steps)
        else:
            out.append((n, steps))
    return out


@lru_cache(maxsize=4096)
def repeats(shape: Shape, strides: Shape, out: Shape) -> tuple[int, int] | None:
    """M and inner so that element i of `out` meets element i // inner % M; or None.

    >>> repeats((5, 1), (1, 1), (3, 5, 8))      # a column of 5, in 3 matrices
    (5, 8)
    """
    lead = len(out) - len(shape)
    steps = [0] * lead
    for n, size, step in zip(shape, out[lead:], strides):
        steps.append(step if n == size else 0)
    dims = [(n, step[0]) for n, step in merged(zip(out, zip(steps)))]
    inner = 1
    if dims and dims[-1][1] == 0:
        inner = dims.pop()[0]
    if not dims or all(step == 0 for _, step in dims):
        return 1, math.prod(out) + 3 & ~3
    m, step = dims.pop()
    if step != 1 or any(step for _, step in dims):
        return None
    return m, inner


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
