"""Scores in registers: what softmax and its gradient do with a tile that lanes share.

With this file a kernel can treat the numbers of a tuple, a lane's part of a tile of
scores, as rows that go on in other lanes:

    softmax = online(held)
    p, best, total, factor = softmax(s, power, best, total)  # one more tile of the rows

`Held` says which row and column each number belongs to; so the same functions serve the
tiles of the ordinary units (`tiles.fma_tile`) and those of the tensor cores
(`mma.mma_tile`). Below each function that writes instructions stands the loop that it
is, for the simulator.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuda_ops.block import llvm
from cuda_ops.block.llvm import GLOBAL, constant, written
from cuda_ops.block.mma import BF16, F16, HALVES
from cuda_ops.block.tiles import inlined
from cuda_ops.simulator import SIMULATED, emulation, watch

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

watch.STAND_INS.add(__name__)

LN2 = 0.6931471805599453
LOG2E = 1 / LN2
# The lowest float32.
LOWEST = -3.4028234663852886e38


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


def online(held: Held, hides: bool = False) -> Callable:
    """soft(s, power, best, total) -> p, best, total, factor: softmax, one more tile.

        new = max(best, s of the row, in all lanes, * power)
        factor = 2^(best - new)                       what became of earlier weights
        p = 2^(s * power - new);   total = total * factor + sum(p)

    `best` and `factor` are those of the whole row; `total` is the lane's part of it.
    `power` is above 0. With `hides` there may be a row of nothing but -infinity so far,
    whose weights are 0: what is taken away is 0 then, as infinities differ by NaN.
    """
    if SIMULATED:
        return _emulated_online(held, hides)
    n, rows = len(held.places), len(held.rows)

    def signature(s: Any, power: Any, best: Any, total: Any) -> Any:
        row = _tuple(rows)
        out = types.Tuple((_tuple(n), row, row, row))
        return out(_tuple(n), types.float32, row, row)

    @written(signature)
    def soft(
        builder: Any, s: list[Any], power: Any, best: list[Any], total: list[Any]
    ) -> Any:
        found: list[Any] = [None] * rows
        for (row, _), x in zip(held.places, s):
            top = found[row]
            found[row] = x if top is None else _call(builder, "max.f32", top, x)
        new = [
            _call(builder, "max.f32", x, builder.fmul(y, power))
            for x, y in zip(best, found)
        ]
        for mask in held.exchanges:
            far = [_exchanged(builder, x, mask) for x in new]
            new = [_call(builder, "max.f32", x, y) for x, y in zip(new, far)]
        less = [_finite(builder, x) if hides else x for x in new]
        factor = [exp2(builder, builder.fsub(a, b)) for a, b in zip(best, less)]
        sums = [builder.fmul(a, b) for a, b in zip(total, factor)]
        zero = ir.Constant(ir.FloatType(), 0.0)
        down, p = [builder.fsub(zero, x) for x in less], []
        for (row, _), x in zip(held.places, s):
            p.append(exp2(builder, builder.fma(x, power, down[row])))
            sums[row] = builder.fadd(sums[row], p[-1])
        return llvm.pack(builder, p, new, sums, factor)

    return soft


def _finite(builder: Any, x: Any) -> Any:
    """x, and 0 for -infinity."""
    zero, never = (ir.Constant(ir.FloatType(), y) for y in (0.0, -math.inf))
    return builder.select(builder.fcmp_ordered("==", x, never), zero, x)


def _emulated_online(held: Held, hides: bool) -> Callable:
    row = np.array([row for row, _ in held.places])

    def soft(s, power, best, total):
        s, new = s * power, best.copy()
        np.maximum.at(new, row, s)
        for mask in held.exchanges:
            new = np.maximum(new, emulation.shuffle_xor(new, mask))
        less = np.where(new == -math.inf, np.float32(0), new) if hides else new
        factor = np.exp2(best - less)
        p = np.exp2(s - less[row])
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


def finished(held: Held, hides: bool = False) -> Callable:
    """finish(best, total) -> logsumexp, inverse: of rows whose tiles are all done.

    `logsumexp` is the natural one, `inverse` 1 / the sum of the weights in all lanes;
    with `hides` 0 where all are 0.
    """
    if SIMULATED:

        def emulated(best, total):
            for mask in held.exchanges:
                total = total + emulation.shuffle_xor(total, mask)
            with np.errstate(divide="ignore"):
                ends, inverse = (best + np.log2(total)) * np.float32(LN2), 1 / total
            return ends, np.where(total == 0, np.float32(0), inverse)

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
        inverse = [_call(builder, "rcp.rn.f32", x) for x in total]
        if hides:
            zero = ir.Constant(ir.FloatType(), 0.0)
            none = [builder.fcmp_ordered("==", x, zero) for x in total]
            inverse = [builder.select(n, zero, x) for n, x in zip(none, inverse)]
        return llvm.pack(builder, ends, inverse)

    return finish


# ------------------------------------------------------------------------------- masks


def masked(held: Held, turned: bool, hidden: float) -> Callable:
    """mask(s, keys_left, diagonal) -> s, with `hidden` for what may not be seen.

    Seen are keys k < keys_left with k <= q + diagonal, key k and query q counted from
    the lane's first ones: columns and rows, or rows and columns with `turned`.
    """
    if SIMULATED:
        row = np.array([held.rows[row] for row, _ in held.places])
        col = np.array([held.cols[col] for _, col in held.places])
        low, high = (row, col) if turned else (col, row)

        def emulated(s, keys_left, diagonal):
            seen = (low < keys_left) & (low - high <= diagonal)
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
            key, query = (row, col) if turned else (col, row)
            near = builder.icmp_signed(">", left, ir.Constant(word, key))
            step = ir.Constant(word, key - query)
            seen = builder.and_(near, builder.icmp_signed("<=", step, diagonal))
            out.append(builder.select(seen, x, other))
        return out

    return mask


def shown(held: Held, kind: str) -> Callable:
    """show(s, mask, at, steps, left) -> s: what a mask leaves of scores.

    mask[at + r * steps[0] + c * steps[1]] belongs to row r < left[0] and column
    c < left[1], counted from the lane's first ones; elsewhere the first element is read
    instead. A bool says whether s stays or becomes -infinity; a number, of `kind`
    "float32" or a half type of `mma.py`, is added to what s is without log2(e). Finite
    ones stay so, however large. Without a `kind` there is no mask.
    """
    if not kind:
        return inlined(lambda s, mask, at, steps, left: s)
    places = [(held.rows[row], held.cols[col]) for row, col in held.places]
    if SIMULATED:
        return _emulated_shown(places, kind)
    tile, pair = _tuple(len(places)), types.UniTuple(types.int64, 2)

    @written(lambda s, m, a, b, c: tile(tile, m, types.int64, pair, pair), GLOBAL)
    def show(
        builder: Any, s: list[Any], mask: Any, at: Any, steps: list[Any],
        left: list[Any],
    ) -> list[Any]:  # fmt: skip
        never, word = ir.Constant(ir.FloatType(), -math.inf), ir.IntType(32)
        ends = [builder.trunc(x, word) for x in left]
        steps = [llvm.anew(builder, step) for step in steps]
        out, last = list(s), (0, 0)
        # From one place to the next, so that few addresses are kept.
        for i in sorted(range(len(places)), key=places.__getitem__):
            inside = ir.Constant(ir.IntType(1), 1)
            for step, end, here, before in zip(steps, ends, places[i], last):
                if here != before:
                    at = builder.add(at, builder.mul(step, constant(here - before)))
                near = builder.icmp_signed(">", end, ir.Constant(word, here))
                inside = builder.and_(inside, near)
            last, x = places[i], s[i]
            place = builder.select(inside, at, constant(0))
            found = builder.load(builder.gep(mask, [place]))
            if kind == "bool":
                seen = builder.icmp_unsigned("!=", found, ir.Constant(found.type, 0))
                out[i] = builder.select(seen, x, never)
                continue
            number = _widened(builder, found, kind)
            power = builder.fmul(number, ir.Constant(ir.FloatType(), LOG2E))
            lowest = ir.Constant(ir.FloatType(), LOWEST)
            power = _call(builder, "max.f32", power, lowest)
            hidden = builder.fcmp_ordered("==", number, never)
            out[i] = builder.fadd(x, builder.select(hidden, never, power))
        return out

    return show


def _widened(builder: Any, x: Any, kind: str) -> Any:
    """An element of a mask as a float32."""
    if kind == F16:
        return llvm.assembly(
            builder, "cvt.f32.f16 $0, $1;", ir.FloatType(), "=f,h", [x]
        )
    if kind == BF16:
        word = builder.zext(x, ir.IntType(32))
        word = builder.shl(word, ir.Constant(word.type, 16))
        return builder.bitcast(word, ir.FloatType())
    return x


def _emulated_shown(places: list[tuple[int, int]], kind: str) -> Callable:
    def show(s, mask, at, steps, left):
        found = []
        for row, col in places:
            inside = row < left[0] and col < left[1]
            found.append(mask[at + row * steps[0] + col * steps[1] if inside else 0])
        numbers = np.array(found)
        if kind == "bool":
            return np.where(numbers, s, np.float32(-math.inf))
        numbers = numbers.view(HALVES[kind].numpy) if kind in HALVES else numbers
        numbers = numbers.astype(np.float32)
        with np.errstate(over="ignore"):
            power = np.maximum(numbers * np.float32(LOG2E), np.float32(LOWEST))
        return s + np.where(numbers == -math.inf, numbers, power)

    return inlined(show)


def cleared(places: tuple[int, ...]) -> Callable:
    """clear(p, bits) -> p, with 0 for each number whose bit, at its place, is 0."""
    if SIMULATED:

        def emulated(p, bits):
            kept = [int(bits) >> place & 1 for place in places]
            return np.where(kept, p, np.float32(0))

        return inlined(emulated)
    tile = _tuple(len(places))

    @written(lambda p, bits: tile(tile, types.int64))
    def clear(builder: Any, p: list[Any], bits: Any) -> list[Any]:
        word, out, zero = ir.IntType(32), [], ir.Constant(ir.FloatType(), 0.0)
        halves = [
            builder.trunc(builder.lshr(bits, constant(shift)), word)
            for shift in (0, 32)
        ]
        for place, x in zip(places, p):
            bit = ir.Constant(word, 1 << place % 32)
            found = builder.and_(halves[place // 32], bit)
            kept = builder.icmp_unsigned("!=", found, ir.Constant(word, 0))
            out.append(builder.select(kept, x, zero))
        return out

    return clear


# ------------------------------------------------------- numbers that belong to a row


def paired(offsets: tuple[int, ...]) -> Callable:
    """take(array, at) -> x, y: array[at + 2 * offset] and the number behind it.

    Of offsets that are neighbours in twos, four numbers are loaded at once.
    """
    if SIMULATED:

        def emulated(array, at):
            found = [[array[at + 2 * i + j] for i in offsets] for j in range(2)]
            return np.array(found, np.float32)

        return inlined(emulated)
    kind = types.Tuple((_tuple(len(offsets)),) * 2)

    @written(lambda array, at: kind(array, types.int64), GLOBAL)
    def take(builder: Any, array: Any, at: Any) -> Any:
        base = builder.gep(array, [at])
        parts: tuple[list[Any], list[Any]] = [], []
        step = 1 + (tuple(i + 1 for i in offsets[::2]) == offsets[1::2])
        for i in offsets[::step]:
            for j, value in enumerate(llvm.load(builder, base, 2 * i, 2 * step)):
                parts[j % 2].append(value)
        return llvm.pack(builder, *parts)

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


def weighted(held: Held, by_col: bool, hides: bool = False) -> Callable:
    """weights(s, power, ends) -> p = 2^(s * power - end), the weights again,

    with the `end` of the query, the row, or the column with `by_col`. With `hides` an
    end may be -infinity, where all s are, too, or too large for its last digit to
    count: no weight is NaN, or above 1. `power` is 1 then.
    """
    of = [col if by_col else row for row, col in held.places]
    if SIMULATED:

        def emulated(s, power, ends):
            s = s * power
            if hides:
                ends = np.where(ends == -math.inf, np.float32(0), ends)
                s = np.minimum(s, ends[of])
            return np.exp2(s - ends[of])

        return inlined(emulated)
    tile = _tuple(len(of))
    line = _tuple(len(held.cols if by_col else held.rows))

    @written(lambda s, power, ends: tile(tile, types.float32, line))
    def weights(builder: Any, s: list[Any], power: Any, ends: list[Any]) -> list[Any]:
        if hides:
            ends = [_finite(builder, x) for x in ends]
            s = [_call(builder, "min.f32", x, ends[i]) for x, i in zip(s, of)]
        zero = ir.Constant(ir.FloatType(), 0.0)
        down = [builder.fsub(zero, x) for x in ends]
        return [exp2(builder, builder.fma(x, power, down[i])) for x, i in zip(s, of)]

    return weights


def sloped(held: Held, by_col: bool) -> Callable:
    """slopes(p, d, deltas) -> p * (d - delta): of scores, from that of weights, d.

    `delta` is the query's, as `end` is of `weighted`.
    """
    of = [col if by_col else row for row, col in held.places]
    if SIMULATED:
        return inlined(lambda p, d, deltas: p * (d - deltas[of]))
    tile = _tuple(len(of))
    line = _tuple(len(held.cols if by_col else held.rows))

    @written(lambda p, d, deltas: tile(tile, tile, line))
    def slopes(builder: Any, p: list[Any], d: list[Any], deltas: list[Any]) -> Any:
        d = [builder.fsub(y, deltas[i]) for y, i in zip(d, of)]
        return [builder.fmul(x, y) for x, y in zip(p, d)]

    return slopes


# ------------------------------------------------------------------------ shared memory


def _laid(
    held: Held, row_stride: int, col_stride: int, vector: int
) -> tuple[list[int], list[list[int]]]:
    """Where each of a lane's numbers lies, and which of them lie side by side."""
    offsets = [
        held.rows[row] * row_stride + held.cols[col] * col_stride
        for row, col in held.places
    ]
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    return offsets, [order[i : i + vector] for i in range(0, len(order), vector)]


def laid(held: Held, row_stride: int, col_stride: int, vector: int) -> Callable:
    """lay(shared, at, p): the lane's numbers to shared memory, `vector` at once."""
    offsets, groups = _laid(held, row_stride, col_stride, vector)
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


def fetched(held: Held, row_stride: int, col_stride: int, vector: int) -> Callable:
    """fetch(shared, at) -> p: what `laid` has put there."""
    offsets, groups = _laid(held, row_stride, col_stride, vector)
    if SIMULATED:

        def emulated(shared, at):
            firsts = np.array([at + offsets[group[0]] for group in groups])
            watch.note_reads(shared, firsts, vector)
            return np.asarray(shared)[at + np.array(offsets)]

        return inlined(emulated)
    kind = _tuple(len(offsets))

    @written(lambda shared, at: kind(shared, types.int64))
    def fetch(builder: Any, shared: Any, at: Any) -> list[Any]:
        base, out = builder.gep(shared, [at]), [None] * len(offsets)
        for group in groups:
            found = llvm.load(builder, base, offsets[group[0]], vector)
            for i, x in zip(group, found):
                out[i] = x
        return out

    return fetch
