"""Matrix products of a warpgroup: 128 threads, one instruction of Hopper's.

With this file one can get the kernel `matmul_warpgroup` for one way to cut a product
(`warpgroup`), and the functions that it is made of:

    first, take, begin, finish, store = wgmma_tile(Group(256, 32, ...))
    acc = first(bias, col, cols)                   # 64 x 256 outputs of 128 threads
    factors = take(shared, reg_at)                # 64 x 32 numbers into registers
    acc = begin(acc, factors, shared, smem_at)     # the product is under way
    acc = finish(acc)                              # now it is there

`wgmma.mma_async` multiplies 64 x 8 numbers by 8 x 256. The first are in the registers
of four warps, the second in shared memory, where the tensor cores fetch them
themselves. It runs while its threads go on with something else.

Only compute capability 9.0 has it (the target sm_90a); `matmul.py` takes
`matmul_tensor_core` elsewhere.

Source: NVIDIA, "Parallel Thread Execution ISA", asynchronous warpgroup-level matrix
instructions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, uint16

from cuda_ops.block import llvm, mma
from cuda_ops.block.copies import Copy, address_of, arrival, swizzled
from cuda_ops.block.intrinsics import WARP, load4, store4, sync_warp, to_tf32
from cuda_ops.block.llvm import written
from cuda_ops.block.tiles import (
    Functions,
    Run,
    emulated_store,
    inlined,
    make_store,
    thread_index,
)
from cuda_ops.matmul.kernels import (
    EXAMPLE,
    Layout,
    pitch_of,
    ring_elements,
    ring_of,
    tile_storer,
)
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, kernel
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
    """The outputs of a warpgroup, and where the factors for its registers come from.

    Attributes:
        cols: rows of the operand that stays in shared memory, and columns of the
            group's tile.
        depth: steps of k of one call.
        along, pitch: of the operand that goes to registers, as in `mma.Strips`.
        turned: whether the tile's columns are rows of the matrix that is stored.
        kind: of the factors, as in `mma.Strips`.
        smem_along: whether the operand in shared memory lies along k, as it has to but
            for halves.
        wide: whether sums of halves are stored as they are, in float32.
        lines: of the operand in registers, where that of halves stays in shared memory:
            rows of `depth` numbers along k are longer than a line there, and go on
            behind the last one's.
        fresh: whether sums begin with these products, whatever was there.
    """

    cols: int
    depth: int
    along: bool
    pitch: int
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
        """Whether the other operand, of halves, stays in shared memory as well, and the
        next product starts before this one is done."""
        return self.kind != mma.TF32

    @property
    def sums(self) -> int:
        """How many outputs a lane has."""
        return WARP_ROWS * self.cols // WARP

    @property
    def stored(self) -> str:
        """What is stored, in the words of `kind`: TF32 for float32."""
        return mma.TF32 if self.wide else self.kind

    @property
    def words(self) -> int:
        """How many words of factors a lane has, four for each instruction."""
        return self.depth // self.strips.step * 4

    @property
    def strips(self) -> mma.Strips:
        """What a warp has, in the words of `mma`: its first operand."""
        along, pitch = self.along, self.pitch
        return mma.Strips(2, 0, along, False, self.depth, pitch, 0, self.kind)


def wgmma_tile(group: Group) -> Functions:
    """The functions first, take, begin, finish and store; see the top of this file.

    `first` gives sums to begin with: the bias of their columns, of which `cols` are
    there, or 0 where `bias` is empty. `begin` rounds to TF32 what is in registers; of
    what is in shared memory, the last 13 bits are ignored. A lane has of both what it
    has for `mma.sync` (`mma.mma_tile`), for 16 rows of the tile and all columns.
    `shared`, at `smem_at`, has lines of 32 numbers along k, whose 16-byte vectors are
    exchanged as `Copy.swizzle` says. Halves, 64 in a line, are taken as they are, and
    `store` rounds the sums to them. Their lines may lie across k, too.
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
        _make_begin_both(group) if group.both else _make_begin(group),
        _make_finish(group.sums),
        make_store(types.float32, group.sums, runs_of, mma.narrower(group.stored)),
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
    words_type = types.UniTuple(types.uint32, group.words)

    @written(lambda shared, at: words_type(shared, types.int64))
    def take(builder: Any, shared: Any, at: Any) -> list[Any]:
        lane, strips = llvm.read_lane(builder), group.strips
        end = mma.fragment_base(builder, shared, at, lane, strips, True)
        words: list[Any] = []
        for k in range(0, group.depth, strips.step):
            words += mma.fragments(builder, (end, None), strips, k)[0]
        return [builder.bitcast(word, ir.IntType(32)) for word in words]

    return take


def _make_begin(group: Group) -> Callable:
    def signature(acc: Any, factors: Any, shared: Any, at: Any) -> Any:
        acc_type = types.UniTuple(types.float32, group.sums)
        words = types.UniTuple(types.uint32, group.words)
        return acc_type(acc_type, words, shared, types.int64)

    @written(signature)
    def begin(
        builder: Any, acc: list[Any], factors: list[Any], shared: Any, at: Any
    ) -> list[Any]:
        address = llvm.shared_address(builder, builder.gep(shared, [at]))
        # Rounded here and not in `take`: where the assembler sees a factor made while
        # a product is under way, it waits after each. Loading is no matter.
        factors = [mma.rounded(builder, word) for word in factors]
        ends = _descriptors(builder, address, group, True)
        sums = _multiply(builder, acc, factors, ends, group)
        return llvm.unpack(builder, sums, group.sums)

    return begin


def _make_begin_both(group: Group) -> Callable:
    """`begin`, whose factors are where those of the other operand are."""

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
    turns = (group.along,) * in_smem + (group.smem_along,) * (group.kind != mma.TF32)
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


def _make_wait(pending: int) -> Callable:
    """wait(): until all products of this warpgroup but the last `pending` are done."""
    if SIMULATED:
        return inlined(lambda: None)
    text = f"wgmma.wait_group.sync.aligned {pending};"

    @written(lambda: types.void())
    def wait(builder: Any) -> None:
        llvm.assembly(builder, text, ir.VoidType(), "~{memory}", [])

    return wait


def _make_finish(count: int, pending: int = 0, others: int = 0) -> Callable:
    """finish(acc) -> acc: the sums of all products but the last `pending`.

    With `others` finish(acc, x) -> acc, when so many x, 0 or more, have been computed.
    The assembler moves the wait to before what nobody asks for so early, and the tensor
    cores have nothing to do during that. It moves nothing across a trap, which would
    spring on an x below 0. Lanes vote on it: of a branch that only some may take, the
    assembler makes a reason to let each product wait.
    """
    acc_type, x_type = (types.UniTuple(types.float32, n) for n in (count, others))
    tests = [f"setp.lt.or.f32 p, ${count + i}, 0f00000000, p;" for i in range(others)]
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

    in_parts = line_place(group)

    def take(shared, at):
        rows = np.asarray([cuda.laneid // 4, cuda.laneid // 4 + 8])[:, None]
        k = np.arange(group.depth)
        if group.both:
            rows = rows + thread_index() // WARP % WARPS * WARP_ROWS
            places = in_parts(rows, k, group.along, group.lines)
        else:
            places = rows * group.pitch + k if group.along else k * group.pitch + rows
        watch.note_fetches(shared, at + places)
        return mma.factors_of(np.asarray(shared)[at + places], group.kind)  # [2, k]

    def begin(acc, factors, shared, at):
        cols = 8 * np.arange(group.cols // 8)[:, None] + [0, 1] + cuda.laneid % 4 * 2
        k = np.arange(group.depth)
        places = in_parts(cols[..., None], k, group.smem_along, group.cols)
        watch.note_fetches(shared, at + places)
        right = np.asarray(shared)[at + places]  # [col // 8, 2, k]
        if group.kind == mma.TF32:
            right = mma.cut_tf32(right)
        else:
            right = mma.factors_of(right, group.kind)
        sums = np.einsum("hk,jck->jhc", factors, right)
        sums = sums.reshape(-1).astype(np.float32)
        return sums if group.fresh else acc + sums

    def place():
        g, pair = cuda.laneid // 4, cuda.laneid % 4 * 2
        return (pair, g, runs) if group.turned else (g, pair, runs)

    def finish(acc):
        return acc

    put = emulated_store(inlined(place))

    def store(out, at, stride, acc, rows, cols, aligned):
        put(out, at, stride, mma.narrowed(acc, group.stored), rows, cols, aligned)

    return tuple([inlined(fn) for fn in (first, take, begin, finish, store)])


# ------------------------------------------------- outputs by way of shared memory

# As halves are in registers, four lanes have 16 neighbouring bytes, half of a sector,
# and a store of a warp goes to 8 of them. So they go to memory in lines of a warp.


def line_storer(group: Group, direct: Callable) -> Callable:
    """finish(shared, out, acc, row, col, sizes): a warp's 16 rows of halves, in lines.

    Each warp lays its outputs down where tiles were, in lines that are 16 bytes longer
    than they need to be: the words of a store then meet all 32 banks. It takes them up
    in vectors of 16 bytes. Where lines of `out` are no whole vectors, `direct` stores.
    """
    vector = group.strips.vector
    pitch, across = group.cols + vector, group.cols // vector
    lay, carry = _make_lay(group, pitch), _make_carry(vector)

    def finish(shared, out, acc, row, col, sizes):
        M, N = sizes[0], sizes[1]
        if N % vector == 0:
            mine = thread_index() // WARP * (WARP_ROWS * pitch)
            matrix = cuda.blockIdx.y * cuda.gridDim.z + cuda.blockIdx.z
            cuda.syncthreads()  # all are done with the tiles
            lay(shared, mine, acc)
            sync_warp()
            for i in range(cuda.laneid, WARP_ROWS * across, WARP):
                line, place = i // across, i % across * vector
                if row + line < M and col + place < N:
                    to = (matrix * M + row + line) * N + col + place
                    at = mine + line * pitch + place
                    carry(shared, at, out, address_of(out, to))
        else:
            direct(out, acc, row, col, sizes)

    return inlined(finish)


def _make_lay(group: Group, pitch: int) -> Callable:
    """lay(shared, at, acc): a lane's outputs, rounded to halves, two in a store."""
    runs = _runs(group)
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
        halves = narrow(builder, acc)
        for run in runs:
            to = builder.gep(base, [llvm.constant(run.row * pitch + run.col)])
            llvm.store(builder, [halves[i] for i in run.places], to)

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


# -------------------------------------------------------------------------- the kernel


class GroupConfig(NamedTuple):
    """How `matmul_warpgroup` cuts a product into blocks and warpgroups.

    A block makes 64 `groups` x `smem_rows` outputs of a product, or with `turned` of
    the turned one, b.T @ a.T: the operand in shared memory has to lie along k, and that
    is a then, not b. (Halves may lie across k, and are not turned.) `stages` and
    `blocks` are as in `kernels.Config`, `kind` as in `mma.Strips`, `wide` as in
    `Group`.
    """

    groups: int
    smem_rows: int
    stages: int
    turned: bool
    blocks: int = 1
    depth: int = DEPTH
    kind: str = mma.TF32
    wide: bool = False

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return 4 if self.kind == mma.TF32 else 2

    @property
    def reg_rows(self) -> int:
        """Rows of the block's tile, whose factors are in registers."""
        return self.groups * WARPS * WARP_ROWS

    @property
    def rows(self) -> int:
        return self.smem_rows if self.turned else self.reg_rows

    @property
    def cols(self) -> int:
        return self.reg_rows if self.turned else self.smem_rows

    @property
    def threads(self) -> int:
        return WARP * WARPS * self.groups

    def layouts(self, a_layout: Layout, b_layout: Layout) -> tuple[Layout, Layout]:
        """The same, but float32 in shared memory lies along k there."""
        in_smem = a_layout if self.turned else b_layout
        if not in_smem.k_fast and self.kind == mma.TF32:
            in_smem = Layout(1, True)
        return (in_smem, b_layout) if self.turned else (a_layout, in_smem)

    def copies(
        self, a_layout: Layout, b_layout: Layout, _: int = 4
    ) -> tuple[Copy, Copy]:
        """How the block's threads copy a tile of a and one of b."""
        in_smem, in_regs = (a_layout, b_layout) if self.turned else (b_layout, a_layout)
        # `ldmatrix` wants lines 16 bytes apart, modulo the banks; loads of words, 32.
        both = self.kind != mma.TF32
        more = 0 if both else 4 if in_regs.k_fast else 8
        pitch = pitch_of(self.reg_rows, self.depth, in_regs, more)
        smem_copy = Copy(
            self.depth, self.smem_rows,
            pitch_of(self.smem_rows, self.depth, in_smem, 0), self.threads,
            in_smem.elements, True, in_smem.k_fast, swizzle=True,
        )  # fmt: skip
        reg_copy = Copy(
            self.depth, self.reg_rows, pitch, self.threads, in_regs.elements, True,
            in_regs.k_fast, swizzle=both,
        )  # fmt: skip
        return (smem_copy, reg_copy) if self.turned else (reg_copy, smem_copy)

    def shared(self, a_layout: Layout, b_layout: Layout, size: int) -> int:
        """Bytes of shared memory for the ring of tiles."""
        return ring_elements(self, a_layout, b_layout) * size


def warpgroup_template(
    config: GroupConfig, a_layout: Layout, b_layout: Layout
) -> Callable:
    """The Python function of `matmul_warpgroup` for one way to cut the product."""
    c, depth, stages = config, config.depth, config.stages
    if stages < 3:
        raise ValueError(
            f"matmul_warpgroup: got {stages} stages; expected 3 or more, for tiles "
            f"that are multiplied, taken to registers, and on their way"
        )
    a_copy, b_copy = c.copies(a_layout, b_layout)
    start, load_a, load_b, close, _, _, a_size, stage, forward = ring_of(
        c, a_copy, b_copy, c.item
    )
    in_smem, in_regs = (a_copy, b_copy) if c.turned else (b_copy, a_copy)
    group = Group(
        c.smem_rows, depth, in_regs.k_fast, in_regs.pitch, c.turned, c.kind,
        in_smem.k_fast, c.wide,
    )  # fmt: skip
    first, take, begin, finish, store = wgmma_tile(group)
    arrive = arrival(stages - 3)
    smem_at, reg_at = (0, a_size) if c.turned else (a_size, 0)
    if not SIMULATED and (
        stage * c.item % GROUP_BYTES or smem_at * c.item % GROUP_BYTES
    ):
        # What is swizzled for the hardware has to begin at such a multiple, as
        # dynamic shared memory does.
        raise ValueError(
            f"matmul_warpgroup: tiles of {c} lie across {GROUP_BYTES} bytes"
        )
    direct, ring = tile_storer(store, 4), stages * stage
    if group.stored != mma.TF32:
        store_tile = line_storer(group, direct)
    else:
        store_tile = inlined(
            lambda _, out, acc, row, col, sizes: direct(out, acc, row, col, sizes)
        )
    turned = c.turned
    # Of an operand in shared memory, 64 rows, or columns, are for a group of warps.
    sharing = WARP * WARPS if group.both else WARP
    apart = WARPS * WARP_ROWS * depth if group.both else WARP_ROWS * in_regs.strides[0]
    before = _make_wait(1) if group.both else inlined(lambda: None)
    after = inlined(lambda acc: acc) if group.both else finish
    number = float32 if c.kind == mma.TF32 else uint16

    def matmul_warpgroup(a, a_at, a_strides, b, b_at, b_strides, out, sizes, bias):
        """Hopper's tensor cores: 131,072 multiplications an instruction, on their own.

        # a [B, M, K] @ b [B, K, N] + bias [N] or [0] -> out [parts, B, M, N], float32

            for a block of 256 x 128 outputs, for k0 in range(first, last, 32):
                acc[128 b, 256 a] += b's tile k0 (registers) x a's tile k0 (shared)
                tile k0 + 32 of b -> registers                      (meanwhile)
                tile k0 + 96 of a and b -> shared memory            (meanwhile)

            ring    | tile t-1 -> t+3 | tile t    | tile t+1    | t+2      |
                      being overwritten  multiplied  to registers  arriving

        The warps of `matmul_tensor_core` fetch both factors of each `mma.sync` into
        registers, and wait for its result. Here four warps have 64 x 32 factors of one
        operand, `wgmma.mma_async` fetches the other itself, 256 lines of 128 bytes, and
        the warps go on: to the next barrier, and to the next tile's factors. They wait
        at the end of a step, when all of that is done. Two groups of four warps share
        a block's 256 x 128 outputs, 128 sums a thread.

        The tensor cores want lines along k, and 16-byte vectors of line r in the order
        0 ^ r, 1 ^ r, ... 7 ^ r, so that the same vector of 8 lines meets all banks. If
        b does not lie along k, but a does, then the block makes a part of b.T @ a.T.

        What goes to registers is rounded to TF32 on the way. Of what is in shared
        memory the tensor cores ignore the last 13 bits, so `round_flat` rounds that
        beforehand, which takes a twentieth of the time of a product of 4096 rows. Sums
        are float32.

        Of halves both operands stay in shared memory, along k or across it. No register
        is a factor, and so the warps start product t while t - 1 is under way, wait for
        t - 1, and copy over its tiles; the tensor cores never wait for a barrier.

        Sums begin with the bias, which arrives while the first tiles do: added to what
        is stored, it would cost reading and writing that once more.

        Source: "PTX ISA", on wgmma, matrix descriptors and the asynchronous proxy.
        """
        shared = cuda.shared.array(0, number)
        row, col, count, a_from, a_walk, b_from, b_walk = start(
            shared, a, a_at, a_strides, b, b_at, b_strides, sizes
        )
        rows, cols = sizes[0] - row, sizes[1] - col
        # BEGIN TWIN a5.5
        mine = thread_index() // sharing * apart + reg_at
        warp = thread_index() // WARP * WARP_ROWS if turned else 0
        # The bias is in one of the parts of a sum.
        acc = first(bias, col + warp, cols - warp if cuda.blockIdx.y == 0 else 0)
        slot, free = 0, ring - stage
        arrive()  # this thread's copies of tile 0
        cuda.syncthreads()  # and all others'
        factors = take(shared, mine)
        for t in range(count):
            acc = begin(acc, factors, shared, slot + smem_at)
            before()  # with `both`, the product before is done, and this one goes on
            arrive()
            cuda.syncthreads()  # tile t + 1 is there; all are done with tile t - 1
            if t + stages - 1 < count:
                load_a(shared, free, a, a_from, a_walk, rows)
                load_b(shared, free + a_size, b, b_from, b_walk, cols)
                a_from += forward * a_strides[1]
                b_from += forward * b_strides[1]
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
            # The next tile's factors come while the product is under way.
            factors = take(shared, slot + mine)
            acc = after(acc)
        acc = finish(acc)
        # END TWIN a5.5
        if turned:
            col += thread_index() // WARP * WARP_ROWS
        else:
            row += thread_index() // WARP * WARP_ROWS
        store_tile(shared, out, acc, row, col, sizes)

    return matmul_warpgroup


if TINY:
    GROUP_CONFIGS: tuple[GroupConfig, ...] = (
        GroupConfig(1, 16, 3, False),
        GroupConfig(1, 16, 3, True),
    )
else:
    GROUP_CONFIGS = (
        GroupConfig(2, 256, 4, False),  # 128 x 256
        GroupConfig(2, 128, 4, False),  # 128 x 128
        GroupConfig(2, 256, 4, True),  # 256 x 128
        GroupConfig(2, 128, 4, True),  # 128 x 128
    )


@cache
def warpgroup(config: GroupConfig, a_layout: Layout, b_layout: Layout) -> Kernel:
    """The kernel `matmul_warpgroup` for one way to cut."""
    fn = warpgroup_template(config, a_layout, b_layout)
    key = config, a_layout, b_layout
    words = "float32[]" if config.kind == mma.TF32 else "uint16[]"
    return Kernel(
        fn,
        name=MAIN.get(key) or f"{fn.__name__}{(*config, a_layout, b_layout)}",
        examples=(f"{EXAMPLE.replace('float32[]', words)} float32[]",) * (key in MAIN),
        threads=config.threads,
        max_registers=min(65536 // (config.threads * config.blocks) // 8 * 8, 255),
        shared=config.shared(a_layout, b_layout, config.item),
        arch=ARCH,
        only_arch=True,
    )


# For factors of 16 bits, by their kind: as many bytes in a line. Both operands stay in
# shared memory, so that the tensor cores have the next product before one is done; fed
# from registers they wait for it a fifth of the time, while a block is at its barrier.
HALF_CONFIGS = {
    kind: tuple(
        c._replace(depth=2 * DEPTH, kind=kind) for c in GROUP_CONFIGS if not c.turned
    )
    for kind in mma.HALVES
}
_FIRST = next(i for i, config in enumerate(GROUP_CONFIGS) if config.turned)
MAIN = {
    (GROUP_CONFIGS[_FIRST], Layout(4, True), Layout(4, False)): "matmul_warpgroup",
    (HALF_CONFIGS[mma.BF16][0], Layout(8, True), Layout(8, False)): (
        "matmul_warpgroup_bfloat16"
    ),
}
for _key in MAIN:
    warpgroup(*_key)


@kernel(examples=["float32[] float32[] bool"], arch=(8, 0))
def round_flat(x, out, aligned):
    """Round float32 numbers to TF32, to nearest: 10 bits after the point.

    # x [n] -> out [n]

        for i in parallel:  out[i] = tf32(x[i])

    Four numbers a thread, 16 bytes at once where `x` is aligned to that.
    """
    i = 4 * cuda.grid(1)
    if aligned and i + 3 < out.size:
        a, b, c, d = load4(x, i)
        store4(out, i, to_tf32(a), to_tf32(b), to_tf32(c), to_tf32(d))
    else:
        for j in range(i, min(i + 4, out.size)):
            out[j] = to_tf32(x[j])


# --------------------------------- two products, one after the other (for attention)


def chained(scores: Group, sums: Group) -> Functions:
    """Products of halves, of which one's outputs are the other's first operand.

        s = begin_scores(none, left, shared, at)       `begin` of a group with `both`
        words = rounded(p)                             p, as many as s, in halves
        acc = begin_sums(acc, words, shared, at)       acc += p @ lines across k
        s = first_done(s)                              all but the newest are done
        s, acc = all_scores(s), all_sums(acc)          all are done
        acc = sums_behind(acc, x)                      see `_make_finish`; two x

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
        _make_begin_sums(sums),
        _make_finish(scores.sums, 1),
        _make_finish(scores.sums),
        _make_finish(sums.sums),
        _make_finish(sums.sums, 0, 2),
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


def _make_begin_sums(group: Group) -> Callable:
    acc_type = types.UniTuple(types.float32, group.sums)

    @written(lambda acc, words, shared, _: acc_type(acc, words, shared, types.int64))
    def begin(
        builder: Any, acc: list[Any], words: list[Any], shared: Any, at: Any
    ) -> list[Any]:
        address = llvm.shared_address(builder, builder.gep(shared, [at]))
        ends = _descriptors(builder, address, group, False)
        sums = _multiply(builder, acc, words, ends, group)
        return llvm.unpack(builder, sums, group.sums)

    return begin
