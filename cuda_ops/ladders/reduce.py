"""A sum on the GPU in five steps, from half-idle warps to the limit of the memory.

With this file one can read, call and time each step to a parallel reduction, by name in
`LADDER`:

    sum_divergent    a tree in shared memory, in which every second thread idles
    sum_contiguous   the same tree, with the working threads side by side
    sum_several      a thread adds up several elements before the tree begins
    sum_shuffle      registers in place of shared memory, within a warp
    sum_vectorized   16 bytes for each load, four of them under way

A rung takes a contiguous float32 tensor of any shape and returns the sum of all its
elements, as a tensor without dimensions. Each launch leaves one sum for each block; the
same kernel then adds these, until one is left. So the result is the same, to the last
bit, in every run. The backend sums with `reduce.py`, which is the last rung's idea for
any function and any dimensions.

Source: Harris, "Optimizing parallel reduction in CUDA", 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32

from cuda_ops.block.intrinsics import WARP, is_aligned, load4
from cuda_ops.block.rows import BLOCK, summed
from cuda_ops.memory import empty, full
from cuda_ops.runtime.launch import ceil_div, kernel
from minitorch import dtypes
from minitorch.tensor_data import TensorData

# Elements of a thread in `sum_several` and `sum_shuffle`.
EACH = 8
# Vectors of 4 elements that a thread of `sum_vectorized` has under way.
VECTORS = 4
ZERO = np.float32(0)
WARPS = BLOCK // WARP

total_of = summed(BLOCK)

# ----------------------------------------------------------- the ladder, rung by rung


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_divergent_blocks(x, out):
    """A tree of additions, written down as it is drawn.

    # x [N] -> out [ceil(N / BLOCK)]

        thread  0   1   2   3   4   5   6   7
        step 1  0+1     2+3     4+5     6+7
        step 2  0+2             4+6
        step 4  0+4

    A thread has one element in shared memory; after log2(BLOCK) steps thread 0 has the
    sum of the block. In step 1 every second thread adds, in step 2 every fourth: each
    warp stays at work to the end, with fewer and fewer of its lanes, as the lanes of a
    warp can only wait for each other. This is what diverging branches cost.
    """
    cells = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    cells[t] = x[i] if i < x.size else ZERO
    step = 1
    while step < BLOCK:
        cuda.syncthreads()
        if t % (2 * step) == 0:
            cells[t] += cells[t + step]
        step *= 2
    if t == 0:
        out[cuda.blockIdx.x] = cells[0]


# BEGIN SOLUTION a4.3
@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_contiguous_blocks(x, out):
    """The same tree with "sequential addressing": the first half adds the second.

    # x [N] -> out [ceil(N / BLOCK)]

        thread  0   1   2   3   4   5   6   7
        step 4  0+4 1+5 2+6 3+7
        step 2  0+2 1+3
        step 1  0+1

    The threads that work are side by side, so whole warps finish early and leave the
    issue slots to others; and a warp's cells are in 32 different banks.
    """
    cells = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    cells[t] = x[i] if i < x.size else ZERO
    half = BLOCK // 2
    while half > 0:
        cuda.syncthreads()
        if t < half:
            cells[t] += cells[t + half]
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = cells[0]


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_several_blocks(x, out):
    """Add in registers first: EACH elements for each thread, then the tree.

    # x [N] -> out [ceil(N / (EACH BLOCK))]

    In the tree a block of 256 threads spends 255 additions and 8 barriers on 256
    elements. Here it adds EACH times as many elements with the same 8 barriers; the
    loads of a thread do not wait for each other.
    """
    cells = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK * EACH + t
    total = ZERO
    for k in range(EACH):
        i = first + k * BLOCK
        total += x[i] if i < x.size else ZERO
    cells[t] = total
    half = BLOCK // 2
    while half > 0:
        cuda.syncthreads()
        if t < half:
            cells[t] += cells[t + half]
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = cells[0]


# END SOLUTION a4.3


# BEGIN SOLUTION a4.6
@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_shuffle_blocks(x, out):
    """The tree within a warp through registers: "shuffles".

    # x [N] -> out [ceil(N / (EACH BLOCK))]

    A lane of a warp can read another one's register, in one instruction and without a
    barrier. Five such steps sum a warp; one cell of shared memory for each warp and one
    barrier bring the warps together (`rows.summed`), where the tree had eight.

    Source: Luitjens, "Faster parallel reductions on Kepler", 2014.
    """
    cells = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK * EACH + t
    total = ZERO
    for k in range(EACH):
        i = first + k * BLOCK
        total += x[i] if i < x.size else ZERO
    total = total_of(total, t, cells)
    if t == 0:
        out[cuda.blockIdx.x] = total


# END SOLUTION a4.6


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_vectorized_blocks(x, out):
    """16 bytes for each load, VECTORS of them before the first addition.

    # x [N], aligned to 16 bytes -> out [ceil(N / (4 VECTORS BLOCK))]

    Now nothing waits but for the memory, and what counts is how many bytes are under
    way: latency times bandwidth are 25 KB for each multiprocessor of an H200. With 4
    bytes for each of 2,048 threads it is 8 KB, with four vectors 128 KB. The last
    N % 4 elements are added by the last thread that has a vector, one by one.
    """
    # BEGIN TWIN a4.6
    cells = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    first = (cuda.blockIdx.x * BLOCK * VECTORS + t) * 4
    total = ZERO
    for k in range(VECTORS):
        i = first + k * 4 * BLOCK
        if i + 4 <= x.size:
            x0, x1, x2, x3 = load4(x, i)
            total += (x0 + x1) + (x2 + x3)
        elif i < x.size:
            for j in range(i, x.size):
                total += x[j]
    total = total_of(total, t, cells)
    if t == 0:
        out[cuda.blockIdx.x] = total
    # END TWIN a4.6


# ------------------------------------------------ the rungs of the ladder, callable


def _summed(name: str, kernel: Any, per_block: int, a: TensorData) -> TensorData:
    """Launch `kernel` until one sum is left."""
    if a.dtype is not dtypes.float32 or not a.is_contiguous():
        layout = "contiguous" if a.is_contiguous() else "not contiguous"
        raise ValueError(
            f"{name}: a is {a.dtype.name} {a.shape}, {layout}; expected contiguous "
            f"float32 (reduce takes any dtype and strides)"
        )
    if a.size == 0:
        return full((), 0, a.dtype)
    x, size = a.flat(), a.size
    while True:
        size = ceil_div(size, per_block)
        out = empty((size,), a.dtype)
        kernel[size, BLOCK](x, out.storage.array)
        if size == 1:
            return TensorData(out.storage, ())
        x = out.storage.array


def sum_divergent(a: TensorData) -> TensorData:
    """a [*] -> [], by `sum_divergent_blocks`."""
    return _summed("sum_divergent", sum_divergent_blocks, BLOCK, a)


def sum_contiguous(a: TensorData) -> TensorData:
    """a [*] -> [], by `sum_contiguous_blocks`."""
    return _summed("sum_contiguous", sum_contiguous_blocks, BLOCK, a)


def sum_several(a: TensorData) -> TensorData:
    """a [*] -> [], by `sum_several_blocks`."""
    return _summed("sum_several", sum_several_blocks, EACH * BLOCK, a)


def sum_shuffle(a: TensorData) -> TensorData:
    """a [*] -> [], by `sum_shuffle_blocks`."""
    return _summed("sum_shuffle", sum_shuffle_blocks, EACH * BLOCK, a)


def sum_vectorized(a: TensorData) -> TensorData:
    """a [*] -> [], by `sum_vectorized_blocks`; a begins at a multiple of 16 bytes."""
    if a.is_contiguous() and a.size and not is_aligned(a.flat()):
        raise ValueError(
            f"sum_vectorized: a begins at element {a.offset} of its storage, no "
            f"multiple of 16 bytes; copy it first (contiguous tensors of their own do)"
        )
    return _summed("sum_vectorized", sum_vectorized_blocks, 4 * VECTORS * BLOCK, a)


# From the simplest to the fastest; a benchmark draws them all.
LADDER: tuple[Callable[[TensorData], TensorData], ...] = (
    sum_divergent,
    sum_contiguous,
    sum_several,
    sum_shuffle,
    sum_vectorized,
)
