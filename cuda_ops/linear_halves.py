"""Layers of two to sixteen rows in halves, on the tensor cores.

With this file a weight of bfloat16 or float16 is multiplied by a few rows while it is
read (`halves_template`), and so is one of int8 or of four bits, whose numbers halves
have exactly. As in `linear_rows` (linear.py) nothing is kept in tiles: a word goes from
memory to a register to a tensor core. What costs most there, a multiplication for each
number of the weight and row of x, is one instruction for 16 x 16 x 8 here.

Rows of the weight are the rows of the product, so that its 16 are in use, and rows of x
its columns, 8 of them or twice 8.

    lane 4 g + t:    row g        k = 8 t, 8 t + 1, ...  8 t + 7     one load
                     row g + 8    the same                           one load
                     row g of x   the same                           one load

Each has four words of two numbers. A product takes two words of each; which k these are
does not matter, since a sum has no order, as long as both factors agree.

Four words of int8 are 16 numbers, beside which x is loaded twice. They become eight
words of halves just before they are multiplied (`halves_of_bytes`). Of four bits a load
of four lanes is one group, so that all of its products have the same scale: x is loaded
where the low numbers of a lane's bytes stand, and half a group behind. A group's sums
begin at zero; those of the row get them times the scale.

Source: "PTX ISA", section on mma.m16n8k16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    load,
    load2,
    load4,
    prefetch,
    wait_for_previous,
)
from cuda_ops.block.mma import BF16, F16, halves_of_bytes, mma_of_words
from cuda_ops.block.rows import BLOCK, barrier
from cuda_ops.block.tiles import quotient
from cuda_ops.half import float_of, word_of
from cuda_ops.runtime.launch import ceil_div
from minitorch.dtypes import DType, bfloat16

# Rows of the weight for a warp, and rows of x for a product.
LINES, ROWS = 16, 8
# Rows of x that this is for, at least and at most.
LEAST, MOST = 2, 2 * ROWS
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
        bits: of a number of the weight: 16, 8 or 4.
        pack: numbers that share a scale, of four bits; else 0.
        resident: blocks for whose registers a multiprocessor has room, at least.
    """

    kind: str
    group: int
    loads: int
    whole: bool
    tiles: int
    bits: int = 16
    pack: int = 0
    resident: int = 1

    @property
    def words(self) -> int:
        """Of a lane's load from a row of the weight."""
        return words_of_load(self.pack)

    @property
    def rows(self) -> int:
        """Of the weight, for a block."""
        return BLOCK // WARP // self.group * LINES


def words_of_load(pack: int) -> int:
    """16 bytes, or where numbers share a scale a lane's quarter of them."""
    return pack // 32 or 4


def fits(K: int, bits: int, pack: int) -> bool:
    """Whether rows of K numbers are whole loads of a lane, of 8 or 16 bytes."""
    if bits == 4:
        return pack in (64, 128) and K % pack == 0
    return K * bits % 128 == 0


def suits(R: int, N: int, K: int, bits: int = 16) -> bool:
    """Whether this takes less time than other kernels, for R rows of x.

    A weight that is short to read asks for more warps than there are sixteens of its
    rows; `linear_rows` has them. For more than 8 rows, tiles in shared memory read long
    ones faster. Measured on an H200.
    """
    if bits < 16:
        return R > ROWS // 2 or N * K >= (2**21 if R > 2 else 2**22)
    if R > ROWS:
        return N * K <= 2**25
    return N * K >= 2**22 if R <= ROWS // 2 else N >= 1024


def halves_cut(
    dtype: DType, R: int, N: int, K: int, bits: int = 16, pack: int = 0
) -> HalvesCut:
    """The cut of a weight [N, K] for R rows of x."""
    step = words_of_load(pack) * 128 // bits
    group, parts, steps = 1, ceil_div(N, LINES), ceil_div(K, step)
    # Warps share rows until there are enough, each with loads of its own; numbers
    # here and below are of a sweep on an H200.
    enough, least = (2 * WARPS, 3) if bits > 4 else (WARPS // 2, 4)
    while group < BLOCK // WARP and parts * group < 6 * WARPS:
        if steps < (least if parts * group < enough else 8) * group:
            break
        group *= 2
    # Few warps have more on its way, and more registers for it: halves, where a warp
    # has not many turns, and words of eight numbers.
    if bits == 16:
        few = parts * group < 3 * WARPS and steps <= 8 * group
    else:
        few = parts * group < 2 * WARPS and pack == 64
    tiles, most = ceil_div(R, ROWS), 1 << (ceil_div(steps, group) - 1).bit_length()
    loads = min(4 if few and tiles == 1 else 2, most)
    whole = K % (step * group * loads) == 0
    kind = BF16 if dtype is bfloat16 else F16
    # As many as they can be without a spill.
    many = tiles > 1 or (bits == 4 and loads > 2)
    resident = 2 if many else 4 if bits == 16 and loads == 2 else 3
    resident -= pack > 64
    return HalvesCut(kind, group, loads, whole, tiles, bits, pack, resident)


def weight_reader(cut: HalvesCut) -> tuple[Callable, Callable]:
    """Make `fetch` and `spread` for a lane's loads from a row of the weight.

        fetch(w, scale, at, of, v, k)    v[k:] = words from w[at] on, and scale[of]
        spread(v, k, f, j)               f[j:] = these numbers as words of halves

    Only of four bits a load has its own scale, and there the low numbers of all bytes
    are first.
    """
    words, pack = cut.words, cut.pack

    def fetch(w, scale, at, of, v, k):
        if words == 2:
            v[k], v[k + 1] = load2(w, at)
        else:
            v[k], v[k + 1], v[k + 2], v[k + 3] = load4(w, at)
        if pack:
            v[k + words] = word_of(load(scale, of))

    def halves(v, k, f, j):
        for e in range(4):
            f[j + e] = v[k + e]

    def bytes_(v, k, f, j):
        for e in range(4):
            f[j + 2 * e], f[j + 2 * e + 1] = widen(v[k + e])

    def fours(v, k, f, j):
        for e in range(words):
            low = j + 2 * e
            high = low + 2 * words
            f[low], f[low + 1], f[high], f[high + 1] = widen(v[k + e])

    widen = halves_of_bytes(cut.kind, cut.bits == 4)
    spread = {16: halves, 8: bytes_, 4: fours}[cut.bits]
    return device(fetch), device(spread)


def halves_template(cut: HalvesCut, around: Any, finish: Callable) -> Callable:
    """The Python function of `linear_halves`."""
    kind, group, loads, whole, tiles, bits, pack, _ = cut
    many, sums = tiles * ROWS, tiles * 4
    words = cut.words
    wide = words * 32 // bits  # numbers of a lane's load
    eights, each = wide // 8, words + (pack > 0)
    half = eights // 2 if pack else eights  # of these lie side by side in x
    factors, coming = 4 * eights, loads * 2 * each
    both, all_sums = 2 * factors, sums + 4  # the last four are a group's
    of_word, share = 32 // bits, 4 * wide  # numbers of a word, of a load of a warp
    step, skip = share * group, share * group * bits // 32  # of all warps; in words
    width = group * WARP
    fetch, spread = weight_reader(cut)
    mma = mma_of_words(kind)
    bias, scaled = around.bias, around.scaled
    settled, kept = around.settled, around.kept
    room = BLOCK // WARP * LINES * many

    @device
    def multiply(x, at, there, f, z, d, o):
        """d[o:] += a load of 16 rows of the weight times 8 rows of x, from `at` on."""
        for p in range(eights):
            for e in range(4):
                z[e] = np.uint32(0)
            if there:
                i = at + p % half * 4 + p // half * (pack // 4)
                z[0], z[1], z[2], z[3] = load4(x, i)
            for e in range(0, 4, 2):
                q = 4 * p + e
                d[o], d[o + 1], d[o + 2], d[o + 3] = mma(
                    (d[o], d[o + 1], d[o + 2], d[o + 3]),
                    (f[q], f[q + factors], f[q + 1], f[q + 1 + factors]),
                    (z[e], z[e + 1]),
                )

    def linear_halves(x, w, b, more, out, cache, slot, soon, scale, notes, sizes):
        """out = residual + fn(x @ weight^T * scale + bias), as `linear_rows`.

        # x [R, K], w [N, K], words; b [N], more [R, N], scale [N] or of each group
        # -> out [R, N]

        `group` warps have 16 rows of the weight, and each a part of their numbers: one
        load of its lanes, and again one behind those of the others. The sums meet in
        shared memory, where each thread adds up some outputs.
        """
        R, N, K = sizes[:3]
        v = cuda.local.array(coming, np.uint32)
        f = cuda.local.array(both, np.uint32)
        z = cuda.local.array(4, np.uint32)
        d = cuda.local.array(all_sums, np.float32)
        w_at = cuda.local.array(2, np.int64)
        s_at = cuda.local.array(2, np.int64)
        x_at = cuda.local.array(tiles, np.int64)
        cells = cuda.shared.array(room, np.float32)
        tid = cuda.threadIdx.x
        t, lane = tid % width, tid % WARP
        g, from_k = lane // 4, t // WARP * share
        line = (cuda.blockIdx.x * (BLOCK // width) + tid // width) * LINES
        if tid == 0:
            some = quotient(soon.size, cuda.gridDim.x * UNIT) * UNIT + UNIT
            start = cuda.blockIdx.x * some
            if start < soon.size:
                prefetch(soon, start, min(some, soon.size - start))
        if not settled:
            wait_for_previous()
        left = np.int32(K - from_k - lane % 4 * wide)  # from the lane's first number on
        for e in range(2):
            number = min(line + g + 8 * e, N - 1) * K + from_k
            w_at[e], s_at[e] = number // of_word + lane % 4 * words, number // share
            for u in range(loads):
                there, at = whole or u * step < left, (2 * u + e) * each
                i = w_at[e] + u * skip if there else 0
                fetch(w, scale, i, s_at[e] + u * group if there else 0, v, at)
        if settled:
            wait_for_previous()
        for c in range(tiles):
            number = min(g + c * ROWS, R - 1) * K + from_k
            x_at[c] = number // 2 + lane % 4 * half * 4
        for k in range(sums):
            d[k] = np.float32(0)
        for _ in range(0, K, loads * step):  # the same for all lanes
            for u in range(loads):
                there, at = whole or u * step < left, 2 * u * each
                if bits == 16 and not whole:  # what is no factor may be infinite
                    for e in range(8):
                        v[at + e] = v[at + e] if there else np.uint32(0)
                for e in range(2):
                    spread(v, at + e * each, f, e * factors)
                for c in range(tiles):
                    from_x = x_at[c] + u * step // 2
                    if not pack:
                        multiply(x, from_x, there, f, z, d, 4 * c)
                    else:
                        for e in range(4):
                            d[sums + e] = np.float32(0)
                        multiply(x, from_x, there, f, z, d, sums)
                        for e in range(4):
                            factor = float_of(v[at + e // 2 * each + words])
                            d[4 * c + e] += d[sums + e] * factor
                if (loads + u) * step < left:
                    for e in range(2):
                        i, j = (
                            w_at[e] + (loads + u) * skip,
                            s_at[e] + (loads + u) * group,
                        )
                        fetch(w, scale, i, j, v, at + e * each)
            left -= loads * step
            for e in range(2):
                w_at[e] += loads * skip
                s_at[e] += loads * group
            for c in range(tiles):
                x_at[c] += loads * step // 2
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
                total = total * load(scale, n) if scaled else total
                after = load(b, n) if bias else np.float32(0)
                finish(total, after, r, n, more, out, cache, place, notes, sizes)

    return linear_halves


# x's and the weight's words, bias, residual; out; what is kept; soon; the scales, which
# halves have none of; notes; sizes.
HALVES_EXAMPLE = (
    "int32[] int32[] T[] T[] T[] T[] int64[] int32[] float32[] int64[] 6*int64"
)
