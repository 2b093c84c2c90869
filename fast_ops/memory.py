"""Memory of the CPU: the kernels that copy, and the indices of strided kernels.

With this file one can make tensors (`empty`, `full`, `from_numpy`), look at them as
NumPy arrays without a copy (`to_numpy`), and lay any strided window out row by row
(`copy`, `copy_into`, `contiguous`), as `minitorch/backend/host/memory.py` says. The
kernels that copy stand here, and the functions with which a kernel walks along the
loops of a plan (`place`, `position`, `at`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, both, compile_kernel, device_function
from fast_ops.simd import (
    GROUP,
    VECTOR_BYTES,
    half_bits,
    half_value,
    transpose_lines,
)
from minitorch.backend.host.memory import MIN_TILE, HostMemory, plan
from minitorch.dtypes import float16, float32
from minitorch.tensor_data import Shape, Strides, TensorData

TILE = 32  # rows and columns of a tile that is transposed: 64 cache lines


# ------------------------------------------------------------------- strided loops


@device_function
def place(task: int, shape: Shape, chunks: int, chunk: int) -> tuple[int, ...]:
    """The indices i, j, k of a task's row, and where its chunk of the row starts.

    Tasks that follow each other do the same chunk of neighbouring rows, so that they
    find each other's cache lines where a row has gaps.
    """
    rest = task // shape[2]
    k = task - rest * shape[2]
    ij = rest // chunks
    start = (rest - ij * chunks) * chunk
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
    """out[i] = a[i] for flat arrays; each thread takes one chunk."""
    for i in prange(out.size):
        out[i] = a[i]


def _copy_strided(
    a: np.ndarray, a_at: int, a_steps: Strides,
    out: np.ndarray, out_at: int, out_steps: Strides,
    shape: Shape, chunk: int,
) -> None:  # fmt: skip
    """out[i, j, k, x] = a[i, j, k, x], any strides on both.

    Threads share tasks; one task is up to `chunk` elements of one row (i, j, k).
    """
    chunks = (shape[3] + chunk - 1) // chunk
    sa, so = a_steps[3], out_steps[3]
    for task in prange(shape[0] * shape[1] * shape[2] * chunks):
        i, j, k, start = place(np.int64(task), shape, chunks, chunk)
        n = min(chunk, shape[3] - start)
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


def _to_half(a: np.ndarray, out: np.ndarray) -> None:
    """out[i] = the bits of a[i], float32, as float16."""
    for i in prange(out.size):
        out[i] = half_bits(a[i])


def _from_half(a: np.ndarray, out: np.ndarray) -> None:
    """out[i] = a[i], the bits of a float16, as float32."""
    for i in prange(out.size):
        out[i] = half_value(a[i])


CONVERT = both(_to_half, _from_half)
COPY_TRANSPOSED = (
    _transposing_kernels(transpose_tile),
    _transposing_kernels(transpose_tile_floats),
)
copy_flat = compile_kernel(_copy_flat)
copy_flat_parallel = compile_kernel(_copy_flat, parallel=True)
copy_strided = compile_kernel(_copy_strided)
copy_strided_parallel = compile_kernel(_copy_strided, parallel=True)


class CPUMemory(HostMemory):
    """Tensors of the device "cpu"."""

    _device = "cpu"

    def _convert(self, out: TensorData, a: TensorData) -> None:
        """float32 from and to float16 by the processor's own instructions."""
        types, parallel = (a.dtype, out.dtype), out.size >= SERIAL_LIMIT
        if VECTOR_BYTES < 32 or not (a.contiguous and out.contiguous):
            super()._convert(out, a)
        elif types == (float32, float16):
            CONVERT.to_half[parallel](a.flat(), out.flat().view(np.uint16))
        elif types == (float16, float32):
            CONVERT.from_half[parallel](a.flat().view(np.uint16), out.flat())
        else:
            super()._convert(out, a)

    def _move(self, out: TensorData, a: TensorData) -> None:
        size = out.size
        serial = size < SERIAL_LIMIT
        if a.contiguous and out.contiguous:
            flat: Any = copy_flat if serial else copy_flat_parallel
            flat(a.flat(), out.flat())
            return
        if size == 0:
            return
        if serial and out.contiguous and a.dtype is out.dtype and not any(a.strides):
            out.flat().fill(a.storage.array[a.offset])  # one number for all
            return
        loops = plan(a.shape, a.strides, out.strides)
        x, y = a.storage.array, out.storage.array
        if loops.transposes:
            floats = a.dtype is out.dtype and a.dtype.is_floating_point
            tiled: Any = COPY_TRANSPOSED[floats][not serial]
            for p, q in loops.outer:
                tiled(
                    x, a.offset + p, loops.strides[0],
                    y, out.offset + q, loops.strides[1], loops.shape,
                )  # fmt: skip
            return
        strided: Any = copy_strided if serial else copy_strided_parallel
        for p, q in loops.outer:
            strided(
                x, a.offset + p, loops.strides[0], y, out.offset + q, loops.strides[1],
                loops.shape, loops.chunk,
            )  # fmt: skip


_cpu = CPUMemory()
empty, wrap, full = _cpu.empty, _cpu.wrap, _cpu.full
from_numpy, to_numpy = _cpu.from_numpy, _cpu.to_numpy
copy, copy_into, contiguous = _cpu.copy, _cpu.copy_into, _cpu.contiguous
last, back = _cpu._last, _cpu._back


def untransposed(a: TensorData) -> TensorData:
    """`a` itself, or a copy where its last two dimensions lie the other way round.

    An operation that reads it row by row would read one element of each cache line.
    """
    if a.dims < 2 or a.strides[-2] != 1 or a.strides[-1] in (0, 1):
        return a
    return copy(a, a.dtype) if min(a.shape[-2:]) >= MIN_TILE else a
