"""Attention to keys and values that lie in blocks, for few queries of each text.

With this file texts of any lengths attend at once where `PagedCache` has their keys and
values (`run_paged`), without a copy. How many texts there are is known before a launch,
but how long each is stands in memory: a CUDA graph is for all lengths. So the blocks of
threads of a query share the keys that its text has, and walk along theirs. Those of
`attention_split` (decode.py) are for all keys that there could be, and of a text that
has just begun most would have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from cuda_ops.attention.decode import (
    KEYS,
    NEVER,
    THREADS,
    ZERO,
    Lanes,
    counters,
    exp,
    join_last,
    part_reader,
    weight,
)
from cuda_ops.block.intrinsics import (
    WARP,
    device,
    shuffle_xor,
    store,
    wait_for_previous,
)
from cuda_ops.block.rows import barrier, merged
from cuda_ops.memory import empty
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div
from minitorch import dtypes
from minitorch.tensor_data import TensorData

# Blocks that a GPU wants to have: four for each of 132 multiprocessors.
BLOCKS = 8 if TINY else 4 * 132


@device
def row_of(n, tables, at, size):
    """Where key n of a text is, in blocks of `size` keys, whose numbers begin at `at`;
    as for a page table."""
    block = uint32(n) // uint32(size)
    return tables[at + int64(block)] * size + int64(uint32(n) - block * uint32(size))


def paged_template(lanes: Lanes) -> Callable:
    """The Python function of `attention_paged`."""
    group, items = lanes.group, lanes.items
    keys, stretch, held = THREADS // group, group * items, KEYS * items
    room = max(THREADS, THREADS // WARP * stretch)
    read, merge = part_reader(lanes), merged(THREADS, exp, np.float32)
    inner, outer = group.bit_length() - 1, (WARP // group).bit_length() - 1

    def attention_paged(
        query, q, key, k, value, v, tables, lengths, pages, out, o, logsumexp, came,
        parts, ends, sizes, scale,
    ):  # fmt: skip
        """Softmax over the keys of a text, for one query; all in registers.

        # query [R, H, T, E], key [K, rows, E], value [K, rows, V] of all texts,
        # tables [R, P], lengths [R], pages = P, keys of a block
        # -> out [R, H, T, V], logsumexp [R, H, T]; in between
        # parts [R, H, T, splits, V], ends [R, H, T, splits, 2], came [R, H, T]

            for 4 keys of each group of threads, again and again:
                s = keys @ query * scale
                new = max(best, s);  total, x = both * exp(best - new)
                total += sum(exp(s - new));  x += exp(s - new) @ values
            out = x / total of all groups
            or, of several blocks, the last by the counter `came`:  join(parts, ends)

        A key, and a value, lies in the registers of 4 to 32 threads, of which each has
        4 numbers; the eight loads of a step are under way at the same time.
        """
        heads, share, T, S, E, V = sizes
        x = cuda.local.array(items, float32)
        y = cuda.local.array(held, float32)
        z = cuda.local.array(held, float32)
        w = cuda.local.array(items, float32)
        s = cuda.local.array(KEYS, float32)
        tops = cuda.shared.array(WARP, float32)
        totals = cuda.shared.array(WARP, float32)
        cells = cuda.shared.array(room, float32)
        before = cuda.shared.array(1, int32)
        t, own = cuda.threadIdx.x % group, cuda.threadIdx.x // group
        head, number = cuda.blockIdx.x, uint32(cuda.blockIdx.z)
        b = int64(number // uint32(T))
        i = int64(number - uint32(b) * uint32(T))
        few = int64(uint32(head) // uint32(share))
        wait_for_previous()
        read(query, q[0] + b * q[1] + head * q[2] + i * q[3], E, t, x, 0)
        # The queries are the text's last; a block has a multiple of `keys` of its keys.
        seen, table = min(S, lengths[b] - T + i + 1), b * pages[0]
        splits, whole = cuda.gridDim.y, uint32((seen + keys - 1) // keys)
        share_of_block = int64((whole + uint32(splits - 1)) // uint32(splits)) * keys
        first = cuda.blockIdx.y * share_of_block
        last = min(seen, first + share_of_block)
        k_from, v_from = k[0] + few * k[2], v[0] + few * v[2]
        best, total = NEVER, ZERO
        for c in range(items):
            w[c] = ZERO
        while first < last:
            for j in range(KEYS):
                n = first + own + j * keys
                n = row_of(n if n < last else 0, tables, table, pages[1])
                read(key, k_from + n * k[3], E, t, y, j * items)
                read(value, v_from + n * v[3], V, t, z, j * items)
            new = best
            for j in range(KEYS):
                fit = ZERO
                for c in range(items):
                    fit += x[c] * y[j * items + c]
                for step in range(inner):
                    fit += shuffle_xor(fit, 1 << step)
                s[j] = fit * scale if first + own + j * keys < last else NEVER
                new = max(new, s[j])
            factor = weight(best, new)
            best, total = new, total * factor
            for j in range(KEYS):
                s[j] = exp(s[j] - new) if s[j] != NEVER else ZERO
                total += s[j]
            for c in range(items):
                gained = ZERO
                for j in range(KEYS):
                    gained += s[j] * z[j * items + c]
                w[c] = w[c] * factor + gained
            first += KEYS * keys
        mine = best
        best, total = merge(
            best, total if t == 0 else ZERO, cuda.threadIdx.x, tops, totals
        )
        factor = weight(mine, best)
        warp = cuda.threadIdx.x // WARP * stretch
        for c in range(items):
            part = w[c] * factor
            for step in range(outer):
                part += shuffle_xor(part, group << step)
            if cuda.threadIdx.x % WARP == t:
                cells[warp + c // 4 * 4 * group + 4 * t + c % 4] = part
        barrier()
        row = (b * heads + head) * T + i
        split = row * splits + cuda.blockIdx.y
        at = o[0] + b * o[1] + head * o[2] + i * o[3]
        for c in range(cuda.threadIdx.x, V, THREADS):
            sum_of_warps = cells[c]
            for warp in range(1, THREADS // WARP):
                sum_of_warps += cells[warp * stretch + c]
            if splits == 1:
                store(out, at + c, sum_of_warps / total)
            else:
                parts[split * V + c] = sum_of_warps
        if splits > 1:
            join_last(
                best, total, came, before, parts, ends, row, splits, V, tops, totals,
                cells, out, at, logsumexp,
            )  # fmt: skip

    return attention_paged


PAGED = (
    "T[] 4*int64 T[] 4*int64 T[] 4*int64 int64[] int64[] 2*int64 T[] 4*int64 float32[] "
    "int32[] float32[] float32[] 6*int64 float32"
)


@cache
def paged(lanes: Lanes) -> Kernel:
    """The kernel for heads that lie so."""
    kinds = ("float32", "bfloat16") if lanes == MAIN else ()
    return Kernel(
        paged_template(lanes), f"attention_paged[{','.join(map(str, lanes[:3]))}]",
        [PAGED.replace("T[", f"{kind}[") for kind in kinds], THREADS, overlaps=True,
    )  # fmt: skip


MAIN = Lanes(16, 4, 4)
paged(MAIN)


def run_paged(
    lanes: Lanes, out: TensorData, operands: tuple[Any, ...], tables: TensorData,
    lengths: TensorData, page: int, sizes: tuple[int, ...], scale: float,
) -> None:  # fmt: skip
    """The kernel, with operands and sizes as it takes them; blocks of `page` keys."""
    (heads, _, T, S, _, V), (texts, many) = sizes, tables.shape
    rows = texts * heads * T
    most = ceil_div(S, THREADS // lanes.group * KEYS)
    splits = min(ceil_div(BLOCKS, rows), most)
    joined = rows if splits > 1 else 0
    parts = empty((joined * splits * V,), dtypes.float32).flat()
    ends = empty((joined * splits * 2,), dtypes.float32).flat()
    logsumexp = empty((joined,), dtypes.float32).flat()
    paged(lanes)[(heads, splits, texts * T), THREADS](
        *operands, tables.flat(), lengths.flat(), (many, page), out.storage.array,
        (out.offset, *out.strides[:3]), logsumexp, counters(joined), parts, ends, sizes,
        np.float32(scale),
    )  # fmt: skip
