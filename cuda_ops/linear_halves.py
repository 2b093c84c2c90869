"""Layers of two to sixteen rows in halves, on the tensor cores.

With this file a weight of bfloat16 or float16 is multiplied by a few rows while it is
read (`halves_template`). As in `linear_rows` (linear.py) nothing is kept in tiles: a
word goes from memory to a register to a tensor core. What costs most there, a
multiplication for each number of the weight and row of x, is one instruction for 16 x
16 x 8 here.

Rows of the weight are the rows of the product, so that its 16 are in use, and rows of x
its columns, 8 of them or twice 8.

    lane 4 g + t:    row g        k = 8 t, 8 t + 1, ...  8 t + 7     one load
                     row g + 8    the same                           one load
                     row g of x   the same                           one load

Each has four words of two numbers. A product takes two words of each; which k these are
does not matter, since a sum has no order, as long as both factors agree.

Source: "PTX ISA", section on mma.m16n8k16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import WARP, load, load4, prefetch, wait_for_previous
from cuda_ops.block.mma import BF16, F16, mma_of_words
from cuda_ops.block.rows import BLOCK, barrier
from cuda_ops.block.tiles import quotient
from cuda_ops.runtime.launch import ceil_div
from minitorch.dtypes import DType, bfloat16

# Rows of the weight for a warp, and rows of x for a product.
LINES, ROWS = 16, 8
# Rows of x that this is for, at least and at most.
LEAST, MOST = 2, 2 * ROWS
# Numbers of a row for a warp at a time: 8 in each of 4 lanes.
STEP = 32
# Warps that a GPU wants to have: 8 for each of 132 multiprocessors.
WARPS = 8 * 132
# Words at whose multiples shares of `soon` begin.
UNIT = 64


class HalvesCut(NamedTuple):
    """How a weight [N, K] is shared out.

    Attributes:
        kind: of the factors.
        group: warps that share 16 rows of the weight.
        loads: of each row that are on their way to a lane at the same time.
        whole: whether all lanes have something to load each time.
        tiles: of 8 rows of x.
    """

    kind: str
    group: int
    loads: int
    whole: bool
    tiles: int

    @property
    def rows(self) -> int:
        """Of the weight, for a block."""
        return BLOCK // WARP // self.group * LINES


def suits(R: int, N: int, K: int) -> bool:
    """Whether this takes less time than other kernels, for R rows of x.

    A weight that is short to read asks for more warps than there are sixteens of its
    rows; `linear_rows` has them. For more than 8 rows, tiles in shared memory read long
    ones faster. Measured on an H200.
    """
    if R > ROWS:
        return N * K <= 2**23
    return N * K >= 2**22 if R <= ROWS // 2 else N >= 2048


def halves_cut(dtype: DType, R: int, N: int, K: int) -> HalvesCut:
    """The cut of a weight [N, K] for R rows of x."""
    group, parts, steps = 1, ceil_div(N, LINES), ceil_div(K, STEP)
    while group < BLOCK // WARP and parts * group < 6 * WARPS and steps >= 8 * group:
        group *= 2
    # Few warps have more on its way, and more registers for it.
    loads = min(2 if parts * group >= 2 * WARPS else 4, ceil_div(steps, group))
    whole = K % (STEP * group * loads) == 0
    kind = BF16 if dtype is bfloat16 else F16
    return HalvesCut(kind, group, loads, whole, ceil_div(R, ROWS))


def halves_template(cut: HalvesCut, around: Any, finish: Callable) -> Callable:
    """The Python function of `linear_halves`."""
    kind, group, loads, whole, tiles = cut
    many, sums = tiles * ROWS, tiles * 4
    coming, width = loads * 8, group * WARP
    step = STEP * group  # from one load of a lane to its next, in numbers
    multiply = mma_of_words(kind)
    bias, settled, kept = around.bias, around.settled, around.kept
    room = BLOCK // WARP * LINES * many

    def linear_halves(x, w, b, more, out, cache, slot, soon, notes, sizes):
        """out = residual + fn(x @ weight^T + bias), as `linear_rows`: few rows of x.

        # x [R, K], w [N, K], words of two numbers; b [N], more [R, N] -> out [R, N]

        `group` warps have 16 rows of the weight, and each a part of their numbers: 32
        of them, and again 32 behind those of the others. The sums meet in shared
        memory, where each thread adds up some outputs.
        """
        R, N, K = sizes[:3]
        v = cuda.local.array(coming, np.uint32)
        z = cuda.local.array(4, np.uint32)
        d = cuda.local.array(sums, np.float32)
        cells = cuda.shared.array(room, np.float32)
        tid = cuda.threadIdx.x
        t, lane = tid % width, tid % WARP
        g, from_k = lane // 4, t // WARP * STEP + lane % 4 * 8
        line = (cuda.blockIdx.x * (BLOCK // width) + tid // width) * LINES
        if tid == 0:
            share = quotient(soon.size, cuda.gridDim.x * UNIT) * UNIT + UNIT
            start = cuda.blockIdx.x * share
            if start < soon.size:
                prefetch(soon, start, min(share, soon.size - start))
        if not settled:
            wait_for_previous()
        first = min(line + g, N - 1) * K
        second = min(line + g + 8, N - 1) * K
        for u in range(loads):
            k = from_k + u * step
            k = k if whole or k < K else 0
            at = u * 8
            v[at], v[at + 1], v[at + 2], v[at + 3] = load4(w, (first + k) // 2)
            v[at + 4], v[at + 5], v[at + 6], v[at + 7] = load4(w, (second + k) // 2)
        if settled:
            wait_for_previous()
        for k in range(sums):
            d[k] = np.float32(0)
        for begin in range(0, K, loads * step):  # the same for all lanes
            for u in range(loads):
                k, at = begin + from_k + u * step, u * 8
                there = whole or k < K
                if not whole:  # a number that is no factor may be infinite
                    for e in range(8):
                        v[at + e] = v[at + e] if there else np.uint32(0)
                for c in range(tiles):
                    row = min(g + c * ROWS, R - 1) * K
                    z[0], z[1], z[2], z[3] = load4(x, (row + (k if there else 0)) // 2)
                    if not whole:
                        for e in range(4):
                            z[e] = z[e] if there else np.uint32(0)
                    for e in range(0, 4, 2):
                        s = multiply(
                            (d[4 * c], d[4 * c + 1], d[4 * c + 2], d[4 * c + 3]),
                            (v[at + e], v[at + 4 + e], v[at + 1 + e], v[at + 5 + e]),
                            (z[e], z[e + 1]),
                        )
                        d[4 * c], d[4 * c + 1], d[4 * c + 2], d[4 * c + 3] = s
                k += loads * step
                if k < K or not whole:
                    k = k if k < K else 0
                    v[at], v[at + 1], v[at + 2], v[at + 3] = load4(w, (first + k) // 2)
                    v[at + 4], v[at + 5], v[at + 6], v[at + 7] = load4(
                        w, (second + k) // 2
                    )
        place = slot[0] if kept else 0
        # [warp, row of x, row of the weight]
        at = tid // WARP * LINES * many + lane % 4 * 2 * LINES + g
        for c in range(tiles):
            for e in range(2):
                cells[at + (c * ROWS + e) * LINES] = d[4 * c + e]
                cells[at + (c * ROWS + e) * LINES + 8] = d[4 * c + 2 + e]
        barrier()
        at = tid // width * group * LINES * many
        for k in range(t, LINES * many, width):
            r, n = k // LINES, line + k % LINES
            if r < R and n < N:
                total = np.float32(0)
                for p in range(group):
                    total += cells[at + p * LINES * many + k]
                after = load(b, n) if bias else np.float32(0)
                finish(total, after, r, n, more, out, cache, place, notes, sizes)

    return linear_halves


# x's and the weight's words, bias, residual; out; what is kept; soon; notes; sizes.
HALVES_EXAMPLE = "int32[] int32[] T[] T[] T[] T[] int64[] int32[] int64[] 6*int64"
