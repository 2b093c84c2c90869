"""Tiles of numbers in registers, and what matrix products do with them.

With this file a kernel can keep a block of outputs in registers as one tuple, and feed
it from shared memory:

    zero, multiply, store, put_aside, add_aside = fma_tile(float32, Tile(a, b, 16))
    acc = zero()                                   # a tuple of rows * cols numbers
    acc = multiply(acc, shared, a_at, b_at)        # acc += a's columns x b's rows
    store(out, at, row_stride, acc, rows_left, cols_left, aligned)

`fma_tile` multiplies with the ordinary units, `mma.py` with the tensor cores, and
`copies.py` fills shared memory while others compute.

Why not loops over a local array? Registers have no addresses: an array lives in them
only if each index is a number when the kernel is compiled, so every loop around it has
to be unrolled, which the compiler does for short ones only. The functions here are
unrolled when they are made: each is a template whose loops run in Python, and leave one
instruction behind for each step (`llvm.py`). They read as the loops they stand for in
the emulation below each of them, which is what the simulator runs.

All indices count elements; none is checked or wrapped around.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block import llvm
from cuda_ops.block.llvm import GLOBAL, constant, written
from cuda_ops.simulator import SIMULATED, watch

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

watch.STAND_INS.add(__name__)
# Bytes of the widest load of one thread.
VECTOR_BYTES = 16


class Side(NamedTuple):
    """One operand of a thread's tile: which rows (of b: columns), and where they lie.

    In shared memory the operand lies along k, as [row, k], or across k, as [k, row].
    V numbers are 16 bytes, the most that one load fetches. Across k, a load fetches V
    rows, and so a thread has groups of V neighbouring rows, one group `stride` rows
    behind the other. Along k, a load fetches V steps of k of one row, and a thread's
    rows are `stride` apart. Either way, neighbours in a warp read neighbouring vectors.

    Attributes:
        rows: how many the thread has.
        stride: see above.
        pitch: elements from one row (along k) or one k (across) to the next.
        along: whether the operand lies along k.
    """

    rows: int
    stride: int
    pitch: int
    along: bool

    def row(self, i: int, vector: int) -> int:
        """The thread's row number i, counted from its first."""
        if self.along:
            return i * self.stride
        return i // vector * self.stride + i % vector

    def place(self, i: int, k: int, vector: int) -> int:
        """Where element (row number i, k) lies."""
        row = self.row(i, vector)
        return row * self.pitch + k if self.along else k * self.pitch + row


class Tile(NamedTuple):
    """What a thread multiplies in one call: both operands, and the steps of k."""

    a: Side
    b: Side
    depth: int


Functions = tuple[Callable, ...]


def inlined(fn: Callable) -> Callable:
    """A function for kernels that becomes a part of each kernel that calls it."""
    if SIMULATED:
        return fn  # Numba's stand-in would take as long as what it calls
    return cuda.jit(device=True, inline="always")(fn)


def _make_thread_index() -> Callable:
    """thread_index(): `cuda.threadIdx.x`, read anew at each call.

    What follows from it can be computed a second time after a long loop. Kept, it would
    take registers away from the loop: the compiler computes equal things only once.
    """
    if SIMULATED:
        return inlined(lambda: cuda.threadIdx.x)

    @written(lambda: types.int64())
    def thread_index(builder: Any) -> Any:
        kind = ir.IntType(32)
        index = llvm.assembly(builder, "mov.u32 $0, %tid.x;", kind, "=r", [])
        return builder.zext(index, ir.IntType(64))

    return thread_index


thread_index = _make_thread_index()


def _make_quotient() -> Callable:
    """quotient(x, y): x // y for 0 <= x < 2 ** 32 and 0 < y < 2 ** 32.

    A division of 64-bit numbers takes a branch and three times as long.
    """
    if SIMULATED:
        return inlined(lambda x, y: x // y)

    @written(lambda x, y: types.int64(types.int64, types.int64))
    def quotient(builder: Any, x: Any, y: Any) -> Any:
        short = [builder.trunc(n, ir.IntType(32)) for n in (x, y)]
        return builder.zext(builder.udiv(*short), ir.IntType(64))

    return quotient


quotient = _make_quotient()

# ------------------------------------------------------------- storing, for all tiles


class Run(NamedTuple):
    """Neighbouring outputs of a thread: one store, if the address allows.

    `places` are those of the outputs in the tuple.
    """

    row: int
    col: int
    places: tuple[int, ...]


def _store_runs(
    builder: Any, runs: list[Run], out: Any, stride: Any, values: list[Any], rows: Any,
    cols: Any, aligned: Any,
) -> None:  # fmt: skip
    """Store all of a thread's outputs: at once, or each if it is inside the matrix."""

    def at(run: Run, i: int) -> Any:
        row = builder.mul(stride, constant(run.row))
        return builder.gep(out, [builder.add(row, constant(run.col + i))])

    last_row = max(run.row for run in runs)
    last_col = max(run.col + len(run.places) - 1 for run in runs)
    whole = builder.and_(
        builder.icmp_signed(">", rows, constant(last_row)),
        builder.icmp_signed(">", cols, constant(last_col)),
    )
    with builder.if_else(builder.and_(whole, aligned)) as (then, otherwise):
        with then:
            for run in runs:
                llvm.store(builder, [values[i] for i in run.places], at(run, 0))
        with otherwise:
            for run in runs:
                row_inside = builder.icmp_signed(">", rows, constant(run.row))
                for i, place in enumerate(run.places):
                    col_inside = builder.icmp_signed(">", cols, constant(run.col + i))
                    with builder.if_then(builder.and_(row_inside, col_inside)):
                        builder.store(values[place], at(run, i))


def make_store(
    kind: Any, count: int, runs_of: Callable, narrow: Callable | None = None
) -> Callable:
    """The `store` function of a tile; `runs_of(builder)` -> (first row, col, runs).

    `narrow(builder, acc)` makes of the outputs what is stored.
    """

    def signature(out: Any, at: Any, stride: Any, acc: Any, *_: Any) -> Any:
        long, tile = types.int64, types.UniTuple(kind, count)
        return types.void(out, long, long, tile, long, long, types.boolean)

    @written(signature, GLOBAL)
    def store(
        builder: Any, out: Any, first: Any, stride: Any, acc: list[Any], rows: Any,
        cols: Any, aligned: Any,
    ) -> None:  # fmt: skip
        row, col, runs = runs_of(builder)
        acc = narrow(builder, acc) if narrow else acc
        first = builder.add(first, builder.add(builder.mul(row, stride), col))
        out = builder.gep(out, [first])
        rows, cols = builder.sub(rows, row), builder.sub(cols, col)
        _store_runs(builder, runs, out, stride, acc, rows, cols, aligned)

    return store


def make_zero(kind: Any, count: int) -> Callable:
    @written(lambda: types.UniTuple(kind, count)())
    def zero(builder: Any) -> Any:
        number = ir.FloatType() if kind == types.float32 else ir.DoubleType()
        if isinstance(kind, types.Integer):
            number = ir.IntType(kind.bitwidth)
        return ir.Constant(ir.ArrayType(number, count), None)

    return zero


def emulated_store(runs_of_thread: Callable) -> Callable:
    def store(out, at, stride, acc, rows, cols, aligned):
        first_row, first_col, runs = runs_of_thread()
        last = max(run.col + len(run.places) for run in runs)
        whole = first_col + last <= cols
        whole = whole and first_row + max(run.row for run in runs) < rows
        for run in runs:
            row, col = first_row + run.row, first_col + run.col
            first, values = at + row * stride + col, [acc[p] for p in run.places]
            if whole and aligned:
                watch.write(out, first, values, sys._getframe())
                continue
            for i, value in enumerate(values):
                if row < rows and col + i < cols:
                    out[first + i] = value

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
    vector = VECTOR_BYTES // np.dtype(str(dtype)).itemsize
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
    if SIMULATED:
        store = emulated_store(lambda: (0, 0, runs))
        return *_emulated_fma(dtype, tile, vector), store, *_emulated_aside(vector)
    count, first = tile.a.rows * tile.b.rows, constant(0)
    return (
        make_zero(dtype, count),
        _make_fma(dtype, tile, vector),
        make_store(dtype, count, lambda _: (first, first, runs)),
        *_make_aside(dtype, count, vector),
    )


Block = list[list[Any]]  # numbers of a thread as [step of k, row]


def _make_fma(dtype: Any, tile: Tile, vector: int) -> Callable:
    acc_type = types.UniTuple(dtype, tile.a.rows * tile.b.rows)

    def signature(acc: Any, shared: Any, a_at: Any, b_at: Any) -> Any:
        return acc_type(acc_type, shared, types.int64, types.int64)

    @written(signature)
    def multiply(
        builder: Any, acc: list[Any], shared: Any, a_at: Any, b_at: Any
    ) -> list[Any]:
        a, b = builder.gep(shared, [a_at]), builder.gep(shared, [b_at])
        # Along k, one load brings `vector` steps; across k, one step is enough.
        stride = vector if tile.a.along or tile.b.along else 1
        for k in range(0, tile.depth, stride):
            _multiply_steps(builder, acc, tile, a, b, range(k, k + stride), vector)
        return acc

    return multiply


def _multiply_steps(
    builder: Any, acc: list[Any], tile: Tile, a: Any, b: Any, steps: range, vector: int
) -> None:
    """acc += the products of some steps of k.

    One side is fetched for all steps and stays in registers: one that lies along k, and
    of two, the smaller. The other is used as it comes, step by step, or row by row if
    it lies along k as well.
    """
    keep_b = tile.b.along and not (tile.a.along and tile.a.rows < tile.b.rows)
    keep, pass_by = ((b, tile.b), (a, tile.a)) if keep_b else ((a, tile.a), (b, tile.b))
    kept = _fetch(builder, *keep, range(keep[1].rows), steps, vector)
    all_rows = range(pass_by[1].rows)
    if pass_by[1].along:
        parts = [(range(i, i + 1), steps) for i in all_rows]
    else:
        parts = [(all_rows, range(k, k + 1)) for k in steps]
    for rows, some in parts:
        passing = _fetch(builder, *pass_by, rows, some, vector)
        for k in some:
            for i in rows:
                x = passing[k - some.start][i - rows.start]
                for j, y in enumerate(kept[k - steps.start]):
                    place = i * tile.b.rows + j if keep_b else j * tile.b.rows + i
                    acc[place] = llvm.multiply_add(builder, x, y, acc[place])


def _fetch(
    builder: Any, pointer: Any, side: Side, rows: range, steps: range, vector: int
) -> Block:
    """Some rows' numbers for some steps of k, in 16-byte loads."""
    if side.along:
        loaded = [
            llvm.load(builder, pointer, side.place(i, steps.start, vector), vector)
            for i in rows
        ]
        return [[row[e] for row in loaded] for e in range(len(steps))]
    block: Block = []
    for k in steps:
        block.append([])
        for i in range(rows.start, rows.stop, vector):
            block[-1] += llvm.load(builder, pointer, side.place(i, k, vector), vector)
    return block


def _emulated_fma(dtype: Any, tile: Tile, vector: int) -> Functions:
    def places(side: Side) -> np.ndarray:  # [step of k, row]
        return np.array(
            [
                [side.place(i, k, vector) for i in range(side.rows)]
                for k in range(tile.depth)
            ]
        )

    def loads(side: Side) -> np.ndarray:  # the first number of each, see `_fetch`
        skip_k, skip_row = (vector, 1) if side.along else (1, vector)
        return places(side)[::skip_k, ::skip_row].reshape(-1)

    a_places, b_places = places(tile.a), places(tile.b)
    a_loads, b_loads = loads(tile.a), loads(tile.b)

    def zero():
        return np.zeros(tile.a.rows * tile.b.rows, str(dtype))

    def multiply(acc, shared, a_at, b_at):
        watch.note_reads(shared, a_at + a_loads, vector)
        watch.note_reads(shared, b_at + b_loads, vector)
        values = np.asarray(shared)
        acc = acc.reshape(tile.a.rows, tile.b.rows)
        for left, right in zip(values[a_at + a_places], values[b_at + b_places]):
            acc = acc + left[:, None] * right[None, :]
        return acc.reshape(-1)

    return zero, multiply


def _make_aside(dtype: Any, count: int, vector: int) -> Functions:
    """`put_aside` and `add_aside`: the vectors of acc, `stride` elements apart."""
    long, acc_type = types.int64, types.UniTuple(dtype, count)

    def vectors(builder: Any, shared: Any, at: Any, stride: Any) -> Any:
        for v in range(count // vector):
            offset = builder.mul(stride, constant(v))
            yield v * vector, builder.gep(shared, [builder.add(at, offset)])

    @written(lambda shared, *_: types.void(shared, long, long, acc_type))
    def put_aside(builder: Any, shared: Any, at: Any, stride: Any, acc: Any) -> None:
        for i, place in vectors(builder, shared, at, stride):
            llvm.store(builder, acc[i : i + vector], place)

    @written(lambda shared, *_: acc_type(shared, long, long, acc_type))
    def add_aside(builder: Any, shared: Any, at: Any, stride: Any, acc: Any) -> Any:
        plus = builder.add if isinstance(acc[0].type, ir.IntType) else builder.fadd
        for first, place in vectors(builder, shared, at, stride):
            for i, x in enumerate(llvm.load(builder, place, 0, vector), first):
                acc[i] = plus(acc[i], x)
        return acc

    return put_aside, add_aside


def _emulated_aside(vector: int) -> Functions:
    def put_aside(shared, at, stride, acc):
        for i in range(0, len(acc), vector):
            to = at + i // vector * stride
            watch.write(shared, to, acc[i : i + vector], sys._getframe())

    def add_aside(shared, at, stride, acc):
        firsts = range(at, at + len(acc) // vector * stride, stride)
        watch.note_reads(shared, firsts, vector)
        places = [at + i // vector * stride + i % vector for i in range(len(acc))]
        return acc + np.asarray(shared)[places]

    return put_aside, add_aside


# ------------------------------------- outputs by way of shared memory (for conv.tiles)


def lay_aside(dtype: Any, tile: Tile, pitch: int) -> Callable:
    """lay_aside(dtype, tile, pitch)(g) -> lay(shared, at, acc): group g of the columns.

        for i in range(rows), v in range(V):
            shared[at + row i * pitch + v] = acc[i, g * V + v]

    So the block's part of the outputs lies in shared memory row by row, and any thread
    can carry any of them to where it belongs.
    """
    vector = VECTOR_BYTES // np.dtype(str(dtype)).itemsize
    rows, cols = tile.a.rows, tile.b.rows
    offsets = [tile.a.row(i, vector) * pitch for i in range(rows)]

    def lay_group(g: int) -> Callable:
        starts = [i * cols + g * vector for i in range(rows)]
        if SIMULATED:

            def emulated(shared, at, acc):
                for offset, start in zip(offsets, starts):
                    values = acc[start : start + vector]
                    watch.write(shared, at + offset, values, sys._getframe())

            return inlined(emulated)
        acc_type = types.UniTuple(dtype, rows * cols)

        @written(lambda shared, at, acc: types.void(shared, types.int64, acc_type))
        def lay(builder: Any, shared: Any, at: Any, acc: list[Any]) -> None:
            base = builder.gep(shared, [at])
            for offset, start in zip(offsets, starts):
                to = builder.gep(base, [constant(offset)])
                llvm.store(builder, acc[start : start + vector], to)

        return lay

    return lay_group
