"""Optimizer steps: all parameters in one launch, one pass over their memory.

With this file one can take a step of SGD (`sgd_step`) or of Adam and AdamW
(`adam_step`), in place, and make a CUDA graph count its own steps (`Captured`).

A model has many small tensors, and a launch for each would cost more than the
arithmetic. So one launch takes up to MOST tensors: their addresses and sizes are
arguments of the kernel, by value, as tuples. They reach a multiprocessor through its
constant cache; there is no table to copy to the device, none that could be out of date
when gradients move, and a captured launch keeps its own.

    tensors          0: 5 elements      1: 12 elements          2: 3
    chunks (of 4)    [0 1 2 3] [4]      [0 1 2 3] [4 ..] [8 ..]  [0 1 2]
    blocks            0         1        2         3      4       5
    first block      0                  2                       5

A block finds its tensor by comparing its number with the first blocks of all. Four
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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda, int64

from cuda_ops.block.intrinsics import array_at, device, load4, store4
from cuda_ops.memory import contiguous, copy_into, empty, fill
from cuda_ops.runtime.allocator import outside_graphs
from cuda_ops.runtime.launch import SIMULATED, ceil_div, kernel
from minitorch import dtypes
from minitorch.dtypes import DType
from minitorch.step_factors import adam_factors, momentum_factors
from minitorch.tensor_data import TensorData

THREADS = 32 if SIMULATED else 256
CHUNK = 4 * THREADS * (1 if SIMULATED else 4)  # elements of a block
FEW, MOST = 8, 32  # tensors of a launch; fewer are filled up with empty ones
FACTORS = 8


# ---------------------------------------------------------------- a block's tensor


@device
def find_chunk(firsts, sizes):
    """The tensor of this block, and the first and last element of its chunk in it."""
    # BEGIN SOLUTION a8.4
    block = cuda.blockIdx.x
    tensor = int64(-1)
    for first in firsts:
        if block >= first:
            tensor += 1
    start = (block - firsts[tensor]) * CHUNK
    return tensor, start, min(start + CHUNK, sizes[tensor])
    # END SOLUTION a8.4


@device
def whole_vectors(start, stop, addresses):
    """The end of the part that 16-byte vectors cover: `start` if unaligned."""
    return start + (stop - start) // 4 * 4 if addresses % 16 == 0 else start


# ----------------------------------------------------------------------------- SGD


@device
def sgd_element(p, g, f0, f1):
    """p - lr * (g + weight_decay * p)"""
    return p - f0 * (g + f1 * p)


@device
def sgd_chunk(params, grads, sizes, firsts, f0, f1):
    """The block's chunk: see `sgd_chunks`."""
    t, start, stop = find_chunk(firsts, sizes)
    p = array_at(params[t], sizes[t], f0)
    g = array_at(grads[t], sizes[t], f0)
    end = whole_vectors(start, stop, params[t] | grads[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        p0, p1 = sgd_element(p0, g0, f0, f1), sgd_element(p1, g1, f0, f1)
        p2, p3 = sgd_element(p2, g2, f0, f1), sgd_element(p3, g3, f0, f1)
        store4(p, i, p0, p1, p2, p3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i] = sgd_element(p[i], g[i], f0, f1)


_SGD = [f"{FEW}*int64 {FEW}*int64 {FEW}*int64 {FEW}*int64"]
_ONE = {"float32": "float32", "float64": "float64"}


@kernel(examples=[f"{_SGD[0]} {t} {t}" for t in _ONE], threads=THREADS)
def sgd_chunks(params, grads, sizes, firsts, f0, f1):
    """p -= lr * (g + weight_decay * p), with f = lr, weight_decay.

    # params, grads, sizes, firsts: tuples, an entry a tensor

        for each tensor:  for i in range(size):  p[i] -= f0 * (g[i] + f1 * p[i])

    A block does a chunk of a tensor (the picture above), a thread four neighbours at a
    time: three 16-byte accesses for eight operations, so memory is what takes the time.
    """
    sgd_chunk(params, grads, sizes, firsts, f0, f1)


@kernel(examples=[f"{_SGD[0]} {t}[]" for t in _ONE], threads=THREADS)
def sgd_chunks_captured(params, grads, sizes, firsts, f):
    """`sgd_chunks` with its factors from device memory, for a CUDA graph."""
    sgd_chunk(params, grads, sizes, firsts, f[0], f[1])


@device
def momentum_element(p, g, b, first, f0, f1, f2, f3, f4, f5):
    """The new p and b: see `momentum_chunks`."""
    g = g + f3 * p
    b = f2 * g if first else f1 * b + f2 * g
    return p - f0 * (f4 * g + f5 * b), b


@device
def momentum_chunk(
    params, grads, bufs, sizes, firsts, first, f0, f1, f2, f3, f4, f5
):  # fmt: skip
    """The block's chunk: see `momentum_chunks`."""
    t, start, stop = find_chunk(firsts, sizes)
    p = array_at(params[t], sizes[t], f0)
    g = array_at(grads[t], sizes[t], f0)
    b = array_at(bufs[t], sizes[t], f0)
    end = whole_vectors(start, stop, params[t] | grads[t] | bufs[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        b0, b1, b2, b3 = load4(b, i)
        p0, b0 = momentum_element(p0, g0, b0, first, f0, f1, f2, f3, f4, f5)
        p1, b1 = momentum_element(p1, g1, b1, first, f0, f1, f2, f3, f4, f5)
        p2, b2 = momentum_element(p2, g2, b2, first, f0, f1, f2, f3, f4, f5)
        p3, b3 = momentum_element(p3, g3, b3, first, f0, f1, f2, f3, f4, f5)
        store4(p, i, p0, p1, p2, p3)
        store4(b, i, b0, b1, b2, b3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i], b[i] = momentum_element(p[i], g[i], b[i], first, f0, f1, f2, f3, f4, f5)


_MOMENTUM = f"{_SGD[0]} {FEW}*int64 bool"


@kernel(examples=[f"{_MOMENTUM} {t} {t} {t} {t} {t} {t}" for t in _ONE])
def momentum_chunks(
    params, grads, bufs, sizes, firsts, first, f0, f1, f2, f3, f4, f5
):  # fmt: skip
    """b = momentum * b + damp * g; p -= lr * (from_g * g + from_b * b).

    # params, grads, bufs, sizes, firsts: tuples, an entry a tensor

    g is grad + weight_decay * p, f = lr, momentum, damp, weight_decay, from_g, from_b.
    Without Nesterov's idea the step is b (0 and 1); with it, g + momentum * b (1 and
    momentum). `first`: b was not there before, and is damp * g. Threads as in
    `sgd_chunks`.
    """
    momentum_chunk(params, grads, bufs, sizes, firsts, first, f0, f1, f2, f3, f4, f5)


@kernel(examples=[f"{_MOMENTUM} {t}[]" for t in _ONE], threads=THREADS)
def momentum_chunks_captured(params, grads, bufs, sizes, firsts, first, f):
    """`momentum_chunks` with its factors from device memory, for a CUDA graph."""
    momentum_chunk(
        params, grads, bufs, sizes, firsts, first, f[0], f[1], f[2], f[3], f[4], f[5]
    )


# ---------------------------------------------------------------------------- Adam


@device
def adam_element(p, g, m, v, f0, f1, f2, f3, f4, f5, f6, f7):
    """The new p, m and v: see `adam_chunks`."""
    # BEGIN SOLUTION a8.4
    x = p * f7
    g = g + f6 * x
    m = m + f1 * (g - m)
    v = f2 * v + f3 * g * g
    return x - f0 * m / (math.sqrt(v) * f5 + f4), m, v
    # END SOLUTION a8.4


@device
def adam_chunk(
    params, grads, ms, vs, sizes, firsts, f0, f1, f2, f3, f4, f5, f6, f7
):  # fmt: skip
    """The block's chunk: see `adam_chunks`."""
    # BEGIN SOLUTION a8.4
    t, start, stop = find_chunk(firsts, sizes)
    p = array_at(params[t], sizes[t], f0)
    g = array_at(grads[t], sizes[t], f0)
    m = array_at(ms[t], sizes[t], f0)
    v = array_at(vs[t], sizes[t], f0)
    end = whole_vectors(start, stop, params[t] | grads[t] | ms[t] | vs[t])
    for i in range(start + 4 * cuda.threadIdx.x, end, 4 * THREADS):
        p0, p1, p2, p3 = load4(p, i)
        g0, g1, g2, g3 = load4(g, i)
        m0, m1, m2, m3 = load4(m, i)
        v0, v1, v2, v3 = load4(v, i)
        p0, m0, v0 = adam_element(p0, g0, m0, v0, f0, f1, f2, f3, f4, f5, f6, f7)
        p1, m1, v1 = adam_element(p1, g1, m1, v1, f0, f1, f2, f3, f4, f5, f6, f7)
        p2, m2, v2 = adam_element(p2, g2, m2, v2, f0, f1, f2, f3, f4, f5, f6, f7)
        p3, m3, v3 = adam_element(p3, g3, m3, v3, f0, f1, f2, f3, f4, f5, f6, f7)
        store4(p, i, p0, p1, p2, p3)
        store4(m, i, m0, m1, m2, m3)
        store4(v, i, v0, v1, v2, v3)
    for i in range(end + cuda.threadIdx.x, stop, THREADS):
        p[i], m[i], v[i] = adam_element(
            p[i], g[i], m[i], v[i], f0, f1, f2, f3, f4, f5, f6, f7
        )
    # END SOLUTION a8.4


_ADAM = f"{_SGD[0]} {FEW}*int64 {FEW}*int64"


@kernel(examples=[f"{_ADAM} {' '.join([t] * FACTORS)}" for t in _ONE], threads=THREADS)
def adam_chunks(
    params, grads, ms, vs, sizes, firsts, f0, f1, f2, f3, f4, f5, f6, f7
):  # fmt: skip
    """Move the averages m and v toward g and g * g, and p along m / sqrt(v).

    # params, grads, ms, vs, sizes, firsts: tuples, an entry a tensor

        x = p * shrink;  g = grad + decay * x
        m += new1 * (g - m);  v = beta2 * v + new2 * g * g
        p = x - step_size * m / (sqrt(v) * root + eps)

    f = step_size, new1 = 1 - beta1, beta2, new2 = 1 - beta2, eps, root = 1 / sqrt(1 -
    beta2^step), decay (Adam) and shrink (AdamW). Threads as in `sgd_chunks`; seven
    16-byte accesses for four elements, 28 bytes for each, and one square root and one
    division, which hide behind them.
    """
    adam_chunk(params, grads, ms, vs, sizes, firsts, f0, f1, f2, f3, f4, f5, f6, f7)


@kernel(examples=[f"{_ADAM} {t}[]" for t in _ONE], threads=THREADS)
def adam_chunks_captured(params, grads, ms, vs, sizes, firsts, f):
    """`adam_chunks` with its factors from device memory, for a CUDA graph."""
    adam_chunk(
        params, grads, ms, vs, sizes, firsts,
        f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7],
    )  # fmt: skip


# -------------------------------------------------------------------- CUDA graphs

factors_of_step = device(adam_factors)


@kernel(
    examples=[
        f"float64[] int64[] float64 float64 float64 float64 bool {t}[]" for t in _ONE
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
    examples=[
        f"float64[] int64[] float64 float64 float64 float64 float64 {t}[]" for t in _ONE
    ],
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


Words = tuple[int, ...]


@lru_cache(maxsize=256)
def _chunks(sizes: Words) -> tuple[int, Words, Words]:
    """How many blocks the tensors of a launch take, and the tuples sizes and firsts."""
    firsts, blocks = [], 0
    for size in sizes:
        firsts.append(blocks)
        blocks += ceil_div(size, CHUNK)
    rest = (FEW if len(sizes) <= FEW else MOST) - len(sizes)
    return blocks, (*sizes, *[0] * rest), (*firsts, *[blocks] * rest)


def _launches(
    tensors: Sequence[Sequence[TensorData]],
) -> Iterator[tuple[int, tuple[Words, ...]]]:
    """For each launch: how many blocks, and the tuples of addresses, sizes, firsts.

    The launch must be made before the next is asked for: afterwards, tensors that are
    not contiguous are copied back.
    """
    sizes = [math.prod(p.shape) for p in tensors[0]]
    if 0 in sizes:
        tensors = [[t for t, n in zip(column, sizes) if n] for column in tensors]
        sizes = [n for n in sizes if n]
    for at in range(0, len(sizes), MOST):
        blocks, *tables = _chunks(tuple(sizes[at : at + MOST]))
        given = [list(column[at : at + MOST]) for column in tensors]
        flat = [list(map(contiguous, column)) for column in given]
        rest = (0,) * (len(tables[0]) - len(given[0]))
        addresses = [(*_addresses(column), *rest) for column in flat]
        yield blocks, (*addresses, *tables)
        for k, (old, new) in enumerate(zip(given, flat)):
            if new != old and k != 1:  # gradients do not change
                _copy_back(old, new)


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


def _numbers(dtype: DType, factors: Sequence[float]) -> list[Any]:
    """The factors, rounded to the type of the parameters."""
    return list(np.array(factors, dtype.numpy))


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
    """One step in place on all tensors; `first` sets the buffers to the gradient.

    g = grad + weight_decay * p; buf = momentum * buf + (1 - dampening) * g;
    p -= lr * (g + momentum * buf if nesterov else buf if momentum else g).
    """
    if momentum_buffers is None or momentum == 0:
        factors: tuple[Any, ...] = (lr, weight_decay)
        for dtype, tensors in _by_dtype((params, grads)).items():
            _run(sgd_chunks, sgd_chunks_captured, tensors, (), dtype, factors)
        return
    rest = momentum_factors(0, momentum, dampening, weight_decay, nesterov, first)[1:]
    factors = (lr, *rest)
    for dtype, tensors in _by_dtype((params, grads, momentum_buffers)).items():
        _run(
            momentum_chunks, momentum_chunks_captured, tensors, (first,), dtype, factors
        )


def _run(
    eager: Any, captured: Any, tensors: Sequence[Sequence[TensorData]],
    flags: tuple[bool, ...], dtype: DType, factors: tuple[Any, ...],
) -> None:  # fmt: skip
    """Launch an SGD kernel for all tensors: with numbers, or with device memory."""
    state = factors[0]
    if not isinstance(state, Captured):
        numbers = _numbers(dtype, factors)
        for blocks, tuples in _launches(tensors):
            eager[blocks, THREADS](*tuples, *flags, *numbers)
        return
    rest = [*map(float, factors[1:]), 0.0, 0.0, 0.0, 0.0][:5]
    count_sgd_step[1, 1](
        state.device_lr.flat(), state.device_count.flat(), *rest, state.factors.flat()
    )
    for blocks, tuples in _launches(tensors):
        captured[blocks, THREADS](*tuples, *flags, state.factors.flat())


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
) -> None:
    """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1.

    p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps).

    Source: Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay
    regularization", 2019.
    """
    kinds = _by_dtype((params, grads, exp_avgs, exp_avg_sqs))
    for dtype, tensors in kinds.items():
        if isinstance(lr, Captured):
            options = (beta1, beta2, eps, weight_decay)
            _adam_captured(lr, tensors, options, decoupled)
            continue
        factors = adam_factors(step, lr, beta1, beta2, eps, weight_decay, decoupled)
        numbers = _numbers(dtype, factors)
        for blocks, tuples in _launches(tensors):
            adam_chunks[blocks, THREADS](*tuples, *numbers)


def _adam_captured(
    state: Captured, tensors: Sequence[Sequence[TensorData]],
    options: tuple[float, ...], decoupled: bool,
) -> None:  # fmt: skip
    """An Adam step whose factors are computed on the device at each replay."""
    count_adam_step[1, 1](
        state.device_lr.flat(), state.device_count.flat(), *map(float, options),
        decoupled, state.factors.flat(),
    )  # fmt: skip
    for blocks, tuples in _launches(tensors):
        adam_chunks_captured[blocks, THREADS](*tuples, state.factors.flat())
