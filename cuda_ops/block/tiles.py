"""Tiles of numbers in registers, and what matrix products do with them.

With this file a kernel can keep a block of outputs in registers as one tuple, and feed
it from shared memory:

    zero, multiply, store, put_aside, add_aside = fma_tile(float32, Tile(a, b, 16))
    acc = zero()                                   # a tuple of rows * cols numbers
    acc = multiply(acc, shared, a_at, b_at)        # acc += a's columns x b's rows
    store(out, at, row_stride, acc, rows_left, cols_left, aligned)

`fma_tile` multiplies with the ordinary units, `mma_tile` with the tensor cores, and
`copier` fills shared memory while others compute (`cp.async`).

Why not loops over a local array? Registers have no addresses: an array lives in them
only if each index is a number when the kernel is compiled, so every loop around it has
to be unrolled, which the compiler does for short ones only. The functions here are
unrolled when they are made: each is a template whose loops run in Python, and leave one
instruction behind for each step. They read as the loops they stand for in the emulation
below each of them, which is what the simulator runs.

All indices count elements; none is checked or wrapped around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64

from cuda_ops.block.intrinsics import tf32_word
from cuda_ops.simulator import SIMULATED

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic

GLOBAL, SHARED = 1, 3  # address spaces of LLVM's NVPTX target
VECTOR_BYTES = 16  # the widest load of one thread


class Side(NamedTuple):
    """One operand of a thread's tile: which rows (of b: columns), and where they lie.

    In shared memory the operand lies along k, as [row, k], or across k, as [k, row].
    V numbers are 16 bytes, the most that one load fetches. Across k, a load fetches V
    rows, and so a thread has groups of V neighbouring rows, one group `step` rows
    behind the other. Along k, a load fetches V steps of k of one row, and a thread's
    rows are `step` apart. Either way, neighbours in a warp read neighbouring pieces.

    Attributes:
        rows: how many the thread has.
        step: see above.
        pitch: elements from one row (along k) or one k (across) to the next.
        along: whether the operand lies along k.
    """

    rows: int
    step: int
    pitch: int
    along: bool

    def row(self, i: int, vector: int) -> int:
        """The thread's row number i, counted from its first."""
        if self.along:
            return i * self.step
        return i // vector * self.step + i % vector

    def place(self, i: int, k: int, vector: int) -> int:
        """Where element (row number i, k) lies."""
        row = self.row(i, vector)
        return row * self.pitch + k if self.along else k * self.pitch + row


class Tile(NamedTuple):
    """What a thread multiplies in one call: both operands, and the steps of k."""

    a: Side
    b: Side
    depth: int


class Strips(NamedTuple):
    """The outputs of a warp on the tensor cores, and where their factors lie.

    A strip is 8 rows of a, or 8 columns of b. In shared memory it lies along k, as
    [row, k], or across k, as [k, row].

    Attributes:
        a_strips, b_strips: how many of each, both even.
        a_along, b_along: whether the operand lies along k.
        depth: steps of k in one call of `multiply`, a multiple of 8.
        a_pitch, b_pitch: elements from one row (along k) or one k (across) to the next.
    """

    a_strips: int
    b_strips: int
    a_along: bool
    b_along: bool
    depth: int
    a_pitch: int
    b_pitch: int


Functions = tuple[Callable, ...]


# ------------------------------------------------------------- LLVM, a little of it


def _pointer(
    context: Any, builder: Any, array_type: Any, array: Any, space: int
) -> Any:
    """The address of an array's first element, in its address space."""
    data = context.make_array(array_type)(context, builder, array).data
    kind = ir.PointerType(data.type.pointee, addrspace=space)
    return builder.addrspacecast(data, kind)


def shared_pointer(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """The address of an array's first element in shared memory."""
    return _pointer(context, builder, array_type, array, SHARED)


def _constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _vector_pointer(builder: Any, pointer: Any, count: int) -> Any:
    kind = ir.VectorType(pointer.type.pointee, count)
    return builder.bitcast(pointer, ir.PointerType(kind, pointer.type.addrspace))


def _load(builder: Any, pointer: Any, offset: int, count: int, size: int) -> list[Any]:
    """`count` neighbours, from an address that is a multiple of their bytes."""
    at = builder.gep(pointer, [_constant(offset)])
    value = builder.load(_vector_pointer(builder, at, count))
    value.align = count * size
    lane = ir.IntType(32)
    return [builder.extract_element(value, ir.Constant(lane, i)) for i in range(count)]


def _store(builder: Any, values: list[Any], pointer: Any, size: int) -> None:
    count = len(values)
    vector = ir.Constant(ir.VectorType(pointer.type.pointee, count), ir.Undefined)
    for i, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), i))
    made = builder.store(vector, _vector_pointer(builder, pointer, count))
    made.align = count * size


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z: one `fma` instruction for floats."""
    if isinstance(x.type, ir.IntType):
        return builder.add(builder.mul(x, y), z)
    return builder.fma(x, y, z)


def unpack(builder: Any, tuple_value: Any, count: int) -> list[Any]:
    return [builder.extract_value(tuple_value, i) for i in range(count)]


def shared_address(builder: Any, pointer: Any) -> Any:
    """A shared-memory address as the 32-bit number that instructions take."""
    return builder.trunc(builder.ptrtoint(pointer, ir.IntType(64)), ir.IntType(32))


def assembly(builder: Any, text: str, kind: Any, constraints: str, args: Any) -> Any:
    inline = ir.InlineAsm(
        ir.FunctionType(kind, [arg.type for arg in args]), text, constraints, True
    )
    return builder.call(inline, args)


# ------------------------------------------------------------- storing, for both kinds


class Run(NamedTuple):
    """Neighbouring outputs that a thread holds: one store, if the address allows."""

    row: int
    col: int
    held: tuple[int, ...]  # their places in the tuple


def _store_runs(
    builder: Any, runs: list[Run], out: Any, stride: Any, values: list[Any],
    left: tuple[Any, Any], aligned: Any, size: int,
) -> None:  # fmt: skip
    """Store all of a thread's outputs: at once, or each if it is inside the matrix."""
    rows, cols = left

    def at(run: Run, i: int) -> Any:
        row = builder.mul(stride, _constant(run.row))
        return builder.gep(out, [builder.add(row, _constant(run.col + i))])

    last_row = max(run.row for run in runs)
    last_col = max(run.col + len(run.held) - 1 for run in runs)
    whole = builder.and_(
        builder.icmp_signed(">", rows, _constant(last_row)),
        builder.icmp_signed(">", cols, _constant(last_col)),
    )
    with builder.if_else(builder.and_(whole, aligned)) as (then, otherwise):
        with then:
            for run in runs:
                _store(builder, [values[i] for i in run.held], at(run, 0), size)
        with otherwise:
            for run in runs:
                row_inside = builder.icmp_signed(">", rows, _constant(run.row))
                for i, place in enumerate(run.held):
                    col_inside = builder.icmp_signed(">", cols, _constant(run.col + i))
                    with builder.if_then(builder.and_(row_inside, col_inside)):
                        builder.store(values[place], at(run, i))


def make_store(kind: Any, count: int, runs_of: Callable, size: int) -> Callable:
    """The `store` function of a tile; `runs_of(builder)` -> (first row, col, runs)."""

    @intrinsic
    def store(typing, out, at, stride, acc, rows, cols, aligned):
        long = types.int64
        tile = types.UniTuple(kind, count)
        sig = types.void(out, long, long, tile, long, long, types.boolean)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            array, first, stride, acc, rows, cols, aligned = args
            pointer = _pointer(context, builder, sig.args[0], array, GLOBAL)
            row, col, runs = runs_of(builder)
            first = builder.add(first, builder.add(builder.mul(row, stride), col))
            left = builder.sub(rows, row), builder.sub(cols, col)
            _store_runs(
                builder, runs, builder.gep(pointer, [first]), stride,
                unpack(builder, acc, count), left, _flag(builder, aligned), size,
            )  # fmt: skip
            return context.get_dummy_value()

        return sig, generate

    return store


def make_zero(kind: Any, count: int) -> Callable:
    @intrinsic
    def zero(typing):
        tile = types.UniTuple(kind, count)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return ir.Constant(context.get_value_type(tile), None)

        return tile(), generate

    return zero


def emulated_store(runs_of_thread: Callable) -> Callable:
    def store(out, at, stride, acc, rows, cols, aligned):
        first_row, first_col, runs = runs_of_thread()
        for run in runs:
            for i, place in enumerate(run.held):
                row, col = first_row + run.row, first_col + run.col + i
                if row < rows and col < cols:
                    out[at + row * stride + col] = acc[place]

    return store


# --------------------------------------------------------------- tiles of ordinary fma


def fma_tile(dtype: Any, tile: Tile) -> Functions:
    """The functions of a thread's tile: zero, multiply, store, put_aside, add_aside.

        zero() -> acc
        multiply(acc, shared, a_at, b_at) -> acc:
            for k, i, j:  acc[i, j] += a[row i, k] * b[k, col j]
        store(out, at, stride, acc, rows, cols, aligned):
            out[at + stride * row i + col j] = acc[i, j] for rows, cols inside
        put_aside(shared, at, stride, acc), add_aside(shared, at, stride, acc) -> acc:
            vector v of acc to, or added from, shared[at + v * stride]

    A product of 8 x 8 outputs takes 16 numbers for each k from shared memory, in four
    16-byte loads, for 64 fma; however the operands lie there.
    """
    size = np.dtype(str(dtype)).itemsize
    vector = VECTOR_BYTES // size
    run = 1 if tile.b.along else vector  # neighbouring columns
    runs = [
        Run(
            tile.a.row(i, vector),
            tile.b.row(j, vector),
            tuple(i * tile.b.rows + j + e for e in range(run)),
        )
        for i in range(tile.a.rows)
        for j in range(0, tile.b.rows, run)
    ]
    count = tile.a.rows * tile.b.rows
    if SIMULATED:
        store = emulated_store(lambda: (0, 0, runs))
        return *_emulated_fma(dtype, tile, vector), store, *_emulated_aside(vector)
    zero_row = _constant(0)
    return (
        make_zero(dtype, count),
        _make_fma(dtype, tile, vector, size),
        make_store(dtype, count, lambda _: (zero_row, zero_row, runs), size),
        _make_put_aside(dtype, count, vector, size),
        _make_add_aside(dtype, count, vector, size),
    )


Block = list[list[Any]]  # numbers of a thread as [step of k, row]


def _make_fma(dtype: Any, tile: Tile, vector: int, size: int) -> Callable:
    count = tile.a.rows * tile.b.rows

    @intrinsic
    def multiply(typing, acc, shared, a_at, b_at):
        held = types.UniTuple(dtype, count)
        sig = held(held, shared, types.int64, types.int64)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = _pointer(context, builder, sig.args[1], args[1], SHARED)
            a, b = builder.gep(base, [args[2]]), builder.gep(base, [args[3]])
            acc = unpack(builder, args[0], count)
            for k in range(0, tile.depth, vector):
                steps = range(k, k + vector)
                if tile.a.along or tile.b.along:
                    _multiply_steps(builder, acc, tile, a, b, steps, size)
                else:
                    for step in steps:
                        one = range(step, step + 1)
                        _multiply_steps(builder, acc, tile, a, b, one, size)
            return cgutils.pack_array(builder, acc)

        return sig, generate

    return multiply


def _multiply_steps(
    builder: Any, acc: list[Any], tile: Tile, a: Any, b: Any, steps: range, size: int
) -> None:
    """acc += the products of some steps of k.

    One side is fetched for all steps and held in registers: one that lies along k, and
    of two, the smaller. The other is used as it comes, step by step, or row by row if
    it lies along k as well.
    """
    hold_b = tile.b.along and not (tile.a.along and tile.a.rows < tile.b.rows)
    hold, pass_by = ((b, tile.b), (a, tile.a)) if hold_b else ((a, tile.a), (b, tile.b))
    held = _fetch(builder, *hold, range(hold[1].rows), steps, size)
    all_rows = range(pass_by[1].rows)
    if pass_by[1].along:
        parts = [(range(i, i + 1), steps) for i in all_rows]
    else:
        parts = [(all_rows, range(k, k + 1)) for k in steps]
    for rows, some in parts:
        passing = _fetch(builder, *pass_by, rows, some, size)
        for k in some:
            for i in rows:
                x = passing[k - some.start][i - rows.start]
                for j, y in enumerate(held[k - steps.start]):
                    place = i * tile.b.rows + j if hold_b else j * tile.b.rows + i
                    acc[place] = _multiply_add(builder, x, y, acc[place])


def _fetch(
    builder: Any, pointer: Any, side: Side, rows: range, steps: range, size: int
) -> Block:
    """Some rows' numbers for some steps of k, in 16-byte loads."""
    vector = VECTOR_BYTES // size
    if side.along:
        lines = [
            _load(builder, pointer, side.place(i, steps.start, vector), vector, size)
            for i in rows
        ]
        return [[line[e] for line in lines] for e in range(len(steps))]
    block: Block = []
    for k in steps:
        line: list[Any] = []
        for i in range(rows.start, rows.stop, vector):
            line += _load(builder, pointer, side.place(i, k, vector), vector, size)
        block.append(line)
    return block


def _emulated_fma(dtype: Any, tile: Tile, vector: int) -> Functions:
    def places(side: Side) -> np.ndarray:  # [step of k, row]
        return np.array(
            [
                [side.place(i, k, vector) for i in range(side.rows)]
                for k in range(tile.depth)
            ]
        )

    a_places, b_places = places(tile.a), places(tile.b)

    def zero():
        return np.zeros(tile.a.rows * tile.b.rows, str(dtype))

    def multiply(acc, shared, a_at, b_at):
        values = np.asarray(shared)
        acc = acc.reshape(tile.a.rows, tile.b.rows)
        for left, right in zip(values[a_at + a_places], values[b_at + b_places]):
            acc = acc + left[:, None] * right[None, :]
        return acc.reshape(-1)

    return zero, multiply


def _make_put_aside(dtype: Any, count: int, vector: int, size: int) -> Callable:
    @intrinsic
    def put_aside(typing, shared, at, stride, acc):
        long, held = types.int64, types.UniTuple(dtype, count)
        sig = types.void(shared, long, long, held)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = _pointer(context, builder, sig.args[0], args[0], SHARED)
            values = unpack(builder, args[3], count)
            for v in range(count // vector):
                offset = builder.mul(args[2], _constant(v))
                at = builder.gep(base, [builder.add(args[1], offset)])
                _store(builder, values[v * vector : (v + 1) * vector], at, size)
            return context.get_dummy_value()

        return sig, generate

    return put_aside


def _make_add_aside(dtype: Any, count: int, vector: int, size: int) -> Callable:
    @intrinsic
    def add_aside(typing, shared, at, stride, acc):
        long, held = types.int64, types.UniTuple(dtype, count)
        sig = held(shared, long, long, held)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = _pointer(context, builder, sig.args[0], args[0], SHARED)
            values = unpack(builder, args[3], count)
            whole = isinstance(values[0].type, ir.IntType)
            plus = builder.add if whole else builder.fadd
            for v in range(count // vector):
                offset = builder.mul(args[2], _constant(v))
                at = builder.gep(base, [builder.add(args[1], offset)])
                for i, x in enumerate(_load(builder, at, 0, vector, size), v * vector):
                    values[i] = plus(values[i], x)
            return cgutils.pack_array(builder, values)

        return sig, generate

    return add_aside


def _emulated_aside(vector: int) -> Functions:
    def put_aside(shared, at, stride, acc):
        for i, x in enumerate(acc):
            shared[at + i // vector * stride + i % vector] = x

    def add_aside(shared, at, stride, acc):
        places = [at + i // vector * stride + i % vector for i in range(len(acc))]
        return acc + np.asarray(shared)[places]

    return put_aside, add_aside


# ------------------------------------------------------------ tiles of the tensor cores


def mma_tile(strips: Strips) -> Functions:
    """The functions of a warp's tile on the tensor cores: zero, multiply, store.

        zero() -> acc, the part of the warp's outputs that this lane holds
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

    Source: "PTX ISA", sections on mma.m16n8k8 and ldmatrix.
    """
    pairs, blocks = strips.a_strips // 2, strips.b_strips
    count = 4 * pairs * blocks
    if SIMULATED:
        return _emulated_mma(strips)

    def runs_of(builder: Any) -> tuple[Any, Any, list[Run]]:
        return *first_sum(builder), _mma_runs(strips)

    return (
        make_zero(types.float32, count),
        _make_mma(strips),
        make_store(types.float32, count, runs_of, 4),
    )


def _mma_runs(strips: Strips) -> list[Run]:
    """What a lane holds, relative to its first row and column."""
    runs = []
    for strip in range(strips.a_strips):
        first = (strip // 2 * strips.b_strips) * 4 + strip % 2 * 2
        for j in range(strips.b_strips):
            runs.append(Run(8 * strip, 8 * j, (first + 4 * j, first + 4 * j + 1)))
    return runs


def first_sum(builder: Any) -> tuple[Any, Any]:
    """Row g and column 2 t of the first sum of lane 4 g + t."""
    lane = read_lane(builder)
    g, t = builder.lshr(lane, _constant(2)), builder.and_(lane, _constant(3))
    return g, builder.mul(t, _constant(2))


def read_lane(builder: Any) -> Any:
    thread = assembly(builder, "mov.u32 $0, %laneid;", ir.IntType(32), "=r", [])
    return builder.zext(thread, ir.IntType(64))


def _make_mma(strips: Strips) -> Callable:
    pairs, blocks = strips.a_strips // 2, strips.b_strips
    count = 4 * pairs * blocks

    @intrinsic
    def multiply(typing, acc, shared, a_at, b_at):
        held = types.UniTuple(types.float32, count)
        sig = held(held, shared, types.int64, types.int64)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = _pointer(context, builder, sig.args[1], args[1], SHARED)
            lane = read_lane(builder)
            ends = (
                fragment_base(builder, base, args[2], lane, strips, True),
                fragment_base(builder, base, args[3], lane, strips, False),
            )
            acc = unpack(builder, args[0], count)

            def factors(k: int) -> list[list[Any]]:
                both = fragments(builder, ends, strips, k)
                return [[rounded(builder, x) for x in side] for side in both]

            following = factors(0)
            for k in range(0, strips.depth, 8):
                a, b = following
                if k + 8 < strips.depth:
                    following = factors(k + 8)
                _mma_all(builder, acc, a, b)
            return cgutils.pack_array(builder, acc)

        return sig, generate

    return multiply


def fragment_base(
    builder: Any, base: Any, at: Any, lane: Any, strips: Strips, left: bool
) -> Any:
    """Where this lane reads a (`left`) or b: an address for `ldmatrix`, or a pointer.

    For `ldmatrix`, lanes 8 i to 8 i + 7 name the rows of the i-th of four matrices of 8
    rows and 4 k. In the order in which `mma` takes them, these are, for a, both strips
    at k and then both at k + 4; for b, the first strip at k and k + 4, then the second.
    """
    along = strips.a_along if left else strips.b_along
    pitch = strips.a_pitch if left else strips.b_pitch
    one = _constant(1)
    if along:
        matrix = builder.lshr(lane, _constant(3))
        low, high = builder.and_(matrix, one), builder.lshr(matrix, one)
        strip, far = (low, high) if left else (high, low)
        row = builder.add(
            builder.and_(lane, _constant(7)), builder.mul(strip, _constant(8))
        )
        place = builder.mul(row, _constant(pitch))
        place = builder.add(place, builder.mul(far, _constant(4)))
    else:
        k = builder.mul(builder.and_(lane, _constant(3)), _constant(pitch))
        place = builder.add(k, builder.lshr(lane, _constant(2)))
    pointer = builder.gep(base, [builder.add(at, place)])
    return shared_address(builder, pointer) if along else pointer


def fragments(
    builder: Any, ends: tuple[Any, Any], strips: Strips, k: int
) -> tuple[list[Any], list[Any]]:
    """A lane's elements of a and b for 8 steps of k, in the order of `mma`."""
    a_end, b_end = ends
    a: list[Any] = []
    for strip in range(0, strips.a_strips, 2):
        first = 8 * strip
        if strips.a_along:
            a += _ldmatrix(builder, a_end, (first * strips.a_pitch + k) * 4)
            continue
        for step in (k, k + 4):
            a += _load(builder, a_end, step * strips.a_pitch + first, 1, 4)
            a += _load(builder, a_end, step * strips.a_pitch + first + 8, 1, 4)
    b: list[Any] = []
    for strip in range(0, strips.b_strips, 2):
        first = 8 * strip
        if strips.b_along:
            b += _ldmatrix(builder, b_end, (first * strips.b_pitch + k) * 4)
            continue
        for row in (first, first + 8):
            b += _load(builder, b_end, k * strips.b_pitch + row, 1, 4)
            b += _load(builder, b_end, (k + 4) * strips.b_pitch + row, 1, 4)
    return a, b


def _ldmatrix(builder: Any, address: Any, offset: int) -> list[Any]:
    """Of four matrices of 8 rows and 4 words, lane 4 g + t gets word t of row g."""
    word = ir.IntType(32)
    name = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    value = assembly(
        builder,
        f"{name} {{$0, $1, $2, $3}}, [$4 + {offset}];",
        ir.LiteralStructType([word] * 4),
        "=r,=r,=r,=r,r,~{memory}",
        [address],
    )
    return unpack(builder, value, 4)


def rounded(builder: Any, x: Any) -> Any:
    """A float32, or the word that `ldmatrix` gave for one, rounded to TF32."""
    x = builder.bitcast(x, ir.FloatType()) if isinstance(x.type, ir.IntType) else x
    return tf32_word(builder, x)


_MMA = (
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
)


def _mma_all(builder: Any, acc: list[Any], a: list[Any], b: list[Any]) -> None:
    """acc += a's pairs of strips times b's strips: one instruction for each pair."""
    number, word = ir.FloatType(), ir.IntType(32)
    four = ir.LiteralStructType([number] * 4)
    kind = ir.FunctionType(four, [word] * 6 + [number] * 4)
    instruction = ir.InlineAsm(kind, _MMA, "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3")
    blocks = len(b) // 2
    for i in range(len(a) // 4):
        for step in range(blocks):
            j = step if i % 2 == 0 else blocks - 1 - step  # b's last is used again
            first = 4 * (i * blocks + j)
            args = a[4 * i : 4 * i + 4] + b[2 * j : 2 * j + 2] + acc[first : first + 4]
            made = builder.call(instruction, args)
            acc[first : first + 4] = unpack(builder, made, 4)


def round_tf32(values: np.ndarray) -> np.ndarray:
    """float32 numbers as TF32 keeps them: 10 bits, ties away from zero."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (words + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def cut_tf32(values: np.ndarray) -> np.ndarray:
    """float32 numbers as tensor cores read them: without their last 13 bits."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFFE000)).view(np.float32)


def _emulated_mma(strips: Strips) -> Functions:
    pairs, blocks = strips.a_strips // 2, strips.b_strips
    runs = _mma_runs(strips)

    def factors(shared, at, rows, along, pitch):
        k = np.arange(strips.depth)
        places = rows[..., None] * pitch + k if along else k * pitch + rows[..., None]
        return round_tf32(np.asarray(shared)[at + places])  # [strips, 8 or fewer, k]

    def zero():
        return np.zeros(4 * pairs * blocks, np.float32)

    def multiply(acc, shared, a_at, b_at):
        lane = cuda.laneid
        g, t = lane // 4, lane % 4
        rows = 8 * np.arange(strips.a_strips)[:, None] + [g]
        cols = 8 * np.arange(blocks)[:, None] + [2 * t, 2 * t + 1]
        a = factors(shared, a_at, rows, strips.a_along, strips.a_pitch)
        b = factors(shared, b_at, cols, strips.b_along, strips.b_pitch)
        made = np.einsum("srk,bck->sbc", a, b)  # [a's strips, b's strips, 2 columns]
        made = made.reshape(pairs, 2, blocks, 2).transpose(0, 2, 1, 3)
        return acc + made.reshape(-1).astype(np.float32)

    def place():
        return cuda.laneid // 4, cuda.laneid % 4 * 2, runs

    return zero, inlined(multiply), inlined(emulated_store(inlined(place)))


# -------------------------------------------------------------- filling shared memory


class Copy(NamedTuple):
    """How a block's threads copy one tile of an operand into shared memory.

    The tile is `wide` rows of a (or columns of b) and `depth` steps of k. It lies there
    in lines: a line holds one k (or, with `k_fast`, one row) and the next line starts
    `pitch` elements behind it.

    Attributes:
        depth, wide, pitch: see above.
        threads: of the block.
        elements: how many neighbours one instruction copies: 1, or 16 bytes full.
        asynchronous: with `cp.async` (from compute capability 8.0 on).
        k_fast: whether k runs along the lines.
        swizzle: exchange the 16-byte pieces of each line, so that piece p of line r is
            at p ^ r (of r as many bits as there are pieces). Loads of one piece of many
            lines then meet different banks, without a gap between the lines.
    """

    depth: int
    wide: int
    pitch: int
    threads: int
    elements: int
    asynchronous: bool
    k_fast: bool
    swizzle: bool = False

    @property
    def elements_shared(self) -> int:
        """How much shared memory the tile takes."""
        return self.pitch * (self.wide if self.k_fast else self.depth)

    @property
    def strides(self) -> tuple[int, int]:
        """From one row to the next and from one k to the next in shared memory."""
        return (self.pitch, 1) if self.k_fast else (1, self.pitch)


def swizzled(line: Any, k: Any, depth: int) -> Any:
    """Where element k of a line of `depth` float32 lies, with `Copy.swizzle`."""
    return ((k // 4) ^ (line % (depth // 4))) * 4 + k % 4


def inlined(fn: Callable) -> Callable:
    """A function for kernels that becomes a part of each kernel that calls it."""
    if SIMULATED:
        return cuda.jit(device=True)(fn)
    return cuda.jit(device=True, inline="always")(fn)


def _make_thread_index() -> Callable:
    """thread_index(): `cuda.threadIdx.x`, read anew at each call.

    What follows from it can be computed a second time after a long loop. Kept, it would
    take registers away from the loop: the compiler computes equal things only once.
    """
    if SIMULATED:
        return inlined(lambda: cuda.threadIdx.x)

    @intrinsic
    def thread_index(typing):
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.IntType(32)
            index = assembly(builder, "mov.u32 $0, %tid.x;", kind, "=r", [])
            return builder.zext(index, ir.IntType(64))

        return types.int64(), generate

    return thread_index


thread_index = _make_thread_index()


def unit_of(size: int) -> int:
    """From one address to the next: bytes on the chip, elements in the simulator."""
    return 1 if SIMULATED else size


def copier(copy: Copy, size: int) -> Functions:
    """The functions begin, load and load_first, which copy tiles to shared memory.

        start, walk = begin(source, at, stride, step)
        load(shared, to, source, start, walk, wide_left):

            for i in range(wide), k in range(depth):    if i < wide_left:
                shared[to + k * pitch + i] =      (with k_fast: to + i * pitch + k)
                    source[at + i * stride + k * step]

        load_first(shared, to, source, start, walk, wide_left, k_left):

            the same for the first k_left steps, and zeros for the others

    Rows outside of the matrix (from wide_left on) are left alone: what is there makes
    outputs that nobody stores. Steps outside would be a part of every sum. So the first
    tile takes what the others leave over, and only that one has to look at k.

    `start` is the address of this thread's first element. To go on by d elements, add
    d * `unit_of(size)` (`size` bytes an element). All that a copy costs besides the
    copying is then one addition; products of 64-bit numbers would cost more than that.
    """
    elements, pitch, k_fast = copy.elements, copy.pitch, copy.k_fast
    lines, line = (copy.wide, copy.depth) if k_fast else (copy.depth, copy.wide)
    per_line, unit = line // elements, unit_of(size)
    if copy.threads % per_line or (lines * per_line) % copy.threads:
        raise ValueError(f"copier: {copy.threads} threads cannot share {copy} evenly")
    jump = copy.threads // per_line
    swizzle, depth = copy.swizzle, copy.depth
    if swizzle and jump % (depth // 4):
        raise ValueError(f"copier: {copy.threads} threads cannot swizzle {copy}")
    place = inlined(swizzled)
    w_jump, k_jump = (jump, 0) if k_fast else (0, jump)
    to_jump = jump * pitch

    def begin(source, at, stride, step):
        n = int64(cuda.threadIdx.x)
        slow, fast = n // per_line, n % per_line * elements
        w, k = (slow, fast) if k_fast else (fast, slow)
        start = address_of(source, at + w * stride + k * step)
        go = (w_jump * stride + k_jump * step) * unit
        if swizzle:  # the same for all lines of a thread, which are `jump` apart
            fast = place(slow, fast, depth)
        return start, (slow * pitch + fast, go, w, k)

    load, load_first = _make_loads(copy, w_jump, k_jump, to_jump)
    return inlined(begin), load, load_first


def _make_loads(copy: Copy, w_jump: int, k_jump: int, to_jump: int) -> Functions:
    """`load` and `load_first` of `copier`."""
    count = copy.wide * copy.depth // copy.elements // copy.threads
    make = copy_async if copy.asynchronous else copy_now
    move, move_or_clear = make(copy.elements, False), make(copy.elements, True)

    def load(shared, to, source, start, walk, wide_left):
        first, go, w, _ = walk
        for i in range(count):
            inside = w + i * w_jump < wide_left
            move(shared, to + first + i * to_jump, source, start, inside)
            start += go

    def load_first(shared, to, source, start, walk, wide_left, k_left):
        first, go, w, k = walk
        for i in range(count):
            inside = w + i * w_jump < wide_left and k + i * k_jump < k_left
            at = to + first + i * to_jump
            move_or_clear(shared, at, source, start, inside)
            start += go

    return inlined(load), inlined(load_first)


def copy_async(elements: int, clear: bool) -> Callable:
    """move(shared, at, source, address, inside): start to copy `elements` neighbours.

    Where they are not inside, nothing is read, and zeros are stored if `clear`. The
    copy goes past the registers; it has arrived after a `wait` of `fences`.
    """

    def write(builder: Any, to: Any, source: Any, inside: Any, size: int) -> None:
        total = elements * size
        kind = "cg" if total == VECTOR_BYTES else "ca"
        copy = f"cp.async.{kind}.shared.global [$0], [$1], {total}"
        flag = ir.Constant(ir.IntType(32), total)
        flag = builder.select(inside, flag, ir.Constant(ir.IntType(32), 0))
        text = f"{copy}, $2;"
        if not clear:
            text = f"{{ .reg .pred p; setp.ne.b32 p, $2, 0; @p {copy}; }}"
        args = [shared_address(builder, to), source, flag]
        assembly(builder, text, ir.VoidType(), "r,l,r,~{memory}", args)

    return _make_move(elements, clear, write)


def copy_now(elements: int, clear: bool) -> Callable:
    """`copy_async` for chips without it: load into registers, and store."""

    def write(builder: Any, to: Any, source: Any, inside: Any, size: int) -> None:
        with builder.if_else(inside) as (then, otherwise):
            with then:
                _store(builder, _load(builder, source, 0, elements, size), to, size)
            with otherwise:
                if clear:
                    zero = ir.Constant(to.type.pointee, None)
                    _store(builder, [zero] * elements, to, size)

    return _make_move(elements, clear, write)


def _make_move(elements: int, clear: bool, write: Callable) -> Callable:
    if SIMULATED:

        def emulated(shared, at, source, address, inside):
            if inside or clear:
                for e in range(elements):
                    shared[at + e] = source[address + e] if inside else 0

        return emulated

    @intrinsic
    def move(typing, shared, at, source, address, inside):
        sig = types.void(shared, types.int64, source, types.int64, types.boolean)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = context.get_value_type(sig.args[0].dtype)
            to = _pointer(context, builder, sig.args[0], args[0], SHARED)
            to = builder.gep(to, [args[1]])
            source = builder.inttoptr(args[3], ir.PointerType(kind, GLOBAL))
            size = context.get_abi_sizeof(kind)
            write(builder, to, source, _flag(builder, args[4]), size)
            return context.get_dummy_value()

        return sig, generate

    return move


def _make_address_of() -> Callable:
    """address_of(array, i): where element i is, as a number."""
    if SIMULATED:
        return lambda array, i: i

    @intrinsic
    def address_of(typing, array, i):
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = _pointer(context, builder, sig.args[0], args[0], GLOBAL)
            return builder.ptrtoint(builder.gep(base, [args[1]]), ir.IntType(64))

        return types.int64(array, types.int64), generate

    return address_of


address_of = _make_address_of()


def _flag(builder: Any, value: Any) -> Any:
    """A boolean as LLVM's one bit."""
    bit = ir.IntType(1)
    return value if value.type == bit else builder.trunc(value, bit)


def fences(asynchronous: bool, pending: int) -> Functions:
    """close() ends a group of copies; wait() returns when all but the newest `pending`
    groups of this thread have arrived, wait_all() when all have."""
    if SIMULATED or not asynchronous:

        def nothing():
            pass

        return (inlined(nothing),) * 3
    return (
        _make_fence("cp.async.commit_group;"),
        _make_fence(f"cp.async.wait_group {pending};"),
        _make_fence("cp.async.wait_group 0;"),
    )


def arrival(pending: int) -> Callable:
    """arrive(): `wait` of `fences`, for tiles that tensor cores fetch by themselves.

    They reach shared memory on another way (the asynchronous proxy), which sees a
    thread's copies after a fence of that thread and a barrier.
    """
    if SIMULATED:
        return inlined(lambda: None)
    fence = "fence.proxy.async.shared::cta;"
    return _make_fence(f"cp.async.wait_group {pending}; {fence}")


def _make_fence(text: str) -> Callable:
    @intrinsic
    def fence(typing):
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            assembly(builder, text, ir.VoidType(), "~{memory}", [])
            return context.get_dummy_value()

        return types.void(), generate

    return fence


# ------------------------------------- outputs by way of shared memory (for conv_tiles)


def lay_aside(dtype: Any, tile: Tile, pitch: int) -> Callable:
    """lay_aside(dtype, tile, pitch)(g) -> lay(shared, at, acc): group g of the columns.

        for i in range(rows), v in range(V):
            shared[at + row i * pitch + v] = acc[i, g * V + v]

    So the block's part of the outputs lies in shared memory row by row, and any thread
    can carry any of them to where it belongs.
    """
    size = np.dtype(str(dtype)).itemsize
    vector = VECTOR_BYTES // size
    rows, cols = tile.a.rows, tile.b.rows
    count = rows * cols
    offsets = [tile.a.row(i, vector) * pitch for i in range(rows)]

    def lay_group(g: int) -> Callable:
        starts = [i * cols + g * vector for i in range(rows)]
        if SIMULATED:
            return _emulated_lay(offsets, starts, vector)

        @intrinsic
        def lay(typing, shared, at, acc):
            held = types.UniTuple(dtype, count)
            sig = types.void(shared, types.int64, held)

            def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                base = _pointer(context, builder, sig.args[0], args[0], SHARED)
                base = builder.gep(base, [args[1]])
                values = unpack(builder, args[2], count)
                for offset, start in zip(offsets, starts):
                    to = builder.gep(base, [_constant(offset)])
                    _store(builder, values[start : start + vector], to, size)
                return context.get_dummy_value()

            return sig, generate

        return lay

    return lay_group


def _emulated_lay(offsets: list[int], starts: list[int], vector: int) -> Callable:
    def lay(shared, at, acc):
        for offset, start in zip(offsets, starts):
            for v in range(vector):
                shared[at + offset + v] = acc[start + v]

    return inlined(lay)
