"""Products of a warpgroup: 128 threads, one instruction of Hopper's.

With this file one can let four warps multiply what lies in shared memory, in a kernel
of one's own (`wgmma_tile`; `chained` for two products of which one feeds the other):

    first, take, begin, finish, store = wgmma_tile(Group(256, 32, ...))
    acc = first(bias, col, cols)                   # 64 x 256 outputs of 128 threads
    factors = take(shared, a_at)                   # 64 x 32 numbers, or where they are
    acc = begin(acc, factors, shared, b_at)        # the product is under way
    acc = finish(acc)                              # now it is there

`wgmma.mma_async` multiplies 64 x 8 numbers by 8 x 256. The tensor cores fetch them from
shared memory themselves; the first may be in the registers of four warps. It runs while
its threads go on with something else. Only compute capability 9.0 has it (the target
sm_90a).

Source: NVIDIA, "Parallel Thread Execution ISA", asynchronous warpgroup-level matrix
instructions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from cuda_ops.block import llvm, mma
from cuda_ops.block.copies import address_of, line_of, swizzled
from cuda_ops.block.intrinsics import WARP, sync_warp
from cuda_ops.block.llvm import written
from cuda_ops.block.tiles import (
    Functions,
    Run,
    emulated_store,
    inlined,
    make_store,
    make_zero,
    thread_index,
)
from cuda_ops.runtime.launch import SIMULATED, TINY
from cuda_ops.simulator import watch

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

ARCH = (9, 0)
# Rows of outputs that one warp of a group makes, and warps of a group.
WARP_ROWS = 16
WARPS = 1 if TINY else 4
# Numbers of a line in shared memory: 128 bytes.
DEPTH = 8 if TINY else 32

# ---------------------------------------------------------- what a warpgroup multiplies


class Group(NamedTuple):
    """The outputs of a warpgroup, and how their factors lie in shared memory.

    Attributes:
        cols: rows of the second operand, and columns of the group's tile.
        depth: steps of k of one call.
        along: whether the first operand lies along k. That of TF32 goes to registers if
            it does not.
        turned: whether the tile's columns are rows of the matrix that is stored.
        kind: of the factors, as in `mma.Strips`.
        smem_along: whether the second operand lies along k, as it has to but for
            halves.
        wide: whether sums of halves are stored as they are, in float32.
        lines: of the first operand, where rows of `depth` numbers along k are longer
            than a line, and go on behind the last one's.
        fresh: whether sums begin with these products, whatever was there.
    """

    cols: int
    depth: int
    along: bool
    turned: bool
    kind: str = mma.TF32
    smem_along: bool = True
    wide: bool = False
    lines: int = 0
    fresh: bool = False

    @property
    def line(self) -> int:
        """Numbers of a line in shared memory."""
        return DEPTH if self.kind == mma.TF32 else 2 * DEPTH

    @property
    def both(self) -> bool:
        """Whether the first operand stays in shared memory as well."""
        return self.along or self.kind != mma.TF32

    @property
    def sums(self) -> int:
        """How many outputs a lane has."""
        return WARP_ROWS * self.cols // WARP

    @property
    def words(self) -> int:
        """How many words of factors a lane has, four for each instruction."""
        return self.depth // self.strips.step * 4

    @property
    def strips(self) -> mma.Strips:
        """What a warp has, in the words of `mma`: its first operand."""
        along, kind = self.along, self.kind
        return mma.Strips(2, 0, along, False, self.depth, 0, 0, kind, self.wide)


def wgmma_tile(group: Group) -> Functions:
    """The functions first, take, begin, finish and store; see the top of this file.

    `first` gives sums to begin with: the bias of their columns, of which `cols` are
    there, or 0 where `bias` is empty. `shared` has both operands in lines of 128 bytes,
    along k or across it, whose 16-byte vectors are exchanged as `Copy.swizzle` says.
    A lane has of sums, and of factors in registers, what it has for `mma.sync`
    (`mma.mma_tile`), for 16 rows of the tile and all columns. Factors are taken as they
    are, but the last 13 bits of float32 are ignored. `store` rounds sums to halves.
    """
    if SIMULATED:
        return _emulated(group)

    def runs_of(builder: Any) -> tuple[Any, Any, list[Run]]:
        g, pair = mma.first_sum(builder)
        runs = _runs(group)
        return (pair, g, runs) if group.turned else (g, pair, runs)

    return (
        _make_first(group, runs_of),
        inlined(lambda _, at: at) if group.both else _make_take(group),
        _make_begin_both(group) if group.both else _make_begin_words(group),
        _make_finish(group.sums),
        make_store(
            types.float32, group.sums, runs_of, mma.narrower(group.strips.stored)
        ),
    )


def _runs(group: Group) -> list[Run]:
    """What a lane has, relative to its first row and column."""
    runs = []
    for half in range(2):
        for j in range(group.cols // 8):
            place = 4 * j + 2 * half
            if group.turned:
                runs.append(Run(8 * j, 8 * half, (place,)))
                runs.append(Run(8 * j + 1, 8 * half, (place + 1,)))
            else:
                runs.append(Run(8 * half, 8 * j, (place, place + 1)))
    return runs


def _make_first(group: Group, runs_of: Callable) -> Callable:
    acc_type = types.UniTuple(types.float32, group.sums)
    text = (
        "{{ .reg .pred p; setp.gt.s32 p, $2, {0}; mov.f32 $0, 0f00000000; "
        "@p ld.global.nc.f32 $0, [$1 + {1}]; }}"
    )

    @written(lambda bias, *_: acc_type(bias, types.int64, types.int64), llvm.GLOBAL)
    def of_columns(builder: Any, bias: Any, col: Any, cols: Any) -> list[Any]:
        _, mine, runs = runs_of(builder)
        start = builder.gep(bias, [builder.add(col, mine)])
        start = builder.ptrtoint(start, ir.IntType(64))
        left = builder.trunc(builder.sub(cols, mine), ir.IntType(32))
        found, acc = {}, [None] * group.sums
        for run in runs:
            for at, place in enumerate(run.places, run.col):
                if at not in found:
                    line, args = text.format(at, 4 * at), [start, left]
                    found[at] = llvm.assembly(
                        builder, line, ir.FloatType(), "=f,l,r", args
                    )
                acc[place] = found[at]
        return acc

    def first(bias, col, cols):
        # No branch, behind which the assembler would run no product beside another.
        return of_columns(bias, col, cols if bias.size > 0 else 0)

    return inlined(first)


def _make_take(group: Group) -> Callable:
    words_type, line = types.UniTuple(types.uint32, group.words), group.line

    @written(lambda shared, at: words_type(shared, types.int64))
    def load(builder: Any, shared: Any, at: Any) -> list[Any]:
        # 8 rows or 4 k further on, two or four vectors are exchanged.
        ends = [
            builder.gep(shared, [builder.xor(at, llvm.constant(8 * i))])
            for i in range(4)
        ]
        words = [
            llvm.load(builder, end, (k + i // 2 * 4) * line, 1)[0]
            for k in range(0, group.depth, group.strips.step)
            for i, end in enumerate(ends)
        ]
        return [builder.bitcast(word, ir.IntType(32)) for word in words]

    place = inlined(swizzled)

    def take(shared, at):
        row = thread_index() // WARP % WARPS * WARP_ROWS + cuda.laneid // 4
        k = cuda.laneid % 4
        return load(shared, at + k * line + place(k, row, line, 4, line))

    return inlined(take)


def _make_begin_both(group: Group) -> Callable:
    """`begin`, whose first operand stays in shared memory."""

    def signature(acc: Any, left: Any, shared: Any, at: Any) -> Any:
        acc_type = types.UniTuple(types.float32, group.sums)
        return acc_type(acc_type, types.int64, shared, types.int64)

    @written(signature)
    def begin(
        builder: Any, acc: list[Any], left: Any, shared: Any, at: Any
    ) -> list[Any]:
        starts, ends = (
            _descriptors(
                builder,
                llvm.shared_address(builder, builder.gep(shared, [x])),
                group,
                y,
                lines,
            )
            for x, y, lines in (
                (left, group.along, group.lines),
                (at, group.smem_along, group.cols),
            )
        )
        sums = _multiply(builder, acc, starts, ends, group)
        return llvm.unpack(builder, sums, group.sums)

    return begin


def _make_begin_words(group: Group) -> Callable:
    """`begin`, whose first operand is in registers."""
    acc_type = types.UniTuple(types.float32, group.sums)

    @written(lambda acc, words, shared, _: acc_type(acc, words, shared, types.int64))
    def begin(
        builder: Any, acc: list[Any], words: list[Any], shared: Any, at: Any
    ) -> list[Any]:
        address = llvm.shared_address(builder, builder.gep(shared, [at]))
        ends = _descriptors(builder, address, group, group.smem_along)
        sums = _multiply(builder, acc, words, ends, group)
        return llvm.unpack(builder, sums, group.sums)

    return begin


# A descriptor tells the tensor cores where a matrix of 8-row groups of 128-byte lines
# starts (in 16 bytes), how far the groups are apart, and that lines are swizzled. Of
# lines across k, 64 of which are a part, also how far the parts are apart.
LINE_BYTES = 128
GROUP_BYTES = 8 * LINE_BYTES
SWIZZLED_128 = 1 << 62
DESCRIPTOR = SWIZZLED_128 | GROUP_BYTES >> 4 << 32


def _descriptors(
    builder: Any, address: Any, group: Group, along: bool, lines: int = 0
) -> list[Any]:
    """For each instruction a descriptor of shared memory: 32 bytes further along k, and
    `lines` lines where one ends, or 16 lines of halves across k."""
    long = ir.IntType(64)
    start = builder.zext(builder.lshr(address, ir.Constant(ir.IntType(32), 4)), long)
    apart = 1 if along else group.depth * LINE_BYTES >> 4
    first = builder.or_(start, ir.Constant(long, DESCRIPTOR | apart << 16))
    steps = [
        i // 4 * lines * LINE_BYTES + i % 4 * 32
        if along
        else i * group.strips.step * LINE_BYTES
        for i in range(group.words // 4)
    ]
    return [builder.add(first, ir.Constant(long, step >> 4)) for step in steps]


def _multiply(
    builder: Any, acc: list[Any], factors: list[Any], ends: list[Any], group: Group
) -> Any:
    """acc += registers x shared memory, under way: the instructions are one text."""
    count, number = group.sums, ir.FloatType()
    sums = ", ".join(f"${i}" for i in range(count))
    lines = [".reg .pred p, q;", "setp.eq.u32 p, 0, 0;"]
    lines.append(f"setp.{'ne' if group.fresh else 'eq'}.u32 q, 0, 0;")
    lines.append("wgmma.fence.sync.aligned;")
    in_smem = factors[0].type.width == 64  # a descriptor
    shape = f"m64n{group.cols}k{group.strips.step}"
    # Of halves, an operand in shared memory may be turned.
    turns = () if group.kind == mma.TF32 else (
        *(group.along,) * in_smem, group.smem_along,
    )  # fmt: skip
    end = ", ".join(["1, 1", *(str(int(not along)) for along in turns)])
    each = len(factors) // len(ends)
    for step in range(len(ends)):
        first = count + each * step
        words = ", ".join(f"${first + i}" for i in range(each))
        left = words if in_smem else f"{{{words}}}"
        lines.append(
            f"wgmma.mma_async.sync.aligned.{shape}.f32.{group.kind}.{group.kind} "
            f"{{{sums}}}, {left}, ${count + len(factors) + step}, "
            f"{'p' if step else 'q'}, {end};"
        )
    lines.append("wgmma.commit_group.sync.aligned;")
    kind_of = "l" if in_smem else "r"
    places = ["=f"] * count + [kind_of] * len(factors) + ["l"] * len(ends)
    acc = [] if group.fresh else acc
    places += [str(i) for i in range(len(acc))] + ["~{memory}"]
    text = "{ " + " ".join(lines) + " }"
    kind = ir.LiteralStructType([number] * count)
    args = [*factors, *ends, *acc]
    return llvm.assembly(builder, text, kind, ",".join(places), args)


def sums_of(group: Group) -> Functions:
    """The functions zero() and plus(acc, others) -> acc, of a group's sums."""
    if SIMULATED:
        zero = inlined(lambda: np.zeros(group.sums, np.float32))
        return zero, inlined(lambda acc, others: acc + others)
    acc_type = types.UniTuple(types.float32, group.sums)

    @written(lambda acc, others: acc_type(acc_type, acc_type))
    def plus(builder: Any, acc: list[Any], others: list[Any]) -> list[Any]:
        return [builder.fadd(x, y) for x, y in zip(acc, others)]

    return make_zero(types.float32, group.sums), plus


def make_wait(pending: int) -> Callable:
    """wait(): until all products of this warpgroup but the last `pending` are done."""
    return line_of(f"wgmma.wait_group.sync.aligned {pending};")


def _make_finish(count: int, pending: int = 0, others: int = 0) -> Callable:
    """finish(acc) -> acc: the sums of all products but the last `pending`.

    With `others` finish(acc, x) -> acc, when so many x have been computed, of which the
    first two are not below 0. The assembler moves the wait to before what nobody asks
    for so early, and the tensor cores have nothing to do during that. It moves nothing
    across a trap, which would spring on either below 0. Lanes vote on it: of a branch
    that only some may take, the assembler makes a reason to let each product wait.
    """
    acc_type, x_type = (types.UniTuple(types.float32, n) for n in (count, others))
    tests = [
        f"setp.lt.or.f32 p, ${count + i}, 0f00000000, p;" for i in range(min(others, 2))
    ]
    if others:
        tests = ["setp.ne.u32 p, 0, 0;", *tests, "vote.sync.any.pred p, p, -1;"]
        tests.append("@p trap;")
    wait = f"wgmma.wait_group.sync.aligned {pending};"
    text = " ".join(["{ .reg .pred p;", *tests, wait, "}"])

    def waited(builder: Any, acc: list[Any], x: list[Any]) -> list[Any]:
        # The sums pass through the wait: nobody reads them before it.
        places = ["=f"] * count + ["f"] * others + [str(i) for i in range(count)]
        kind = ir.LiteralStructType([ir.FloatType()] * count)
        ends = ",".join([*places, "~{memory}"])
        sums = llvm.assembly(builder, text, kind, ends, [*x, *acc])
        return llvm.unpack(builder, sums, count)

    if others:
        return written(lambda acc, x: acc_type(acc_type, x_type))(waited)
    return written(lambda acc: acc_type(acc_type))(
        lambda builder, acc: waited(builder, acc, [])
    )


def line_place(group: Group) -> Callable:
    """place(row, k, along, lines): where an operand's number lies in shared memory.

    It is in lines along k, of which there are `lines`, or across k.
    """
    line, vector = group.line, group.strips.vector

    def place(row: Any, k: Any, along: bool, lines: int) -> Any:
        at, i, lines = (row, k, lines) if along else (k, row, group.depth)
        return at * line + swizzled(at, i, line, vector, lines)

    return place


def _emulated(group: Group) -> Functions:
    """A warp of 16 rows stands for the group of four."""
    runs = _runs(group)

    def first(bias, col, cols):
        acc, (_, mine, _) = np.zeros(group.sums, np.float32), place()
        for run in runs:
            for at, i in enumerate(run.places, run.col + mine):
                if at < cols and bias.size:
                    acc[i] = watch.read(bias, col + at, 1, sys._getframe())[0]
        return acc

    in_parts, k = line_place(group), np.arange(group.depth)

    @cache
    def left(lane, warp):
        rows = np.asarray([lane // 4, lane // 4 + 8])[:, None] + warp * WARP_ROWS
        return in_parts(rows, k, group.along, group.lines)

    @cache
    def right(pair):
        cols = 8 * np.arange(group.cols // 8)[:, None] + [2 * pair, 2 * pair + 1]
        return in_parts(cols.reshape(-1, 1), k, group.smem_along, group.cols)

    def take(shared, at):
        places = at + left(cuda.laneid, thread_index() // WARP % WARPS)
        watch.note_fetches(shared, places)
        return mma.factors_of(np.asarray(shared)[places], group.kind)  # [2, k]

    def begin(acc, factors, shared, at):
        places = at + right(cuda.laneid % 4)
        watch.note_fetches(shared, places)
        others = np.asarray(shared)[places]  # [cols / 4, k]
        if group.kind == mma.TF32:
            others = mma.cut_tf32(others)
        else:
            others = mma.factors_of(others, group.kind)
        sums = (others @ factors.T).reshape(-1, 2, 2).swapaxes(1, 2)  # [cols / 8, 2, 2]
        sums = sums.reshape(-1).astype(np.float32)
        return sums if group.fresh else acc + sums

    def place():
        g, pair = cuda.laneid // 4, cuda.laneid % 4 * 2
        return (pair, g, runs) if group.turned else (g, pair, runs)

    def finish(acc):
        return acc

    put = emulated_store(inlined(place))

    def store(out, at, stride, acc, rows, cols, aligned):
        put(
            out, at, stride, mma.narrowed(acc, group.strips.stored), rows, cols, aligned
        )

    return tuple([inlined(fn) for fn in (first, take, begin, finish, store)])


# ------------------------------------------------- outputs by way of shared memory

# As halves are in registers, four lanes have 16 neighbouring bytes, half of a sector,
# and a store of a warp goes to 8 of them. So they go to memory in lines of a warp.


# Of a line, as many numbers at a time as there is room for beside a ring of tiles;
# 16 bytes more, and the words of a store meet all 32 banks.
LINE_PART = 16 if TINY else 64
LINE_PITCH = LINE_PART + 8
# Numbers of shared memory for a warp's lines.
LINE_ROOM = WARP_ROWS * LINE_PITCH


def line_storer(group: Group) -> Callable:
    """put(shared, at, out, acc, matrix, row, col, sizes): a warp's rows, in lines.

    Each warp lays a part of its 16 rows of halves down in shared memory, and takes them
    up in vectors of 16 bytes. Lines of `out` are whole vectors.
    """
    put = _line_part(group, 0)
    for start in range(LINE_PART, group.cols, LINE_PART):
        put = _then(put, _line_part(group, start))
    return put


def _then(first: Callable, second: Callable) -> Callable:
    def both(shared, at, out, acc, matrix, row, col, sizes):
        first(shared, at, out, acc, matrix, row, col, sizes)
        second(shared, at, out, acc, matrix, row, col, sizes)

    return inlined(both)


def _line_part(group: Group, start: int) -> Callable:
    """`line_storer` for the columns from `start` on."""
    vector, pitch = group.strips.vector, LINE_PITCH
    across = LINE_PART // vector
    at_once = WARP // across
    rounds = WARP_ROWS // at_once
    runs = [run._replace(col=run.col - start) for run in _runs(group)]
    runs = [run for run in runs if 0 <= run.col < LINE_PART]
    lay, carry = _make_lay(group, runs, pitch), _make_carry(vector)

    def put(shared, at, out, acc, matrix, row, col, sizes):
        M, N = sizes[0], sizes[1]
        lay(shared, at, acc)
        sync_warp()
        line, place = cuda.laneid // across, cuda.laneid % across * vector
        left = M - row - line if col + start + place < N else 0
        to = (matrix * M + row + line) * N + col + start + place
        at += line * pitch + place
        for i in range(rounds):
            if i * at_once < left:
                carry(shared, at + i * at_once * pitch, out, address_of(out, to))
            to += at_once * N
        sync_warp()

    return inlined(put)


def _make_lay(group: Group, runs: list[Run], pitch: int) -> Callable:
    """lay(shared, at, acc): outputs of a lane, rounded to halves, two in a store."""
    if SIMULATED:

        def emulated(shared, at, acc):
            g, pair = cuda.laneid // 4, cuda.laneid % 4 * 2
            halves = mma.narrowed(acc, group.kind)
            for run in runs:
                first = at + (g + run.row) * pitch + pair + run.col
                values = [halves[i] for i in run.places]
                watch.write(shared, first, values, sys._getframe())

        return inlined(emulated)
    acc_type = types.UniTuple(types.float32, group.sums)
    narrow = mma.narrower(group.kind)
    assert narrow is not None  # of halves

    @written(lambda shared, at, acc: types.void(shared, types.int64, acc_type))
    def lay(builder: Any, shared: Any, at: Any, acc: list[Any]) -> None:
        g, pair = mma.first_sum(builder)
        first = builder.add(builder.mul(g, llvm.constant(pitch)), pair)
        base = builder.gep(shared, [builder.add(at, first)])
        for run in runs:
            to = builder.gep(base, [llvm.constant(run.row * pitch + run.col)])
            llvm.store(builder, narrow(builder, [acc[i] for i in run.places]), to)

    return lay


def _make_carry(vector: int) -> Callable:
    """carry(shared, at, out, address): 16 bytes from shared memory to an address."""
    if SIMULATED:

        def emulated(shared, at, out, address):
            values = watch.read(shared, at, vector, sys._getframe())
            watch.write(out, address, values, sys._getframe())

        return inlined(emulated)

    @written(
        lambda shared, at, out, _: types.void(shared, types.int64, out, types.int64)
    )
    def carry(builder: Any, shared: Any, at: Any, out: Any, address: Any) -> None:
        word = ir.IntType(32)
        start = builder.gep(shared, [at])
        start = builder.bitcast(start, ir.PointerType(word, llvm.SHARED))
        to = builder.inttoptr(address, ir.PointerType(word, llvm.GLOBAL))
        llvm.store(builder, llvm.load(builder, start, 0, 4), to)

    return carry


# --------------------------------- two products, one after the other (for attention)


def chained(scores: Group, sums: Group, pending: int = 1, others: int = 2) -> Functions:
    """Products of halves, of which one's outputs are the other's first operand.

        s = begin_scores(none, left, shared, at)       `begin` of a group with `both`
        words = rounded(p)                             p, as many as s, in halves
        acc = begin_sums(acc, words, shared, at)       acc += p @ lines across k
        s = first_done(s)                     all but the newest `pending` are done
        s, acc = all_scores(s), all_sums(acc)          all are done
        acc = sums_behind(acc, x)                      `_make_finish`; `others` x

    A lane has of 16 columns of scores what it should have of 16 k of a factor, but in
    float32. No product may be under way while they are rounded, or the assembler makes
    each wait for the one before.
    """
    _, _, begin_scores, *_ = wgmma_tile(scores)
    if SIMULATED:
        same, of_s = inlined(lambda acc: acc), scores.cols // 8
        strips = mma.Strips(2, of_s, True, True, 0, 0, 0, sums.kind)
        place_of = line_place(sums)
        begin_sums = mma.emulated_of_sums(
            strips, sums.cols // 8, lambda k, col: place_of(col, k, False, 0)
        )
        done = same, same, same, inlined(lambda acc, x: acc)
        return begin_scores, same, begin_sums, *done
    return (
        begin_scores,
        _make_rounded(scores),
        _make_begin_words(sums),
        _make_finish(scores.sums, pending),
        _make_finish(scores.sums),
        _make_finish(sums.sums),
        _make_finish(sums.sums, 0, others),
    )


def _make_rounded(scores: Group) -> Callable:
    words_type = types.UniTuple(types.uint32, scores.sums // 2)

    @written(lambda p: words_type(p))
    def rounded(builder: Any, p: list[Any]) -> list[Any]:
        # Lines with effects stay in their place, before the next product.
        text, word = f"cvt.rn.{scores.kind}x2.f32 $0, $1, $2;", ir.IntType(32)
        return [
            llvm.assembly(builder, text, word, "=r,f,f", [p[i + 1], p[i]])
            for i in range(0, len(p), 2)
        ]

    return rounded
