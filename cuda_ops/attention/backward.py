"""The gradient of attention: scores are made again, tile by tile, and thrown away.

With this file one can get the kernels of the backward pass for one way to cut a block:

    attention_deltas     D, the sum of grad * out over each row
    attention_for_keys   gradients of keys and values: queries come by
    attention_for_query  gradients of queries: keys and values come by

Each gradient is summed by one block in registers, in an order that shapes determine:
there are no atomic additions. That costs the scores and the gradients of the weights a
second time, seven products instead of five (which `one_pass.py` has).

Source: Dao et al., "FlashAttention", 2022; "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from cuda_ops.attention.dropping import dropper
from cuda_ops.attention.forward import (
    EXTRAS,
    FAR,
    ONE,
    PLAIN,
    Key,
    More,
    family,
    pipes,
    shower,
    start_of,
    writer,
)
from cuda_ops.attention.held import LOG2E, filled, masked, paired, sloped, weighted
from cuda_ops.attention.units import (
    BF16,
    F16,
    FMA,
    HALVES,
    TF32,
    VECTOR,
    Cut,
    Units,
    filler,
    units_of,
)
from cuda_ops.block.intrinsics import WARP, device, load4, load8, shuffle_xor
from cuda_ops.block.tiles import inlined
from cuda_ops.half import READERS
from cuda_ops.memory import empty
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div
from minitorch import dtypes as types
from minitorch.dtypes import DType

# Threads of a block of `attention_deltas`, and rows of each of their groups.
DELTA_THREADS = 32 if TINY else 256
DELTA_ROWS = 4
ZERO, FOREVER, BITS = float32(0), float32(math.inf), float32(LOG2E)
# A multiple of the rows of all blocks and tiles.
PADDED = 384
begin_of = device(start_of)


def padded(rows):
    """A multiple of `PADDED`."""
    return (rows + PADDED - 1) // PADDED * PADDED


def deltas_template(read: Callable, vector: int, lanes: int) -> Callable:
    """The Python function of `attention_deltas`; `read` makes elements float32.

    `lanes` make a row together, and load `vector` numbers at once, 8, 4 or 1.
    """
    groups, steps = DELTA_THREADS // lanes, lanes.bit_length() - 1

    def dot_4(x, i, y, j):
        a, b, c, d = load4(x, i)
        e, f, g, h = load4(y, j)
        return (read(a) * read(e) + read(b) * read(f)) + (
            read(c) * read(g) + read(d) * read(h)
        )

    def dot_8(x, i, y, j):
        a0, a1, a2, a3, a4, a5, a6, a7 = load8(x, i)
        b0, b1, b2, b3, b4, b5, b6, b7 = load8(y, j)
        s0 = read(a0) * read(b0) + read(a1) * read(b1)
        s1 = read(a2) * read(b2) + read(a3) * read(b3)
        s2 = read(a4) * read(b4) + read(a5) * read(b5)
        return (s0 + s1) + (s2 + (read(a6) * read(b6) + read(a7) * read(b7)))

    def dot_1(x, i, y, j):
        return read(x[i]) * read(y[j])

    dot = device({8: dot_8, 4: dot_4, 1: dot_1}[vector])

    def put(pairs, number, L, row, end, value):
        at = 2 * (number * size(L) + row)
        if row < size(L):
            pairs[at] = end * BITS if row < L else FOREVER
            pairs[at + 1] = value if row < L else ZERO

    size, store = inlined(padded), inlined(put)

    def attention_deltas(grad, g, out, o, logsumexp, pairs, sizes, factor):
        """D = rowsum(grad * out), the sum of weights times their gradients as well.

        # grad [B, H, L, V], out [B, H, L, V], logsumexp [B, H, L]
        # -> pairs [B, H, L padded, 2]

            for b, h, i:
                total = sum(grad[b, h, i, v] * out[b, h, i, v] for v)
                pairs[b, h, i] = logsumexp[b, h, i] * log2(e), total * factor

        The gradient of softmax needs both in every tile of the row. Rows behind the
        last one have infinity, so that their weights become 0, and 0. A few lanes make
        a row, 16 for 64 numbers, 8 of halves, as each loads 16 bytes, and each of them
        has four rows: so twelve loads of a thread are on their way together, which the
        memory needs to be busy. Blocks are of one head, so that no thread divides.
        """
        heads, L, V = sizes[0], sizes[2], sizes[5]
        number, t = cuda.blockIdx.x, cuda.threadIdx.x
        row = cuda.blockIdx.y * (DELTA_ROWS * groups) + t // lanes
        last, lane = L - 1, t % lanes
        x, y = begin_of(g, (heads, number)), begin_of(o, (heads, number))
        r1, r2, r3 = row + groups, row + 2 * groups, row + 3 * groups
        # Rows behind the last one read that one.
        i0, i1, i2, i3 = min(row, last), min(r1, last), min(r2, last), min(r3, last)
        x0, x1, x2, x3 = x + i0 * g[3], x + i1 * g[3], x + i2 * g[3], x + i3 * g[3]
        y0, y1, y2, y3 = y + i0 * o[3], y + i1 * o[3], y + i2 * o[3], y + i3 * o[3]
        e0, e1 = logsumexp[number * L + i0], logsumexp[number * L + i1]
        e2, e3 = logsumexp[number * L + i2], logsumexp[number * L + i3]
        d0, d1, d2, d3 = ZERO, ZERO, ZERO, ZERO
        for j in range(lane * vector, V, lanes * vector):
            d0 += dot(grad, x0 + j, out, y0 + j)
            d1 += dot(grad, x1 + j, out, y1 + j)
            d2 += dot(grad, x2 + j, out, y2 + j)
            d3 += dot(grad, x3 + j, out, y3 + j)
        for k in range(steps):
            far = lanes >> (k + 1)
            d0 += shuffle_xor(d0, far)
            d1 += shuffle_xor(d1, far)
            d2 += shuffle_xor(d2, far)
            d3 += shuffle_xor(d3, far)
        if lane == 0:
            store(pairs, number, L, row, e0, d0 * factor)
            store(pairs, number, L, r1, e1, d1 * factor)
            store(pairs, number, L, r2, e2, d2 * factor)
            store(pairs, number, L, r3, e3, d3 * factor)

    return attention_deltas


@cache
def deltas_kernel(dtype: DType, vector: int, lanes: int) -> Kernel:
    """`attention_deltas` for a type of operands; those of 64 numbers have examples."""
    made = deltas_template(READERS[dtype], vector, lanes)
    word = "uint16" if dtype.half else "float32"
    text = f"{word}[] 4*int64 {word}[] 4*int64 float32[] float32[] 6*int64 float32"
    name = f"attention_deltas[{dtype.name}]"
    if vector * lanes == 64 and vector > 1:
        return Kernel(made, name, [text], DELTA_THREADS)
    return Kernel(made, f"{name}{vector, lanes}", (), DELTA_THREADS)


for _dtype in READERS:
    deltas_kernel(_dtype, *((8, 8) if _dtype.half else (4, 16)))


def run_deltas(
    dtype: DType, elements: int, operands: tuple[Any, ...], sizes: tuple[int, ...],
    factor: float,
) -> Any:  # fmt: skip
    """The pairs, from arrays and places of grad and out, and the logsumexp.

    `elements` is how many neighbours one instruction can load.
    """
    heads, rows, width = len(operands[-1]) // sizes[2], padded(sizes[2]), sizes[5]
    lanes = min(1 << (ceil_div(width, elements) - 1).bit_length(), WARP)
    run, out = (
        deltas_kernel(dtype, elements, lanes),
        empty((heads, rows, 2), types.float32),
    )
    blocks = heads, ceil_div(rows, DELTA_ROWS * DELTA_THREADS // lanes)
    run[blocks, DELTA_THREADS](*operands, out.flat(), sizes, np.float32(factor))
    return out.flat()


def backward_shared(cut: Cut) -> int:
    """Bytes of shared memory: two resident parts, two passing tiles, weights."""
    return (2 * cut.resident + 2 * cut.passing + cut.aside) * cut.item


def sloper(
    cut: Cut, units: Units, turned: bool, more: More, take: Callable | None = None
) -> Callable:
    """slope(s, d, ends, below, at, sizes, power, causal, mask, m_from, steps, dice):
    dropped weights and the gradients of scores, of one tile of products.

    As `weigher`. With `take` ends and below are what it takes them from.
    """
    take = take or inlined(lambda ends, below: (ends, below))
    weights, keep = weigher(cut, units, turned, more, not turned)
    slopes = sloped(units.scores, turned)

    def slope(
        s, d, ends, below, at, sizes, power, causal, mask, m_from, steps, dice
    ):  # fmt: skip
        e, t = take(ends, below)
        p, bits = weights(s, e, at, sizes, power, causal, mask, m_from, steps, dice)
        ds = slopes(p, keep(d, bits), t)
        return keep(p, bits), ds

    return inlined(slope)


def weigher(
    cut: Cut, units: Units, turned: bool, more: More, ends: bool
) -> tuple[Callable, Callable]:
    """weights(s, ends, at, sizes, power, causal, mask, m_from, steps, dice) -> p, bits:
    weights of one tile of products, and what `keep` drops of them.

    `at` is the tile's first query and key, `sizes` how many there are. The rest is as
    in `softener`; with `turned` keys are the tile's rows. Without `ends` keys that do
    not exist have weights, too: sums over queries need not care.
    """
    place, across = units.place, cut.rows if turned else cut.cols
    folds = cut.wgmma and not more.mask
    hide = masked(units.scores, turned, -math.inf)
    again = weighted(units.scores, turned, bool(more.mask))
    show = shower(units, turned, more.kind(cut))
    draw, keep = dropper(units, turned, more.drops)
    temper = inlined(lambda s, factors: s) if folds else units.temper
    each_row = filled(len(units.scores.rows))

    def weights(s, ends_of, at, sizes, power, causal, mask, m_from, steps, dice):
        chance, base, head = dice
        s = show(temper(s, each_row(power)), mask, m_from, steps, at, sizes)
        row, col, _, _, _ = place()  # Cheaper to find than to keep.
        key, query = (row, col) if turned else (col, row)
        left = sizes[1] - at[1] if ends else FAR
        diagonal = at[0] - at[1] if causal else FAR
        if left < across or diagonal < across:
            s = hide(s, left - key, diagonal + query - key)
        bits = draw(chance, base, head + at[0], at[1])
        return again(s, power if folds else ONE, ends_of), bits

    return inlined(weights), keep


def keys_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_for_keys` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh = units.place, units.multiply, units.weigh
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    slope = sloper(cut, units, True, more, paired(units.scores.cols))
    write, size = writer(units, more.drops, elements > 1), inlined(padded)
    each_row = filled(len(units.sums.rows))
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride, value_at = cut.resident_strides[0], cut.resident
    q_at = 2 * cut.resident
    g_at, p_at = q_at + cut.passing, q_at + 2 * cut.passing
    log2e, kind = float32(LOG2E), cut.number

    def attention_for_keys(
        query, q, key, k, value, v, grad, g, pairs, key_grad, dk, value_grad, dv,
        sizes, scale, causal, mask, m, chance, base, kept,
    ):  # fmt: skip
        """Queries and their gradients come by; gradients of keys stay in registers.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], grad [B, H, L, V]
        # -> key_grad [B, K, S, E], value_grad [B, K, S, V]

            for a block of 128 keys, for a tile of 32 queries of each head of the group:
                d = values @ grad.T                        of weights, [128 keys, 32]
                p = exp(keys @ queries.T * scale - logsumexp)     the weights again
                value_grad += p @ grad
                ds = p * (d - deltas)
                key_grad += ds @ queries * scale

        It is `attention_online` turned around: rows are keys here. Weights follow from
        the one number of each query that the forward pass kept, with no maximum to look
        for. Heads that share keys come one after the other, so their sum needs nobody
        else. Gradients of the output come while the last product of the tile before is
        made, and queries while `d` is.

        With `causal`, the first keys are seen by all queries: their blocks start first.
        The last tile comes first: the weights of few keys are large, so sums get their
        largest terms at their end, and lose less.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number, shares = cuda.blockIdx.x, heads // group
        first = cuda.blockIdx.y * rows
        _, _, my_row, my_tile_row, _ = place()
        mine, theirs = my_row * row_stride, my_tile_row * pitch
        at = start(k, (shares, number)) + first * k[3]
        fill(shared, 0, key, at, k[3], S - first, E, scale * log2e)
        at = start(v, (shares, number)) + first * v[3]
        fill(shared, value_at, value, at, v[3], S - first, V, ONE)
        lowest, highest = first // cols if causal else 0, (L - 1) // cols
        member, tile = 0 if lowest <= highest else group, highest
        if member < group:
            at = start(g, (heads, number * group)) + tile * cols * g[3]
            fetch(shared, g_at, grad, at, g[3], L - tile * cols, V)
        close()
        keys, values = zero_sums(), zero_sums()
        while member < group:
            head, i = number * group + member, tile * cols
            left = L - i
            wait()
            cuda.syncthreads()  # Gradients are there; all are done with the queries.
            at = start(q, (heads, head)) + i * q[3]
            fetch(shared, q_at, query, at, q[3], left, E)
            close()
            d = multiply(zero_scores(), shared, value_at + mine, g_at + theirs)
            wait()
            cuda.syncthreads()  # The queries are there.
            s = multiply(zero_scores(), shared, mine, q_at + theirs)
            _, col, _, _, my_col = place()
            at = 2 * (head * size(L) + i + col)
            p, ds = slope(
                s, d, pairs, at, (i, first), (L, S), scale * log2e, causal, mask,
                start(m, (heads, head)), m[3:], (chance, base, head * L),
            )  # fmt: skip
            values = weigh(values, p, shared, p_at, g_at + my_col)
            tile -= 1
            if tile < lowest:
                member, tile = member + 1, highest
            cuda.syncthreads()  # All are done with the gradients.
            if member < group:
                at = start(g, (heads, number * group + member)) + tile * cols * g[3]
                fetch(shared, g_at, grad, at, g[3], L - tile * cols, V)
            close()
            keys = weigh(keys, ds, shared, p_at, q_at + my_col)
        to = shares, number
        write(key_grad, dk, to, first, (S, E), keys, each_row(scale), kept)
        write(value_grad, dv, to, first, (S, V), values, each_row(ONE), kept)

    return attention_for_keys


def query_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_for_query` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh = units.place, units.multiply, units.weigh
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    slope = sloper(cut, units, False, more)
    write = writer(units, more.drops, elements > 1)
    take, size = paired(units.scores.rows), inlined(padded)
    each_row = filled(len(units.sums.rows))
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride, grad_at = cut.resident_strides[0], cut.resident
    k_at = 2 * cut.resident
    v_at, p_at = k_at + cut.passing, k_at + 2 * cut.passing
    log2e, kind = float32(LOG2E), cut.number

    def attention_for_query(
        query, q, key, k, value, v, grad, g, pairs, query_grad, dq, sizes, scale,
        causal, mask, m, chance, base, kept,
    ):  # fmt: skip
        """Keys and values come by; gradients of queries stay in registers.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], grad [B, H, L, V]
        # -> query_grad [B, H, L, E]

            for a block of 128 queries, for a tile of 32 keys and values:
                d = grad @ values.T                    of weights, [128 queries, 32]
                p = exp(queries @ keys.T * scale - logsumexp)     the weights again
                query_grad += p * (d - deltas) @ keys * scale

        As in `attention_online` tiles behind the diagonal are left out, and the longest
        rows start first. Values come while gradients are multiplied by keys, and keys
        while `d` is made.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number = cuda.blockIdx.x
        shares = heads // group, number // group
        first = (cuda.gridDim.y - 1 - cuda.blockIdx.y) * rows
        k_from, v_from = start(k, shares), start(v, shares)
        row, _, my_row, my_tile_row, my_col = place()
        mine, theirs = my_row * row_stride, my_tile_row * pitch
        seen = min(S, first + rows) if causal else S
        count = (seen + cols - 1) // cols
        fetch(shared, v_at, value, v_from, v[3], S, V)
        at = start(q, (heads, number)) + first * q[3]
        fill(shared, 0, query, at, q[3], L - first, E, scale * log2e)
        at = start(g, (heads, number)) + first * g[3]
        fill(shared, grad_at, grad, at, g[3], L - first, V, ONE)
        close()
        ends, below = take(pairs, 2 * (number * size(L) + first + row))
        acc, m_from = zero_sums(), start(m, (heads, number))
        for t in range(count):
            left = S - t * cols
            wait()
            cuda.syncthreads()  # The values are there; all are done with the keys.
            at = k_from + t * cols * k[3]
            fetch(shared, k_at, key, at, k[3], left, E)
            close()
            d = multiply(zero_scores(), shared, grad_at + mine, v_at + theirs)
            wait()
            cuda.syncthreads()  # The keys are there; all are done with the values.
            if t + 1 < count:
                at = v_from + (t + 1) * cols * v[3]
                fetch(shared, v_at, value, at, v[3], left - cols, V)
            close()
            s = multiply(zero_scores(), shared, mine, k_at + theirs)
            _, ds = slope(
                s, d, ends, below, (first, t * cols), (L, S), scale * log2e, causal,
                mask, m_from, m[3:], (chance, base, number * L),
            )  # fmt: skip
            acc = weigh(acc, ds, shared, p_at, k_at + my_col)
        to = heads, number
        write(query_grad, dq, to, first, (L, E), acc, each_row(scale), kept)

    return attention_for_query


OPERANDS = "float32[] 4*int64 " * 4 + "float32[] "
LAST = "6*int64 float32 bool" + EXTRAS
KEYS_EXAMPLE = OPERANDS + "float32[] 4*int64 float32[] 4*int64 " + LAST
QUERY_EXAMPLE = OPERANDS + "float32[] 4*int64 " + LAST

# As `FORWARD`, for the gradients of keys and values, and for those of queries.
if TINY:
    FOR_KEYS: dict[str, tuple[Cut, ...]] = {
        FMA: (Cut(FMA, 32, 1, 16, 16, 4),),
        **{units: (Cut(units, 32, 1, 16, 16),) for units in (TF32, BF16, F16)},
    }
    FOR_QUERY = FOR_KEYS
else:
    FOR_KEYS = {
        FMA: (
            Cut(FMA, 32, 4, 32, 32, blocks=2),
            Cut(FMA, 64, 4, 32, 32, blocks=2, arch=(9, 0)),
            Cut(FMA, 64, 8, 16, 32),
            Cut(FMA, 64, 4, 16, 16),
            Cut(FMA, 128, 8, 16, 32, arch=(9, 0)),
            Cut(FMA, 128, 8, 8, 32),
            Cut(FMA, 128, 4, 8, 32),
            Cut(FMA, 256, 4, 8, 32),
        ),
        TF32: (
            Cut(TF32, 32, 4, 32, 32, blocks=2),
            Cut(TF32, 64, 4, 32, 32, blocks=2),
            Cut(TF32, 128, 8, 16, 32),
            Cut(TF32, 128, 4, 16, 16),
            Cut(TF32, 256, 2, 16, 16),
        ),
        **{
            units: (
                Cut(units, 32, 4, 32, 32, blocks=2),
                Cut(units, 64, 4, 32, 32, blocks=2),
                Cut(units, 128, 8, 16, 32),
            )
            for units in HALVES
        },
    }
    FOR_QUERY = {
        **FOR_KEYS,
        TF32: (*FOR_KEYS[TF32][:-1], Cut(TF32, 256, 4, 16, 16)),
    }

MAIN_KEYS: dict[Key, str] = {}
MAIN_QUERY: dict[Key, str] = {}
if not SIMULATED:
    MAIN_KEYS = {
        (FOR_KEYS[FMA][1], VECTOR, True, PLAIN): "attention_for_keys",
        (FOR_KEYS[TF32][1], VECTOR, True, PLAIN): "attention_for_keys_tensor_core",
        (FOR_KEYS[BF16][1], 2 * VECTOR, True, PLAIN): "attention_for_keys_bfloat16",
        (FOR_KEYS[FMA][1], VECTOR, True, More(True)): "attention_for_keys_dropout",
    }
    MAIN_QUERY = {(FOR_QUERY[FMA][1], VECTOR, True, PLAIN): "attention_for_query"}


for_keys = family(keys_template, MAIN_KEYS, backward_shared, KEYS_EXAMPLE)
for_query = family(query_template, MAIN_QUERY, backward_shared, QUERY_EXAMPLE)
