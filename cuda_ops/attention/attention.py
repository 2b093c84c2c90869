"""Attention on the GPU without a matrix of scores, forward and backward.

With this file one can take a mean of values for each query (`attention`), carry its
gradient back (`attention_backward`), and read, call and time every step on the way
there (`LADDER`; the first two are in `composed.py` and `ladders/attention.py`):

    attention_composed      three kernels: scores, softmax, products with the values
    attention_tiled         one kernel, with tiles of scores in shared memory
    attention_online        scores and sums in registers
    attention_tensor_core   the tensor cores, in TF32
    attention_warpgroup     the same, fed as Hopper does it, halves (9.0 only)

(the kernels of online and tensor_core are one, in `forward.py`, the last one's is in
`warpgroup.py`; those of the backward pass are in `backward.py`, and for warpgroups in
`warpgroup_backward.py`; for the ordinary units in `one_pass.py`, unless memory is too
short for its parts). The backend runs tensor_core for float32 after
`minitorch.set_float32_matmul_precision("high")`, and else online, for heads of up to
256 numbers; bfloat16 and float16, in heads of up to 128 numbers, a multiple of 8, on
the tensor cores with float32 sums, by warpgroups where the GPU has them and heads have
more than 32 numbers (`WARPGROUPS`). All else is left to the default.

Masks and dropout (`dropping.py`) have kernels of their own, made of the same templates
when they are first needed; those without know nothing of them.

Operands are read in place if numbers of a row are neighbours, whatever the other
strides are. Results are the same to the last bit in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cuda_ops.attention import warpgroup_backward as on_wgmma
from cuda_ops.attention.backward import (
    FOR_KEYS,
    FOR_QUERY,
    backward_shared,
    for_keys,
    for_query,
    run_deltas,
)
from cuda_ops.attention.composed import attention_composed
from cuda_ops.attention.decode import FEW, MOST, lanes_for, run_few
from cuda_ops.attention.forward import FORWARD, More, forward, forward_shared
from cuda_ops.attention.one_pass import (
    ADD_THREADS,
    ONE_PASS,
    add_parts,
    one_pass,
    part_rows,
)
from cuda_ops.attention.paged import run_paged
from cuda_ops.attention.units import BF16, F16, FMA, TF32, VECTOR, Cut
from cuda_ops.attention.warpgroup import CUTS, warpgroup_forward, warpgroup_shared
from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.block.tiles import VECTOR_BYTES
from cuda_ops.block.wgmma import ARCH
from cuda_ops.half import bits
from cuda_ops.ladders.attention import attention_tiled, same_heads
from cuda_ops.memory import contiguous, copy, copy_into, empty
from cuda_ops.random import LOW_32, block_base
from cuda_ops.runtime.device import compute_capability, properties
from cuda_ops.runtime.launch import TINY, ceil_div
from minitorch import precision
from minitorch.backend.attention import KEEP_ALL, Drop
from minitorch.dtypes import DType, bfloat16, bool_, float16, float32
from minitorch.tensor_data import TensorData

# Whether warpgroups multiply halves where they can, in all three passes; heads of up to
# so many numbers they would fill up with zeros.
WARPGROUPS, NARROW = True, 0 if TINY else 32
SHARED = warpgroup_shared, on_wgmma.keys_shared, on_wgmma.query_shared
BACKWARD = (for_keys, for_query), (on_wgmma.for_keys, on_wgmma.for_query)
# Bytes of operands that blocks shall work on at once: half of an H200's L2 cache.
AT_ONCE = 24 << 20
# Bytes of what blocks of keys may write of queries' gradients, to be added up.
PARTS = 256 << 20
Operands = tuple[TensorData, ...]


class Cuts(NamedTuple):
    """How kernels cut their blocks: forward, back in two passes, back in one."""

    forward: Cut
    for_keys: Cut
    for_query: Cut
    one_pass: Cut | None = None


@lru_cache(maxsize=64)
def cuts_for(width: int, units: str, wgmma: bool = False) -> Cuts | None:
    """The first cuts for rows of `width` numbers that fit; None if there are none."""
    tables = FORWARD[units], FOR_KEYS[units], FOR_QUERY[units]
    needs: tuple[Callable, ...] = forward_shared, backward_shared, backward_shared
    if wgmma:
        tables, needs = CUTS[units], SHARED
    found = tuple(_first(cuts, width, need) for cuts, need in zip(tables, needs))
    if None in found:
        return None
    cuts = Cuts(*found)  # type: ignore[arg-type]
    both = _first(ONE_PASS, width, backward_shared) if units == FMA else None
    return cuts._replace(one_pass=both)


def _first(cuts: tuple[Cut, ...], width: int, need: Callable) -> Cut | None:
    """The first of the cuts that is wide enough and that this GPU has room for."""
    room, arch = properties().shared_memory_per_block, compute_capability()
    fits = (c for c in cuts if c.size >= width and c.arch <= arch and need(c) <= room)
    return next(fits, None)


def _cuts(
    query: TensorData, key: TensorData, value: TensorData, scale: float
) -> Cuts | None:
    """How to cut for these operands; None if there is no kernel for them."""
    units, sizes = _units(query.dtype), (query.shape[3], value.shape[3])
    if units is None or 0 in (*query.shape, *key.shape, *value.shape):
        return None
    if query.dtype.half and any(n % (2 * VECTOR) for n in sizes):
        return None
    wgmma = WARPGROUPS and query.dtype.half and compute_capability() == ARCH
    # Their maxima are those of products that are not yet scaled.
    return cuts_for(max(sizes), units, wgmma and scale > 0 and max(sizes) > NARROW)


def _units(dtype: DType) -> str | None:
    """What multiplies numbers of a type."""
    new = compute_capability() >= (8, 0)
    if dtype is float32:
        return TF32 if new and precision.state.allow_tf32 else FMA
    return {bfloat16: BF16, float16: F16}.get(dtype) if new else None


# --------------------------------------------------------------------------- operands


def _in_place(a: TensorData) -> bool:
    """Whether kernels can take `a`: rows' numbers side by side; of halves, 16 bytes."""
    if a.dtype.half and _elements(a) == 1:
        return False
    return a.strides[-1] == 1 or a.shape[-1] == 1


def _rows(a: TensorData) -> TensorData:
    """`a`, or a copy, as kernels can take it."""
    return a if _in_place(a) else copy(a, a.dtype)


def _room(a: TensorData) -> TensorData:
    """`a` to write to, or other room where kernels cannot."""
    return a if _in_place(a) else empty(a.shape, a.dtype)


def _in_line(a: TensorData) -> TensorData:
    """`a` to write to, or other room where it is not contiguous."""
    return a if a.is_contiguous() else empty(a.shape, a.dtype)


def _hand_over(pairs: list[tuple[TensorData, TensorData]]) -> None:
    """Copy what was written to other room."""
    for out, made in pairs:
        if made is not out:
            copy_into(out, made)


def _args(a: TensorData) -> tuple[Any, tuple[int, ...]]:
    """An operand's array; its offset, and strides of batch, heads and rows."""
    return bits(a.storage.array), (a.offset, *a.strides[:3])


def _elements(*operands: TensorData) -> int:
    """Neighbours that one instruction copies: 16 bytes where all rows allow it."""
    vector = VECTOR_BYTES // operands[0].dtype.itemsize
    for a in operands:
        batch, heads, rows, _ = a.strides
        steps = rows % vector or heads % vector or batch % vector or a.offset % vector
        if steps or a.shape[3] % vector or not is_aligned(a.storage.array):
            return 1
    return vector


def _sizes(query: TensorData, key: TensorData, value: TensorData) -> tuple[int, ...]:
    """Heads, heads in a group, L, S, E, V: what all kernels get."""
    _, heads, L, E = query.shape
    return heads, heads // key.shape[1], L, key.shape[2], E, value.shape[3]


def _more(mask: TensorData | None, drop: Drop) -> More:
    """Which kernels these need."""
    if mask is None:
        return More(drop[0] > 0)
    return More(drop[0] > 0, "bool" if mask.dtype is bool_ else "numbers")


def _extras(
    ends: Any, keys: int, mask: TensorData | None, drop: Drop
) -> tuple[Any, ...]:
    """Their last arguments: a mask, and what `dropper` draws with.

    `ends` stands for a mask where there is none.
    """
    p, seed, offset = drop
    last = math.ceil(p * 2.0**32) - 1
    chance = seed & LOW_32, seed >> 32 & LOW_32, last, offset, ceil_div(keys, 4)
    array, at = (ends, (0,) * 5) if mask is None else (
        bits(mask.storage.array), (mask.offset, *mask.strides)
    )  # fmt: skip
    return array, at, chance, block_base(), np.float32(1.0 / (1.0 - p))


# --------------------------------------------------------------------------- launchers


def attention(
    out: TensorData, logsumexp: TensorData, query: TensorData, key: TensorData,
    value: TensorData, scale: float, causal: bool, mask: TensorData | None = None,
    drop: Drop = KEEP_ALL,
) -> bool:  # fmt: skip
    """out = softmax(query key^T * scale) value, and the logsumexp of the scores.

    As `Backend.attention`; False, with nothing written, where no kernel fits.
    """
    cuts = _cuts(query, key, value, scale)
    if cuts is None:
        return False
    run_forward(
        cuts.forward, out, logsumexp, query, key, value, scale, causal, mask, drop
    )
    return True


def attention_of_few(
    out: TensorData, logsumexp: TensorData, query: TensorData, key: TensorData,
    value: TensorData, scale: float, causal: bool, mask: TensorData | None,
    drop: Drop, newest: TensorData | None = None,
) -> bool:  # fmt: skip
    """As `attention`, where queries are so few that blocks have to share keys."""
    kind = query.dtype is float32 or query.dtype.half
    if not kind or query.shape[2] > FEW or drop[0] or 0 in (*query.shape, *key.shape):
        return False
    if not (_in_place(key) and _in_place(value)):
        newest = None  # a copy is made just before, of all of them
    query, key, value = _rows(query), _rows(key), _rows(value)
    width = 4 if _elements(query, key, value) > 1 else 1
    sizes = _sizes(query, key, value)
    how = _more(mask, drop).mask, newest is not None
    lanes = lanes_for(max(sizes[4:]), width, *how)
    if lanes is None or not sizes[5] or query.shape[0] * query.shape[2] > MOST:
        return False
    o, ends, seen = _room(out), _in_line(logsumexp), None
    if mask is not None:
        seen = mask.storage.array, (mask.offset, *mask.strides)
    operands = _flat(query, key, value)
    run_few(lanes, o, ends, operands, seen, sizes, scale, causal, newest)
    _hand_over([(out, o), (logsumexp, ends)])
    return True


def paged_attention(
    out: TensorData, query: TensorData, memory: TensorData, tables: TensorData,
    lengths: TensorData, scale: float,
) -> bool:  # fmt: skip
    """As `Backend.paged_attention`, for few queries of a text; else False."""
    (R, _, T, E), (_, size, both, _) = query.shape, memory.shape
    kind = query.dtype is float32 or query.dtype.half
    if not kind or memory.dtype is not query.dtype or not 0 < T <= FEW:
        return False
    query, memory = _rows(query), contiguous(memory)
    keys, values = (  # all texts' rows: which are whose, the table says
        TensorData(
            memory.storage, (R, both // 2, tables.shape[1] * size, E),
            (0, E, both * E, 1), memory.offset + at,
        )
        for at in (0, both // 2 * E)
    )  # fmt: skip
    lanes = lanes_for(E, 4 if _elements(query, keys, values) > 1 else 1, "")
    if lanes is None or R * T > MOST or 0 in (*query.shape, *keys.shape):
        return False
    o = _room(out)
    run_paged(
        lanes, o, _flat(query, keys, values), contiguous(tables), contiguous(lengths),
        size, _sizes(query, keys, values), scale,
    )  # fmt: skip
    _hand_over([(out, o)])
    return True


def _flat(*operands: TensorData) -> tuple[Any, ...]:
    """Each operand's array; its offset, and strides of batch, heads and rows."""
    return tuple(x for a in operands for x in (a.storage.array, _args(a)[1]))


def _blocks(cut: Cut, like: TensorData, *operands: TensorData) -> tuple[int, ...]:
    """The grid: heads, and blocks of rows of `like`.

    Warpgroups take heads whose operands do not fit in the L2 cache in parts, along z.
    """
    heads, rows = like.shape[0] * like.shape[1], ceil_div(like.shape[2], cut.rows)
    if not cut.wgmma:
        return heads, rows, 1
    size = sum([a.size * a.storage.dtype.itemsize for a in operands])
    parts = _parts(heads, size / AT_ONCE)
    return heads // parts, rows, parts


@lru_cache(maxsize=1024)
def _parts(heads: int, least: float) -> int:
    """In how many equal parts heads are taken: the fewest from `least` on."""
    whole = (n for n in range(1, 1024) if heads % n == 0 and n >= least)
    return next(whole, 1)


def run_forward(
    cut: Cut, out: TensorData, logsumexp: TensorData, query: TensorData,
    key: TensorData, value: TensorData, scale: float, causal: bool,
    mask: TensorData | None = None, drop: Drop = KEEP_ALL,
) -> None:  # fmt: skip
    """`attention` with blocks that are cut in a given way."""
    query, key, value = _rows(query), _rows(key), _rows(value)
    o, ends = _room(out), _in_line(logsumexp)
    new, more = compute_capability() >= (8, 0), _more(mask, drop)
    kernels = warpgroup_forward if cut.wgmma else forward
    run = kernels(cut, _elements(query, key, value, o), new, more)
    blocks = _blocks(cut, query, key, value)
    run[blocks, cut.threads, None, run.shared](
        *_args(query), *_args(key), *_args(value), *_args(o), ends.flat(),
        _sizes(query, key, value), np.float32(scale), bool(causal),
        *_extras(ends.flat(), key.shape[2], mask, drop),
    )  # fmt: skip
    _hand_over([(out, o), (logsumexp, ends)])


def attention_backward(
    query_grad: TensorData, key_grad: TensorData, value_grad: TensorData,
    grad: TensorData, query: TensorData, key: TensorData, value: TensorData,
    out: TensorData, logsumexp: TensorData, scale: float, causal: bool,
    mask: TensorData | None = None, drop: Drop = KEEP_ALL,
) -> bool:  # fmt: skip
    """The gradients of query, key and value, from that of out [B, H, L, V].

    As `Backend.attention_backward`; False, with nothing written, where no kernel fits.
    """
    cuts = _cuts(query, key, value, scale)
    if cuts is None:
        return False
    run_backward(
        cuts, (query_grad, key_grad, value_grad), grad, query, key, value, out,
        logsumexp, scale, causal, mask, drop,
    )  # fmt: skip
    return True


def run_backward(
    cuts: Cuts, grads: tuple[TensorData, TensorData, TensorData], grad: TensorData,
    query: TensorData, key: TensorData, value: TensorData, out: TensorData,
    logsumexp: TensorData, scale: float, causal: bool,
    mask: TensorData | None = None, drop: Drop = KEEP_ALL,
) -> None:  # fmt: skip
    """`attention_backward` with blocks that are cut in given ways."""
    grad, query, key, value, out = map(_rows, (grad, query, key, value, out))
    made = tuple(map(_room, grads))
    sizes = _sizes(query, key, value)
    ends = contiguous(logsumexp).flat()
    both = *_args(grad), *_args(out), ends
    pairs = run_deltas(query.dtype, _elements(grad, out), both, sizes, 1 - drop[0])
    given = query, key, value, grad
    inputs = [x for a in given for x in _args(a)] + [pairs]
    extras = _extras(ends, key.shape[2], mask, drop)
    last = sizes, np.float32(scale), bool(causal), *extras
    options = compute_capability() >= (8, 0), _more(mask, drop)
    groups = _groups_at_once(cuts.one_pass, query, key, causal)
    if cuts.one_pass and groups:
        _run_one_pass(cuts.one_pass, groups, given, made, inputs, last, options)
    else:
        _run_two_passes(cuts, given, made, inputs, last, options)
    _hand_over(list(zip(grads, made)))


def _run_two_passes(
    cuts: Cuts, given: Operands, made: Operands, inputs: list[Any], last: Any,
    options: tuple[bool, More],
) -> None:  # fmt: skip
    """Gradients of keys and values, then those of queries."""
    dq, dk, dv = made
    of_keys, of_query = BACKWARD[cuts.for_keys.wgmma]
    for cut, kernels, like, outs in (
        (cuts.for_keys, of_keys, given[1], (dk, dv)),
        (cuts.for_query, of_query, given[0], (dq,)),
    ):
        run = kernels(cut, _elements(*given, *outs), *options)
        results = [x for a in outs for x in _args(a)]
        run[_blocks(cut, like, *given), cut.threads, None, run.shared](
            *inputs, *results, *last
        )


def _groups_at_once(
    cut: Cut | None, query: TensorData, key: TensorData, causal: bool
) -> int:
    """Groups of heads whose parts may be in memory together.

    0 where these are so few that blocks of two kernels keep the GPU busier, or a head
    has more numbers than a launch can add up.
    """
    (batch, heads, L, E), (_, shares, S, _) = query.shape, key.shape
    if cut is None or L * E > MOST * ADD_THREADS:
        return 0
    rows, groups = part_rows(cut, L, S, causal)[1], batch * shares
    most = PARTS // (heads // shares * rows * E * float32.itemsize)
    if most >= groups:
        return groups
    even = ceil_div(groups, ceil_div(groups, most)) if most else 0
    busy = 3 * properties().multi_processor_count * cut.blocks
    return even if 2 * even * ceil_div(S, cut.rows) >= busy else 0


def _run_one_pass(
    cut: Cut, at_once: int, given: Operands, made: Operands, inputs: list[Any],
    last: Any, options: tuple[bool, More],
) -> None:  # fmt: skip
    """All gradients, `at_once` groups of heads at a time."""
    (heads, group, L, S, E, _), _, causal, *_, kept = last
    dq, dk, dv = made
    blocks, rows = part_rows(cut, L, S, causal)
    parts = empty((at_once * group * rows * E,), float32).flat()
    vector = VECTOR if _elements(dq) > 1 else 1
    run = one_pass(cut, _elements(*given, dk, dv), *options)
    add, chunks = add_parts(cut.rows, cut.cols, vector), ADD_THREADS * vector
    groups = dq.shape[0] * heads // group
    for first in range(0, groups, at_once):
        now = min(at_once, groups - first)
        run[(now, ceil_div(S, cut.rows)), cut.threads, None, run.shared](
            *inputs, parts, (first, rows), *_args(dk), *_args(dv), *last
        )
        add[(now * group, ceil_div(L * E, chunks)), ADD_THREADS](
            parts, (first * group, rows, blocks), *_args(dq), (heads, L, E), causal,
            kept,
        )  # fmt: skip


# ----------------------------------------------------- the last rungs, callable


def _run_rung(
    name: str, units: str, query: TensorData, key: TensorData, value: TensorData,
    causal: bool, wgmma: bool = False,
) -> TensorData:  # fmt: skip
    kinds = (bfloat16, float16) if wgmma else (float32,)
    out = same_heads(name, query, key, value, math.inf, kinds)
    widths = query.shape[3], value.shape[3]
    cuts = cuts_for(max(widths), units, wgmma)
    if cuts is None or (wgmma and any(n % (2 * VECTOR) for n in widths)):
        raise ValueError(
            f"{name}: the query is {query.shape} and the value {value.shape}; this GPU "
            f"has no kernel for heads of so many numbers"
        )
    ends, scale = empty(query.shape[:3], float32), query.shape[3] ** -0.5
    run_forward(cuts.forward, out, ends, query, key, value, scale, causal)
    return out


def attention_online(
    query: TensorData, key: TensorData, value: TensorData, causal: bool = False
) -> TensorData:
    """[B, H, L, E], [B, H, S, E], [B, H, S, V] -> [B, H, L, V], ordinary units."""
    return _run_rung("attention_online", FMA, query, key, value, causal)


def attention_tensor_core(
    query: TensorData, key: TensorData, value: TensorData, causal: bool = False
) -> TensorData:
    """[B, H, L, E], [B, H, S, E], [B, H, S, V] -> [B, H, L, V] on the tensor cores.

    float32, rounded to TF32 whatever precision is set.
    """
    return _run_rung("attention_tensor_core", TF32, query, key, value, causal)


def attention_warpgroup(
    query: TensorData, key: TensorData, value: TensorData, causal: bool = False
) -> TensorData:
    """[B, H, L, E], [B, H, S, E], [B, H, S, V] -> [B, H, L, V] by warpgroups.

    bfloat16 or float16; E and V are multiples of 8, up to 128.

    Raises:
        RuntimeError: the GPU's compute capability is not 9.0.
    """
    units = _units(query.dtype) or BF16
    name = "attention_warpgroup"
    return _run_rung(name, units, query, key, value, causal, wgmma=True)


# From the formula to the fastest; a benchmark draws them all.
LADDER = (
    attention_composed,
    attention_tiled,
    attention_online,
    attention_tensor_core,
    attention_warpgroup,
)


def runs_here(rung: Callable) -> bool:
    """Whether this GPU has what a rung of the ladder needs."""
    return rung is not attention_warpgroup or compute_capability() == ARCH
