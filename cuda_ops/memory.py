"""Memory of the GPU: make tensors, exchange them with NumPy, copy them.

With this file one can make tensors (`empty`, `full`, `from_numpy`), bring them back
(`to_numpy`) and lay any strided window out row by row (`copy`, `copy_into`,
`contiguous`). Where the bytes come from is told in `cuda_ops/runtime/allocator.py`.

It also holds what every strided kernel needs: `plan`, which turns the strides of some
operands of one shape into at most `RANK` dimensions.

Nothing here waits for the GPU but `to_numpy`, and `from_numpy` for very large arrays.
Where the host's memory is pinned (`pin_memory`), copies need no help from the CPU, and
the caller may choose to know when they are done (`from_numpy_async`, `to_numpy_async`).
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64, uint32

from cuda_ops import half
from cuda_ops.block.intrinsics import device as on_device
from cuda_ops.block.intrinsics import is_aligned, load, load4, store, store4
from cuda_ops.runtime import device, pinned, staging
from cuda_ops.runtime.arrays import ARRAYS, DeviceArray, allocate
from cuda_ops.runtime.device import synchronize
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from cuda_ops.transpose import SIDE, WORD, move
from minitorch.backend.host.memory import merged, span
from minitorch.dtypes import DType, float32, from_numpy_dtype, int32, rounded
from minitorch.tensor_data import (
    Shape,
    Strides,
    TensorData,
    layouts,
    lies_row_by_row,
)

__all__ = [
    "contiguous",
    "copy",
    "copy_into",
    "empty",
    "from_numpy",
    "from_numpy_async",
    "from_peer",
    "full",
    "is_pinned",
    "pin_memory",
    "synchronize",
    "to_numpy",
    "to_numpy_async",
]

THREADS = 32 if TINY else 128
# Dimensions in a strided kernel; more are looped over in Python.
RANK = 4
# 16-byte vectors that a thread has under way.
VECTORS = 2
# Elements of a block in a kernel on flat arrays.
TILE = THREADS * 4 * VECTORS
# Elements between two vectors of a thread.
STEP = THREADS * 4
# Elements of one launch of a strided kernel.
LIMIT = 2**31


# ------------------------------------------------------------------ making tensors


def empty(shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor whose elements have no particular value."""
    array = allocate(layouts[shape][0], dtype)
    return TensorData.around(array, dtype, device.current.name, shape)


def wrap(array: Any, shape: Shape, dtype: DType) -> TensorData:
    """A contiguous tensor of `shape` on a flat array that it takes over."""
    return TensorData.around(array, dtype, device.current.name, shape)


@kernel(examples=["float32[] float32 bool"], threads=THREADS)
def fill_flat(out, value, vectors):
    """out[i] = value.

    # out [N]

    Thread t of a block writes `VECTORS` vectors of 16 bytes, `STEP` elements apart, so
    that the vectors of a warp lie side by side. The last block writes one by one.
    """
    start = int64(cuda.blockIdx.x) * TILE
    i = start + cuda.threadIdx.x * 4
    if vectors and start + TILE <= out.size:
        store4(out, i, value, value, value, value)
        store4(out, i + STEP, value, value, value, value)
    else:
        for j in range(start + cuda.threadIdx.x, min(start + TILE, out.size), THREADS):
            store(out, j, value)


def full(shape: Shape, value: float, dtype: DType) -> TensorData:
    """A contiguous tensor with `value` everywhere."""
    size = math.prod(shape)
    number = rounded(value, dtype)
    if size == 1 and not SIMULATED:
        return wrap(ARRAYS[dtype].of_number(number), shape, dtype)
    out = allocate(size, dtype)
    fill(out, number)
    return wrap(out, shape, dtype)


def fill(out: Any, number: Any) -> None:
    """out[...] = number, for a flat array."""
    content = b"" if number else np.asarray(number).tobytes()
    if not SIMULATED and out.size and content and not any(content):  # not -0.0
        clear(out)
    elif not SIMULATED and out.itemsize == 2:
        content = np.asarray(number).tobytes()
        _set_words(out, int.from_bytes(content, sys.byteorder))
    else:
        fill_flat[ceil_div(len(out), TILE), THREADS](out, number, is_aligned(out))


@kernel(
    examples=["int64 int64 int64 int64[]", "float64 float64 float64 float32[]"],
    threads=THREADS, float64=True,
)  # fmt: skip
def arange_flat(start, step, last, out):
    """out[i] = start + i step, and `last` in the end; a thread each."""
    i = cuda.grid(1)
    if i < out.size:
        store(out, i, start + i * step if i < out.size - 1 else last)


def arange(
    start: float, step: float, count: int, dtype: DType, last: float
) -> TensorData:
    """`count` numbers: start, start + step, ..., and `last` in the end."""
    out = empty((count,), dtype)
    kind = int if type(start) is type(step) is int else float
    arange_flat[ceil_div(count, THREADS), THREADS](
        kind(start), kind(step), kind(last), out.flat()
    )
    return out


def clear(out: DeviceArray) -> None:
    """All bytes 0."""
    device.call(
        f"clearing {out.nbytes} bytes",
        device.driver().cuMemsetD8Async,
        out.pointer,
        0,
        out.nbytes,
        device.current.handle,
    )


def _set_words(out: DeviceArray, word: int) -> None:
    """All elements of 2 bytes."""
    device.call(
        f"filling {out.nbytes} bytes",
        device.driver().cuMemsetD16Async,
        out.pointer,
        word,
        out.size,
        device.current.handle,
    )


FROM_CPU = (
    "each replay would copy the same numbers; make the tensor before the capture, and "
    "put new numbers into it with x.copy_(batch) before each replay"
)
TO_CPU = (
    "nothing is computed before the graph is replayed, so item(), numpy(), tolist(), "
    "print and `if tensor:` have nothing to read; keep the tensor, and read it after "
    "g.replay()"
)


def from_numpy(array: np.ndarray) -> TensorData:
    """A tensor with a copy of the array's elements.

    The copy runs behind the work that was started before; the array itself may be
    changed as soon as this returns.
    """
    device.not_in_graph("copying from the CPU", FROM_CPU)
    dtype = from_numpy_dtype(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    out = allocate(flat.size, dtype)
    if SIMULATED:
        out[:] = flat
    elif flat.size:
        staging.to_device(out, flat)
    return wrap(out, array.shape, dtype)


def to_numpy(a: TensorData) -> np.ndarray:
    """A NumPy array with a's elements, when everything that makes them is done."""
    device.not_in_graph("reading numbers on the CPU", TO_CPU)
    if SIMULATED:
        return a.array().copy()
    if not a.is_contiguous():
        a = copy(a, a.dtype)
    out = np.empty(a.shape, a.dtype.numpy)
    if out.size:
        staging.to_host(out, a.flat())
    return out


def pin_memory(array: np.ndarray) -> np.ndarray:
    """A contiguous copy in pinned host memory."""
    out = pinned.empty(array.shape, array.dtype)
    out[...] = array
    return out


def is_pinned(a: TensorData) -> bool:
    """Whether a tensor of the CPU lies in pinned memory of this library."""
    return pinned.buffer_of(a.storage.array) is not None


def from_numpy_async(array: np.ndarray) -> TensorData:
    """`from_numpy` that leaves all of the copying to the GPU, from pinned memory.

    The array must not be changed before the work on the current stream is done. (It
    may be forgotten: its memory is not given to anybody else before.) From memory that
    is not pinned, or with gaps, it copies as `from_numpy` does.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    buffer = pinned.buffer_of(flat)
    if buffer is None:
        return from_numpy(array)
    device.not_in_graph("copying from the CPU", FROM_CPU)
    dtype = from_numpy_dtype(array.dtype)
    out = allocate(flat.size, dtype)
    staging.start_to_device(out, flat, buffer)
    return wrap(out, array.shape, dtype)


def to_numpy_async(a: TensorData) -> np.ndarray:
    """An array in pinned memory, to be read when work on the current stream is done."""
    device.not_in_graph("reading numbers on the CPU", TO_CPU)
    a = contiguous(a)
    out = pinned.empty(a.shape, a.dtype.numpy)
    buffer = pinned.buffer_of(out)
    if buffer is not None:  # else there are no elements
        staging.start_to_host(out.reshape(-1), a.flat(), buffer)
    return out


# ------------------------------------------------------------------- strided loops


class Plan(NamedTuple):
    """How a strided kernel visits some operands of one shape.

    Attributes:
        strides: for each operand `RANK` strides.
        launches: for each, `RANK` sizes (the last one innermost) and the offset to
            add for each operand.
    """

    strides: tuple[Strides, ...]
    launches: tuple[tuple[Shape, tuple[int, ...]], ...]


@lru_cache(maxsize=4096)
def plan(shape: Shape, *strides: Strides) -> Plan:
    """Merge dimensions that lie behind each other in all operands, and pad to `RANK`.

    >>> plan((2, 3, 5), (15, 5, 1), (0, 0, 1)).launches[0][0]   # a row, added to 6 rows
    (1, 1, 6, 5)
    """
    dims = merged(zip(shape, zip(*strides)))
    operands = range(len(strides))
    dims = [(1, (0,) * len(strides))] * (RANK - len(dims)) + dims
    loops, rest = dims[-RANK:], dims[:-RANK]
    steps = tuple(tuple(steps[k] for _, steps in loops) for k in operands)
    launches: list[tuple[Shape, tuple[int, ...]]] = []
    for index in product(*(range(n) for n, _ in rest)):
        offsets = [sum(i * d[1][k] for i, d in zip(index, rest)) for k in operands]
        launches += _cut(tuple(n for n, _ in loops), tuple(offsets), steps)
    return Plan(steps, tuple(launches))


def _cut(
    sizes: Shape, offsets: tuple[int, ...], steps: tuple[Strides, ...]
) -> list[tuple[Shape, tuple[int, ...]]]:
    """Halves of the longest dimension until 32 bits are enough to count elements."""
    if math.prod(sizes) < LIMIT:
        return [(sizes, offsets)]
    dim = max(range(RANK), key=sizes.__getitem__)
    half = sizes[dim] // 2
    later = tuple(o + half * s[dim] for o, s in zip(offsets, steps))
    first = (*sizes[:dim], half, *sizes[dim + 1 :])
    second = (*sizes[:dim], sizes[dim] - half, *sizes[dim + 1 :])
    return _cut(first, offsets, steps) + _cut(second, later, steps)


@on_device
def place(e, shape):
    """The indices i, j, k, x of element number e of four dimensions.

    In 32-bit arithmetic: a division of 64-bit numbers takes a hundred instructions.
    """
    n3, n2, n1 = uint32(shape[3]), uint32(shape[2]), uint32(shape[1])
    e = uint32(e)
    rest = uint32(e // n3)
    x = e - rest * n3
    ij = uint32(rest // n2)
    k = rest - ij * n2
    i = uint32(ij // n1)
    return int64(i), int64(ij - i * n1), int64(k), int64(x)


@on_device
def next_place(i, j, k, x, shape):
    """The indices of the element behind that one."""
    x += 1
    if x == shape[3]:
        x, k = int64(0), k + 1
        if k == shape[2]:
            k, j = int64(0), j + 1
            if j == shape[1]:
                j, i = int64(0), i + 1
    return i, j, k, x


@on_device
def position(i, j, k, x, steps):
    """Where element (i, j, k, x) is, from that of (0, 0, 0, 0) on."""
    return i * steps[0] + j * steps[1] + k * steps[2] + x * steps[3]


@on_device
def split(x, n):
    """x // n and x % n for x >= 0; in 32 bits, a fifth of the work, if possible."""
    if x < 0x7FFFFFFF and n < 0x7FFFFFFF:
        quotient = int64(uint32(x) // uint32(n))
    else:
        quotient = x // n
    return quotient, x - quotient * n


# ------------------------------------------------------------------------- copying


def _of(*types: str) -> list[str]:
    """Signatures of a copy between two operands with four strides each."""
    operand = "[] int64 4*int64"
    return [f"{t}{operand} {t}{operand} 4*int64 int64" for t in types]


@kernel(
    examples=["float32[] bfloat16[] bool", "float16[] float64[] bool"], threads=THREADS
)
def copy_flat(a, out, vectors):
    """out[i] = a[i], converted to out's type.

    # a [N] -> out [N]

    Thread t has `VECTORS` vectors of 4 elements under way, `STEP` elements apart, so
    that the vectors of a warp lie side by side. The last block does what is left.
    """
    start = int64(cuda.blockIdx.x) * TILE
    i = start + cuda.threadIdx.x * 4
    if vectors and start + TILE <= out.size:
        a0, a1, a2, a3 = load4(a, i)
        b0, b1, b2, b3 = load4(a, i + STEP)
        store4(out, i, a0, a1, a2, a3)
        store4(out, i + STEP, b0, b1, b2, b3)
    else:
        for j in range(start + cuda.threadIdx.x, min(start + TILE, out.size), THREADS):
            store(out, j, load(a, j))


@kernel(examples=_of("float32", "uint16"), threads=THREADS)
def copy_strided(a, a_at, a_steps, out, out_at, out_steps, shape, size):
    """out[i, j, k, x] = a[i, j, k, x], any strides on both.

    One thread makes one element; neighbouring threads have neighbouring x.
    """
    e = cuda.grid(1)
    if e < size:
        i, j, k, x = place(e, shape)
        value = load(a, a_at + position(i, j, k, x, a_steps))
        store(out, out_at + position(i, j, k, x, out_steps), value)


@kernel(
    examples=[
        "float32[] int64 4*int64 float32[] int64 4*int64 int64 bool",
        "uint16[] int64 4*int64 uint16[] int64 4*int64 int64 bool",
    ],
    threads=THREADS,
)
def copy_gathered(a, a_at, a_steps, out, out_at, shape, size, vectors):
    """`copy_strided` where all of `out` is one piece: images, channels last.

    A place is divided up once for four elements, from which the other three follow;
    their loads are under way together, and they are stored as one vector.
    """
    e = 4 * int64(cuda.grid(1))
    if e < size:
        i, j, k, x = place(e, shape)
        if vectors and e + 4 <= size:
            x0 = load(a, a_at + position(i, j, k, x, a_steps))
            i, j, k, x = next_place(i, j, k, x, shape)
            x1 = load(a, a_at + position(i, j, k, x, a_steps))
            i, j, k, x = next_place(i, j, k, x, shape)
            x2 = load(a, a_at + position(i, j, k, x, a_steps))
            i, j, k, x = next_place(i, j, k, x, shape)
            x3 = load(a, a_at + position(i, j, k, x, a_steps))
            store4(out, out_at + e, x0, x1, x2, x3)
        else:
            for n in range(e, min(e + 4, size)):
                store(out, out_at + n, load(a, a_at + position(i, j, k, x, a_steps)))
                i, j, k, x = next_place(i, j, k, x, shape)


@kernel(examples=_of("float32", "uint16"), threads=THREADS)
def copy_dealt(a, a_at, a_steps, out, out_at, out_steps, shape, size):
    """out[i, j, y, x] = a[i, j, y, x]: a few x, which are neighbours in `a`, go to
    planes of `out`, where the y are. Here x counts vectors of four elements.

    A warp reads one piece, and each of its four stores writes neighbours. Were it to
    read plane by plane, it would ask for every sector once for each of the x in it.
    """
    e = cuda.grid(1)
    if e < size:
        i, j, y, x = place(e, shape)
        x0, x1, x2, x3 = load4(a, a_at + position(i, j, y, 4 * x, a_steps))
        to, step = out_at + position(i, j, y, 4 * x, out_steps), out_steps[3]
        store(out, to, x0)
        store(out, to + step, x1)
        store(out, to + 2 * step, x2)
        store(out, to + 3 * step, x3)


@kernel(examples=_of("int32"), threads=THREADS)
def copy_vectors(a, a_at, a_steps, out, out_at, out_steps, shape, size):
    """`copy_strided` of words, four at a time: x counts vectors of 16 bytes.

    A place is divided up once for eight halves, and a warp moves 512 bytes.
    """
    e = cuda.grid(1)
    if e < size:
        i, j, k, x = place(e, shape)
        w0, w1, w2, w3 = load4(a, a_at + position(i, j, k, 4 * x, a_steps))
        to = out_at + position(i, j, k, 4 * x, out_steps)
        store4(out, to, w0, w1, w2, w3)


def overlap(a: TensorData, b: TensorData) -> bool:
    """Whether writing one may change the other (never False by mistake)."""
    x, y = a.storage.array, b.storage.array
    if x is not y and x.base is None and y.base is None:
        return False
    first, last = _span(a)
    other_first, other_last = _span(b)
    return first <= other_last and other_first <= last


def _span(a: TensorData) -> tuple[int, int]:
    """The addresses of the first and of the last byte of a window."""
    (first, last), array, item = span(a), a.storage.array, a.dtype.itemsize
    start = array.ctypes.data if SIMULATED else array.pointer
    return start + first * item, start + last * item + item - 1


def copy_into(out: TensorData, a: TensorData) -> None:
    """out[...] = a, any strides on both; a already has out's shape and dtype.

    Where both share memory and may overlap, a is copied first.
    """
    if overlap(a, out):
        a = copy(a, a.dtype)
    _move(out, a)


def copy(a: TensorData, dtype: DType) -> TensorData:
    """A contiguous copy, converted to `dtype` (floats to ints: toward zero).

    To and from half types by way of float32, as in PyTorch.
    """
    out = empty(a.shape, dtype)
    if dtype.half and a.dtype is float32 and a.is_contiguous():
        half.convert(out.flat(), a.flat(), dtype)
    else:
        _move(out, a)
    return out


def from_peer(a: TensorData) -> TensorData | None:
    """A copy, on the current GPU, of a tensor of another one; None if it is on none."""
    kind, _, index = a.device.partition(":")
    if kind != "cuda":
        return None
    source, target = device.gpu(int(index)), device.current.gpu
    with device.on(source):
        flat = contiguous(a).flat()
        with device.on(target):
            out = empty(a.shape, a.dtype)
            if SIMULATED:
                out.flat()[:] = flat
            elif out.size:
                staging.to_peer(out.flat(), flat, source)
    return out


def contiguous(a: TensorData) -> TensorData:
    """`a` itself if it lies row by row, else a copy that does."""
    return a if a.contiguous else copy(a, a.dtype)


def flat_or(a: TensorData | None, other: Any) -> Any:
    """The elements of `a`; `other`, which no kernel reads, where there is none."""
    return other if a is None else contiguous(a).flat()


@lru_cache(maxsize=4096)
def copy_plan(shape: Shape, a: Strides, out: Strides) -> tuple[Plan, str]:
    """How to copy from strides `a` to strides `out`: "by tiles", "dealt", or "".

    Where neighbours in `a` lie along one dim x, and those in `out` along another one y,
    a copy in either order would ask for a sector of memory for each element on the
    other side. Tiles have x and y as their last dims. They pay from a whole tile on:
    with sides of 16 an H200 takes 1.4 to 2.7 times as long for them as without. Where
    there are less x, and whole vectors of them, `copy_dealt` has the same last dims.

    >>> copy_plan((8, 32, 1000), (32000, 1, 32), (32000, 1000, 1))[0].launches[0][0]
    (1, 8, 1000, 32)
    """
    dims = merged(zip(shape, zip(a, out)))
    if len(dims) >= 2:
        x, y = (
            min(range(len(dims)), key=lambda d: abs(dims[d][1][side]) or math.inf)
            for side in (0, 1)
        )
        n, m = dims[x][0], dims[y][0]
        if x != y and m >= SIDE and dims[y][1][0]:
            rest = [dim for d, dim in enumerate(dims) if d not in (x, y)]
            sizes, steps = zip(*rest, dims[y], dims[x])
            *lines, last = [step for step, _ in steps]
            if n >= SIDE:
                return plan(sizes, *zip(*steps)), "by tiles"
            if last == 1 and not any(count % 4 for count in (n, *lines)):
                return plan(sizes, *zip(*steps)), "dealt"
    return plan(shape, a, out), ""


def _move(out: TensorData, a: TensorData) -> None:
    same = a.dtype is out.dtype
    if a.contiguous and out.contiguous:
        x, z = a.flat(), out.flat()
        if same and not SIMULATED:
            _copy_bytes(z, x)
            return
        x, z = (half.bits(x), half.bits(z)) if same else (x, z)
        copy_flat[ceil_div(len(z), TILE), THREADS](x, z, is_aligned(x, z))
        return
    if out.size == 0:
        return
    loops, how = copy_plan(a.shape, a.strides, out.strides)
    x, z = a.storage.array, out.storage.array
    x, z = (half.bits(x), half.bits(z)) if same else (x, z)
    for shape, (p, q) in loops.launches:
        start = x, a.offset + p, loops.strides[0], z, out.offset + q, loops.strides[1]
        if how == "by tiles":
            move(*start, shape)
        elif same and (words := _in_vectors(*start, shape)) is not None:
            size = math.prod(words[-1])
            copy_vectors[ceil_div(size, THREADS), THREADS](*words, size)
        elif how == "dealt" and start[1] % 4 == 0 and is_aligned(x):
            some = *shape[:3], shape[3] // 4
            size = math.prod(some)
            copy_dealt[ceil_div(size, THREADS), THREADS](*start, some, size)
        elif lies_row_by_row(shape, loops.strides[1]):
            size, at = math.prod(shape), start[4]
            copy_gathered[ceil_div(size, 4 * THREADS), THREADS](
                *start[:5], shape, size, at % 4 == 0 and is_aligned(z)
            )
        else:
            size = math.prod(shape)
            copy_strided[ceil_div(size, THREADS), THREADS](*start, shape, size)


def _in_vectors(
    a: Any, a_at: int, a_steps: Strides, out: Any, out_at: int, out_steps: Strides,
    shape: Shape,
) -> tuple[Any, ...] | None:  # fmt: skip
    """The arguments of `copy_vectors`, where lines on both sides are whole vectors."""
    item = a.itemsize
    counts = shape[3], a_at, out_at, *a_steps[:3], *out_steps[:3]
    if a_steps[3] != 1 or out_steps[3] != 1 or any(n * item % 16 for n in counts):
        return None
    if not is_aligned(a, out):
        return None
    at, to, *steps = (n * item // WORD for n in counts[1:])
    return (
        _words(a), at, (*steps[:3], 1), _words(out), to, (*steps[3:], 1),
        (*shape[:3], shape[3] * item // 16),
    )  # fmt: skip


def _words(array: Any) -> Any:
    """The whole words of 4 bytes of a flat array."""
    size = array.size * array.itemsize // WORD
    if SIMULATED:
        return array[: size * WORD // array.itemsize].view(np.int32)
    return ARRAYS[int32](array.pointer, size, None, array)


def _copy_bytes(out: DeviceArray, a: DeviceArray) -> None:
    if out.size:
        device.call(
            f"copying {a.nbytes} bytes on the GPU",
            device.driver().cuMemcpyDtoDAsync,
            out.pointer,
            a.pointer,
            a.nbytes,
            device.current.handle,
        )
