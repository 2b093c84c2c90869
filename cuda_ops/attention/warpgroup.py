"""Attention of halves on `wgmma`: a warpgroup multiplies while it exponentiates.

With this file one can get the kernel `attention_warpgroup` for one way to cut a block
(`warpgroup_forward`), and the cuts of all three passes for Hopper (`CUTS`). The kernels
of the backward pass are those of `backward.py`, whose products wait for their end.

What runs on its own has to be told what may be touched, and when. Of NVIDIA's "Parallel
Thread Execution ISA" (9.0), and where it is done:

    9.7.15.7.1  `wgmma.fence` stands between what threads do with registers (sums that
                were scaled, weights that were rounded) and a product that uses them:
                each `begin` starts with one (`block.wgmma._multiply`).
    9.7.15.7.2  `wgmma.commit_group` closes a group of products: each `begin` ends so.
    9.7.15.7.3  `wgmma.wait_group` n waits until at most n groups are under way. Before,
                neither sums nor weights may be touched, and no tile overwritten: sums
                go through it (`_make_finish` there), so that nothing moves across.
    9.7.15.4    Tensor cores read shared memory in the asynchronous proxy. What threads
                have written, `cp.async` too, they see after `fence.proxy.async` of the
                writer, once its copies are there, and then a barrier (`arrival`). The
                way back, to overwrite what was read, needs a barrier alone: the end of
                a product is such a fence.

Source: Shah, Bikshandi, Zhang, Thakkar, Ramani and Dao, "FlashAttention-3", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda, float32

from cuda_ops.attention.forward import (
    EXAMPLE,
    PLAIN,
    Key,
    More,
    family,
    pipes,
    softener,
    start_of,
    writer,
)
from cuda_ops.attention.held import LOG2E, filled, finished, given, scaled
from cuda_ops.attention.units import (
    BF16,
    HALVES,
    VECTOR,
    Cut,
    chain_of,
    fetcher,
    units_of,
)
from cuda_ops.block.copies import arrival
from cuda_ops.block.tiles import inlined
from cuda_ops.block.wgmma import ARCH, WARP_ROWS
from cuda_ops.runtime.launch import SIMULATED, TINY


def warpgroup_shared(cut: Cut) -> int:
    """Bytes of shared memory: queries, two tiles of keys and two of values."""
    return (cut.resident + 4 * cut.passing) * cut.item


def warpgroup_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_warpgroup` for one way to cut."""
    units, chain = units_of(cut), chain_of(cut)
    begin_scores, words, begin_sums, scores_done, *done = chain
    all_scores, all_sums, sums_behind = done
    place, zero_sums = units.place, units.zero_sums
    soften, scale_sums = softener(cut, units, more), scaled(units.sums)
    write, kind = writer(units, more.drops, elements > 1), cut.number
    each_row = filled(len(units.scores.rows))
    finish = finished(units.scores, bool(more.mask))
    give = given(units.scores.rows)
    fetch, close, arrive = pipes(cut, elements, asynchronous)
    fill, start = fetcher(cut, cut.rows, elements, asynchronous), inlined(start_of)
    first_arrive, rows, cols, tile = arrival(1), cut.rows, cut.cols, cut.passing
    line, k_at, v_at = cut.line, cut.resident, cut.resident + 2 * cut.passing
    never, nothing, log2e = float32(-math.inf), float32(0), float32(LOG2E)

    def attention_warpgroup(
        query, q, key, k, value, v, out, o, logsumexp, sizes, scale, causal, mask, m,
        chance, base, kept,
    ):  # fmt: skip
        """The next scores and these sums are multiplied while softmax is computed.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], halves
        # -> out [B, H, L, V], logsumexp [B, H, L]

            for a block of 128 queries, for 128 keys t and their values at a time:
                s = queries @ keys[t].T                         under way, registers
                sums += p @ values[t - 1]                        under way behind it
                keys[t + 1], values[t] -> shared memory                    meanwhile
                when s is there:     p', factor = softmax of s, as `attention_online`
                when sums are there: sums *= factor;  p = p' in halves

            tensor cores | s(t)  | sums(t - 1)         | s(t + 1) | sums(t)  ...
            the others   | waits | softmax of s(t), ...           | softmax of ...

        `attention_online` waits for each product: its tensor cores rest while it
        exponentiates, and 64 x 64 exponentials take as long as their 64 x 64 x 128
        multiplications. Here weights are a tile behind scores, so that a product is
        under way meanwhile; another group of warps fills what is left.

        Four warps have 64 queries, 16 each: 64 x 128 scores and 64 x V sums in their
        registers, as `mma.sync` deals them. Queries, keys and values stay in shared
        memory, where the tensor cores fetch them, keys along E and values across S.
        Weights become the first factor where they are: what a lane has of 16 columns
        of scores is what it should have of 16 k.

        Tiles of keys and of values take turns in two places each. One barrier a tile
        tells that all copies are there, and that all are done with the tiles before.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number = cuda.blockIdx.z * cuda.gridDim.x + cuda.blockIdx.x
        shares = heads // group, number // group
        first = (cuda.gridDim.y - 1 - cuda.blockIdx.y) * rows
        k_from, v_from = start(k, shares), start(v, shares)
        _, _, my_row, _, _ = place()
        mine, here = my_row * line, 0
        seen = min(S, first + rows) if causal else S
        count = (seen + cols - 1) // cols
        at = start(q, (heads, number)) + first * q[3]
        fill(shared, 0, query, at, q[3], L - first, E)
        fetch(shared, k_at, key, k_from, k[3], S, E)
        close()
        if count > 1:
            fetch(shared, k_at + tile, key, k_from + cols * k[3], k[3], S - cols, E)
        fetch(shared, v_at, value, v_from, v[3], S, V)
        close()
        acc, best, total = zero_sums(), each_row(never), each_row(nothing)
        m_from, ends = start(m, (heads, number)), (L, S)
        power, dice = scale * log2e, (chance, base, number * L)
        first_arrive()
        cuda.syncthreads()  # The queries and the first keys are there.
        s = all_scores(begin_scores(shared, mine, k_at))
        p, best, total, factor = soften(
            s, best, total, (first, 0), ends, power, causal, mask, m_from, m[3:], dice
        )
        p = words(p)
        for t in range(1, count):
            here = tile - here
            arrive()
            cuda.syncthreads()  # Tiles are there; all are done with those before.
            s = begin_scores(shared, mine, k_at + here)
            acc = begin_sums(acc, p, shared, v_at + tile - here)
            if t + 1 < count:
                at = k_from + (t + 1) * cols * k[3]
                left = S - (t + 1) * cols
                fetch(shared, k_at + tile - here, key, at, k[3], left, E)
            at = v_from + t * cols * v[3]
            fetch(shared, v_at + here, value, at, v[3], S - t * cols, V)
            close()
            w, best, total, factor = soften(
                scores_done(s), best, total, (first, t * cols), ends, power, causal,
                mask, m_from, m[3:], dice,
            )  # fmt: skip
            acc = scale_sums(sums_behind(acc, total), factor)
            p = words(w)
        arrive()
        cuda.syncthreads()  # The last values are there.
        acc = all_sums(begin_sums(acc, p, shared, v_at + here))
        lse, inverse = finish(best, total)
        write(out, o, (heads, number), first, (L, V), acc, inverse, kept)
        row, col, _, _, _ = place()
        if col == 0:
            give(logsumexp, number * L + first + row, L - first - row, lse)

    return attention_warpgroup


def _cut(units: str, size: int, warps: int, cols: int, blocks: int = 1) -> Cut:
    return Cut(
        units, size, warps, WARP_ROWS, cols, blocks=blocks, arch=ARCH, wgmma=True
    )


# Forward, for keys and for queries, as `FORWARD`: each list has the best first. Blocks
# of one warpgroup wait for nobody else: what one exponentiates, others multiply behind.
Table = tuple[Cut, ...]
CUTS: dict[str, tuple[Table, Table, Table]] = {}
for _units in HALVES:
    if TINY:
        CUTS[_units] = ((_cut(_units, 32, 1, 16),),) * 3
        continue
    CUTS[_units] = (
        (_cut(_units, 64, 4, 64, 4), _cut(_units, 128, 4, 96, 2)),
        (_cut(_units, 64, 4, 64, 2), _cut(_units, 128, 4, 48, 2)),
        (_cut(_units, 64, 4, 64, 3), _cut(_units, 128, 4, 64, 2)),
    )

MAIN: dict[Key, str] = {}
if not SIMULATED:
    MAIN = {
        (CUTS[BF16][0][0], 2 * VECTOR, True, PLAIN): "attention_warpgroup",
        (CUTS[BF16][0][1], 2 * VECTOR, True, PLAIN): "attention_warpgroup_128",
    }

warpgroup_forward = family(warpgroup_template, MAIN, warpgroup_shared, EXAMPLE)
