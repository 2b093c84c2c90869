"""Optimizer steps: all parameters in one launch, one pass over their memory.

With this file one can take a step of SGD (`sgd_step`) or of Adam and AdamW
(`adam_step`), in place, add up the squares of all gradients (`sum_of_squares`), copy
them all to other places (`copy_all`), and make a CUDA graph count its own steps
(`Captured`).

A model has many small tensors, and a launch for each would cost more than the
arithmetic. So one launch takes them all: a table in the device's memory has their
addresses and sizes. The table is made again when one of them has changed; mostly none
has, because the allocator gives new gradients the places of the last ones. A captured
launch has a table of its own, which the graph keeps.

    tensors          0: 5 elements      1: 12 elements          2: 3
    chunks (of 4)    [0 1 2 3] [4]      [0 1 2 3] [4 ..] [8 ..]  [0 1 2]
    blocks            0         1        2         3      4       5
    first block      0                  2                       5

A block finds its tensor by a binary search among the first blocks of all. Four
elements of each array come and go with 16-byte loads and stores; each number is loaded
once, updated in registers and stored once. All factors are rounded to the parameters'
type before the launch, so that float32 parameters are updated in float32 arithmetic.

Steps in a CUDA graph
---------------------
A captured launch keeps its arguments: learning rate and step number would stand still.
While a graph is captured, a step can take them from device memory instead:

    numbers = Captured(lr, count, dtype)
    adam_step(..., lr=numbers, ...)       # while the graph is captured
    numbers.set()                         # once, before the first replay
    numbers.set(lr=..., count=...)        # before a replay, where one has changed

A small kernel in front of the step adds 1 to `count` and computes the factors from
both, in float64. So a replay that changes nothing needs no call at all: steps are
counted on the device. After a replay the host adds 1 to its own counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numba import cuda, int64

from cuda_ops.block.intrinsics import WARP, array_at, device, load4, same_type, store4
from cuda_ops.block.rows import BLOCK
from cuda_ops.memory import contiguous, copy, copy_into, empty, fill, from_numpy, full
from cuda_ops.reduce import block_fold, reduce
from cuda_ops.runtime import device as runtime
from cuda_ops.runtime import staging
from cuda_ops.runtime.allocator import outside_graphs
from cuda_ops.runtime.arrays import nothing
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from minitorch import dtypes, operators
from minitorch.dtypes import DType
from minitorch.step_factors import adam_factors, momentum_factors
from minitorch.tensor_data import Shape, TensorData

THREADS = 32 if TINY else 256
# Elements of a block.
CHUNK = 4 * THREADS * (1 if TINY else 4)
# Tables that are kept for the next step: an optimizer has a few, each bucket one.
TABLES = 512
FACTORS = 8
WARPS = BLOCK // WARP


# ---------------------------------------------------------------- a block's tensor


@device
def row(table, k, rows):
    """Row k of a flat table of so many rows: an entry a tensor."""
    n = table.size // rows
    return table[k * n : (k + 1) * n]


@device
def find_chunk(firsts, sizes):
    """The tensor of this block, and the first and last element of its chunk in it."""
    # BEGIN SOLUTION a8.4
    block = cuda.blockIdx.x
    tensor, behind = int64(0), int64(firsts.size)
    while behind - tensor > 1:
        middle = (tensor + behind) >> 1
        if block >= firsts[middle]:
            tensor = middle
        else:
            behind = middle
    start = (block - firsts[tensor]) * CHUNK
    return tensor, start, min(start + CHUNK, sizes[tensor])
    # END SOLUTION a8.4


@device
def whole_vectors(start, stop, addresses):
    """The end of the part that 16-byte vectors cover: `start` if unaligned."""
    return start + (stop - start) // 4 * 4 if addresses % 16 == 0 else start


# ------------------------------------------------------------------------- kernels

# Each kernel exists twice: with its factors as numbers, and, for a CUDA graph, with
# factors from device memory.
_TYPES = ("float32", "float64")


@device
def sgd_element(p, g, f):
    """p - lr * (g + weight_decay * p)"""
    return p - f[0] * (g + f[1] * p)


@device
def sgd_chunk(table, f):
    """The block's chunk: see `sgd_chunks`."""
    params, grads, sizes = row(table, 0, 4), row(table, 1, 4), row(table, 2, 4)
    t, start, stop = find_chunk(row(table, 3, 4), sizes)
    p = array_at(params[t], sizes[t], f[0])
    g = array_at(grads[t], sizes[t], f[0])
    end = whole_vectors(start, stop, params[t] | grads[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        p0, p1 = sgd_element(p0, g0, f), sgd_element(p1, g1, f)
        p2, p3 = sgd_element(p2, g2, f), sgd_element(p3, g3, f)
        store4(p, i, p0, p1, p2, p3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i] = sgd_element(p[i], g[i], f)


@kernel(examples=[f"int64[] {t} {t}" for t in _TYPES], threads=THREADS)
def sgd_chunks(table, f0, f1):
    """p -= lr * (g + weight_decay * p), with f = lr, weight_decay.

    # table [4, tensors]: params, grads (addresses), sizes, firsts

        for each tensor:  for i in range(size):  p[i] -= f0 * (g[i] + f1 * p[i])

    A block does a chunk of a tensor (the picture above), a thread four neighbours at a
    time: three 16-byte accesses for eight operations, so memory is what takes the time.
    """
    sgd_chunk(table, (f0, f1))


@kernel(examples=[f"int64[] {t}[]" for t in _TYPES], threads=THREADS)
def sgd_chunks_captured(table, f):
    """`sgd_chunks` with its factors from device memory."""
    sgd_chunk(table, (f[0], f[1]))


@device
def momentum_element(p, g, b, first, f):
    """The new p and b: see `momentum_chunks`."""
    g = g + f[3] * p
    b = f[2] * g if first else f[1] * b + f[2] * g
    return p - f[0] * (f[4] * g + f[5] * b), b


@device
def momentum_chunk(table, first, f):
    """The block's chunk: see `momentum_chunks`."""
    params, grads, bufs = row(table, 0, 5), row(table, 1, 5), row(table, 2, 5)
    sizes = row(table, 3, 5)
    t, start, stop = find_chunk(row(table, 4, 5), sizes)
    p = array_at(params[t], sizes[t], f[0])
    g = array_at(grads[t], sizes[t], f[0])
    b = array_at(bufs[t], sizes[t], f[0])
    end = whole_vectors(start, stop, params[t] | grads[t] | bufs[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        b0, b1, b2, b3 = load4(b, i)
        p0, b0 = momentum_element(p0, g0, b0, first, f)
        p1, b1 = momentum_element(p1, g1, b1, first, f)
        p2, b2 = momentum_element(p2, g2, b2, first, f)
        p3, b3 = momentum_element(p3, g3, b3, first, f)
        store4(p, i, p0, p1, p2, p3)
        store4(b, i, b0, b1, b2, b3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i], b[i] = momentum_element(p[i], g[i], b[i], first, f)


@kernel(examples=[f"int64[] bool {' '.join([t] * 6)}" for t in _TYPES])
def momentum_chunks(table, first, f0, f1, f2, f3, f4, f5):
    """b = momentum * b + damp * g; p -= lr * (from_g * g + from_b * b).

    # table [5, tensors]: params, grads, bufs (addresses), sizes, firsts

    g is grad + weight_decay * p, f = lr, momentum, damp, weight_decay, from_g, from_b.
    Without Nesterov's idea the step is b (0 and 1); with it, g + momentum * b (1 and
    momentum). `first`: b was not there before, and is damp * g. Threads as in
    `sgd_chunks`.
    """
    momentum_chunk(table, first, (f0, f1, f2, f3, f4, f5))


@kernel(examples=[f"int64[] bool {t}[]" for t in _TYPES], threads=THREADS)
def momentum_chunks_captured(table, first, f):
    """`momentum_chunks` with its factors from device memory."""
    momentum_chunk(table, first, (f[0], f[1], f[2], f[3], f[4], f[5]))


@device
def adam_element(p, g, m, v, f):
    """The new p, m and v: see `adam_chunks`."""
    # BEGIN SOLUTION a8.4
    x = p * f[7]
    g = f[8] * g + f[6] * x
    m = m + f[1] * (g - m)
    v = f[2] * v + f[3] * g * g
    return x - f[0] * m / (math.sqrt(v) * f[5] + f[4]), m, v
    # END SOLUTION a8.4


@device
def adam_chunk(params, grads, ms, vs, sizes, firsts, f):
    """The block's chunk: see `adam_chunks`."""
    # BEGIN SOLUTION a8.4
    t, start, stop = find_chunk(firsts, sizes)
    p = array_at(params[t], sizes[t], f[0])
    g = array_at(grads[t], sizes[t], f[0])
    m = array_at(ms[t], sizes[t], f[0])
    v = array_at(vs[t], sizes[t], f[0])
    end = whole_vectors(start, stop, params[t] | grads[t] | ms[t] | vs[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        m0, m1, m2, m3 = load4(m, i)
        v0, v1, v2, v3 = load4(v, i)
        p0, m0, v0 = adam_element(p0, g0, m0, v0, f)
        p1, m1, v1 = adam_element(p1, g1, m1, v1, f)
        p2, m2, v2 = adam_element(p2, g2, m2, v2, f)
        p3, m3, v3 = adam_element(p3, g3, m3, v3, f)
        store4(p, i, p0, p1, p2, p3)
        store4(m, i, m0, m1, m2, m3)
        store4(v, i, v0, v1, v2, v3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i], m[i], v[i] = adam_element(p[i], g[i], m[i], v[i], f)
    # END SOLUTION a8.4


@device
def adam_tensors(table, scale, f):
    """The block's chunk, with a ninth factor from device memory: see `adam_chunks`."""
    params, grads, ms = row(table, 0, 6), row(table, 1, 6), row(table, 2, 6)
    vs, sizes, firsts = row(table, 3, 6), row(table, 4, 6), row(table, 5, 6)
    by = scale[0] if scale.size else same_type(1, f[0])
    factors = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], by
    adam_chunk(params, grads, ms, vs, sizes, firsts, factors)


@kernel(
    examples=[f"int64[] {t}[] {' '.join([t] * FACTORS)}" for t in _TYPES],
    threads=THREADS,
)
def adam_chunks(table, scale, f0, f1, f2, f3, f4, f5, f6, f7):
    """Move the averages m and v toward g and g * g, and p along m / sqrt(v).

    # table [6, tensors]: params, grads, ms, vs (addresses), sizes, firsts
    # scale [1] or [0], which is 1

        x = p * shrink;  g = scale * grad + decay * x
        m += new1 * (g - m);  v = beta2 * v + new2 * g * g
        p = x - step_size * m / (sqrt(v) * root + eps)

    f = step_size, new1 = 1 - beta1, beta2, new2 = 1 - beta2, eps, root = 1 / sqrt(1 -
    beta2^step), decay (Adam), shrink (AdamW) and scale, which is in device memory: the
    norm that gradients are clipped by need not come to the host. Threads as in
    `sgd_chunks`; seven 16-byte accesses for four elements, 28 bytes for each, and one
    square root and one division, which hide behind them.
    """
    adam_tensors(table, scale, (f0, f1, f2, f3, f4, f5, f6, f7))


@kernel(examples=[f"int64[] {t}[] {t}[]" for t in _TYPES], threads=THREADS)
def adam_chunks_captured(table, scale, f):
    """`adam_chunks` with its factors from device memory."""
    f = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
    adam_tensors(table, scale, f)


# --------------------------------------------------------------------------- norms


@device
def plus(a, b):
    """a + b"""
    return a + b


block_sum = block_fold(plus)


@kernel(examples=[f"int64[] {t}[]" for t in _TYPES], threads=BLOCK)
def square_chunks(table, out):
    """out[b] = the sum of the squares in the chunk of block b.

    # table [3, tensors]: tensors (addresses), sizes, firsts; out [blocks]

    All that is read is read once, by 16-byte loads; a block leaves its sum in a place
    of its own, and another launch adds these up in order: the result is the same in
    every run.
    """
    cells = cuda.shared.array(WARPS, out.dtype)
    addresses, sizes = row(table, 0, 3), row(table, 1, 3)
    t, start, stop = find_chunk(row(table, 2, 3), sizes)
    x = array_at(addresses[t], sizes[t], out[0])
    end = whole_vectors(start, stop, addresses[t])
    total = same_type(0, out[0])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * BLOCK):
        a, b, c, d = load4(x, i)
        total += (a * a + b * b) + (c * c + d * d)
    for i in range(end + cuda.threadIdx.x, stop, BLOCK):
        total += x[i] * x[i]
    total = block_sum(total, cells)
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


@kernel(examples=[f"int64[] {t}" for t in _TYPES], threads=THREADS)
def copy_chunks(table, zero):
    """for each tensor and each of its elements i: out[i] = x[i]

    # table [4, tensors]: outs, xs (addresses), sizes, firsts; `zero` is of their type

    A block copies a chunk of one tensor, by 16-byte loads and stores where both begin
    at multiples of 16 bytes. Nothing is read twice, so that nothing is kept; what is
    saved, against a launch for each tensor, is launches.
    """
    outs, xs, sizes = row(table, 0, 4), row(table, 1, 4), row(table, 2, 4)
    t, start, stop = find_chunk(row(table, 3, 4), sizes)
    out = array_at(outs[t], sizes[t], zero)
    x = array_at(xs[t], sizes[t], zero)
    end = whole_vectors(start, stop, outs[t] | xs[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        a, b, c, d = load4(x, i)
        store4(out, i, a, b, c, d)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        out[i] = x[i]


# -------------------------------------------------------------------- CUDA graphs

factors_of_step = device(adam_factors)


@kernel(
    examples=[
        f"float64[] int64[] float64 float64 float64 float64 bool {t}[]" for t in _TYPES
    ],
    threads=1,
)
def count_adam_step(lr, count, beta1, beta2, eps, weight_decay, decoupled, f):
    """count[0] += 1, and the factors of that step for `adam_chunks_captured`.

    # lr [1], count [1], f [8]; one thread, in float64
    """
    count[0] += 1
    f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7] = factors_of_step(
        float(count[0]), lr[0], beta1, beta2, eps, weight_decay, decoupled
    )


@kernel(
    examples=[f"float64[] int64[] {' '.join(['float64'] * 5)} {t}[]" for t in _TYPES],
    threads=1,
)
def count_sgd_step(lr, count, f1, f2, f3, f4, f5, f):
    """count[0] += 1, f[0] = lr[0] and the other factors; one thread."""
    count[0] += 1
    f[0] = lr[0]
    f[1] = f1
    f[2] = f2
    f[3] = f3
    f[4] = f4
    f[5] = f5


class Captured:
    """The learning rate and the step number of one captured step, in device memory.

    Nothing is written to the device while the graph is captured: a write would be part
    of it and be repeated. `set` must be called once before the first replay.

    Attributes:
        lr, count: what the step was captured with: the learning rate, and the number of
            steps before it.
        device_lr, device_count, factors: float64 [1], int64 [1] and the factors [8].
    """

    def __init__(self, lr: float, count: int, dtype: DType) -> None:
        self.lr, self.count = lr, count
        with outside_graphs():
            self.device_lr = empty((1,), dtypes.float64)
            self.device_count = empty((1,), dtypes.int64)
            self.factors = empty((FACTORS,), dtype)

    def counted(self) -> tuple[Any, Any]:
        """What the kernels take that count a step: the learning rate and the count."""
        return self.device_lr.flat(), self.device_count.flat()

    def set(self, lr: float | None = None, count: int | None = None) -> None:
        """Write the learning rate or the number of steps done before the next replay.

        Without arguments both, as they were at the capture.
        """
        if lr is None and count is None:
            lr, count = self.lr, self.count
        if lr is not None:
            self.lr = lr
            fill(self.device_lr.flat(), np.float64(lr))
        if count is not None:
            self.count = count
            fill(self.device_count.flat(), np.int64(count))


# ----------------------------------------------------------------------- launchers


def _addresses(tensors: Sequence[TensorData]) -> list[int]:
    """Where the elements of contiguous tensors of one type begin."""
    item = tensors[0].storage.dtype.itemsize
    if SIMULATED:
        return [t.storage.array.ctypes.data + t.offset * item for t in tensors]
    return [t.storage.array.pointer + t.offset * item for t in tensors]


@lru_cache(maxsize=256)
def _cut_up(shapes: tuple[Shape, ...]) -> tuple[Shape, Shape, int]:
    """Sizes of tensors, the first block of each, and how many blocks there are."""
    sizes = tuple(map(math.prod, shapes))
    ends = tuple(accumulate([ceil_div(size, CHUNK) for size in sizes], initial=0))
    return sizes, ends[:-1], ends[-1]


Columns = Sequence[Sequence[TensorData]]
_tables: dict[tuple[Any, ...], Any] = {}


def _table(columns: Columns) -> tuple[int, Any]:
    """How many blocks the tensors of a launch take, and the table in device memory.

    Args:
        columns: contiguous tensors that are not empty; those of a column have the sizes
            of those of the first.
    """
    sizes, firsts, blocks = _cut_up(tuple([p.shape for p in columns[0]]))
    rows = (*map(_addresses, columns), sizes, firsts)
    numbers = [number for numbers in rows for number in numbers]
    if runtime.current.capture is not None:
        return blocks, _captured_table(np.array(numbers))
    key = runtime.current.gpu, runtime.current.handle, len(columns), *numbers
    found = _tables.get(key)
    if found is None:
        if len(_tables) >= TABLES:
            _tables.clear()
        found = _tables[key] = from_numpy(np.array(numbers)).flat()
    return blocks, found


def _captured_table(numbers: np.ndarray) -> Any:
    """A table that lives as long as the graph; it is filled behind the capture."""
    with outside_graphs():
        table = empty((len(numbers),), dtypes.int64).flat()
    capture = runtime.current.capture
    capture.kept.append(table)
    if SIMULATED:
        table[:] = numbers
    else:
        capture.afterwards.append(lambda: staging.to_device(table, numbers))
    return table


def _copy_back(given: Sequence[TensorData], flat: Sequence[TensorData]) -> None:
    """Write copies that were made because tensors are not contiguous."""
    for old, new in zip(given, flat):
        if new is not old:
            copy_into(old, new)


def _by_dtype(
    tensors: Sequence[Sequence[TensorData]],
) -> dict[DType, Sequence[Sequence[TensorData]]]:
    """The tensors of each element type, in lists as before.

    Raises:
        TypeError: tensors of one parameter differ in type.
    """
    kinds = {t.storage.dtype for column in tensors for t in column}
    if len(kinds) == 1:
        return {kinds.pop(): tensors}
    rows: dict[DType, list[tuple[TensorData, ...]]] = {}
    for row in zip(*tensors):
        dtype = row[0].storage.dtype
        if any(t.storage.dtype is not dtype for t in row):
            names = [t.dtype.name for t in row]
            raise TypeError(f"optimizer step: tensors of one parameter differ: {names}")
        rows.setdefault(dtype, []).append(row)
    return {dtype: list(zip(*some)) for dtype, some in rows.items()}


def _launch(
    runs: tuple[Any, Any], dtype: DType, tensors: Columns,
    flags: tuple[Any, ...], factors: Captured | Sequence[float],
) -> None:  # fmt: skip
    """Run a kernel for all tensors: with factors of their type, or device memory's."""
    given = [[t for t in column if 0 not in t.shape] for column in tensors]
    if not given[0]:
        return
    flat = [[t if t.contiguous else contiguous(t) for t in ts] for ts in given]
    blocks, table = _table(flat)
    run, captured = runs
    if isinstance(factors, Captured):
        captured[blocks, THREADS](table, *flags, factors.factors.flat())
    else:
        run[blocks, THREADS](table, *flags, *np.array(factors, dtype.numpy))
    for k, (old, new) in enumerate(zip(given, flat)):
        if new != old and k != 1:  # gradients do not change
            _copy_back(old, new)


def sgd_step(
    params: Sequence[TensorData],
    grads: Sequence[TensorData],
    momentum_buffers: Sequence[TensorData] | None,
    lr: float | Captured,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> None:
    """One step in place on all tensors; `first` sets the buffers to the gradient."""
    runs: tuple[Any, Any] = (sgd_chunks, sgd_chunks_captured)
    columns: tuple[Sequence[TensorData], ...] = (params, grads)
    flags: tuple[bool, ...] = ()
    rest: tuple[float, ...] = (weight_decay,)
    if momentum_buffers is not None and momentum != 0:
        runs = momentum_chunks, momentum_chunks_captured
        columns, flags = (params, grads, momentum_buffers), (first,)
        options = (momentum, dampening, weight_decay, nesterov, first)
        rest = momentum_factors(0, *options)[1:]
    if isinstance(lr, Captured):
        five = [*map(float, rest), 0.0, 0.0, 0.0, 0.0][:5]
        count_sgd_step[1, 1](*lr.counted(), *five, lr.factors.flat())
    for dtype, tensors in _by_dtype(columns).items():
        factors = lr if isinstance(lr, Captured) else (lr, *rest)
        _launch(runs, dtype, tensors, flags, factors)


def adam_step(
    params: Sequence[TensorData],
    grads: Sequence[TensorData],
    exp_avgs: Sequence[TensorData],
    exp_avg_sqs: Sequence[TensorData],
    step: int,
    lr: float | Captured,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    scale: TensorData | None = None,
) -> None:
    """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1.

    `scale` [] is a factor for all gradients.

    Source: Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay
    regularization", 2019.
    """
    columns = (params, grads, exp_avgs, exp_avg_sqs)
    options = (beta1, beta2, eps, weight_decay)
    if isinstance(lr, Captured):
        given = (*lr.counted(), *map(float, options), decoupled)
        count_adam_step[1, 1](*given, lr.factors.flat())
        factors: Captured | tuple[float, ...] = lr
    else:
        factors = adam_factors(step, lr, *options, decoupled)
    runs = adam_chunks, adam_chunks_captured
    for dtype, tensors in _by_dtype(columns).items():
        by = nothing(dtype) if scale is None else _as_type(scale, dtype).flat()
        _launch(runs, dtype, tensors, (by,), factors)


def _as_type(a: TensorData, dtype: DType) -> TensorData:
    """`a` in this type; itself, if it has it."""
    return a if a.dtype is dtype else copy(a, dtype)


def sum_of_squares(tensors: Sequence[TensorData]) -> TensorData:
    """The sum [] of the squares of all numbers; of tensors of one type."""
    dtype = tensors[0].dtype
    flat = [contiguous(t) for t in tensors if 0 not in t.shape]
    if not flat:
        return full((), 0.0, dtype)
    blocks, table = _table([flat])
    sums = empty((blocks,), dtype)
    square_chunks[blocks, BLOCK](table, sums.flat())
    total = reduce(operators.add, sums, (0,), 0.0)
    return TensorData(total.storage, ())


def copy_all(outs: Sequence[TensorData], tensors: Sequence[TensorData]) -> None:
    """outs[k][...] = tensors[k] for all k; what lies row by row goes in one launch."""
    together: dict[DType, list[tuple[TensorData, TensorData]]] = {}
    for out, a in zip(outs, tensors):
        dtype, alike = out.dtype, (out.dtype, out.shape) == (a.dtype, a.shape)
        flat = alike and out.contiguous and a.contiguous and out.size > 0
        if flat and dtype.name in _TYPES:
            together.setdefault(dtype, []).append((out, a))
        else:
            copy_into(out, a)
    for dtype, pairs in together.items():
        blocks, table = _table([*zip(*pairs)])
        copy_chunks[blocks, THREADS](table, dtype.numpy.type(0))
