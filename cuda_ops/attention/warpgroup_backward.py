"""The gradient of attention of halves on `wgmma`, whose products never stop.

With this file one can get the kernels of `backward.py` as warpgroups compute them. What
may be touched while a product runs on its own is told in `warpgroup.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32

from cuda_ops.attention.backward import KEYS_EXAMPLE, QUERY_EXAMPLE, padded, sloper
from cuda_ops.attention.forward import ONE, PLAIN, More, family, pipes, start_of, writer
from cuda_ops.attention.held import LOG2E, filled, paired
from cuda_ops.attention.units import BF16, VECTOR, Cut, chain_of, fetcher, units_of
from cuda_ops.attention.warpgroup import CUTS
from cuda_ops.block.tiles import inlined
from cuda_ops.runtime.launch import SIMULATED


def _shared(tiles: int) -> Callable[[Cut], int]:
    """Bytes of shared memory: two resident parts, and so many passing tiles."""
    return lambda cut: (2 * cut.resident + tiles * cut.passing) * cut.item


# Three of either kind; two of values, of which only scores are made.
keys_shared, query_shared = _shared(6), _shared(5)


def keys_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_for_keys_warpgroup` for one way to cut."""
    units = units_of(cut)
    place, held = units.place, units.scores
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    chain = chain_of(cut, 2, 2 * len(held.places))
    begin_scores, words, begin_sums, scores_done, _, all_sums, sums_behind = chain
    slope, take = sloper(cut, units, True, more), paired(held.cols)
    write, size = writer(units, more.drops, elements > 1), inlined(padded)
    each_row = filled(len(units.sums.rows))
    fetch, close, arrive = pipes(cut, elements, asynchronous)
    fill, start = fetcher(cut, cut.rows, elements, asynchronous), inlined(start_of)
    rows, cols, tile, line = cut.rows, cut.cols, cut.passing, cut.line
    value_at, q_at = cut.resident, 2 * cut.resident
    g_at, log2e, kind = q_at + tile, float32(LOG2E), cut.number

    def attention_for_keys_warpgroup(
        query, q, key, k, value, v, grad, g, pairs, key_grad, dk, value_grad, dv,
        sizes, scale, causal, mask, m, chance, base, kept,
    ):  # fmt: skip
        """`attention_for_keys`, whose sums are a tile behind the scores.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], grad [B, H, L, V],
        # pairs [B, H, L padded, 2] -> key_grad [B, K, S, E], value_grad [B, K, S, V]

            for a block of 64 keys, for a tile t of 64 queries of each head:
                s, d = keys @ queries[t].T, values @ grad[t].T            under way
                value_grad += p @ grad[t - 1];  key_grad += ds @ queries[t - 1]
                queries[t + 1], grad[t + 1] -> shared memory            meanwhile
                when s, d are there:     p', ds' = their weights and gradients
                when sums are there:     p, ds = p', ds' in halves

        Weights are exponentiated while both sums are multiplied, and what other blocks
        have. In the first turn p and ds are 0, and the tiles before are the keys and
        values, which are there.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number = cuda.blockIdx.z * cuda.gridDim.x + cuda.blockIdx.x
        shares = heads // group
        first = cuda.blockIdx.y * rows
        mine = place()[2] * line
        at = start(k, (shares, number)) + first * k[3]
        fill(shared, 0, key, at, k[3], S - first, E)
        at = start(v, (shares, number)) + first * v[3]
        fill(shared, value_at, value, at, v[3], S - first, V)
        lowest = first // cols * cols if causal else 0
        head, i = number * group, lowest
        count = (L - lowest + cols - 1) // cols * group if lowest < L else 0
        q_from, g_from = start(q, (heads, head)), start(g, (heads, head))
        if count > 0:
            fetch(shared, q_at, query, q_from + i * q[3], q[3], L - i, E)
            fetch(shared, g_at, grad, g_from + i * g[3], g[3], L - i, V)
        close()
        keys, values, here, before = zero_sums(), zero_sums(), 0, -q_at
        p, ds = words(zero_scores()), words(zero_scores())
        arrive()
        cuda.syncthreads()  # Keys and values are there, and the first queries.
        for n in range(count):
            s = begin_scores(shared, mine, q_at + here)
            d = begin_scores(shared, value_at + mine, g_at + here)
            values = begin_sums(values, p, shared, g_at + before)
            keys = begin_sums(keys, ds, shared, q_at + before)
            this_head, this = head, i
            i += cols
            if i >= L:
                head, i = head + 1, lowest
                q_from, g_from = start(q, (heads, head)), start(g, (heads, head))
            before, here = here, here + 2 * tile if here < 4 * tile else 0
            if n + 1 < count:
                at, left = q_from + i * q[3], L - i
                fetch(shared, q_at + here, query, at, q[3], left, E)
                at = g_from + i * g[3]
                fetch(shared, g_at + here, grad, at, g[3], left, V)
            close()
            at = this_head * size(L) + this + place()[1]
            ends, below = take(pairs, 2 * at)
            s, d = scores_done(s), scores_done(d)
            w, dw = slope(
                s, d, ends, below, (this, first), (L, S), scale * log2e, causal, mask,
                start(m, (heads, this_head)), m[3:], (chance, base, this_head * L),
            )  # fmt: skip
            values, keys = sums_behind(values, w + dw), all_sums(keys)
            p, ds = words(w), words(dw)
            arrive()
            cuda.syncthreads()  # Tiles are there; all are done with those before.
        values = begin_sums(values, p, shared, g_at + before)
        keys = all_sums(begin_sums(keys, ds, shared, q_at + before))
        to = shares, number
        write(key_grad, dk, to, first, (S, E), keys, each_row(scale), kept)
        write(value_grad, dv, to, first, (S, V), all_sums(values), each_row(ONE), kept)

    return attention_for_keys_warpgroup


def query_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_for_query_warpgroup` for one way to cut."""
    units = units_of(cut)
    place, held = units.place, units.scores
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    chain = chain_of(cut, 1, 2 * len(held.places))
    begin_scores, words, begin_sums, scores_done, _, all_sums, sums_behind = chain
    slope = sloper(cut, units, False, more)
    write = writer(units, more.drops, elements > 1)
    take, size = paired(held.rows), inlined(padded)
    each_row = filled(len(units.sums.rows))
    fetch, close, arrive = pipes(cut, elements, asynchronous)
    fill, start = fetcher(cut, cut.rows, elements, asynchronous), inlined(start_of)
    rows, cols, tile, line = cut.rows, cut.cols, cut.passing, cut.line
    grad_at, k_at = cut.resident, 2 * cut.resident
    v_at, log2e, kind = k_at + 3 * tile, float32(LOG2E), cut.number

    def attention_for_query_warpgroup(
        query, q, key, k, value, v, grad, g, pairs, query_grad, dq, sizes, scale,
        causal, mask, m, chance, base, kept,
    ):  # fmt: skip
        """`attention_for_query`, whose sums are a tile behind the scores.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], grad [B, H, L, V],
        # pairs [B, H, L padded, 2] -> query_grad [B, H, L, E]

            for a block of 64 queries, for a tile t of keys and values:
                s, d = queries @ keys[t].T, grad @ values[t].T            under way
                query_grad += ds @ keys[t - 1]
                when s, d are there, then sums:    ds = p * (d - deltas), in halves
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number = cuda.blockIdx.z * cuda.gridDim.x + cuda.blockIdx.x
        shares = heads // group, number // group
        first = (cuda.gridDim.y - 1 - cuda.blockIdx.y) * rows
        k_from, v_from = start(k, shares), start(v, shares)
        row, _, mine, _, _ = place()
        seen = min(S, first + rows) if causal else S
        count = (seen + cols - 1) // cols
        at = start(q, (heads, number)) + first * q[3]
        fill(shared, 0, query, at, q[3], L - first, E)
        at = start(g, (heads, number)) + first * g[3]
        fill(shared, grad_at, grad, at, g[3], L - first, V)
        fetch(shared, k_at, key, k_from, k[3], S, E)
        fetch(shared, v_at, value, v_from, v[3], S, V)
        close()
        ends, below = take(pairs, 2 * (number * size(L) + first + row))
        acc, m_from, here, before = zero_sums(), start(m, (heads, number)), 0, -k_at
        ds = words(zero_scores())
        arrive()
        cuda.syncthreads()  # Queries are there, and the first keys and values.
        for t in range(count):
            s = begin_scores(shared, mine * line, k_at + here)
            d = begin_scores(shared, grad_at + mine * line, v_at + t % 2 * tile)
            acc = begin_sums(acc, ds, shared, k_at + before)
            before, here = here, here + tile if here < 2 * tile else 0
            if t + 1 < count:
                i = (t + 1) * cols
                fetch(shared, k_at + here, key, k_from + i * k[3], k[3], S - i, E)
                to = v_at + (t + 1) % 2 * tile
                fetch(shared, to, value, v_from + i * v[3], v[3], S - i, V)
            close()
            s, d = scores_done(s), scores_done(d)
            w, dw = slope(
                s, d, ends, below, (first, t * cols), (L, S), scale * log2e, causal,
                mask, m_from, m[3:], (chance, base, number * L),
            )  # fmt: skip
            acc, ds = sums_behind(acc, w + dw), words(dw)
            arrive()
            cuda.syncthreads()  # Tiles are there; all are done with those before.
        acc = all_sums(begin_sums(acc, ds, shared, k_at + before))
        head = heads, number
        write(query_grad, dq, head, first, (L, E), acc, each_row(scale), kept)

    return attention_for_query_warpgroup


MAIN: tuple[dict[Any, str], ...] = {}, {}
for _cuts, _main, _name in zip(CUTS[BF16][1:], MAIN, ("keys", "query")):
    for _cut, _size in zip(_cuts, ("", "_128") if not SIMULATED else ()):
        _named = f"attention_for_{_name}_warpgroup{_size}"
        _main[_cut, 2 * VECTOR, True, PLAIN] = _named

for_keys = family(keys_template, MAIN[0], keys_shared, KEYS_EXAMPLE)
for_query = family(query_template, MAIN[1], query_shared, QUERY_EXAMPLE)
