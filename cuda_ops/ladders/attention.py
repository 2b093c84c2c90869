"""Attention in one kernel, as plain as it can be.

With this file one can read, call and time the second rung of the ladder:

    attention_tiled      one kernel, with tiles of scores in shared memory

It takes contiguous operands, with as many heads of keys as of queries. The step before
it, and those behind it, are in `cuda_ops/attention/`.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from cuda_ops.block.intrinsics import WARP, shuffle_xor
from cuda_ops.memory import empty
from cuda_ops.runtime.launch import TINY, ceil_div, device_function, kernel
from minitorch import dtypes, operators
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

# Queries of a block of `attention_shared_tiles`, a warp for each.
QUERIES = 2 if TINY else 8
THREADS = QUERIES * WARP
# Numbers of a query or a value at most, and how many of them a lane has.
WIDE = 128
PARTS = WIDE // WARP
# From one key to the next: one more, so that a number of 32 keys is in 32 banks.
PITCH = WIDE + 1
QUERY_TILE, KEY_TILE, VALUE_TILE = QUERIES * WIDE, WARP * PITCH, WARP * WIDE
LOWEST, ZERO = np.float32(-np.inf), np.float32(0)

exp = device_function(operators.exp)


@kernel(
    examples=["float32[] float32[] float32[] float32[] 4*int64 float32 bool"],
    threads=THREADS,
)
def attention_shared_tiles(query, key, value, out, sizes, scale, causal):
    """One kernel: scores of a tile of keys live in shared memory for a moment.

    # query [N, L, E], key [N, S, E], value [N, S, V] -> out [N, L, V]

        for a block of 8 queries, for a tile of 32 keys and values:
            p[i, j] = query[i] . key[j] * scale               warp i, lane j
            new = max(best, p[i]);  p[i] = exp(p[i] - new)    exchanges within the warp
            total = total * exp(best - new) + sum(p[i]);  best = new
            sums[c] = sums[c] * exp(best - new) + p[i] . value[:, c]       lane c % 32

    A matrix of scores is written and read twice by three kernels: 16 bytes for each
    query and key. Here nothing but the operands and the result is in memory. Tiles of
    keys and values, 16 KB each, are read once for 8 queries. But every fma needs two
    numbers from shared memory: scores one of the query, the same for the warp, and one
    of the key; sums one weight and one of the value. Loads set the pace, as in
    `matmul_shared_tiles`.
    """
    L, S, E, V = sizes
    q_tile = cuda.shared.array(QUERY_TILE, float32)
    k_tile = cuda.shared.array(KEY_TILE, float32)
    v_tile = cuda.shared.array(VALUE_TILE, float32)
    p_tile = cuda.shared.array(THREADS, float32)
    sums = cuda.local.array(PARTS, float32)
    t = cuda.threadIdx.x
    y, x = t // WARP, t % WARP
    first = cuda.blockIdx.y * QUERIES
    n, i = cuda.blockIdx.x, first + y
    for at in range(t, QUERIES * E, THREADS):
        row = first + at // E
        inside = row < L
        q_tile[at] = query[(n * L + row) * E + at % E] * scale if inside else ZERO
    for part in range(PARTS):
        sums[part] = ZERO
    best, total = LOWEST, ZERO
    seen = min(S, first + QUERIES) if causal else S
    # BEGIN SOLUTION a11.6
    for start in range(0, seen, WARP):
        cuda.syncthreads()  # The query is there; all are done with the last tile.
        for at in range(t, WARP * E, THREADS):
            row = start + at // E
            number = key[(n * S + row) * E + at % E] if row < S else ZERO
            k_tile[at // E * PITCH + at % E] = number
        for at in range(t, WARP * V, THREADS):
            row = start + at // V
            v_tile[at] = value[(n * S + row) * V + at % V] if row < S else ZERO
        cuda.syncthreads()
        score, j = ZERO, start + x
        for e in range(E):
            score += q_tile[y * E + e] * k_tile[x * PITCH + e]
        if j >= S or (causal and j > i):
            score = LOWEST
        new = max(best, score)
        for step in range(5):
            new = max(new, shuffle_xor(new, 1 << step))
        p, factor = exp(score - new), exp(best - new)
        p_tile[t] = p
        total, best = total * factor + p, new
        cuda.syncwarp()  # A row of weights belongs to one warp.
        for part in range(PARTS):
            sums[part] *= factor
        for k in range(WARP):
            weight = p_tile[y * WARP + k]
            for part in range(PARTS):
                if part * WARP + x < V:
                    sums[part] += weight * v_tile[k * V + part * WARP + x]
    for step in range(5):
        total += shuffle_xor(total, 1 << step)
    for part in range(PARTS):
        if i < L and part * WARP + x < V:
            out[(n * L + i) * V + part * WARP + x] = sums[part] / total
    # END SOLUTION a11.6


# ------------------------------------------------------------------------- launchers


def same_heads(
    name: str, query: TensorData, key: TensorData, value: TensorData, most: float,
    kinds: tuple[DType, ...] = (dtypes.float32,),
) -> TensorData:  # fmt: skip
    """The output for these operands; an error where the rungs cannot take them."""
    q, k, v = (x.shape for x in (query, key, value))
    fits = len(q) == len(k) == len(v) == 4 and q[:2] == k[:2] == v[:2]
    fits = fits and q[3] == k[3] and k[2] == v[2] and max(q[3], v[3]) <= most
    plain = all(x.is_contiguous() for x in (query, key, value))
    alike = query.dtype in kinds and query.dtype is key.dtype is value.dtype
    if not fits or not plain or not alike or 0 in (*q, *k):
        names = " or ".join(kind.name for kind in kinds)
        raise ValueError(
            f"{name}: the query is {query.dtype.name} {q}, the key {k} and the value "
            f"{v}; expected contiguous {names} [B, H, L, E], [B, H, S, E] and "
            f"[B, H, S, V] that are not empty, of at most {most} numbers a row "
            f"(scaled_dot_product_attention takes any)"
        )
    return empty((*q[:3], v[3]), query.dtype)


def attention_tiled(
    query: TensorData, key: TensorData, value: TensorData, causal: bool = False
) -> TensorData:
    """[B, H, L, E], [B, H, S, E], [B, H, S, V] -> [B, H, L, V] by
    `attention_shared_tiles`; E and V up to 128."""
    out = same_heads("attention_tiled", query, key, value, WIDE)
    (B, H, L, E), (S, V) = query.shape, value.shape[2:]
    blocks = B * H, ceil_div(L, QUERIES)
    attention_shared_tiles[blocks, THREADS](
        query.flat(), key.flat(), value.flat(), out.flat(), (L, S, E, V),
        np.float32(E**-0.5), causal,
    )  # fmt: skip
    return out
