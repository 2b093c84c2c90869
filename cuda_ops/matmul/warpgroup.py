"""Matrix products of a warpgroup: 128 threads, one instruction of Hopper's.

With this file one can get the kernel `matmul_warpgroup` for one way to cut a product
(`warpgroup`), and the functions that it is made of:

    zero, take, begin, finish, store = wgmma_tile(Group(256, 32, ...))
    acc = zero()                                   # 64 x 256 outputs of 128 threads
    factors = take(shared, held_at)                # 64 x 32 numbers into registers
    acc = begin(acc, factors, shared, read_at)     # the product is under way
    acc = finish(acc)                              # now it is there

`wgmma.mma_async` multiplies 64 x 8 numbers by 8 x 256. The first ("held") are in the
registers of four warps, the second ("read") in shared memory, where the tensor cores
fetch them themselves. It runs while its threads go on with something else.

Only compute capability 9.0 has it (the target sm_90a); `matmul.py` takes
`matmul_tensor_core` elsewhere.

Source: NVIDIA, "Parallel Thread Execution ISA", asynchronous warpgroup-level matrix
instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32

from cuda_ops.block import tiles
from cuda_ops.block.intrinsics import load4, store4, to_tf32
from cuda_ops.matmul.kernels import (
    EXAMPLE,
    Way,
    batch_start,
    origin_of,
    pitch_of,
    ring_of,
)
from cuda_ops.runtime.launch import SIMULATED, Kernel, kernel

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic

ARCH = (9, 0)
WARP_ROWS = 16  # rows of outputs that one warp of a group makes
WARPS = 1 if SIMULATED else 4  # of a group
DEPTH = 8 if SIMULATED else 32  # numbers of a line of what is read: 128 bytes

# ---------------------------------------------------------- what a warpgroup multiplies


class Group(NamedTuple):
    """The outputs of a warpgroup, and how its held factors lie in shared memory.

    Attributes:
        cols: rows of the operand that is read, which are columns of the group's tile.
        depth: steps of k of one call.
        along, pitch: of the operand that is held, as in `tiles.Strips`.
        turned: whether the tile's columns are rows of the matrix that is stored.
    """

    cols: int
    depth: int
    along: bool
    pitch: int
    turned: bool

    @property
    def held(self) -> int:
        """How many outputs a lane holds."""
        return WARP_ROWS * self.cols // 32

    @property
    def strips(self) -> tiles.Strips:
        """What a warp holds, in the words of `mma`: its first operand."""
        return tiles.Strips(2, 0, self.along, False, self.depth, self.pitch, 0)


def wgmma_tile(group: Group) -> tiles.Functions:
    """The functions zero, take, begin, finish and store; see the top of this file.

    `begin` rounds to TF32 what is held; of what is read, the last 13 bits are ignored.
    A lane holds of both what it would hold for `mma.sync.m16n8k8` (`tiles.mma_tile`),
    for 16 rows of the tile and all columns. `shared`, at `read_at`, has lines of 32
    numbers along k, whose 16-byte pieces are exchanged as `tiles.Copy.swizzle` says.
    """
    if SIMULATED:
        return _emulated(group)

    def runs_of(builder: Any) -> tuple[Any, Any, list[tiles.Run]]:
        g, pair = tiles.first_sum(builder)
        runs = _runs(group)
        return (pair, g, runs) if group.turned else (g, pair, runs)

    return (
        tiles.make_zero(types.float32, group.held),
        _make_take(group),
        _make_begin(group),
        _make_finish(group.held),
        tiles.make_store(types.float32, group.held, runs_of, 4),
    )


def _runs(group: Group) -> list[tiles.Run]:
    """What a lane holds, relative to its first row and column."""
    runs = []
    for half in range(2):
        for j in range(group.cols // 8):
            place = 4 * j + 2 * half
            if group.turned:
                runs.append(tiles.Run(8 * j, 8 * half, (place,)))
                runs.append(tiles.Run(8 * j + 1, 8 * half, (place + 1,)))
            else:
                runs.append(tiles.Run(8 * half, 8 * j, (place, place + 1)))
    return runs


def _make_take(group: Group) -> Callable:
    count = group.depth // 2

    @intrinsic
    def take(typing, shared, at):
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = tiles.shared_pointer(context, builder, sig.args[0], args[0])
            lane, strips = tiles.read_lane(builder), group.strips
            end = tiles.fragment_base(builder, base, args[1], lane, strips, True)
            words: list[Any] = []
            for k in range(0, group.depth, 8):
                words += tiles.fragments(builder, (end, None), strips, k)[0]
            words = [builder.bitcast(word, ir.IntType(32)) for word in words]
            return cgutils.pack_array(builder, words)

        return types.UniTuple(types.uint32, count)(shared, types.int64), generate

    return take


def _make_begin(group: Group) -> Callable:
    count, held = group.depth // 2, group.held

    @intrinsic
    def begin(typing, acc, factors, shared, at):
        numbers = types.UniTuple(types.float32, held)
        words = types.UniTuple(types.uint32, count)
        sig = numbers(numbers, words, shared, types.int64)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = tiles.shared_pointer(context, builder, sig.args[2], args[2])
            address = tiles.shared_address(builder, builder.gep(base, [args[3]]))
            acc = tiles.unpack(builder, args[0], held)
            factors = tiles.unpack(builder, args[1], count)
            # Rounded here and not in `take`: where the assembler sees a factor made
            # while a product is under way, it waits after each. Loading is no matter.
            factors = [tiles.rounded(builder, word) for word in factors]
            ends = _descriptors(builder, address, group.depth)
            made = _multiply(builder, acc, factors, ends, group)
            return cgutils.pack_array(builder, tiles.unpack(builder, made, held))

        return sig, generate

    return begin


# A descriptor tells the tensor cores where a matrix of 8-row groups of 128-byte lines
# starts (in 16 bytes), how far the groups are apart, and that lines are swizzled.
GROUP_BYTES = 1024
SWIZZLED_128 = 1 << 62
DESCRIPTOR = SWIZZLED_128 | GROUP_BYTES >> 4 << 32 | 1 << 16


def _descriptors(builder: Any, address: Any, depth: int) -> list[Any]:
    """For each 8 steps of k (32 bytes) a descriptor of what is read."""
    long = ir.IntType(64)
    start = builder.zext(builder.lshr(address, ir.Constant(ir.IntType(32), 4)), long)
    first = builder.or_(start, ir.Constant(long, DESCRIPTOR))
    steps = [ir.Constant(long, k * 4 >> 4) for k in range(0, depth, 8)]
    return [builder.add(first, step) for step in steps]


def _multiply(
    builder: Any, acc: list[Any], factors: list[Any], ends: list[Any], group: Group
) -> Any:
    """acc += held x read, under way: the instructions are one piece of assembly."""
    held, number = group.held, ir.FloatType()
    sums = ", ".join(f"${i}" for i in range(held))
    lines = [".reg .pred p;", "setp.eq.u32 p, 0, 0;", "wgmma.fence.sync.aligned;"]
    for step in range(len(ends)):
        first = held + 4 * step
        words = ", ".join(f"${first + i}" for i in range(4))
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{group.cols}k8.f32.tf32.tf32 "
            f"{{{sums}}}, {{{words}}}, ${held + len(factors) + step}, p, 1, 1;"
        )
    lines.append("wgmma.commit_group.sync.aligned;")
    places = ["=f"] * held + ["r"] * len(factors) + ["l"] * len(ends)
    places += [str(i) for i in range(held)] + ["~{memory}"]
    text = "{ " + " ".join(lines) + " }"
    made = ir.LiteralStructType([number] * held)
    args = [*factors, *ends, *acc]
    return tiles.assembly(builder, text, made, ",".join(places), args)


def _make_finish(held: int) -> Callable:
    @intrinsic
    def finish(typing, acc):
        numbers = types.UniTuple(types.float32, held)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            places = ["=f"] * held + [str(i) for i in range(held)] + ["~{memory}"]
            made = tiles.assembly(
                builder,
                "wgmma.wait_group.sync.aligned 0;",
                ir.LiteralStructType([ir.FloatType()] * held),
                ",".join(places),
                tiles.unpack(builder, args[0], held),
            )
            return cgutils.pack_array(builder, tiles.unpack(builder, made, held))

        return numbers(numbers), generate

    return finish


def _emulated(group: Group) -> tiles.Functions:
    """A warp of 16 rows stands for the group of four."""
    runs = _runs(group)

    def zero():
        return np.zeros(group.held, np.float32)

    def take(shared, at):
        rows = np.asarray([cuda.laneid // 4, cuda.laneid // 4 + 8])[:, None]
        k = np.arange(group.depth)
        places = rows * group.pitch + k if group.along else k * group.pitch + rows
        return tiles.round_tf32(np.asarray(shared)[at + places])  # [2, k]

    def begin(acc, factors, shared, at):
        cols = 8 * np.arange(group.cols // 8)[:, None] + [0, 1] + cuda.laneid % 4 * 2
        k = np.arange(group.depth)
        places = cols[..., None] * group.depth + tiles.swizzled(
            cols[..., None], k, group.depth
        )
        read = tiles.cut_tf32(np.asarray(shared)[at + places])  # [col // 8, 2, k]
        made = np.einsum("hk,jck->jhc", factors, read)
        return acc + made.reshape(-1).astype(np.float32)

    def place():
        g, pair = cuda.laneid // 4, cuda.laneid % 4 * 2
        return (pair, g, runs) if group.turned else (g, pair, runs)

    def finish(acc):
        return acc

    store = tiles.emulated_store(tiles.inlined(place))
    made: list[Callable] = [take, begin, finish, store]
    return zero, *map(tiles.inlined, made)


# -------------------------------------------------------------------------- the kernel


class GroupConfig(NamedTuple):
    """How `matmul_warpgroup` cuts a product into blocks and warpgroups.

    A block makes 64 `groups` x `reads` outputs of a product, or with `turned` of the
    turned one, b.T @ a.T: the operand that is read has to lie along k, and that is a
    then, not b. `stages` and `blocks` are as in `matmul_kernels.Config`.
    """

    groups: int
    reads: int
    stages: int
    turned: bool
    blocks: int = 1
    depth: int = DEPTH

    @property
    def holds(self) -> int:
        """Rows of the block's tile, whose factors are held."""
        return self.groups * WARPS * WARP_ROWS

    @property
    def rows(self) -> int:
        return self.reads if self.turned else self.holds

    @property
    def cols(self) -> int:
        return self.holds if self.turned else self.reads

    @property
    def threads(self) -> int:
        return 32 * WARPS * self.groups

    @property
    def sums(self) -> int:
        """How many sums the block has in registers."""
        return self.rows * self.cols

    def ways(self, a_way: Way, b_way: Way) -> tuple[Way, Way]:
        """The same, but what is read lies along k when it has been copied."""
        read = a_way if self.turned else b_way
        read = read if read.k_fast else Way(1, True)
        return (read, b_way) if self.turned else (a_way, read)

    def copies(self, a_way: Way, b_way: Way) -> tuple[tiles.Copy, tiles.Copy]:
        """How the block's threads copy a tile of a and one of b."""
        read, held = (a_way, b_way) if self.turned else (b_way, a_way)
        pitch = pitch_of(self.holds, self.depth, held, 4 if held.k_fast else 8)
        reads = tiles.Copy(
            self.depth, self.reads, self.depth, self.threads, read.elements, True,
            True, swizzle=True,
        )  # fmt: skip
        holds = tiles.Copy(
            self.depth, self.holds, pitch, self.threads, held.elements, True,
            held.k_fast,
        )  # fmt: skip
        return (reads, holds) if self.turned else (holds, reads)

    def shared(self, a_way: Way, b_way: Way, size: int) -> int:
        """Bytes of shared memory for the ring of tiles."""
        copies = self.copies(a_way, b_way)
        return self.stages * sum(copy.elements_shared for copy in copies) * size


def warpgroup_template(config: GroupConfig, a_way: Way, b_way: Way) -> Callable:
    """The Python function of `matmul_warpgroup` for one way to cut the product."""
    c, depth, stages = config, config.depth, config.stages
    if stages < 3:
        raise ValueError(
            f"matmul_warpgroup: got {stages} stages; expected 3 or more, for tiles "
            f"that are multiplied, taken to registers, and on their way"
        )
    a_copy, b_copy = c.copies(a_way, b_way)
    start, load_a, load_b, close, _, _, a_size, stage = ring_of(
        a_copy, b_copy, stages, 4
    )
    held = b_copy if c.turned else a_copy
    zero, take, begin, finish, store = wgmma_tile(
        Group(c.reads, depth, held.k_fast, held.pitch, c.turned)
    )
    arrive = tiles.arrival(stages - 3)
    read_at, held_at = (0, a_size) if c.turned else (a_size, 0)
    if not SIMULATED and (stage * 4 % GROUP_BYTES or read_at * 4 % GROUP_BYTES):
        # What is swizzled for the hardware has to begin at such a multiple, as
        # dynamic shared memory does.
        raise ValueError(
            f"matmul_warpgroup: tiles of {c} lie across {GROUP_BYTES} bytes"
        )
    origin, start_of = origin_of(c.rows, c.cols), tiles.inlined(batch_start)
    thread_index, ring = tiles.thread_index, stages * stage
    forward, line, turned = tiles.unit_of(4) * depth, held.strides[0], c.turned

    def matmul_warpgroup(a, a_at, a_strides, b, b_at, b_strides, out, sizes):
        """Hopper's tensor cores: 131,072 multiplications an instruction, on their own.

        # a [B, M, K] @ b [B, K, N] -> out [parts, B, M, N], float32

            for a block of 256 x 128 outputs, for k0 in range(first, last, 32):
                acc[128 b, 256 a] += b's tile k0 (held) x a's tile k0 (read)
                tile k0 + 32 of b -> registers                      (meanwhile)
                tile k0 + 96 of a and b -> shared memory            (meanwhile)

            ring    | tile t-1 -> t+3 | tile t    | tile t+1    | t+2      |
                      being overwritten  multiplied  to registers  arriving

        The warps of `matmul_tensor_core` fetch both factors of each `mma.sync` into
        registers, and wait for its result. Here four warps hold 64 x 32 factors of one
        operand, `wgmma.mma_async` fetches the other itself, 256 lines of 128 bytes, and
        the warps go on: to the next barrier, and to the next tile's factors. They wait
        at the end of a step, when all of that is done. Two groups of four warps share
        a block's 256 x 128 outputs, 128 sums a thread.

        The tensor cores want lines along k, and 16-byte pieces of line r in the order
        0 ^ r, 1 ^ r, ... 7 ^ r, so that the same piece of 8 lines meets all banks. If b
        does not lie along k, but a does, then the block makes a part of b.T @ a.T.

        What is held is rounded to TF32 on the way. Of what is read the tensor cores
        ignore the last 13 bits, so `round_flat` rounds that beforehand, which takes a
        twentieth of the time of a product of 4096 rows. Sums are float32.

        Source: "PTX ISA", on wgmma, matrix descriptors and the asynchronous proxy.
        """
        M, N, K, part = sizes
        shared = cuda.shared.array(0, float32)
        row, col = origin(M, N)
        rows, cols, skip = M - row, N - col, cuda.blockIdx.y * part
        a_at += start_of(a_strides) + row * a_strides[0] + skip * a_strides[1]
        b_at += start_of(b_strides) + col * b_strides[0] + skip * b_strides[1]
        count, a_from, a_walk, b_from, b_walk = start(
            shared, a, a_at, a_strides, b, b_at, b_strides, rows, cols,
            min(K - skip, part),
        )  # fmt: skip
        mine = thread_index() // 32 * WARP_ROWS * line + held_at
        acc = zero()
        slot, free = 0, ring - stage
        arrive()  # this thread's copies of tile 0
        cuda.syncthreads()  # and all others'
        factors = take(shared, mine)
        for t in range(count):
            acc = begin(acc, factors, shared, slot + read_at)
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
            factors = take(shared, slot + mine)
            acc = finish(acc)
        my_row = my_col = 0
        if turned:
            my_col = thread_index() // 32 * WARP_ROWS
        else:
            my_row = thread_index() // 32 * WARP_ROWS
        matrix = cuda.blockIdx.y * cuda.gridDim.z + cuda.blockIdx.z
        at = (matrix * M + row + my_row) * N + col + my_col
        store(out, at, N, acc, rows - my_row, cols - my_col, N % 4 == 0)

    return matmul_warpgroup


if SIMULATED:
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
def warpgroup(config: GroupConfig, a_way: Way, b_way: Way) -> Kernel:
    """The kernel `matmul_warpgroup` for one way to cut."""
    fn = warpgroup_template(config, a_way, b_way)
    main = (config, a_way, b_way) == MAIN
    return Kernel(
        fn,
        name=fn.__name__ if main else f"{fn.__name__}{(*config, a_way, b_way)}",
        examples=(EXAMPLE,) if main else (),
        threads=config.threads,
        max_registers=min(65536 // (config.threads * config.blocks) // 8 * 8, 255),
        shared=config.shared(a_way, b_way, 4),
        arch=ARCH,
        only_arch=True,
    )


MAIN = (
    next(config for config in GROUP_CONFIGS if config.turned),
    Way(4, True),
    Way(4, False),
)
warpgroup(*MAIN)


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
