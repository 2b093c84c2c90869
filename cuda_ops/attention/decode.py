"""Attention for few queries: what writing a text needs, a token at a time.

With this file one can attend with a handful of queries to many keys
(`attention_of_few`). A block of the other kernels keeps rows of queries and walks along
all keys: with one query and 12 heads, 12 multiprocessors would work and 120 wait.
Here blocks share the keys of a query (`attention_split`): each has 64 of them or so,
their softmax, and sum of values. Who comes last brings all blocks' sums to one maximum,
and adds them; or the first one does so, from the others' shared memory, where they are
a cluster.

All that happens to a query is reading keys and values once, so nothing is kept in
tiles: they go from memory to registers, in loads that are all under way at the same
time; while a text is written, even before the kernel before this one is over, which
makes the query and one more key. Keys that a mask hides are not read; that of a cache
(`minitorch/models/cache.py`) hides the slots that are still empty, so the time is that
of the text so far.

Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from cuda_ops.block.clusters import MOST as MOST_BLOCKS
from cuda_ops.block.clusters import meet, remote
from cuda_ops.block.intrinsics import (
    WARP,
    arrive,
    device,
    load,
    load4,
    shuffle_xor,
    store,
    wait_for_previous,
)
from cuda_ops.block.rows import barrier, merged
from cuda_ops.block.tiles import inlined
from cuda_ops.index_errors import notes
from cuda_ops.memory import empty, fill
from cuda_ops.runtime import device as gpu
from cuda_ops.runtime.allocator import outside_graphs
from cuda_ops.runtime.device import compute_capability
from cuda_ops.runtime.launch import (
    OVERLAP,
    SIMULATED,
    TINY,
    Kernel,
    ceil_div,
    device_function,
)
from minitorch import dtypes, operators
from minitorch.tensor_data import TensorData

THREADS = 128 if TINY else 256
# Keys that a group of threads has under way at once.
KEYS = 4
# Texts and queries that one launch can have.
MOST = 65535
# Queries of a head at most: each reads the keys, though later ones from the cache.
FEW = 8
# Numbers of a head that a group has room for, in each of its threads.
ITEMS = (4, 8)
ZERO, ONE, NEVER = np.float32(0), np.float32(1), np.float32(-math.inf)

exp = device_function(operators.exp, float32=True)
log = device_function(operators.log, float32=True)


class Lanes(NamedTuple):
    """How a key lies in registers.

    Attributes:
        group: threads for a key, of one warp.
        items: numbers of it in each of them.
        width: 4 where four neighbours come with one load, else 1.
        mask: "bool", "numbers", or "" for none.
        early: whether all keys but the newest are there before the query is.
        threads: of a block.
        clustered: whether the blocks of a query are a cluster.
    """

    group: int
    items: int
    width: int
    mask: str = ""
    early: bool = False
    threads: int = THREADS
    clustered: bool = False

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.threads // self.group * KEYS

    def for_keys(self, count: int) -> Lanes:
        """With larger blocks, which are a cluster, if these are enough and there."""
        large = self._replace(threads=2 * THREADS, clustered=True)
        fits = not SIMULATED and compute_capability() >= OVERLAP
        return large if fits and count <= MOST_BLOCKS * large.keys else self


def lanes_for(size: int, width: int, mask: str, early: bool = False) -> Lanes | None:
    """For heads of so many numbers; None if they are too large."""
    fits = (
        Lanes(group, items, width, mask, early)
        for items in ITEMS
        for group in (4, 8, 16, WARP)
        if size <= min(group * items, THREADS)
    )
    return next(fits, None)


def part_reader(lanes: Lanes) -> Any:
    """Make `read(a, at, n, t, x, first)`: x[first :] = thread t's part of n numbers.

    Places behind them get 0. As in `rows.py` no load is skipped, so that none waits
    for a branch.
    """
    group, items, width = lanes[:3]

    def read(a, at, n, t, x, first):
        last = n - 1
        for v in range(0, items, 4):
            i = v * group + 4 * t
            if width == 4:
                x0, x1, x2, x3 = load4(a, at + (i if i < n else 0))
            else:
                x0, x1 = load(a, at + min(i, last)), load(a, at + min(i + 1, last))
                x2, x3 = load(a, at + min(i + 2, last)), load(a, at + min(i + 3, last))
            x[first + v] = x0 if i < n else ZERO
            x[first + v + 1] = x1 if i + 1 < n else ZERO
            x[first + v + 2] = x2 if i + 2 < n else ZERO
            x[first + v + 3] = x3 if i + 3 < n else ZERO

    return device(read)


def mask_reader(kind: str) -> Any:
    """Make `hidden(mask, i, other, known)`: what is added to a score, -inf for an
    unseen key. `known` says whether there is such a key; else `other` is read."""

    def number(mask, i, other, known):
        x = load(mask, i if known else other)  # no branch: all are under way at once
        if kind == "numbers":
            return x if known else NEVER
        return ZERO if known & x else NEVER

    def nothing(mask, i, other, known):
        return ZERO if known else NEVER

    return device(number if kind else nothing)


def split_template(lanes: Lanes) -> Callable:
    """The Python function of `attention_split`."""
    group, items, threads, early = lanes.group, lanes.items, lanes.threads, lanes.early
    keys, clustered = threads // group, lanes.clustered
    stretch, held = group * items, KEYS * items
    shared = max(threads, threads // WARP * stretch)
    room = stretch + 2 if clustered else 1
    read, hidden = part_reader(lanes), mask_reader(lanes.mask)
    merge, gather = merged(threads, exp, np.float32), gatherer(clustered)
    inner, outer = group.bit_length() - 1, (WARP // group).bit_length() - 1

    def attention_split(
        query, q, key, k, value, v, mask, m, newest, out, o, logsumexp, came, parts,
        ends, sizes, scale, causal,
    ):  # fmt: skip
        """Softmax over a block's keys, for one query; sums in registers.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], newest [1] or [0]
        # -> out [B, H, L, V], logsumexp [B, H, L]; in between
        # parts [B, H, L, splits, V], ends [B, H, L, splits, 2], came [B, H, L]

            s = keys @ query * scale + mask                   4 keys a group of threads
            best = max(s);  p = exp(s - best)
            parts = p @ values;  ends = best, sum(p)
            the last block of a query, by the counter `came`:  out = join(parts, ends)
            or the first of a cluster, from shared memory:     out = gather(mine)

        A key, and a value, lies in the registers of 4 to 32 threads, of which each has
        4 numbers. A score is a sum over the group; maximum and sums meet over the
        block. All loads of a thread, eight of 16 bytes, depend on the mask alone. The
        kernel before may still run if it writes no other key and value than the newest:
        these are read again when it is over, as the query is. A kernel that joins would
        begin when the slowest block is over, and read the same.
        """
        heads, share, L, S, E, V = sizes
        x = cuda.local.array(items, float32)
        y = cuda.local.array(held, float32)
        z = cuda.local.array(held, float32)
        s = cuda.local.array(KEYS, float32)
        tops = cuda.shared.array(WARP, float32)
        totals = cuda.shared.array(WARP, float32)
        cells = cuda.shared.array(shared, float32)
        mine = cuda.shared.array(room, float32)
        before = cuda.shared.array(1, int32)
        t, own = cuda.threadIdx.x % group, cuda.threadIdx.x // group
        head, number = cuda.blockIdx.x, uint32(cuda.blockIdx.z)
        b, i = int64(number // uint32(L)), int64(number % uint32(L))
        few = int64(uint32(head) // uint32(share))
        seen = min(S, i + 1) if causal else S
        first = cuda.blockIdx.y * (keys * KEYS) + own
        m_from = m[0] + b * m[1] + head * m[2] + i * m[3]
        k_from, v_from = k[0] + b * k[1] + few * k[2], v[0] + b * v[1] + few * v[2]
        if not early:
            wait_for_previous()
        new = newest[0] if early else -1
        for j in range(KEYS):
            n = first + j * keys
            s[j] = hidden(mask, m_from + n * m[4], m_from, n < seen)
        for j in range(KEYS):
            n = first + j * keys if s[j] != NEVER else 0
            read(key, k_from + n * k[3], E, t, y, j * items)
            read(value, v_from + n * v[3], V, t, z, j * items)
        if early:
            wait_for_previous()
        read(query, q[0] + b * q[1] + head * q[2] + i * q[3], E, t, x, 0)
        for j in range(KEYS):
            if first + j * keys == new:
                read(key, k_from + new * k[3], E, t, y, j * items)
                read(value, v_from + new * v[3], V, t, z, j * items)
        best, total = NEVER, ZERO
        for j in range(KEYS):
            fit = ZERO
            for c in range(items):
                fit += x[c] * y[j * items + c]
            for step in range(inner):
                fit += shuffle_xor(fit, 1 << step)
            s[j] = s[j] + fit * scale if s[j] != NEVER else NEVER
            best = max(best, s[j])
        for j in range(KEYS):
            if t == 0 and s[j] != NEVER:  # once for each key
                total += exp(s[j] - best)
        best, total = merge(best, total, cuda.threadIdx.x, tops, totals)
        for c in range(items):
            x[c] = ZERO
        for j in range(KEYS):
            p, seen_key = exp(s[j] - best), s[j] != NEVER
            for c in range(items):  # what is not seen may be NaN
                x[c] += p * z[j * items + c] if seen_key else ZERO
        warp = cuda.threadIdx.x // WARP * stretch
        for c in range(items):
            for step in range(outer):
                x[c] += shuffle_xor(x[c], group << step)
            if cuda.threadIdx.x % WARP == t:
                cells[warp + c // 4 * 4 * group + 4 * t + c % 4] = x[c]
        barrier()
        row, splits = (b * heads + head) * L + i, cuda.gridDim.y
        split = row * splits + cuda.blockIdx.y
        at = o[0] + b * o[1] + head * o[2] + i * o[3]
        for c in range(cuda.threadIdx.x, V, threads):
            sum_of_warps = cells[c]
            for w in range(1, threads // WARP):
                sum_of_warps += cells[w * stretch + c]
            if clustered:
                mine[2 + c] = sum_of_warps
            else:
                parts[split * V + c] = sum_of_warps
        if clustered:
            if cuda.threadIdx.x == 0:
                mine[0], mine[1] = best, total
            gather(mine, splits, V, out, at, logsumexp, row)
        else:
            join_last(
                best, total, came, before, parts, ends, row, splits, V, tops, totals,
                cells, out, at, logsumexp,
            )  # fmt: skip

    return attention_split


@device
def weight(best, top):
    """exp(best - top); 1 where there was no key, for sums that are 0, or NaN."""
    return exp(best - top) if best > NEVER else ONE


def gatherer(clustered: bool) -> Callable:
    """Make `gather(mine, splits, V, out, at, logsumexp, row)`: `join` for a cluster.

    A block has its best score, its sum and V sums in `mine`. The first block reads
    those of all; the others wait until it has, as their memory is gone when they end.
    """

    def gather(mine, splits, V, out, at, logsumexp, row):
        best = cuda.local.array(MOST_BLOCKS, float32)
        part = cuda.local.array(MOST_BLOCKS, float32)
        x = cuda.local.array(MOST_BLOCKS, float32)
        meet()
        c = cuda.threadIdx.x
        if cuda.blockIdx.y == 0 and c < V:
            top, total, acc = NEVER, ZERO, ZERO
            for n in range(MOST_BLOCKS):
                block, there = int64(min(n, splits - 1)), n < splits
                end, share = remote(mine, 0, block), remote(mine, 1, block)
                sums = remote(mine, 2 + c, block)
                best[n] = end if there else NEVER
                part[n], x[n] = share if there else ZERO, sums if there else ZERO
            for n in range(MOST_BLOCKS):
                top = max(top, best[n])
            for n in range(MOST_BLOCKS):
                factor = weight(best[n], top)
                total, acc = total + factor * part[n], acc + factor * x[n]
            store(out, at + c, acc / total if total != ZERO else ZERO)
            if c == 0:
                logsumexp[row] = top + log(total) if total != ZERO else NEVER
        meet()

    return inlined(gather if clustered else lambda *_: None)


@device
def join(parts, ends, row, splits, V, tops, totals, cells, out, at, logsumexp):
    """The blocks' sums as one; a row of threads has a few, four of them on their way.

    # parts [row, splits, V], ends [row, splits, 2] -> out [at: at + V], logsumexp [row]

        top = max(best);  total = sum(exp(best - top) * sum(p))
        out = sum(exp(best - top) * parts) / total;  logsumexp = top + log(total)
    """
    best = cuda.local.array(KEYS, float32)
    part = cuda.local.array(KEYS, float32)
    x = cuda.local.array(KEYS, float32)
    tid, wide = uint32(cuda.threadIdx.x), uint32((V + WARP - 1) // WARP * WARP)
    own, c, rows = int64(tid // wide), int64(tid % wide), int64(uint32(THREADS) // wide)
    top, total, acc, n = NEVER, ZERO, ZERO, own if c < V else splits
    while n < splits:
        for j in range(KEYS):
            there = n + j * rows < splits
            i = row * splits + (n + j * rows if there else n)
            end, share, sums = (
                load(ends, 2 * i),
                load(ends, 2 * i + 1),
                load(parts, i * V + c),
            )
            best[j] = end if there else NEVER
            part[j], x[j] = share if there else ZERO, sums if there else ZERO
        new = max(max(top, best[0]), max(max(best[1], best[2]), best[3]))
        old = weight(top, new)
        top, total, acc = new, total * old, acc * old
        for j in range(KEYS):
            factor = weight(best[j], top)
            total, acc = total + factor * part[j], acc + factor * x[j]
        n += KEYS * rows
    if own < rows:
        cells[tid] = acc
        if c == 0:
            tops[own], totals[own] = top, total
    barrier()
    if tid < V:
        for n in range(1, rows):
            top = max(top, tops[n])
        total = acc = ZERO
        for n in range(rows):
            factor = weight(tops[n], top)
            total += factor * totals[n]
            acc += factor * cells[n * wide + tid]
        store(out, at + tid, acc / total if total != ZERO else ZERO)
    if tid == 0:
        logsumexp[row] = top + log(total) if total != ZERO else NEVER


@device
def join_last(
    best, total, came, before, parts, ends, row, splits, V, tops, totals, cells, out,
    at, logsumexp,
):  # fmt: skip
    """`join`, by the block of a query that is the last to come here, with its sums."""
    split = row * splits + cuda.blockIdx.y
    if cuda.threadIdx.x == 0:
        ends[2 * split], ends[2 * split + 1] = best, total
    barrier()
    if cuda.threadIdx.x == 0:
        before[0] = arrive(came, row)
    barrier()
    if before[0] == splits - 1:  # for all threads or none
        if cuda.threadIdx.x == 0:
            came[row] = 0  # for the next launch
        join(parts, ends, row, splits, V, tops, totals, cells, out, at, logsumexp)


SPLIT = (
    "T[] 4*int64 T[] 4*int64 T[] 4*int64 bool[] 5*int64 int64[] T[] 4*int64 float32[] "
    "int32[] float32[] float32[] 6*int64 float32 bool"
)


@cache
def split(lanes: Lanes) -> Kernel:
    """The kernel for heads that lie so."""
    clustered = lanes.clustered
    name = f"attention_split[{','.join(map(str, lanes))}]"
    kinds = ("float32", "bfloat16") if lanes in MAIN else ()
    examples = [SPLIT.replace("T[", f"{kind}[") for kind in kinds]
    return Kernel(
        split_template(lanes), name, examples, lanes.threads, overlaps=True,
        clusters=clustered, arch=OVERLAP if clustered else (7, 5),
    )  # fmt: skip


_main = Lanes(16, 4, 4, "bool", True)
MAIN = [_main] if SIMULATED else [_main, _main._replace(threads=512, clustered=True)]
for _lanes in MAIN:
    split(_lanes)


def counters(size: int) -> Any:
    """int32 [size] of zeros, which a launch leaves as zeros.

    A graph has them for itself, filled once, where none of its kernels writes before.
    """
    with outside_graphs():
        made = empty((size,), dtypes.int32).flat()
    if not size:
        return made
    clear, capture = partial(fill, made, np.int32(0)), gpu.current.capture
    if capture is None:
        clear()
    else:
        capture.kept.append(made)
        capture.afterwards.append(clear)
    return made


def run_few(
    lanes: Lanes, out: TensorData, logsumexp: TensorData, operands: tuple[Any, ...],
    mask: Any, sizes: tuple[int, ...], scale: float, causal: bool,
    newest: TensorData | None,
) -> None:  # fmt: skip
    """The kernel, with operands, a mask and sizes as it takes them."""
    heads, _, L, S, _, V = sizes
    lanes = lanes.for_keys(S)
    splits = ceil_div(S, lanes.keys)
    rows = 0 if lanes.clustered else out.shape[0] * heads * L
    parts = empty((rows * splits * V,), dtypes.float32).flat()
    ends = empty((rows * splits * 2,), dtypes.float32).flat()
    split(lanes)[(heads, splits, out.shape[0] * L), lanes.threads](
        *operands, *(mask or (ends, (0,) * 5)),
        notes() if newest is None else newest.flat(), out.storage.array,
        (out.offset, *out.strides[:3]), logsumexp.flat(), counters(rows), parts, ends,
        sizes, np.float32(scale), bool(causal),
    )  # fmt: skip
