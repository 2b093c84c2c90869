"""The gradient of attention: scores are made again, tile by tile, and thrown away.

With this file one can get the kernels of the backward pass for one way to cut a block:

    attention_deltas     D, the sum of grad * out over each row
    attention_for_keys   gradients of keys and values: queries come by
    attention_for_query  gradients of queries: keys and values come by

Each gradient is summed by one block in registers, in an order that shapes determine:
there are no atomic additions. That costs the scores and the gradients of the weights a
second time, seven products instead of five.

Source: Dao et al., "FlashAttention", 2022; "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda, float32

from cuda_ops.attention.forward import FAR, Key, family, pipes, start_of
from cuda_ops.attention.held import LOG2E, filled, gradient, masked, scaled, taken
from cuda_ops.attention.units import (
    BF16,
    F16,
    FMA,
    HALVES,
    TF32,
    VECTOR,
    Cut,
    filler,
    units_of,
)
from cuda_ops.block.intrinsics import WARP, device, shuffle_xor
from cuda_ops.block.tiles import inlined
from cuda_ops.half import from_bfloat16, from_float16
from cuda_ops.runtime.launch import SIMULATED, Kernel
from minitorch import dtypes as types

# Rows of a block of `attention_deltas`.
DELTA_ROWS = 1 if SIMULATED else 8
ZERO = float32(0)
begin_of = device(start_of)


def deltas_template(read: Callable) -> Callable:
    """The Python function of `attention_deltas`; `read` makes elements float32."""

    def attention_deltas(grad, g, out, o, deltas, sizes):
        """D = rowsum(grad * out), the sum of weights times their gradients as well.

        # grad [B, H, L, V], out [B, H, L, V] -> deltas [B, H, L]

            for b, h, i:
                deltas[b, h, i] = sum(grad[b, h, i, v] * out[b, h, i, v] for v)

        A warp makes a row: neighbouring lanes read neighbours, and five exchanges add
        up. The gradient of softmax needs it in every tile of the row.
        """
        heads, L, V = sizes[0], sizes[2], sizes[5]
        row = cuda.blockIdx.x * DELTA_ROWS + cuda.threadIdx.x // WARP
        number = row // L
        inside = row < deltas.size
        i = row - number * L
        total = ZERO
        if inside:
            x = begin_of(g, (heads, number)) + i * g[3]
            y = begin_of(o, (heads, number)) + i * o[3]
            for j in range(cuda.threadIdx.x % WARP, V, WARP):
                total += read(grad[x + j]) * read(out[y + j])
        for k in range(5):
            total += shuffle_xor(total, 16 >> k)
        if inside and cuda.threadIdx.x % WARP == 0:
            deltas[row] = total

    return attention_deltas


def _deltas(read: Callable, name: str, word: str) -> Kernel:
    text = f"{word}[] 4*int64 {word}[] 4*int64 float32[] 6*int64"
    made, threads = deltas_template(read), DELTA_ROWS * WARP
    return Kernel(made, f"attention_deltas{name}", [text], threads)


# For each type of operands.
DELTAS = {
    types.float32: _deltas(device(lambda x: x), "", "float32"),
    types.bfloat16: _deltas(from_bfloat16, "[bfloat16]", "uint16"),
    types.float16: _deltas(from_float16, "[float16]", "uint16"),
}


def backward_shared(cut: Cut) -> int:
    """Bytes of shared memory: two resident parts, two passing tiles, weights."""
    return (2 * cut.resident + 2 * cut.passing + cut.aside) * cut.item


def keys_template(cut: Cut, elements: int, asynchronous: bool) -> Callable:
    """The Python function of `attention_for_keys` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh, store, temper = (
        units.place, units.multiply, units.weigh, units.store, units.temper,
    )  # fmt: skip
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    mask = masked(units.scores, True, -math.inf)
    slopes = gradient(units.scores, True)
    take_ends, take = taken(units.scores.cols, LOG2E), taken(units.scores.cols, 1.0)
    scale_sums, each_row = scaled(units.sums), filled(len(units.sums.rows))
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride, value_at = cut.resident_strides[0], cut.resident
    q_at = 2 * cut.resident
    g_at, p_at = q_at + cut.passing, q_at + 2 * cut.passing
    log2e, one, aligned = float32(LOG2E), float32(1), elements > 1
    kind = cut.number

    def attention_for_keys(
        query, q, key, k, value, v, grad, g, logsumexp, deltas, key_grad, dk,
        value_grad, dv, sizes, scale, causal,
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
        fill(shared, value_at, value, at, v[3], S - first, V, one)
        lowest, end = first // cols if causal else 0, (L + cols - 1) // cols
        member, tile = 0 if lowest < end else group, lowest
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
            s = temper(s, each_row(scale * log2e))
            row, col, _, _, my_col = place()  # Cheaper to find than to keep.
            diagonal = i - first if causal else FAR
            if left < cols or diagonal < rows:
                s = mask(s, left - col, diagonal + col - row)
            ends = take_ends(logsumexp, head * L + i + col, left - col)
            below = take(deltas, head * L + i + col, left - col)
            p, ds = slopes(s, d, ends, below)
            values = weigh(values, p, shared, p_at, g_at + my_col)
            tile += 1
            if tile == end:
                member, tile = member + 1, lowest
            cuda.syncthreads()  # All are done with the gradients.
            if member < group:
                at = start(g, (heads, number * group + member)) + tile * cols * g[3]
                fetch(shared, g_at, grad, at, g[3], L - tile * cols, V)
            close()
            keys = weigh(keys, ds, shared, p_at, q_at + my_col)
        keys = scale_sums(keys, each_row(scale))
        _, _, my_row, _, my_col = place()  # Found anew: no register had to keep it.
        left, first = S - first - my_row, first + my_row
        at = start(dk, (shares, number)) + first * dk[3] + my_col
        store(key_grad, at, dk[3], keys, left, E - my_col, aligned)
        at = start(dv, (shares, number)) + first * dv[3] + my_col
        store(value_grad, at, dv[3], values, left, V - my_col, aligned)

    return attention_for_keys


def query_template(cut: Cut, elements: int, asynchronous: bool) -> Callable:
    """The Python function of `attention_for_query` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh, store, temper = (
        units.place, units.multiply, units.weigh, units.store, units.temper,
    )  # fmt: skip
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    mask = masked(units.scores, False, -math.inf)
    slopes = gradient(units.scores, False)
    take_ends, take = taken(units.scores.rows, LOG2E), taken(units.scores.rows, 1.0)
    scale_sums, each_row = scaled(units.sums), filled(len(units.sums.rows))
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride, grad_at = cut.resident_strides[0], cut.resident
    k_at = 2 * cut.resident
    v_at, p_at = k_at + cut.passing, k_at + 2 * cut.passing
    log2e, one, aligned = float32(LOG2E), float32(1), elements > 1
    kind = cut.number

    def attention_for_query(
        query, q, key, k, value, v, grad, g, logsumexp, deltas, query_grad, dq, sizes,
        scale, causal,
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
        row, col, my_row, my_tile_row, my_col = place()
        mine, theirs = my_row * row_stride, my_tile_row * pitch
        seen = min(S, first + rows) if causal else S
        count = (seen + cols - 1) // cols
        fetch(shared, v_at, value, v_from, v[3], S, V)
        at = start(q, (heads, number)) + first * q[3]
        fill(shared, 0, query, at, q[3], L - first, E, scale * log2e)
        at = start(g, (heads, number)) + first * g[3]
        fill(shared, grad_at, grad, at, g[3], L - first, V, one)
        close()
        at = number * L + first + row
        ends = take_ends(logsumexp, at, L - first - row)
        below = take(deltas, at, L - first - row)
        acc = zero_sums()
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
            s = temper(s, each_row(scale * log2e))
            diagonal = first - t * cols if causal else FAR
            if left < cols or diagonal < cols:
                s = mask(s, left - col, diagonal + row - col)
            _, ds = slopes(s, d, ends, below)
            acc = weigh(acc, ds, shared, p_at, k_at + my_col)
        acc = scale_sums(acc, each_row(scale))
        _, _, my_row, _, my_col = place()
        at = start(dq, (heads, number)) + (first + my_row) * dq[3] + my_col
        store(query_grad, at, dq[3], acc, L - first - my_row, E - my_col, aligned)

    return attention_for_query


OPERANDS = "float32[] 4*int64 " * 4 + "float32[] float32[] "
KEYS_EXAMPLE = OPERANDS + "float32[] 4*int64 float32[] 4*int64 6*int64 float32 bool"
QUERY_EXAMPLE = OPERANDS + "float32[] 4*int64 6*int64 float32 bool"

# As `FORWARD`, for the gradients of keys and values, and for those of queries.
if SIMULATED:
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
            Cut(TF32, 64, 4, 16, 32),
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
        (FOR_KEYS[FMA][1], VECTOR, True): "attention_for_keys",
        (FOR_KEYS[TF32][1], VECTOR, True): "attention_for_keys_tensor_core",
        (FOR_KEYS[BF16][1], 2 * VECTOR, True): "attention_for_keys_bfloat16",
    }
    MAIN_QUERY = {(FOR_QUERY[FMA][1], VECTOR, True): "attention_for_query"}


for_keys = family(keys_template, MAIN_KEYS, backward_shared, KEYS_EXAMPLE)
for_query = family(query_template, MAIN_QUERY, backward_shared, QUERY_EXAMPLE)
