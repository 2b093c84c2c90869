"""Tiles of the tensor cores: what a warp multiplies with one instruction.

With this file a kernel can multiply strips of 8 rows and 8 columns in shared memory
with `mma.sync` (`mma_tile`), go on with what that left in registers
(`mma_of_sums`), and deal their elements out to the lanes of a warp
(`fragment_base`, `fragments`, which `block/wgmma.py` uses as well). Factors in
float32 are rounded to TF32 (`round_tf32` says how), those of 16 bits are taken as they
are, two in a word; sums are float32. float64 is multiplied and added as it is.

Source: "PTX ISA", sections on mma.m16n8k8, mma.m16n8k16 and ldmatrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block import llvm
from cuda_ops.block.intrinsics import tf32_word
from cuda_ops.block.llvm import constant, read_lane, written
from cuda_ops.block.tiles import (
    VECTOR_BYTES,
    Functions,
    Run,
    emulated_store,
    inlined,
    make_store,
    make_zero,
)
from cuda_ops.simulator import SIMULATED, emulation, watch
from minitorch.dtypes import bfloat16, float16

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

    F32 = ir.FloatType()


watch.STAND_INS.add(__name__)


# What the tensor cores multiply: names of types in PTX.
TF32, BF16, F16, F64 = "tf32", "bf16", "f16", "f64"
HALVES = {BF16: bfloat16, F16: float16}


class Strips(NamedTuple):
    """The outputs of a warp on the tensor cores, and where their factors lie.

    A strip is 8 rows of a, or 8 columns of b. In shared memory it lies along k, as
    [row, k], or across k, as [k, row].

    Attributes:
        a_strips, b_strips: how many of each, both even.
        a_along, b_along: whether the operand lies along k.
        depth: steps of k in one call of `multiply`, a multiple of `step`.
        a_pitch, b_pitch: elements from one row (along k) or one k (across) to the next.
        kind: of the factors.
        wide: whether sums of halves are stored as they are, in float32.
        old: whether the chip may be older than Ampere, which knows float16 alone; with
            float64: than Hopper.
    """

    a_strips: int
    b_strips: int
    a_along: bool
    b_along: bool
    depth: int
    a_pitch: int
    b_pitch: int
    kind: str = TF32
    wide: bool = False
    old: bool = False

    @property
    def stored(self) -> str:
        """What is stored, in the words of `kind`: TF32 for float32."""
        return TF32 if self.wide else self.kind

    @property
    def vector(self) -> int:
        """Elements of 16 bytes: a row of a matrix of `ldmatrix`."""
        return {TF32: 4, F64: 2}.get(self.kind, 8)

    @property
    def step(self) -> int:
        """Steps of k of one instruction."""
        return 16 if self.kind in HALVES else 8

    @property
    def number(self) -> Any:
        """Numba's type of a sum."""
        return types.float64 if self.kind == F64 else types.float32

    def by_matrix(self, along: bool) -> bool:
        """Whether `ldmatrix` reads a side that lies along k, or across it."""
        return self.kind in HALVES or (along and self.kind == TF32)

    @property
    def sums(self) -> int:
        """How many outputs a lane has."""
        return 2 * self.a_strips * self.b_strips


def mma_tile(strips: Strips) -> Functions:
    """The functions of a warp's tile on the tensor cores: zero, multiply, store.

        zero() -> acc, this lane's part of the warp's outputs
        multiply(acc, shared, a_at, b_at) -> acc:
            for each 8 k, strips p, q of a and column strip c of b:
                16 x 8 outputs += (strips p and q) [16, 8] @ (strip c) [8, 8]
        store(out, at, stride, acc, rows, cols, aligned), from the warp's first output

    `multiply` rounds both operands to TF32 (10 bits after the point, ties away from
    zero: `cvt.rna.tf32`); products and sums are float32. `mma.sync.m16n8k8` spreads its
    operands over the 32 lanes of a warp: lane 4 g + t holds elements (g, t) and
    (g, t + 4) of each strip, and of the result columns 2 t and 2 t + 1 of rows g of
    both strips. `ldmatrix` hands out the elements of strips that lie along k, four
    registers at a time; those of strips that lie across k are loaded one by one.

    Halves go two in a word, the first in its lower part, and so 16 k at a time:
    `mma.sync.m16n8k16` deals its words as the other one its elements. `store` rounds
    its sums to them. float64 goes as TF32 does, but each lane loads its elements.
    """
    if SIMULATED:
        return _emulated_mma(strips)

    def runs_of(builder: Any) -> tuple[Any, Any, list[Run]]:
        return *first_sum(builder), _runs(strips)

    return (
        make_zero(strips.number, strips.sums),
        _make_mma(strips),
        make_store(
            strips.number, strips.sums, runs_of, narrower(strips.stored, strips.old)
        ),
    )


def _runs(strips: Strips) -> list[Run]:
    """What a lane has, relative to its first row and column."""
    runs = []
    for strip in range(strips.a_strips):
        first = (strip // 2 * strips.b_strips) * 4 + strip % 2 * 2
        for j in range(strips.b_strips):
            runs.append(Run(8 * strip, 8 * j, (first + 4 * j, first + 4 * j + 1)))
    return runs


def first_sum(builder: Any) -> tuple[Any, Any]:
    """Row g and column 2 t of the first sum of lane 4 g + t."""
    lane = read_lane(builder)
    g, t = builder.lshr(lane, constant(2)), builder.and_(lane, constant(3))
    return g, builder.mul(t, constant(2))


def _make_mma(strips: Strips) -> Callable:
    def signature(acc: Any, shared: Any, a_at: Any, b_at: Any) -> Any:
        acc_type = types.UniTuple(strips.number, strips.sums)
        return acc_type(acc_type, shared, types.int64, types.int64)

    @written(signature)
    def multiply(
        builder: Any, acc: list[Any], shared: Any, a_at: Any, b_at: Any
    ) -> list[Any]:
        lane = read_lane(builder)
        ends = (
            fragment_base(builder, shared, a_at, lane, strips, True),
            fragment_base(builder, shared, b_at, lane, strips, False),
        )

        def factors(k: int) -> list[list[Any]]:
            both = fragments(builder, ends, strips, k)
            if strips.kind != TF32:
                return list(both)
            return [[rounded(builder, x) for x in side] for side in both]

        # The next factors are on their way while these are multiplied.
        following = factors(0)
        for k in range(0, strips.depth, strips.step):
            a, b = following
            if k + strips.step < strips.depth:
                following = factors(k + strips.step)
            _mma_all(builder, acc, a, b, strips.kind, strips.old)
        return acc

    return multiply


def fragment_base(
    builder: Any, base: Any, at: Any, lane: Any, strips: Strips, left: bool
) -> Any:
    """Where this lane reads a (`left`) or b: an address for `ldmatrix`, or a pointer.

    For `ldmatrix`, lanes 8 i to 8 i + 7 name the rows of the i-th of four matrices of 8
    rows and 4 k (8 k of halves; across k they are turned on the way). In the order in
    which `mma` takes them, these are, for a, both strips at k and then both at k + 4;
    for b, the first strip at k and k + 4, then the second.
    """
    along = strips.a_along if left else strips.b_along
    pitch = strips.a_pitch if left else strips.b_pitch
    one, by_matrix = constant(1), strips.by_matrix(along)
    if by_matrix:
        # Bits 3 and 4 of the lane's number choose the matrix: a strip, a half of k.
        matrix = builder.lshr(lane, constant(3))
        low, high = builder.and_(matrix, one), builder.lshr(matrix, one)
        strip, far = (low, high) if left else (high, low)
        line, beside = (strip, far) if along else (far, strip)
        row = builder.add(
            builder.and_(lane, constant(7)), builder.mul(line, constant(8))
        )
        place = builder.mul(row, constant(pitch))
        place = builder.add(place, builder.mul(beside, constant(strips.vector)))
    else:
        k, row = builder.and_(lane, constant(3)), builder.lshr(lane, constant(2))
        line, beside = (row, k) if along else (k, row)
        place = builder.add(builder.mul(line, constant(pitch)), beside)
    pointer = builder.gep(base, [builder.add(at, place)])
    return llvm.shared_address(builder, pointer) if by_matrix else pointer


def fragments(
    builder: Any, ends: tuple[Any, Any], strips: Strips, k: int
) -> tuple[list[Any], list[Any]]:
    """A lane's words of a and b for `strips.step` of k, in the order of `mma`."""
    return (
        _side(builder, ends[0], strips, k, True),
        _side(builder, ends[1], strips, k, False),
    )


def _side(builder: Any, end: Any, strips: Strips, k: int, left: bool) -> list[Any]:
    """Those of a (`left`): two strips at k, two at k + 4; or of b: each at both."""
    count = strips.a_strips if left else strips.b_strips
    along = strips.a_along if left else strips.b_along
    pitch = strips.a_pitch if left else strips.b_pitch
    size, words = VECTOR_BYTES // strips.vector, []
    for first in range(0, 8 * count, 16):
        if strips.by_matrix(along):
            at = first * pitch + k if along else k * pitch + first
            words += _ldmatrix(builder, end, at * size, not along)
            continue
        four = [(first + row, k + step) for step in (0, 4) for row in (0, 8)]
        for row, step in four if left else [four[i] for i in (0, 2, 1, 3)]:
            at = row * pitch + step if along else step * pitch + row
            words += llvm.load(builder, end, at, 1)
    return words


def _ldmatrix(
    builder: Any, address: Any, offset: int, turned: bool = False
) -> list[Any]:
    """Of four matrices of 8 rows and 4 words, lane 4 g + t gets word t of row g.

    With `turned`, for halves: those of column g in rows 2 t and 2 t + 1.
    """
    name = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16"
    text = f"{name} {{$0, $1, $2, $3}}, [$4 + {offset}];"
    kind = ir.LiteralStructType([ir.IntType(32)] * 4)
    value = llvm.assembly(builder, text, kind, "=r,=r,=r,=r,r,~{memory}", [address])
    return llvm.unpack(builder, value, 4)


def rounded(builder: Any, x: Any) -> Any:
    """A float32, or the word that `ldmatrix` gave for one, rounded to TF32."""
    x = builder.bitcast(x, ir.FloatType()) if isinstance(x.type, ir.IntType) else x
    return tf32_word(builder, x)


def narrower(kind: str, old: bool = False) -> Callable | None:
    """narrow(builder, floats) -> halves; None where float32 is stored."""
    if kind not in HALVES:
        return None

    def narrow(builder: Any, floats: list[Any]) -> list[Any]:
        half, out = ir.IntType(16), []
        if old:
            line, form = f"cvt.rn.{kind}.f32 $0, $1;", ir.FunctionType(half, [F32])
            return [builder.call(ir.InlineAsm(form, line, "=h,f"), [x]) for x in floats]
        for low, high in zip(floats[::2], floats[1::2]):
            word = _pair(builder, low, high, kind)
            top = builder.lshr(word, ir.Constant(word.type, 16))
            out += [builder.trunc(word, half), builder.trunc(top, half)]
        return out

    return narrow


def _pair(builder: Any, low: Any, high: Any, kind: str) -> Any:
    """Two float32 rounded to halves, in one word."""
    asm = ir.FunctionType(ir.IntType(32), [ir.FloatType()] * 2)
    line = ir.InlineAsm(asm, f"cvt.rn.{kind}x2.f32 $0, $1, $2;", "=r,f,f")
    return builder.call(line, [high, low])


_MMA = (
    "mma.sync.aligned.m16n8k{1}.row.col.{2}.{0}.{0}.{2} "
    "{{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
)
_OLD_MMA = " ".join(
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
    f"{{$0, $1, $2, $3}}, {{{a}}}, {{{b}}}, {{{c}}};"
    for a, b, c in (
        ("$4, $5", "$8", "$10, $11, $12, $13"),
        ("$6, $7", "$9", "$0, $1, $2, $3"),
    )
)
_OLD_F64 = " ".join(
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
    f"{{{out}}}, {{{a}}}, {{{b}}}, {{{c}}};"
    for out, a, b, c in (
        ("$0, $1", "$4", "$8", "$10, $11"),
        ("$2, $3", "$5", "$8", "$12, $13"),
        ("$0, $1", "$6", "$9", "$0, $1"),
        ("$2, $3", "$7", "$9", "$2, $3"),
    )
)


def _mma_all(
    builder: Any, acc: list[Any], a: list[Any], b: list[Any], kind: str = TF32,
    old: bool = False,
) -> None:  # fmt: skip
    """acc += a's pairs of strips times b's strips: one instruction for each pair, or
    with `old` two, of which each takes half of k (of float64 four, a strip each)."""
    number, word, letters = ir.FloatType(), ir.IntType(32), "fr"
    if kind == F64:
        number, word, letters = ir.DoubleType(), ir.DoubleType(), "dd"
    four = ir.LiteralStructType([number] * 4)
    form = ir.FunctionType(four, [word] * 6 + [number] * 4)
    text = _MMA.format(
        kind, 16 if kind in HALVES else 8, "f64" if kind == F64 else "f32"
    )
    if old:
        text = _OLD_F64 if kind == F64 else _OLD_MMA
    ends = [f"={letters[0]}"] * 4 + [letters[1]] * 6 + ["0,1,2,3"]
    instruction = ir.InlineAsm(form, text, ",".join(ends))
    blocks = len(b) // 2
    for i in range(len(a) // 4):
        for step in range(blocks):
            # There and back through b, so that its last strip is used again at once.
            j = step if i % 2 == 0 else blocks - 1 - step
            first = 4 * (i * blocks + j)
            args = a[4 * i : 4 * i + 4] + b[2 * j : 2 * j + 2] + acc[first : first + 4]
            sums = builder.call(instruction, args)
            acc[first : first + 4] = llvm.unpack(builder, sums, 4)


# ------------------------------------------------- products of what is in registers


@cache
def mma_of_words(kind: str) -> Callable:
    """multiply(acc, a, b) -> acc + a [16, 16] @ b [16, 8], of halves that lanes have.

    Lane 4 g + t has of a, in words of two, k = 2 t of the rows g and g + 8, then k =
    2 t + 8 of both; of b both of these of column g; of the sums the columns 2 t and 2 t
    + 1 of row g, then of row g + 8. Which number is at which k is all the same, as long
    as it is for a and b.
    """
    if SIMULATED:
        return _emulated_of_words(kind)

    def signature(acc: Any, a: Any, b: Any) -> Any:
        four = types.UniTuple(types.float32, 4)
        return four(
            four, types.UniTuple(types.uint32, 4), types.UniTuple(types.uint32, 2)
        )

    @written(signature)
    def multiply(builder: Any, acc: list[Any], a: list[Any], b: list[Any]) -> list[Any]:
        _mma_all(builder, acc, a, b, kind)
        return acc

    return multiply


def _emulated_of_words(kind: str) -> Callable:
    def multiply(acc, a, b):
        table, lane = emulation.exchange((*a, *b))
        g, t = divmod(lane, 4)

        def numbers(of, *words):  # [16] of what four lanes have
            found = [table[4 * of + c][w] for c in range(4) for w in words]
            return factors_of(np.array(found, np.uint32).view(np.uint16), kind)

        rows = numbers(g, 0, 2), numbers(g, 1, 3)
        columns = numbers(2 * t, 4, 5), numbers(2 * t + 1, 4, 5)
        sums = [row @ column for row in rows for column in columns]
        return tuple(np.float32(x + y) for x, y in zip(acc, sums))

    return multiply


# -1, and the number whose last bits count by ones: 2^7 in bfloat16, 2^10 in float16.
_MINUS_AND_WHOLE = {BF16: (0xBF80, 0x4300), F16: (0xBC00, 0x6400)}


@cache
def halves_of_bytes(kind: str, fours: bool = False) -> Callable:
    """widen(word) -> two words of halves, exactly, of a word of four int8. With `fours`
    four, of four bytes 16 * high + low + 8: those of the low numbers first.

    As `from_bytes`, two at once: in place of the last bits of 2^k they are 2^k + the
    number, and the rest is subtracted. bfloat16 has room for seven bits there; of a
    byte the eighth, its sign, is taken to what is subtracted: 2^k, or 2^k + 128.
    """
    if SIMULATED:
        return partial(_emulated_halves, kind, fours)
    minus, whole = _MINUS_AND_WHOLE[kind]

    def twice(bits: int) -> Any:
        return ir.Constant(ir.IntType(32), bits * 0x10001)

    def signature(word: Any) -> Any:
        return types.UniTuple(types.uint32, 4 if fours else 2)(types.uint32)

    @written(signature)
    def widen(builder: Any, word: Any) -> list[Any]:
        def write(line: str, *args: Any) -> Any:
            form = ir.FunctionType(word.type, [word.type] * 3)
            text = f"{line} $0, $1, $2, $3;"
            return builder.call(ir.InlineAsm(form, text, "=r,r,r,r"), args)

        def less(x: Any, y: Any) -> Any:
            return write(f"fma.rn.{kind}x2", y, twice(minus), x)

        def bits(x: Any, mask: int) -> Any:
            return builder.and_(x, twice(mask))

        front = twice((whole >> 8) * 0x101)  # of 2^k, before each byte
        places = (ir.Constant(word.type, place) for place in (0x4140, 0x4342))
        pairs = [write("prmt.b32", word, front, place) for place in places]
        if not fours:
            return [less(bits(x, 0xFF7F), bits(x, 0xFF80)) for x in pairs]
        zero, four = twice(whole | 8), ir.Constant(word.type, 4)
        high = [builder.xor(bits(builder.lshr(x, four), 15), zero) for x in pairs]
        return [less(x, zero) for x in [*(bits(x, 0xFF0F) for x in pairs), *high]]

    return widen


def _emulated_halves(kind: str, fours: bool, word: Any) -> tuple[Any, ...]:
    numbers = (emulation.from_fours if fours else emulation.from_bytes)(word)
    return tuple(np.array(numbers).astype(HALVES[kind].numpy).view(np.uint32))


def mma_of_sums(p: Strips, b_strips: int, b_pitch: int) -> Callable:
    """multiply(acc, p, shared, b_at) -> acc + p @ b, with p as `mma_tile` left it.

    # p [8 a_strips, 8 n], a lane's outputs; b [8 n, 8 b_strips], of the kind of p

    Lane 4 g + t has columns 2 t and 2 t + 1 of p, and as a factor it should have t and
    t + 4. But the order of the terms of a sum is free: so it takes rows 2 t and 2 t + 1
    of b to them, and p never leaves the registers. Halves need no such change: the
    columns 2 t and 2 t + 1 are one word, once rounded.
    """
    if SIMULATED:
        add = emulated_of_sums(p, b_strips, lambda k, col: k * b_pitch + col)

        def emulated(acc, s, shared, b_at):
            _note_rows(shared, b_at, p, b_strips, b_pitch)
            return add(acc, s, shared, b_at)

        return inlined(emulated)
    acc_type = types.UniTuple(types.float32, 2 * p.a_strips * b_strips)
    p_type = types.UniTuple(types.float32, p.sums)
    write = _sums_of_words if p.kind == TF32 else _sums_of_halves

    @written(lambda acc, p, shared, at: acc_type(acc_type, p_type, shared, types.int64))
    def multiply(
        builder: Any, acc: list[Any], s: list[Any], shared: Any, b_at: Any
    ) -> list[Any]:
        write(builder, acc, s, builder.gep(shared, [b_at]), p, b_strips, b_pitch)
        return acc

    return multiply


def _sums_of_words(
    builder: Any, acc: list[Any], s: list[Any], b_from: Any, p: Strips, b_strips: int,
    b_pitch: int,
) -> None:  # fmt: skip
    g, pair = first_sum(builder)
    at = builder.add(builder.mul(pair, constant(b_pitch)), g)
    base = builder.gep(b_from, [at])
    for j in range(p.b_strips):
        b: list[Any] = []
        for strip in range(b_strips):
            for row in (8 * j, 8 * j + 1):
                b += llvm.load(builder, base, row * b_pitch + 8 * strip, 1)
        firsts = [4 * (i * p.b_strips + j) for i in range(p.a_strips // 2)]
        a = [s[first + e] for first in firsts for e in (0, 2, 1, 3)]
        a, b = ([rounded(builder, x) for x in side] for side in (a, b))
        _mma_all(builder, acc, a, b)


def _sums_of_halves(
    builder: Any, acc: list[Any], s: list[Any], b_from: Any, p: Strips, b_strips: int,
    b_pitch: int,
) -> None:  # fmt: skip
    b_side = Strips(0, b_strips, False, False, p.step, 0, b_pitch, p.kind)
    lane = read_lane(builder)
    address = fragment_base(builder, b_from, constant(0), lane, b_side, False)
    for j in range(0, p.b_strips, 2):
        b = fragments(builder, (None, address), b_side, 8 * j)[1]
        firsts = [4 * (i * p.b_strips + j) for i in range(p.a_strips // 2)]
        a = [
            _pair(builder, s[first + e], s[first + e + 1], p.kind)
            for first in firsts
            for e in (0, 2, 4, 6)
        ]
        _mma_all(builder, acc, a, b, p.kind)


def emulated_of_sums(s: Strips, b_strips: int, place: Callable) -> Callable:
    """As `mma_of_sums`, where b's row k and column is at b_at + place(k, column)."""
    blocks, a_strips = s.b_strips, s.a_strips

    def multiply(acc, p, shared, b_at):
        t = cuda.laneid % 4
        rows = np.zeros((a_strips, 8 * blocks), np.float32)
        for m in range(4):  # the lanes that share rows with this one
            far = emulation.shuffle_xor(p, m) if m else p
            parts = far.reshape(a_strips // 2, blocks, 2, 2).transpose(0, 2, 1, 3)
            for e in range(2):
                cols = slice(2 * (t ^ m) + e, None, 8)
                rows[:, cols] = parts[..., e].reshape(a_strips, blocks)
        k = np.arange(8 * blocks)[:, None, None]
        col = 8 * np.arange(b_strips)[:, None] + [2 * t, 2 * t + 1]
        places = b_at + place(k, col)
        watch.note_fetches(shared, places)
        b = factors_of(np.asarray(shared)[places], s.kind)
        rows = factors_of(narrowed(rows, s.kind), s.kind)
        sums = np.einsum("sk,kbc->sbc", rows, b)
        sums = sums.reshape(a_strips // 2, 2, b_strips, 2).transpose(0, 2, 1, 3)
        return acc + sums.reshape(-1).astype(np.float32)

    return inlined(multiply)


def _note_rows(shared: Any, at: Any, s: Strips, b_strips: int, pitch: int) -> None:
    """Tell a watch what a lane loads of the right side in `mma_of_sums`."""
    lane = cuda.laneid
    for row in range(0, 8 * s.b_strips, s.step):
        if s.kind != TF32:
            place = at + (row + lane % 16) * pitch + lane // 16 * 8
            for strip in range(0, b_strips, 2):
                watch.note_reads(shared, [place + 8 * strip], 8)
            continue
        place = at + (row + lane % 4 * 2) * pitch + lane // 4
        cols = 8 * np.arange(b_strips)
        places = [place + col + e * pitch for col in cols for e in range(2)]
        watch.note_reads(shared, places, 1)


# ---------------------------------------------------------------- for the simulator


def round_tf32(values: np.ndarray) -> np.ndarray:
    """float32 numbers as TF32 keeps them: 10 bits, ties away from zero."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (words + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def narrowed(values: np.ndarray, kind: str) -> np.ndarray:
    """float32 numbers as they are stored: the bits of halves, or themselves."""
    if kind not in HALVES:
        return values
    with np.errstate(over="ignore"):
        return values.astype(HALVES[kind].numpy).view(np.uint16)


def factors_of(values: np.ndarray, kind: str) -> np.ndarray:
    """What is stored, as the tensor cores read it: in float32, or in float64."""
    if kind == F64:
        return values
    if kind == TF32:
        return round_tf32(values)
    stored = np.ascontiguousarray(values).view(HALVES[kind].numpy)
    return stored.astype(np.float32)


def cut_tf32(values: np.ndarray) -> np.ndarray:
    """float32 numbers as tensor cores read them: without their last 13 bits."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFFE000)).view(np.float32)


def _note_loads(shared: Any, at: Any, lane: int, strips: Strips, left: bool) -> None:
    """Tell a watch what a lane loads of a (`left`) or b in `fragments`."""
    along, pitch = strips.b_along, strips.b_pitch
    rows, row, far = 8 * strips.b_strips, lane % 8 + lane // 16 * 8, lane // 8 % 2
    if left:
        along, pitch = strips.a_along, strips.a_pitch
        rows, row, far = 8 * strips.a_strips, lane % 16, lane // 16
    vector = strips.vector
    for k in range(0, strips.depth, strips.step):
        for first in range(0, rows, 16):
            if strips.by_matrix(along):  # one of the 32 lines of four matrices
                place = at + (first + row) * pitch + k + vector * far
                watch.note_reads(shared, [place], vector)
                continue
            steps = [k + lane % 4 + step for step in (0, 4)]
            lines = [first + lane // 4 + more for more in (0, 8)]
            places = [
                at + (line * pitch + step if along else step * pitch + line)
                for step in steps
                for line in lines
            ]
            watch.note_reads(shared, places, 1)


def _emulated_mma(strips: Strips) -> Functions:
    pairs, blocks = strips.a_strips // 2, strips.b_strips
    number = np.float64 if strips.kind == F64 else np.float32
    runs = _runs(strips)

    k = np.arange(strips.depth)

    def places(rows, along, pitch):
        rows = rows.reshape(-1, 1)
        return rows * pitch + k if along else k * pitch + rows

    @cache
    def places_of(lane):
        rows = 8 * np.arange(strips.a_strips) + lane // 4
        cols = 8 * np.arange(blocks)[:, None] + [lane % 4 * 2, lane % 4 * 2 + 1]
        return (
            places(rows, strips.a_along, strips.a_pitch),
            places(cols, strips.b_along, strips.b_pitch),
        )

    def zero():
        return np.zeros(strips.sums, number)

    def multiply(acc, shared, a_at, b_at):
        lane = cuda.laneid
        if isinstance(shared, watch.Watched):
            _note_loads(shared, a_at, lane, strips, True)
            _note_loads(shared, b_at, lane, strips, False)
        stored, (a, b) = np.asarray(shared), places_of(lane)
        a = factors_of(stored[a_at + a], strips.kind)  # [a's strips, k]
        b = factors_of(stored[b_at + b], strips.kind)  # [2 columns of b's strips, k]
        sums = (a @ b.T).reshape(pairs, 2, blocks, 2).transpose(0, 2, 1, 3)
        return acc + sums.reshape(-1).astype(number)

    def place():
        return cuda.laneid // 4, cuda.laneid % 4 * 2, runs

    put = emulated_store(inlined(place))

    def store(out, at, stride, acc, rows, cols, aligned):
        put(out, at, stride, narrowed(acc, strips.stored), rows, cols, aligned)

    return zero, inlined(multiply), inlined(store)
