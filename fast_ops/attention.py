"""FlashAttention: no more than a block of the weights ever exists.

With this file the backend computes attention and its gradients (`attend`,
`attend_backward`) for the shapes of `minitorch/backend/attention.py`, with memory
for QUERIES x KEYS weights in each thread, where the three steps one after the other
write and read L x S of them.

A block of scores lies with its queries side by side, [KEYS, QUERIES]:

              queries ->          key k of the block times QUERIES queries: the
      keys   s00 s01 s02 ...      queries are columns, laid out once for all keys
       |     s10 s11 s12 ...      (`_pack`), and a key is a row where it lies
       v     ...

so that a vector holds one score of 16 queries, and the maximum, the sum and the
exponentials of a query's scores are vector code without a sum across lanes. The same
block, read the other way round, is what multiplies the values. All products are
`tile_fma`s, from blocks of rows that were copied side by side (`_fetch`): models keep
the rows of a head thousands of bytes apart, each in another page of memory.

Where keys are hidden (`causal`), `edge` is the number of the first query of the block
that sees its first key; tiles of hidden keys alone are not computed.

Dropout's words are drawn anew for each block (`_draw`), in the backward pass again.

Every number is summed in an order that the shapes decide, on any number of threads.

Source: Dao et al., "FlashAttention", 2022; the online softmax: Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import get_num_threads, prange, set_num_threads

from fast_ops.launch import SERIAL_LIMIT, Unwritten, device_function, kernel
from fast_ops.matmul import ROWS, _chunks, _pack
from fast_ops.random import LOW_32, philox
from fast_ops.simd import TILE, VECTOR_BYTES, tile_fma
from fast_ops.softmax import exp
from fast_ops.vector_math import log, maximum_float, scaled
from minitorch.backend.attention import Drop
from minitorch.backend.host.attention import QUERIES, Sizes
from minitorch.backend.host.workspace import workspace
from minitorch.dtypes import bool_
from minitorch.tensor_data import TensorData

KEYS = 128  # in a block: 32 KiB of float32 scores
BLOCK = KEYS * QUERIES
ROOM = (
    BLOCK + max(ROWS, 5) * QUERIES
)  # for it and the last tile, and a few numbers a query
NEVER = -(2**40)  # the `edge` where every query sees all keys


@device_function
def _lay_out(x, row, lines, width, out):
    """Queries side by side: x [lines, width] -> out [width, QUERIES], rest zeros."""
    for chunk in range(_chunks(lines, QUERIES, width)):
        _pack(x, 0, row, 1, lines, QUERIES, width, chunk, out, 0)


@device_function
def _fetch(x, row, lines, width, out):
    """Rows one behind the other: x [lines, width] -> out [lines, width]"""
    for i in range(lines):
        line, copied = x[i * row : i * row + width], out[i * width : (i + 1) * width]
        for e in range(width):
            copied[e] = line[e]


@device_function
def _seen_from(edge, key):
    """The first query that sees `key` of the block, rounded down to whole tiles."""
    return max(0, (edge + key // ROWS * ROWS) // ROWS * ROWS)


@device_function
def _score(x, keys, width, packed, lines, edge, out):
    """out[k, q] = sum over e of x[k, e] * packed[e, q], where a query sees a key."""
    wide = TILE.vectors * VECTOR_BYTES // x.itemsize
    for i in range(0, keys, ROWS):
        for j in range(_seen_from(edge, i) // wide * wide, lines, wide):
            tile_fma(
                x, i * width, width, 1, packed, j, QUERIES, width,
                out, i * QUERIES + j, QUERIES, keys - i, QUERIES - j, False,
            )  # fmt: skip


@device_function
def _hide(scores, keys, edge):
    """-infinity for the keys that a query does not see, and so a weight of 0."""
    # BEGIN SOLUTION a11.2
    for k in range(max(0, 1 - edge), keys):
        at = k * QUERIES
        row = scores[at + _seen_from(edge, k) : at + min(edge + k, QUERIES)]
        for q in range(row.size):
            row[q] = -np.inf
    # END SOLUTION a11.2


@device_function
def _show(scores, lines, keys, edge, k0, mask):
    """A mask from key k0 on: its numbers are added to scores; -inf where not seen.

    Of a mask that is not there, there are no elements.
    """
    numbers, seen, (row, col) = mask
    if numbers.size + seen.size == 0:
        return
    for k in range(keys):
        at, there, first = k * QUERIES, (k0 + k) * col, _seen_from(edge, k)
        line = scores[at : at + lines]
        if numbers.size > 0:
            for q in range(first, lines):
                line[q] += numbers[there + q * row]
        if seen.size > 0:
            for q in range(first, lines):
                line[q] = line[q] if seen[there + q * row] else -np.inf


@device_function
def _draw(kept, lines, keys, edge, row, key, chance, factor):
    """kept[k, q] = 0 or `factor`, for weights from (row, key) on: `kept_weights`.

    A block of four words is for four keys of a query.
    """
    key0, key1, start, limit, blocks = chance
    for k in range(0, keys, 4):
        at = k * QUERIES
        a, b = kept[at : at + lines], kept[at + QUERIES : at + QUERIES + lines]
        at += 2 * QUERIES
        c, d = kept[at : at + lines], kept[at + QUERIES : at + QUERIES + lines]
        for q in range(_seen_from(edge, k), lines):
            block = start + (row + q) * blocks + (key + k) // 4
            w0, w1, w2, w3 = philox(block & LOW_32, block >> 32 & LOW_32, key0, key1)
            a[q] = factor if w0 >= limit else 0
            b[q] = factor if w1 >= limit else 0
            c[q] = factor if w2 >= limit else 0
            d[q] = factor if w3 >= limit else 0


@device_function
def _keep(weights, lines, keys, edge, k0, kept):
    """weights *= what dropout keeps of them, drawn for the keys from k0 on."""
    factors, row, chance, factor = kept
    if factor > 0:
        _draw(factors, lines, keys, edge, row, k0, chance, factor)
        _keep_again(weights, lines, keys, edge, kept)


@device_function
def _keep_again(weights, lines, keys, edge, kept):
    """The same for other numbers of the block, with what `_keep` has drawn."""
    factors, _, _, factor = kept
    if factor > 0:
        for k in range(keys):
            first, at, end = _seen_from(edge, k), k * QUERIES, k * QUERIES + lines
            row, stay = weights[at + first : end], factors[at + first : end]
            for q in range(row.size):
                row[q] *= stay[q]


@device_function
def _weigh(weights, lines, keys, edge, x, width, out, out_row, add):
    """out[q] (+)= sum over k of weights[k, q] * x[k], over the keys that are seen."""
    wide = TILE.vectors * VECTOR_BYTES // x.itemsize
    for i in range(0, lines, ROWS):
        for j in range(0, width, wide):
            tile_fma(
                weights, i, 1, QUERIES, x, j, width, min(keys, i + ROWS - edge),
                out, i * out_row + j, out_row, lines - i, width - j, add,
            )  # fmt: skip


@device_function
def _weigh_back(weights, lines, keys, edge, x, width, out, out_row):
    """out[k] += sum over q of weights[k, q] * x[q], over the queries that see a key."""
    wide = TILE.vectors * VECTOR_BYTES // x.itemsize
    for i in range(0, keys, ROWS):
        first = _seen_from(edge, i)
        for j in range(0, width, wide):
            tile_fma(
                weights, i * QUERIES + first, QUERIES, 1,
                x, first * width + j, width, lines - first,
                out, i * out_row + j, out_row, keys - i, width - j, True,
            )  # fmt: skip


@device_function
def _online_softmax(scores, lines, keys, edge, top, total, decay, sums, less):
    """Scores become weights; `top` and `total` go on to the keys of this block.

    top [QUERIES] is the largest score of each query so far, and total the sum of
    exp(score - top). What was summed up before counts exp(old top - new top), `decay`.
    A block has `sums` of its own: thousands of additions to one number lose its end.
    """
    # BEGIN SOLUTION a11.1
    # A query that has seen no key yet takes away 0, not -infinity, so weights are 0.
    for q in range(top.size):
        decay[q] = top[q]
    for k in range(keys):
        first, at = _seen_from(edge, k), k * QUERIES
        row, highest = scores[at + first : at + lines], top[first:lines]
        for q in range(row.size):
            highest[q] = maximum_float(highest[q], row[q])
    for q in range(lines):
        less[q] = top[q] if top[q] > -np.inf else 0
        decay[q] = exp(decay[q] - less[q])
        sums[q] = 0
    for k in range(keys):
        first, at = _seen_from(edge, k), k * QUERIES
        row, highest = scores[at + first : at + lines], less[first:lines]
        here = sums[first:lines]
        for q in range(row.size):
            weight = exp(row[q] - highest[q])
            row[q] = weight
            here[q] += weight
    for q in range(lines):
        total[q] = total[q] * decay[q] + sums[q]
    # END SOLUTION a11.1


@device_function
def _scale_rows(out, out_row, lines, width, factors):
    """out[q] *= factors[q]"""
    for q in range(lines):
        if factors[q] != 1:
            line = out[q * out_row : q * out_row + width]
            for e in range(width):
                line[e] = scaled(line[e], factors[q])


@device_function
def _attend(
    query, key, value, out, logsumexp, rows, sizes, q0, scale, causal, mask, drop, work,
):  # fmt: skip
    """One block of queries: `lines` rows of out, of logsumexp, and all keys they see.

    Arrays begin with the block, or with the head; `rows` are the strides of their rows,
    `mask` is what `_mask_of` gives; `drop` is the block's first row among those of all
    heads, and what `_chance` gives.
    """
    lines, last, E, V = sizes
    q_row, k_row, v_row, out_row = rows
    row, chance, factor = drop
    room = BLOCK if factor > 0 else 0
    kept, work = (work[:room], row, chance, factor), work[room:]
    scores, state, work = work[:BLOCK], work[BLOCK : BLOCK + 5 * QUERIES], work[ROOM:]
    top, total = state[:QUERIES], state[QUERIES : 2 * QUERIES]
    decay, sums = state[2 * QUERIES : 3 * QUERIES], state[3 * QUERIES : 4 * QUERIES]
    less = state[4 * QUERIES :]
    packed, work = work[: E * QUERIES], work[E * QUERIES :]
    keys_here, values_here = work[: E * KEYS], work[E * KEYS :]
    _lay_out(query, q_row, lines, E, packed)
    for e in range(packed.size):
        packed[e] *= scale
    # BEGIN SOLUTION a11.2
    top[:] = -np.inf
    total[:] = 0
    for k0 in range(0, last, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
        _fetch(key[k0 * k_row :], k_row, keys, E, keys_here)
        _fetch(value[k0 * v_row :], v_row, keys, V, values_here)
        _score(keys_here, keys, E, packed, lines, edge, scores)
        _show(scores, lines, keys, edge, k0, mask)
        _hide(scores, keys, edge)
        _online_softmax(scores, lines, keys, edge, top, total, decay, sums, less)
        _keep(scores, lines, keys, edge, k0, kept)
        if k0 > 0:
            _scale_rows(out, out_row, lines, V, decay)
        _weigh(scores, lines, keys, edge, values_here, V, out, out_row, k0 > 0)
    for q in range(lines):
        logsumexp[q] = top[q] + log(total[q])
        total[q] = 1 / total[q] if total[q] != 0 else 0
    _scale_rows(out, out_row, lines, V, total)
    # END SOLUTION a11.2


@device_function
def _in_pairs(i, count):
    """0, count - 1, 1, count - 2, ...: blocks that see few keys beside those that see
    many, so that any run of tasks has about its share of the work."""
    return i // 2 if i % 2 == 0 else count - 1 - i // 2


@device_function
def _head(at, steps, b, h):
    """Where head h of batch b begins."""
    return at + b * steps[0] + h * steps[1]


@device_function
def _mask_of(numbers, seen, at, steps, q0):
    """A mask from a block of queries on, and its strides of queries and keys."""
    at += q0 * steps[2]
    return numbers[at:], seen[at:], (steps[2], steps[3])


@kernel(parallel=True)
def _attention(
    query, q_at, q_steps, key, k_at, k_steps, value, v_at, v_steps,
    out, out_at, out_steps, logsumexp, sizes, scale, causal, numbers, seen, m_at,
    m_steps, chance, kept, work, room, threads,
):  # fmt: skip
    """# query [B, H, L, E], key [B, K, S, E], value [B, K, S, V] -> out [B, H, L, V]

        parallel for heads, blocks of queries:  for blocks of keys:
            scores = keys * queries                       `_score`, `_show`, `_hide`
            weights = exp(scores - the largest so far)    `_online_softmax`, `_keep`
            out = out * decay + weights * values          `_weigh`

    A thread makes QUERIES rows of out. A block of weights, of keys and of values and
    the packed queries (112 KiB for 64 features) stay in the second-level cache, and so
    do all keys and values of a head of 1024, while its queries pass by.
    """
    B, H, K, L, S, E, V = sizes
    blocks = (L + QUERIES - 1) // QUERIES
    tasks, factor = B * H * blocks, work.dtype.type(scale)
    keep = work.dtype.type(kept)
    rows = q_steps[2], k_steps[2], v_steps[2], out_steps[2]
    for thread in prange(threads):
        t = np.int64(thread)
        for task in range(t * tasks // threads, (t + 1) * tasks // threads):
            head, i = divmod(task, blocks)
            b, h = divmod(head, H)
            shared, q0 = h // (H // K), _in_pairs(i, blocks) * QUERIES
            lines = min(QUERIES, L - q0)
            last = min(S, q0 + lines) if causal else S
            _attend(
                query[_head(q_at, q_steps, b, h) + q0 * q_steps[2] :],
                key[_head(k_at, k_steps, b, shared) :],
                value[_head(v_at, v_steps, b, shared) :],
                out[_head(out_at, out_steps, b, h) + q0 * out_steps[2] :],
                logsumexp[head * L + q0 :],
                rows, (lines, last, E, V), q0, factor, causal,
                _mask_of(numbers, seen, _head(m_at, m_steps, b, h), m_steps, q0),
                (head * L + q0, chance, keep), work[t * room :],
            )  # fmt: skip


@device_function
def _slopes(weights, slopes, lines, keys, edge, logsumexp, below, scale):
    """weights = exp(scores - logsumexp); slopes = weights * (slopes - below) * scale

    The gradients of weights become those of scores.
    """
    # BEGIN SOLUTION a11.3
    for k in range(keys):
        first, at = _seen_from(edge, k), k * QUERIES
        row, slope = weights[at + first : at + lines], slopes[at + first : at + lines]
        logs, less = logsumexp[first:lines], below[first:lines]
        for q in range(row.size):
            weight = exp(row[q] - logs[q])
            row[q] = weight
            slope[q] = weight * (slope[q] - less[q]) * scale
    # END SOLUTION a11.3


@device_function
def _dots(x, x_row, y, y_row, lines, width, out):
    """out[q] = sum over e of x[q, e] * y[q, e]"""
    for q in range(lines):
        left, right = x[q * x_row : q * x_row + width], y[q * y_row : q * y_row + width]
        dot = out.dtype.type(0)
        for e in range(width):
            dot += left[e] * right[e]
        out[q] = dot


@device_function
def _ends(logsumexp, lines, ends):
    """`logsumexp`, and 0 where a query sees no key: its weights are 0 then, not NaN."""
    for q in range(lines):
        ends[q] = logsumexp[q] if logsumexp[q] > -np.inf else 0


@device_function
def _attend_back(
    dq, dk, dv, grad, query, key, value, out, logsumexp, rows, sizes, q0, scale, causal,
    mask, drop, work,
):  # fmt: skip
    """What one block of queries gets from all keys it sees, and what it gives to them.

    As for `_attend`.
    """
    lines, last, E, V = sizes
    dq_row, dk_row, dv_row, g_row, q_row, k_row, v_row, out_row = rows
    row, chance, factor = drop
    room = BLOCK if factor > 0 else 0
    kept, work = (work[:room], row, chance, factor), work[room:]
    weights, below, work = work[:BLOCK], work[BLOCK : BLOCK + 2 * QUERIES], work[ROOM:]
    below, ends = below[:QUERIES], below[QUERIES:]
    slopes, work = work[:BLOCK], work[ROOM:]
    queries, grads = work[: E * QUERIES], work[E * QUERIES : (E + V) * QUERIES]
    work = work[(E + V) * QUERIES :]
    query_rows, grad_rows = work[: E * QUERIES], work[E * QUERIES : (E + V) * QUERIES]
    work = work[(E + V) * QUERIES :]
    keys_here, values_here = work[: E * KEYS], work[E * KEYS :]
    _lay_out(query, q_row, lines, E, queries)
    for e in range(queries.size):
        queries[e] *= scale
    _lay_out(grad, g_row, lines, V, grads)
    _fetch(query, q_row, lines, E, query_rows)
    _fetch(grad, g_row, lines, V, grad_rows)
    _ends(logsumexp, lines, ends)
    # BEGIN SOLUTION a11.3
    _dots(grad, g_row, out, out_row, lines, V, below)
    for k0 in range(0, last, KEYS):
        keys, edge = min(KEYS, last - k0), k0 - q0 if causal else NEVER
        _fetch(key[k0 * k_row :], k_row, keys, E, keys_here)
        _fetch(value[k0 * v_row :], v_row, keys, V, values_here)
        _score(keys_here, keys, E, queries, lines, edge, weights)
        _score(values_here, keys, V, grads, lines, edge, slopes)
        _show(weights, lines, keys, edge, k0, mask)
        _hide(weights, keys, edge)
        _keep(slopes, lines, keys, edge, k0, kept)
        _slopes(weights, slopes, lines, keys, edge, ends, below, scale)
        _keep_again(weights, lines, keys, edge, kept)
        to = dv[k0 * dv_row :]
        _weigh_back(weights, lines, keys, edge, grad_rows, V, to, dv_row)
        to = dk[k0 * dk_row :]
        _weigh_back(slopes, lines, keys, edge, query_rows, E, to, dk_row)
        _weigh(slopes, lines, keys, edge, keys_here, E, dq, dq_row, k0 > 0)
    # END SOLUTION a11.3


@device_function
def _clear(out, row, lines, width):
    """out [lines, width] = 0"""
    for i in range(lines):
        line = out[i * row : i * row + width]
        for e in range(width):
            line[e] = 0


@kernel(parallel=True)
def _attention_backward(
    dq, dq_at, dq_steps, dk, dk_at, dk_steps, dv, dv_at, dv_steps, grad, g_at, g_steps,
    query, q_at, q_steps, key, k_at, k_steps, value, v_at, v_steps,
    out, out_at, out_steps, logsumexp, sizes, scale, causal, numbers, seen, m_at,
    m_steps, chance, kept, parts, work, room, threads,
):  # fmt: skip
    """# grad and out [B, H, L, V] -> dq [B, H, L, E], and for each part dk [B, K, S, E]
    # and dv [B, K, S, V]

        parallel for heads of keys, parts:  for blocks of queries, blocks of keys:
            weights = exp(keys * queries - logsumexp)     as in the forward pass
            slopes = weights * (values * grad - rowsum(grad * out)) * scale
            dv += weights * grad;  dk += slopes * queries;  dq += slopes * keys

    A thread makes all that one part of the queries of a head of keys (and of its group
    of heads) gives to the keys; dk and dv have the strides (parts, B, K, S), and are
    added up later. Where heads are many there is one part: the gradients themselves. So
    no weight is made twice, and no sum waits for another thread.
    """
    B, H, K, L, S, E, V = sizes
    group, blocks = H // K, (L + QUERIES - 1) // QUERIES
    tasks, factor = B * K * parts, work.dtype.type(scale)
    keep = work.dtype.type(kept)
    rows = (
        dq_steps[2], dk_steps[3], dv_steps[3], g_steps[2],
        q_steps[2], k_steps[2], v_steps[2], out_steps[2],
    )  # fmt: skip
    for thread in prange(threads):
        t = np.int64(thread)
        for task in range(t * tasks // threads, (t + 1) * tasks // threads):
            head, p = divmod(task, parts)
            b, shared = divmod(head, K)
            part = _in_pairs(p, parts)
            keys = dk[_head(dk_at + part * dk_steps[0], dk_steps[1:], b, shared) :]
            values = dv[_head(dv_at + part * dv_steps[0], dv_steps[1:], b, shared) :]
            _clear(keys, dk_steps[3], S, E)
            _clear(values, dv_steps[3], S, V)
            for unit in range(part, group * blocks, parts):
                g, i = divmod(unit, blocks)
                h, q0 = shared * group + g, i * QUERIES
                lines = min(QUERIES, L - q0)
                last = min(S, q0 + lines) if causal else S
                _attend_back(
                    dq[_head(dq_at, dq_steps, b, h) + q0 * dq_steps[2] :], keys, values,
                    grad[_head(g_at, g_steps, b, h) + q0 * g_steps[2] :],
                    query[_head(q_at, q_steps, b, h) + q0 * q_steps[2] :],
                    key[_head(k_at, k_steps, b, shared) :],
                    value[_head(v_at, v_steps, b, shared) :],
                    out[_head(out_at, out_steps, b, h) + q0 * out_steps[2] :],
                    logsumexp[(b * H + h) * L + q0 :],
                    rows, (lines, last, E, V), q0, factor, causal,
                    _mask_of(numbers, seen, _head(m_at, m_steps, b, h), m_steps, q0),
                    ((b * H + h) * L + q0, chance, keep), work[t * room :],
                )  # fmt: skip


# In an edition for students the backend does without what they have yet to write.
WRITTEN = not any(isinstance(k, Unwritten) for k in (_attention, _attention_backward))

# ------------------------------------------------------------------------ launchers


def attend(
    operands: Sequence[TensorData], logsumexp: np.ndarray, sizes: Sizes, scale: float,
    causal: bool, mask: TensorData | None, drop: Drop,
) -> None:  # fmt: skip
    """Operands: query, key, value and out."""
    *_, S, E, V = sizes
    like, threads = operands[-1], _threads_for(sizes)
    room = _room(1, E, V, QUERIES, drop)
    _on(threads, _attention)(
        *[part for a in operands for part in (a.storage.array, a.offset, a.strides)],
        logsumexp, sizes, scale, bool(causal), *_shown(mask, like), *_chance(drop, S),
        workspace(room * threads, like.dtype), room, threads,
    )  # fmt: skip


def attend_backward(
    operands: Sequence[TensorData], logsumexp: np.ndarray, sizes: Sizes, scale: float,
    causal: bool, mask: TensorData | None, drop: Drop, parts: int,
) -> None:  # fmt: skip
    """Operands: gradients of query, of key and value in parts, and of out; then those
    of `attend`."""
    *_, S, E, V = sizes
    like, threads = operands[-1], _threads_for(sizes)
    room = _room(2, E, V, 2 * QUERIES, drop)
    _on(threads, _attention_backward)(
        *[part for a in operands for part in (a.storage.array, a.offset, a.strides)],
        logsumexp, sizes, scale, bool(causal), *_shown(mask, like), *_chance(drop, S),
        parts, workspace(room * threads, like.dtype), room, threads,
    )  # fmt: skip


def _threads_for(sizes: Sizes) -> int:
    """How many threads share the work: the caller's alone, where there is little."""
    B, H, _, L, S, E, _ = sizes
    return 1 if B * H * L * S * E < SERIAL_LIMIT else get_num_threads()


def _on(threads: int, kernel: Callable) -> Callable:
    """The kernel, which wakes no more than so many threads."""

    def run(*args: Any) -> None:
        usual = get_num_threads()
        set_num_threads(threads)
        try:
            kernel(*args)
        finally:
            set_num_threads(usual)

    return run if threads < get_num_threads() else kernel


def _shown(mask: TensorData | None, like: TensorData) -> tuple[Any, ...]:
    """A mask's numbers, its bools as bytes, offset and strides; no elements for none.

    Both are arguments, so that one compiled kernel serves any mask.
    """
    numbers, seen = like.storage.array[:0], np.empty(0, np.uint8)
    if mask is None:
        return numbers, seen, 0, (0, 0, 0, 0)
    if mask.dtype is bool_:
        seen = mask.storage.array.view(np.uint8)
    else:
        numbers = mask.storage.array
    return numbers, seen, mask.offset, mask.strides


def _chance(drop: Drop, keys: int) -> tuple[tuple[int, ...], float]:
    """What `_draw` needs: the generator's place; what weights that stay are kept with.

    The factor is 0 where nothing is dropped.
    """
    p, seed, offset = drop
    limit, blocks = math.ceil(p * 2.0**32), -(-keys // 4)
    place = seed & LOW_32, seed >> 32 & LOW_32, offset, limit, blocks
    return place, 1.0 / (1.0 - p) if p else 0.0


def _room(blocks: int, E: int, V: int, rows: int, drop: Drop) -> int:
    """Elements of a thread's own memory: blocks of scores, and rows of E and V.

    The last tile of a block reads past it, up to ROWS rows and a tile's columns.
    """
    blocks += drop[0] > 0
    return blocks * ROOM + (E + V) * (rows + KEYS + ROWS) // 64 * 64 + 128
