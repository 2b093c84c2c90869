"""Dropout of weights that lie in registers, with random words drawn where they are.

With this file a kernel can drop weights of its tile as the contract's `kept_weights`
says, without a mask in memory:

    draw, keep = dropper(units, turned, True)
    bits = draw(chance, base, row, key)        # a bit for each of the lane's weights
    p = keep(p, bits)                          # those without a bit become 0

Four keys of a query share a Philox block, that is four words, and mostly several lanes
share the four keys. So n lanes that share blocks (n is 1, 2 or 4) draw one n-th of them
each, keep a bit of each word, and hand the bits round:

    the tensor cores' tile, two lanes       lane 2 t draws for rows g, lane 2 t + 1 for
        keys     0 1 | 2 3                  rows g + 8; of each four bits two are one's
        row g    a a | b b                  own, and two are the other lane's
        row g+8  a a | b b

Philox takes 40 instructions of whole numbers for four weights, whose products in the
forward pass take 512 with 64 numbers a head; the bits of 64 weights are two registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import int64

from cuda_ops.attention.held import Held, cleared
from cuda_ops.attention.units import Units
from cuda_ops.block import llvm
from cuda_ops.block.intrinsics import WARP, device, shuffle
from cuda_ops.block.llvm import written
from cuda_ops.block.tiles import inlined, thread_index
from cuda_ops.random import LOW_32, philox
from cuda_ops.simulator import SIMULATED

if not SIMULATED:
    from numba.cuda import types

LANES = (1, 2, 4, 8, 16)
# The first `share` bits of each four.
FIRST_BITS = {1: 0x1111111111111111, 2: 0x3333333333333333}


def _make_anew() -> Callable:
    """anew(x): x, from which nothing is kept in registers through the products.

    That is twenty keys for the rounds of a block.
    """
    if SIMULATED:
        return inlined(lambda x: x)

    @written(lambda x: types.int64(types.int64))
    def anew(builder: Any, x: Any) -> Any:
        return llvm.anew(builder, x)

    return anew


anew = _make_anew()


@device
def four_bits(block, key0, key1, last):
    """Of a block's words, whether each is above `last`."""
    w0, w1, w2, w3 = philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)
    low = (1 if w0 > last else 0) | (2 if w1 > last else 0)
    return int64(low | (4 if w2 > last else 0) | (8 if w3 > last else 0))


def dropper(units: Units, turned: bool, drops: bool) -> tuple[Callable, Callable]:
    """draw(chance, base, row, key) -> bits, and keep(weights, bits) -> weights.

    `row` and `key` are those of the tile's first weight, `row` counted from the first
    query of all heads; with `turned` keys are the tile's rows. `chance` is two parts of
    a seed, the last word that drops, the generator's offset, to which base [1] is
    added, and blocks in a row of weights. Without `drops` neither does anything.
    """
    if not drops:
        none = inlined(lambda chance, base, row, key: 0)
        return none, inlined(lambda weights, bits: weights)
    held, place = units.scores, units.place
    keys, rows = (held.rows, held.cols) if turned else (held.cols, held.rows)
    lanes, share = _shares(held, turned)
    chunks, groups = len(rows) // lanes, len(keys) // share
    row_step, key_step = _step(rows, lanes), _step(keys, share) // 4
    near, far = _step(rows, 1) if lanes > 1 else 0, _step(rows, 2) if lanes > 2 else 0
    exchange = _exchange(_sharers(held, turned, lanes), share)
    rank_of = _rank(_sharers(held, turned, lanes))

    def draw(chance, base, row, key):
        key0, key1, last, offset, blocks = chance
        key0, key1 = anew(key0), anew(key1)
        my_row, my_col, _, _, _ = place()
        row += my_col if turned else my_row
        key += my_row if turned else my_col
        rank = rank_of()
        first = row + rank % 2 * near + rank // 2 * far
        at = base[0] + offset + first * blocks + key // 4
        bits = int64(0)
        for i in range(chunks):
            for j in range(groups):
                block = at + i * row_step * blocks + j * key_step
                bits |= four_bits(block, key0, key1, last) << (4 * (i * groups + j))
        return exchange(bits, rank)

    return inlined(draw), cleared(_bit_places(held, turned, lanes, share))


def _shares(held: Held, turned: bool) -> tuple[int, int]:
    """How many lanes share a block, and how many of its words are a lane's."""
    keys = held.rows if turned else held.cols
    share = next(n for n in (4, 2, 1) if keys[:n] == tuple(range(n)))
    return 4 // share, share


def _step(offsets: tuple[int, ...], i: int) -> int:
    return offsets[i] - offsets[0] if len(offsets) > i else 0


def _sharers(held: Held, turned: bool, lanes: int) -> tuple[int, ...]:
    """The bits of a lane's number in which lanes that share blocks differ."""
    along = [b for b in LANES if b not in held.exchanges] if turned else held.exchanges
    return tuple(along[: lanes // 2])


def _bit_places(held: Held, turned: bool, lanes: int, share: int) -> tuple[int, ...]:
    """Where the bit of each of a lane's weights is, in the order of `draw`."""
    groups = (len(held.rows) if turned else len(held.cols)) // share
    out = []
    for row, col in held.places:
        i, j = (col, row) if turned else (row, col)
        block = i // lanes * groups + j // share
        out.append(4 * block + i % lanes * share + j % share)
    return tuple(out)


def _rank(sharers: tuple[int, ...]) -> Callable:
    """rank(): the lane's number among those that share blocks with it."""
    low, high = (*sharers, 0, 0)[:2]

    def rank():
        lane = thread_index() % WARP
        first = 1 if lane & low else 0
        return first + (2 if lane & high else 0)

    return inlined(rank)


def _exchange(sharers: tuple[int, ...], share: int) -> Callable:
    """exchange(bits, rank): of each lane's blocks, the bits of one's own weights."""
    if not sharers:
        return inlined(lambda bits, rank: bits)
    low, high = (*sharers, 0)[:2]
    lanes, all_bits, own = 4 // share, sum(sharers), FIRST_BITS[share]

    def exchange(bits, rank):
        lane, out = thread_index() % WARP, int64(0)
        for i in range(lanes):
            source = lane - (lane & all_bits) + i % 2 * low + i // 2 * high
            mine = (shuffle(bits, source) >> (rank * share)) & own
            out |= mine << (i * share)
        return out

    return inlined(exchange)
