"""Attention in one kernel: neither scores nor weights ever reach memory.

With this file one can get the kernel `attention_online` for one way to cut a block
(`forward`). `attention.py` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from numba import cuda, float32

from cuda_ops.attention.dropping import dropper
from cuda_ops.attention.held import (
    LOG2E,
    filled,
    finished,
    given,
    masked,
    online,
    scaled,
    shown,
)
from cuda_ops.attention.units import (
    BF16,
    F16,
    FMA,
    HALVES,
    TF32,
    VECTOR,
    Cut,
    Units,
    fetcher,
    filler,
    units_of,
)
from cuda_ops.block.copies import arrival, fences
from cuda_ops.block.tiles import inlined
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel


class More(NamedTuple):
    """What a kernel does besides; the plain one has no code for it.

    Attributes:
        drops: it drops weights.
        mask: "bool", or "numbers" in the operands' type; "" for no mask.
    """

    drops: bool = False
    mask: str = ""

    def kind(self, cut: Cut) -> str:
        """The type of a mask, for `shown`."""
        numbers = cut.units if cut.half else "float32"
        return numbers if self.mask == "numbers" else self.mask


PLAIN = More()

# So far to the right of a row nothing is hidden.
FAR = 1 << 30
ONE = float32(1)


def pipes(cut: Cut, elements: int, asynchronous: bool) -> tuple[Callable, ...]:
    """fetch, close() and wait() for passing tiles.

    `fetch` is that of `fetcher`; `wait` waits for all copies of this thread that stand
    before a `close`.
    """
    close, _, wait = fences(asynchronous, 0)
    wait = arrival(0) if cut.wgmma else wait
    return fetcher(cut, cut.cols, elements, asynchronous), close, wait


def start_of(at, head):
    """Where the rows of a head begin: `at` is (offset, strides of batch, head, row)."""
    heads, number = head
    batch = number // heads
    return at[0] + batch * at[1] + (number - batch * heads) * at[2]


def forward_shared(cut: Cut) -> int:
    """Bytes of shared memory: queries, a tile of keys, one of values, weights."""
    return (cut.resident + 2 * cut.passing + cut.aside) * cut.item


def shower(units: Units, turned: bool, kind: str) -> Callable:
    """show(s, mask, at, steps, first, sizes) -> s: what a mask leaves of a tile.

    `at` is where the head's part begins, `steps` are the strides of queries and keys,
    `first` is the tile's first query and key, and `sizes` how many there are; with
    `turned` keys are the tile's rows.
    """
    show, place = shown(units.scores, kind), units.place
    if not kind:
        return inlined(lambda s, mask, at, steps, first, sizes: s)

    def show_tile(s, mask, at, steps, first, sizes):
        row, col, _, _, _ = place()  # Cheaper to find than to keep.
        i, j = first[0] + (col if turned else row), first[1] + (row if turned else col)
        at += i * steps[0] + j * steps[1]
        left, right = sizes[0] - i, sizes[1] - j
        if turned:
            return show(s, mask, at, (steps[1], steps[0]), (right, left))
        return show(s, mask, at, steps, (left, right))

    return inlined(show_tile)


def writer(units: Units, drops: bool, aligned: bool) -> Callable:
    """write(out, o, head, first, sizes, acc, factor, kept): a block's sums, from row
    `first` of a head on, times factors of rows, and what keeps the mean if it drops."""
    place, store, scale_sums = units.place, units.store, scaled(units.sums)
    start, each_row = inlined(start_of), filled(len(units.sums.rows))

    def write(out, o, head, first, sizes, acc, factor, kept):
        acc = scale_sums(acc, factor)
        if drops:
            acc = scale_sums(acc, each_row(kept))
        _, _, row, _, col = place()  # Found anew: no register had to keep it.
        at = start(o, head) + (first + row) * o[3] + col
        store(out, at, o[3], acc, sizes[0] - first - row, sizes[1] - col, aligned)

    return inlined(write)


def softener(cut: Cut, units: Units, more: More) -> Callable:
    """soften(s, best, total, at, ends, power, causal, mask, m_from, steps, dice):
    weights of one more tile of products, and best, total and factor as `online` does.

    `at` is the tile's first query and key, `ends` how many there are, `power` what
    makes powers of two of scores; `dice` is for dropout, with the head's first query.
    """
    place, cols, folds = units.place, cut.cols, cut.wgmma and not more.mask
    temper = inlined(lambda s, factors: s) if folds else units.temper
    soft = online(units.scores, bool(more.mask))
    show = shower(units, False, more.kind(cut))
    draw, keep = dropper(units, False, more.drops)
    hide = masked(units.scores, False, -math.inf)
    each_row = filled(len(units.scores.rows))

    def soften(
        s, best, total, at, ends, power, causal, mask, m_from, steps, dice
    ):  # fmt: skip
        chance, base, head = dice
        row, col, _, _, _ = place()
        s = show(temper(s, each_row(power)), mask, m_from, steps, at, ends)
        left, diagonal = ends[1] - at[1], at[0] - at[1] if causal else FAR
        if left < cols or diagonal < cols:
            s = hide(s, left - col, diagonal + row - col)
        p, best, total, factor = soft(s, power if folds else ONE, best, total)
        p = keep(p, draw(chance, base, head + at[0], at[1]))
        return p, best, total, factor

    return inlined(soften)


def forward_template(
    cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN
) -> Callable:
    """The Python function of `attention_online` for one way to cut."""
    units = units_of(cut)
    place, multiply, weigh = units.place, units.multiply, units.weigh
    zero_scores, zero_sums = units.zero_scores, units.zero_sums
    soften, scale_sums = softener(cut, units, more), scaled(units.sums)
    write, kind = writer(units, more.drops, elements > 1), cut.number
    finish = finished(units.scores, bool(more.mask))
    give = given(units.scores.rows)
    each_row = filled(len(units.scores.rows))
    never, nothing = float32(-math.inf), float32(0)
    fetch, close, wait = pipes(cut, elements, asynchronous)
    fill, start = filler(cut, elements, asynchronous), inlined(start_of)
    rows, cols, pitch = cut.rows, cut.cols, cut.pitch
    row_stride = cut.resident_strides[0]
    k_at, v_at = cut.resident, cut.resident + cut.passing
    p_at, log2e = cut.resident + 2 * cut.passing, float32(LOG2E)

    def attention_online(
        query, q, key, k, value, v, out, o, logsumexp, sizes, scale, causal, mask, m,
        chance, base, kept,
    ):  # fmt: skip
        """Softmax over tiles of keys as they come by; sums in registers.

        # query [B, H, L, E], key [B, K, S, E], value [B, K, S, V]
        # -> out [B, H, L, V], logsumexp [B, H, L]

            for a block of 128 queries, for 64 keys and their values at a time:
                s = queries @ keys.T * scale                     s [128, 64], registers
                new = max(best, s of the row)
                p, factor = exp(s - new), exp(best - new)
                total = total * factor + sum(p)
                sums = sums * factor + p @ values             sums [128, V], registers
                best = new
            out = sums / total;  logsumexp = best + log(total)

        Three kernels write L x S scores to memory, read and write them for softmax, and
        read them once more. Here a tile of them lives in registers for a moment. What
        was summed with a maximum that turns out too low is scaled down, as in
        `softmax_two_passes`, so one pass over the keys is enough.

        A lane has 8 x 8 scores and 8 x 8 sums: 64 fma for 16 numbers from shared
        memory. Lanes that share rows are in one warp, so maxima need three exchanges
        and no barrier, and weights cross shared memory within the warp only. Keys come
        while values are multiplied, and values while keys are. Exponentials are powers
        of two, whose factor log2(e) has gone into the queries.

        A mask is read where scores are, and dropout draws its words (`dropping.py`)
        while values are on their way; `total` has what is dropped, too.

        With `causal`, tiles behind the diagonal are left out, and only those that it
        crosses are masked; blocks with the most tiles start first.

        Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax",
        2018; Dao, Fu, Ermon, Rudra and Ré, "FlashAttention", 2022.
        """
        shared = cuda.shared.array(0, kind)
        heads, group, L, S, E, V = sizes
        number = cuda.blockIdx.x
        shares = heads // group, number // group
        first = (cuda.gridDim.y - 1 - cuda.blockIdx.y) * rows
        k_from, v_from = start(k, shares), start(v, shares)
        row, col, my_row, my_tile_row, my_col = place()
        mine, theirs = my_row * row_stride, k_at + my_tile_row * pitch
        seen = min(S, first + rows) if causal else S
        count = (seen + cols - 1) // cols
        fetch(shared, k_at, key, k_from, k[3], S, E)
        at = start(q, (heads, number)) + first * q[3]
        fill(shared, 0, query, at, q[3], L - first, E, scale * log2e)
        close()
        acc, best, total = zero_sums(), each_row(never), each_row(nothing)
        m_from = start(m, (heads, number))
        for t in range(count):
            left = S - t * cols
            wait()
            cuda.syncthreads()  # The keys are there; all are done with the last values.
            fetch(shared, v_at, value, v_from + t * cols * v[3], v[3], left, V)
            close()
            s = multiply(zero_scores(), shared, mine, theirs)
            p, best, total, factor = soften(
                s, best, total, (first, t * cols), (L, S), scale * log2e, causal,
                mask, m_from, m[3:], (chance, base, number * L),
            )  # fmt: skip
            acc = scale_sums(acc, factor)
            wait()
            cuda.syncthreads()  # The values are there; all are done with the keys.
            if t + 1 < count:
                at = k_from + (t + 1) * cols * k[3]
                fetch(shared, k_at, key, at, k[3], left - cols, E)
            close()
            acc = weigh(acc, p, shared, p_at, v_at + my_col)
        ends, inverse = finish(best, total)
        write(out, o, (heads, number), first, (L, V), acc, inverse, kept)
        row, col, _, _, _ = place()
        if col == 0:
            give(logsumexp, number * L + first + row, L - first - row, ends)

    return attention_online


# A mask; what dropout draws with.
EXTRAS = " float32[] 5*int64 5*int64 int64[] float32"
EXAMPLE = "float32[] 4*int64 " * 4 + "float32[] 6*int64 float32 bool" + EXTRAS

# For each size of rows the best first; the first one that a chip has room for is taken.
if TINY:
    FORWARD: dict[str, tuple[Cut, ...]] = {
        FMA: (Cut(FMA, 32, 1, 16, 16, 4),),
        **{units: (Cut(units, 32, 1, 16, 16),) for units in (TF32, BF16, F16)},
    }
else:
    FORWARD = {
        FMA: (
            Cut(FMA, 32, 4, 32, 64, blocks=2),
            Cut(FMA, 64, 4, 32, 64, blocks=2),
            Cut(FMA, 64, 4, 16, 32),
            Cut(FMA, 128, 8, 16, 64),
            Cut(FMA, 128, 4, 16, 32),
            Cut(FMA, 256, 8, 8, 32),
        ),
        TF32: (
            Cut(TF32, 32, 4, 32, 64, blocks=2),
            Cut(TF32, 64, 4, 32, 64, blocks=2),
            Cut(TF32, 128, 8, 16, 64),
            Cut(TF32, 128, 4, 16, 32),
            Cut(TF32, 256, 4, 16, 32),
        ),
        **{
            units: (
                Cut(units, 32, 4, 32, 64, blocks=2),
                Cut(units, 64, 4, 32, 64, blocks=2),
                Cut(units, 128, 8, 16, 64),
            )
            for units in HALVES
        },
    }


# What tests compile and `minitorch inspect` shows has a name, by its cut, numbers of a
# copy, and whether copies are asynchronous. Others are made when they are needed.
Key = tuple[Cut, int, bool, More]
MAIN: dict[Key, str] = {}
if not SIMULATED:
    MAIN = {
        (FORWARD[FMA][1], VECTOR, True, PLAIN): "attention_online",
        (FORWARD[FMA][2], VECTOR, False, PLAIN): "attention_online_sm_75",
        (FORWARD[TF32][1], VECTOR, True, PLAIN): "attention_tensor_core",
        (FORWARD[BF16][1], 2 * VECTOR, True, PLAIN): "attention_bfloat16",
        (FORWARD[FMA][1], VECTOR, True, More(True)): "attention_online_dropout",
        (FORWARD[TF32][1], VECTOR, True, More(True, "numbers")): (
            "attention_tensor_core_dropout_mask"
        ),
    }


def family(
    template: Callable, main: dict[Key, str], shared: Callable[[Cut], int], text: str
) -> Callable[..., Kernel]:
    """The kernels of a template, one for each way to cut, made when first asked for.

    Args:
        main: the keys of those that have a name, which are made at once.
        shared: bytes of shared memory.
        text: their signature, with operands in float32.

    A kernel is asked for by its cut, by `elements`, neighbours that one instruction
    copies (16 bytes, or one), by `asynchronous`, whether with `cp.async`, and by what
    `more` it does.
    """

    @cache
    def made(cut: Cut, elements: int, asynchronous: bool, more: More = PLAIN) -> Kernel:
        fn, key = template(cut, elements, asynchronous, more), (
            cut, elements, asynchronous, more,
        )  # fmt: skip
        types = text.replace("float32[] 4*", "uint16[] 4*") if cut.half else text
        return Kernel(
            fn,
            name=main.get(key) or f"{fn.__name__}{(*cut, *key[1:3], *more)}",
            examples=(types,) if key in main else (),
            threads=cut.threads,
            max_registers=min(65536 // (cut.threads * cut.blocks) // 8 * 8, 255),
            shared=shared(cut),
            arch=max(cut.arch, (8, 0) if asynchronous or cut.units != FMA else (7, 5)),
            only_arch=cut.wgmma,
        )

    for key in main:
        made(*key)
    return made


forward = family(forward_template, MAIN, forward_shared, EXAMPLE)
