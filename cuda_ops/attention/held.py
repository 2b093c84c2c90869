"""Scores in registers: what softmax and its gradient do with a tile that lanes share.

With this file a kernel can treat the numbers of a tuple, a lane's part of a tile of
scores, as rows that go on in other lanes:

    softmax = online(held)
    s, best, total, factor = softmax(s, best, total)      # one more tile of the rows

`Held` says which row and column each number belongs to; so the same functions serve the
tiles of the ordinary units (`tiles.fma_tile`) and those of the tensor cores
(`mma.mma_tile`). Below each function that writes instructions stands the loop that it
is, for the simulator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuda_ops.block import llvm
from cuda_ops.block.llvm import GLOBAL, constant, written
from cuda_ops.block.tiles import inlined
from cuda_ops.simulator import SIMULATED, emulation, watch

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

watch.STAND_INS.add(__name__)

LN2 = 0.6931471805599453
LOG2E = 1 / LN2


class Held(NamedTuple):
    """Which numbers of a tile a lane has, counted from its first row and column.

    Attributes:
        rows, cols: where the lane's rows and columns are.
        places: for each number of the tuple, which of these it belongs to.
        exchanges: the bits of a lane's number in which lanes that share rows differ.
    """

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    exchanges: tuple[int, ...]


def _tuple(count: int) -> Any:
    return types.UniTuple(types.float32, count)


def _packed(builder: Any, *parts: list[Any]) -> Any:
    """A tuple of tuples of float32."""
    kinds = [ir.ArrayType(ir.FloatType(), len(part)) for part in parts]
    out = ir.Constant(ir.LiteralStructType(kinds), ir.Undefined)
    for i, part in enumerate(parts):
        for j, value in enumerate(part):
            out = builder.insert_value(out, value, [i, j])
    return out


def _call(builder: Any, line: str, *args: Any) -> Any:
    """One instruction that takes floats and gives one: "max.f32"."""
    names = ", ".join(f"${i + 1}" for i in range(len(args)))
    kind = ir.FunctionType(ir.FloatType(), [arg.type for arg in args])
    places = ",".join(["=f", *("f" for _ in args)])
    return builder.call(ir.InlineAsm(kind, f"{line} $0, {names};", places), args)


def exp2(builder: Any, x: Any) -> Any:
    """2^x, off by 2 units in the last place."""
    return _call(builder, "ex2.approx.ftz.f32", x)


def _exchanged(builder: Any, x: Any, mask: int) -> Any:
    text = f"shfl.sync.bfly.b32 $0, $1, {mask}, 31, -1;"
    return llvm.assembly(builder, text, ir.FloatType(), "=f,f", [x])


def _row_sums(held: Held, values: np.ndarray, sums: np.ndarray) -> np.ndarray:
    for (row, _), value in zip(held.places, values):
        sums[row] += value
    return sums


# ----------------------------------------------------------------------------- forward


def online(held: Held) -> Callable:
    """soft(s, best, total) -> p, best, total, factor: softmax over one more tile.

        new = max(best, s of the row, in all lanes)
        factor = 2^(best - new)                       what became of earlier weights
        p = 2^(s - new);   total = total * factor + sum(p)

    `best` and `factor` are those of the whole row; `total` is the lane's part of it.
    """
    if SIMULATED:
        return _emulated_online(held)
    n, rows = len(held.places), len(held.rows)

    def signature(s: Any, best: Any, total: Any) -> Any:
        row = _tuple(rows)
        out = types.Tuple((_tuple(n), row, row, row))
        return out(_tuple(n), row, row)

    @written(signature)
    def soft(builder: Any, s: list[Any], best: list[Any], total: list[Any]) -> Any:
        new = list(best)
        for (row, _), x in zip(held.places, s):
            new[row] = _call(builder, "max.f32", new[row], x)
        for mask in held.exchanges:
            far = [_exchanged(builder, x, mask) for x in new]
            new = [_call(builder, "max.f32", x, y) for x, y in zip(new, far)]
        factor = [exp2(builder, builder.fsub(a, b)) for a, b in zip(best, new)]
        sums = [builder.fmul(a, b) for a, b in zip(total, factor)]
        p = []
        for (row, _), x in zip(held.places, s):
            p.append(exp2(builder, builder.fsub(x, new[row])))
            sums[row] = builder.fadd(sums[row], p[-1])
        return _packed(builder, p, new, sums, factor)

    return soft


def _emulated_online(held: Held) -> Callable:
    row = np.array([row for row, _ in held.places])

    def soft(s, best, total):
        new = best.copy()
        np.maximum.at(new, row, s)
        for mask in held.exchanges:
            new = np.maximum(new, emulation.shuffle_xor(new, mask))
        factor = np.exp2(best - new)
        p = np.exp2(s - new[row])
        return p, new, _row_sums(held, p, total * factor), factor

    return inlined(soft)


def scaled(held: Held) -> Callable:
    """scale(acc, factor) -> acc: each number times the factor of its row."""
    if SIMULATED:
        row = np.array([row for row, _ in held.places])
        return inlined(lambda acc, factor: acc * factor[row])
    kind = _tuple(len(held.places))

    @written(lambda acc, factor: kind(kind, _tuple(len(held.rows))))
    def scale(builder: Any, acc: list[Any], factor: list[Any]) -> list[Any]:
        return [builder.fmul(x, factor[row]) for (row, _), x in zip(held.places, acc)]

    return scale


def finished(held: Held) -> Callable:
    """finish(best, total) -> logsumexp, inverse: of rows whose tiles are all done.

    `logsumexp` is the natural one, `inverse` 1 / the sum of the weights in all lanes.
    """
    if SIMULATED:

        def emulated(best, total):
            for mask in held.exchanges:
                total = total + emulation.shuffle_xor(total, mask)
            return (best + np.log2(total)) * np.float32(LN2), 1 / total

        return inlined(emulated)
    row = _tuple(len(held.rows))

    @written(lambda best, total: types.Tuple((row, row))(row, row))
    def finish(builder: Any, best: list[Any], total: list[Any]) -> Any:
        for mask in held.exchanges:
            far = [_exchanged(builder, x, mask) for x in total]
            total = [builder.fadd(x, y) for x, y in zip(total, far)]
        ln2 = ir.Constant(ir.FloatType(), LN2)
        ends = [
            builder.fmul(ln2, builder.fadd(x, _call(builder, "lg2.approx.f32", y)))
            for x, y in zip(best, total)
        ]
        return _packed(builder, ends, [_call(builder, "rcp.rn.f32", x) for x in total])

    return finish


# ------------------------------------------------------------------------------- masks


def masked(held: Held, turned: bool, hidden: float) -> Callable:
    """mask(s, cols_left, diagonal) -> s, with `hidden` for what may not be seen.

    Seen are columns c < cols_left with c <= r + diagonal, c and r counted from the
    lane's first ones; with `turned`, where rows are keys, those with r <= c + diagonal.
    """
    if SIMULATED:
        row = np.array([held.rows[row] for row, _ in held.places])
        col = np.array([held.cols[col] for _, col in held.places])
        low, high = (row, col) if turned else (col, row)

        def emulated(s, cols_left, diagonal):
            seen = (col < cols_left) & (low - high <= diagonal)
            return np.where(seen, s, np.float32(hidden))

        return inlined(emulated)
    kind = _tuple(len(held.places))

    @written(lambda s, left, diagonal: kind(kind, types.int64, types.int64))
    def mask(builder: Any, s: list[Any], left: Any, diagonal: Any) -> list[Any]:
        out, other = [], ir.Constant(ir.FloatType(), hidden)
        word = ir.IntType(32)
        left, diagonal = builder.trunc(left, word), builder.trunc(diagonal, word)
        for (i, j), x in zip(held.places, s):
            row, col = held.rows[i], held.cols[j]
            step = ir.Constant(word, row - col if turned else col - row)
            near = builder.icmp_signed(">", left, ir.Constant(word, col))
            seen = builder.and_(near, builder.icmp_signed("<=", step, diagonal))
            out.append(builder.select(seen, x, other))
        return out

    return mask


# ------------------------------------------------------- numbers that belong to a row


def taken(offsets: tuple[int, ...], factor: float) -> Callable:
    """take(array, at, left) -> array[at + offset] * factor; 0 from `left` on."""
    if SIMULATED:

        def emulated(array, at, left):
            found = [array[at + i] if i < left else np.float32(0) for i in offsets]
            return np.array(found, np.float32) * np.float32(factor)

        return inlined(emulated)
    kind, long = _tuple(len(offsets)), types.int64

    @written(lambda array, at, left: kind(array, long, long), GLOBAL)
    def take(builder: Any, array: Any, at: Any, left: Any) -> list[Any]:
        zero, out = ir.Constant(ir.FloatType(), 0.0), []
        for i in offsets:
            inside = builder.icmp_signed(">", left, constant(i))
            # What is outside is read from where the array begins.
            place = builder.select(inside, builder.add(at, constant(i)), constant(0))
            value = builder.load(builder.gep(array, [place]))
            value = builder.fmul(value, ir.Constant(ir.FloatType(), factor))
            out.append(builder.select(inside, value, zero))
        return out

    return take


def given(offsets: tuple[int, ...]) -> Callable:
    """give(array, at, left, values): array[at + offset] = value, before `left`."""
    if SIMULATED:

        def emulated(array, at, left, values):
            for i, value in zip(offsets, values):
                if i < left:
                    array[at + i] = value

        return inlined(emulated)
    kind, long = _tuple(len(offsets)), types.int64

    @written(lambda array, at, left, v: types.void(array, long, long, kind), GLOBAL)
    def give(builder: Any, array: Any, at: Any, left: Any, values: list[Any]) -> None:
        for i, value in zip(offsets, values):
            with builder.if_then(builder.icmp_signed(">", left, constant(i))):
                builder.store(value, builder.gep(array, [builder.add(at, constant(i))]))

    return give


def filled(count: int) -> Callable:
    """fill(x) -> a tuple of `count` times x."""
    if SIMULATED:
        return inlined(lambda x: np.full(count, x, np.float32))

    @written(lambda x: _tuple(count)(types.float32))
    def fill(builder: Any, x: Any) -> list[Any]:
        return [x] * count

    return fill


# ---------------------------------------------------------------------------- backward


def gradient(held: Held, by_col: bool) -> Callable:
    """slopes(s, d, ends, deltas) -> p, ds: of scores, from the gradient of weights d.

        p = 2^(s - end);   ds = p * (d - delta)

    with `end` and `delta` of the query, the row, or the column with `by_col`.
    """
    of = [col if by_col else row for row, col in held.places]
    if SIMULATED:

        def emulated(s, d, ends, deltas):
            p = np.exp2(s - ends[of])
            return p, p * (d - deltas[of])

        return inlined(emulated)
    tile = _tuple(len(of))
    line = _tuple(len(held.cols if by_col else held.rows))

    @written(lambda s, d, e, t: types.Tuple((tile, tile))(tile, tile, line, line))
    def slopes(
        builder: Any, s: list[Any], d: list[Any], ends: list[Any], deltas: list[Any]
    ) -> Any:
        p = [exp2(builder, builder.fsub(x, ends[i])) for x, i in zip(s, of)]
        ds = [builder.fmul(x, builder.fsub(y, deltas[i])) for x, y, i in zip(p, d, of)]
        return _packed(builder, p, ds)

    return slopes


# ------------------------------------------------------------------------ shared memory


def laid(held: Held, row_stride: int, col_stride: int, vector: int) -> Callable:
    """lay(shared, at, p): the lane's numbers to shared memory, `vector` at once."""
    offsets = [
        held.rows[row] * row_stride + held.cols[col] * col_stride
        for row, col in held.places
    ]
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    groups = [order[i : i + vector] for i in range(0, len(order), vector)]
    if SIMULATED:

        def emulated(shared, at, p):
            for group in groups:
                values = [p[i] for i in group]
                watch.write(shared, at + offsets[group[0]], values, sys._getframe())

        return inlined(emulated)
    kind = _tuple(len(offsets))

    @written(lambda shared, at, p: types.void(shared, types.int64, kind))
    def lay(builder: Any, shared: Any, at: Any, p: list[Any]) -> None:
        base = builder.gep(shared, [at])
        for group in groups:
            to = builder.gep(base, [constant(offsets[group[0]])])
            llvm.store(builder, [p[i] for i in group], to)

    return lay
