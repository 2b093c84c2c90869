"""The gradient of attention in one pass: five products, and parts to add up.

With this file one can get the kernels of the backward pass on the ordinary units:

    attention_one_pass    gradients of keys and values, and parts of the queries'
    attention_add_parts   the sum of these

`backward.py` makes scores and the gradients of weights twice, once for the keys and
once for the queries. Here a block of keys writes its part of the queries' gradients to
memory. All parts of a query are added afterwards, in the order of the keys, so results
are the same in every run. Parts take memory, which `attention.py` limits.

Source: the order of products is that of Dao, "FlashAttention-2", 2023, whose blocks add
to the queries' gradients with atomic additions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import cuda, float32

from cuda_ops.attention.backward import backward_shared, padded, weigher
from cuda_ops.attention.forward import (
    EXTRAS,
    ONE,
    PLAIN,
    More,
    family,
    pipes,
    start_of,
    writer,
)
from cuda_ops.attention.held import LN2, LOG2E, fetched, filled, paired, sloped
from cuda_ops.attention.units import DEPTH, FMA, VECTOR, Cut, Units, filler, units_of
from cuda_ops.block.intrinsics import WARP, device, load4, store4
from cuda_ops.block.tiles import (
    Side,
    Tile,
    fma_tile,
    inlined,
    quotient,
    thread_index,
)
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel

# Threads of a block of `attention_add_parts`.
ADD_THREADS = 32 if TINY else 256
# Lanes of a warp that share keys' numbers, and those that share queries.
LINES, ACROSS = 4, 8


def part_row(rows, cols, L, block, causal):
    """The row in a head's parts where that of query 0 would be for a block of keys.

    With `causal` queries before the block's keys have no part, and blocks lie closer.
    A tile of queries that begins before them has room all the same.
    """
    if causal:
        return block * (L + cols) - rows * block * (block + 1) // 2
    return block * L


def row_of(at, place):
    """Where a row is: `at` is as in `start_of`, `place` the batch, head and row."""
    return at[0] + place[0] * at[1] + place[1] * at[2] + place[2] * at[3]


def part_rows(cut: Cut, L: int, S: int, causal: bool) -> tuple[int, int]:
    """How many blocks of keys make parts, and the rows of all parts of a head."""
    blocks = -(-(min(L, S) if causal else S) // cut.rows)
    return blocks, part_row(cut.rows, cut.cols, L, blocks - 1, causal) + L


def giver(cut: Cut) -> Callable:
    """give(shared, p_at, parts, at, rows_left, width): a tile's part, from row `at` on.

        for i in range(cols), e in range(size):
            parts[at + i * width + e] = sum(aside[i, j] * keys[e, j] for j)

    aside [cols, rows] are the gradients of scores, keys [size, rows] lie at 0. Warps
    are `wide` beside each other, with 8 * b columns each. Of 16 lanes 8 differ in the
    column and 2 in the row, so that a load of either side meets all banks once.
    """
    c = cut
    wide = min(c.warps, c.size // (4 * ACROSS))
    high, b = c.warps // wide, c.size // (wide * ACROSS)
    a, k_pitch, pitch = c.cols // (high * LINES), c.rows + VECTOR, c.aside_pitch
    sides = Side(a, LINES, pitch, True), Side(b, ACROSS, k_pitch, True)
    zero, multiply, store, *_ = fma_tile(float32, Tile(*sides, DEPTH))
    rows = c.rows

    def give(shared, p_at, parts, at, rows_left, width):
        warp, lane = thread_index() // WARP, thread_index() % WARP
        row = warp // wide * (a * LINES) + lane // 16 * 2 + lane % 2
        col = warp % wide * (b * ACROSS) + lane % 16 // 2
        acc, left, right = zero(), p_at + row * pitch, col * k_pitch
        for k in range(0, rows, DEPTH):
            acc = multiply(acc, shared, left + k, right + k)
        to = at + row * width + col
        store(parts, to, width, acc, rows_left - row, width - col, True)

    return inlined(give)


def rereader(cut: Cut, units: Units, more: More) -> Callable:
    """again(shared, p_at, p) -> p, the weights that were put there.

    Registers can do without them in between; but not where some have been dropped.
    """
    if more.drops:
        return inlined(lambda shared, p_at, p: p)
    fetch, place = fetched(units.scores, 1, cut.aside_pitch, VECTOR), units.place
    pitch = cut.aside_pitch

    def again(shared, p_at, p):
        row, col, _, _, _ = place()
        return fetch(shared, p_at + col * pitch + row)

    return inlined(again)


def one_pass_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_one_pass` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh = units.place, units.multiply, units.weigh
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    weights, keep = weigher(cut, units, True, more, True)
    slopes, take = sloped(units.scores, True), paired(units.scores.cols)
    again = rereader(cut, units, more)
    write, size = writer(units, more.drops, elements > 1), inlined(padded)
    give, before = giver(cut), inlined(part_row)
    each_row = filled(len(units.sums.rows))
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride, value_at = cut.resident_strides[0], cut.resident
    q_at = 2 * cut.resident
    g_at, p_at = q_at + cut.passing, q_at + 2 * cut.passing
    log2e, kind = float32(LOG2E), cut.number

    def fetch_tile(shared, query, q, grad, g, place, sizes):
        left = sizes[2] - place[2]
        fetch(shared, q_at, query, row_at(q, place), q[3], left, sizes[4])
        fetch(shared, g_at, grad, row_at(g, place), g[3], left, sizes[5])

    fetch_both, row_at = inlined(fetch_tile), inlined(row_of)

    def attention_one_pass(
        query, q, key, k, value, v, grad, g, pairs, parts, share, key_grad, dk,
        value_grad, dv, sizes, scale, causal, mask, m, chance, base, kept,
    ):  # fmt: skip
        """Queries and their gradients come by once; three gradients are made of them.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], grad [B, H, L, V],
        # pairs [B, H, L padded, 2] -> key_grad [B, K, S, E], value_grad [B, K, S, V],
        # parts [heads, blocks of keys, L, E]

            for a block of 128 keys, for a tile of 128 queries of each of its heads:
                d = values @ grad.T                        of weights, [128 keys, 128]
                p = exp(keys @ queries.T * scale - logsumexp)     the weights again
                value_grad += p @ grad
                ds = p * (d - deltas)
                key_grad += ds @ queries * scale
                parts[head, block, tile] = ds.T @ keys

        As in `attention_for_keys` sums over queries stay in registers, and weights
        cross shared memory within a warp. The part of a tile is a sum over all keys of
        the block, so here all warps read what the others have put there: a lane has
        8 x 4 numbers of it. The next tile comes while parts are made, which need
        neither queries nor gradients; so two barriers a tile are enough. The last tile
        comes first: the weights of few keys are large, so with `causal` sums get their
        largest terms at their end, and lose less.

        `share` is the first group of heads, and the rows of a head's parts.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number, shares = share[0] + cuda.blockIdx.x, heads // group
        first = cuda.blockIdx.y * rows
        _, _, my_row, my_tile_row, _ = place()
        mine, theirs = my_row * row_stride, my_tile_row * pitch
        at = start(k, (shares, number)) + first * k[3]
        fill(shared, 0, key, at, k[3], S - first, E, scale * log2e)
        at = start(v, (shares, number)) + first * v[3]
        fill(shared, value_at, value, at, v[3], S - first, V, ONE)
        lowest = first // cols * cols if causal else 0
        highest = (L - 1) // cols * cols
        batch, none = number // shares, first >= L if causal else L == 0
        left_out = batch * heads  # Heads of the batch before.
        head, i, end = number * group, highest, (number + (0 if none else 1)) * group
        if head < end:
            tile = batch, head - left_out, i
            fetch_both(shared, query, q, grad, g, tile, sizes)
        close()
        keys, values = zero_sums(), zero_sums()
        while head < end:
            wait()
            cuda.syncthreads()  # The tile is there; all are done with parts.
            ends, _ = take(pairs, 2 * (head * size(L) + i + place()[1]))
            s = multiply(zero_scores(), shared, mine, q_at + theirs)
            p, bits = weights(
                s, ends, (i, first), (L, S), scale * log2e, causal, mask,
                row_at(m, (batch, head - left_out, 0)), m[3:], (chance, base, head * L),
            )  # fmt: skip
            my_col = place()[4]
            values = weigh(values, keep(p, bits), shared, p_at, g_at + my_col)
            d = multiply(zero_scores(), shared, value_at + mine, g_at + theirs)
            # Loaded again, from the cache: kept, deltas would take registers away.
            _, below = take(pairs, 2 * (head * size(L) + i + place()[1]))
            ds = slopes(again(shared, p_at, p), keep(d, bits), below)
            keys = weigh(keys, ds, shared, p_at, q_at + place()[4])
            row, left = before(rows, cols, L, cuda.blockIdx.y, causal) + i, L - i
            at = ((head - share[0] * group) * share[1] + row) * E
            i -= cols
            if i < lowest:
                head, i = head + 1, highest
            cuda.syncthreads()  # All are done with the tile; slopes are there.
            if head < end:
                tile = batch, head - left_out, i
                fetch_both(shared, query, q, grad, g, tile, sizes)
            close()
            give(shared, p_at, parts, at, left, E)
        to = shares, number
        write(key_grad, dk, to, first, (S, E), keys, each_row(scale), kept)
        write(value_grad, dv, to, first, (S, V), values, each_row(ONE), kept)

    return attention_one_pass


def add_parts_template(rows: int, cols: int, vector: int) -> Callable:
    """The Python function of `attention_add_parts`, `vector` numbers a thread."""
    before, start = device(part_row), device(start_of)
    zero, ln2 = float32(0), float32(LN2)

    def attention_add_parts(parts, share, query_grad, dq, sizes, causal, factor):
        """Gradients of queries: the sum of what blocks of keys have written.

        # parts [heads, blocks of keys, L, E] -> query_grad [B, H, L, E]

            for head, i, e:
                for block in the blocks of keys that query i sees:
                    total += parts[head, block, i, e]
                query_grad[head, i, e] = total * ln(2) * factor

        A thread has four neighbours, and threads of a warp lie side by side, so it is
        as fast as memory. Keys had been multiplied by scale * log2(e).
        """
        first_head, total, blocks = share
        heads, L, E = sizes
        place = (cuda.blockIdx.y * ADD_THREADS + cuda.threadIdx.x) * vector
        if place >= L * E:
            return
        i, local = quotient(place, E), cuda.blockIdx.x
        count = min(i // rows + 1, blocks) if causal else blocks
        a, b, c, d = zero, zero, zero, zero
        for block in range(count):
            row = before(rows, cols, L, block, causal)
            at = (local * total + row) * E + place
            if vector == VECTOR:
                x, y, z, w = load4(parts, at)
                a, b, c, d = a + x, b + y, c + z, d + w
            else:
                a += parts[at]
        factor *= ln2
        to = start(dq, (heads, first_head + local)) + i * dq[3] + place - i * E
        if vector == VECTOR:
            store4(query_grad, to, a * factor, b * factor, c * factor, d * factor)
        else:
            query_grad[to] = a * factor

    return attention_add_parts


@cache
def add_parts(rows: int, cols: int, vector: int) -> Kernel:
    """`attention_add_parts` for one way to cut; that of 64 numbers is an example."""
    name = "attention_add_parts"
    text = "float32[] 3*int64 float32[] 4*int64 3*int64 bool float32"
    key = rows, cols, vector
    main = not SIMULATED and key == (*_cut_of(ONE_PASS[1]), VECTOR)
    return Kernel(
        add_parts_template(*key), name if main else f"{name}{key}",
        (text,) if main else (), ADD_THREADS,
    )  # fmt: skip


def _cut_of(cut: Cut) -> tuple[int, int]:
    return cut.rows, cut.cols


EXAMPLE = (
    "float32[] 4*int64 " * 4 + "float32[] float32[] 2*int64 "
    "float32[] 4*int64 float32[] 4*int64 6*int64 float32 bool" + EXTRAS
)

# As `FORWARD`.
if TINY:
    ONE_PASS: tuple[Cut, ...] = (Cut(FMA, 32, 1, 16, 16, 4),)
else:
    ONE_PASS = (
        Cut(FMA, 32, 4, 32, 32, blocks=2),
        Cut(FMA, 64, 8, 16, 128, arch=(9, 0)),
        Cut(FMA, 64, 8, 16, 32),
        Cut(FMA, 128, 8, 16, 32, arch=(9, 0)),
        Cut(FMA, 128, 8, 8, 32),
    )

MAIN = {}
if not SIMULATED:
    MAIN = {
        (ONE_PASS[1], VECTOR, True, PLAIN): "attention_one_pass",
    }
    add_parts(*_cut_of(ONE_PASS[1]), VECTOR)

one_pass = family(one_pass_template, MAIN, backward_shared, EXAMPLE)
