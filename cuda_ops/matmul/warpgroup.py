"""Matrix products by warpgroups, which a warp of its own feeds.

With this file one can get the kernel `matmul_warpgroup` for one way to cut a product of
bfloat16, float16 or float32 in TF32, or `matmul_split` for all of float32
(`warpgroup`), and bind it to a shape (`bound`). Only compute capability 9.0 has their
instructions; elsewhere `matmul.py` takes `matmul_tensor_core`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, float32, int64, uint16

from cuda_ops.block import tma
from cuda_ops.block.copies import swizzled
from cuda_ops.block.intrinsics import WARP, load4, shuffle_xor, sync_warp
from cuda_ops.block.mma import BF16, F16, HALVES, TF32
from cuda_ops.block.tiles import VECTOR_BYTES, inlined, quotient, thread_index
from cuda_ops.block.wgmma import (
    ARCH,
    LINE_ROOM,
    WARP_ROWS,
    WARPS,
    Group,
    line_storer,
    make_wait,
    sums_of,
    wgmma_tile,
)
from cuda_ops.half import READERS
from cuda_ops.matmul.kernels import matrix_storer, origin_of
from cuda_ops.runtime.device import properties
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div, fewest
from cuda_ops.runtime.tensor_maps import TensorMap

# Rows of tiles that are walked together.
HIGH = 16
# Warps that may add rows up.
ADDING = 3


class GroupConfig(NamedTuple):
    """How `matmul_warpgroup` cuts a product into tiles.

    A block makes tiles of 64 `groups` x `lines` outputs, one after the other, from a
    ring of `stages` tiles of both operands; or with `turned` of the turned product,
    b.T @ a.T. `kind` is as in `mma.Strips`, `wide` as in `Group`; `blocks` share a
    multiprocessor. With `sums` the sums of a's rows are made as well, of halves that
    lie across k. An operand of float32 is so many `planes` of bfloat16 (`split.py`).
    With `moved` b, which lies along k, has shorter lines than k has steps: they are
    read anew, from another one on, as `Moves` says.
    """

    groups: int
    lines: int
    stages: int
    kind: str = BF16
    turned: bool = False
    wide: bool = False
    blocks: int = 1
    sums: bool = False
    planes: int = 1
    moved: bool = False

    @property
    def wides(self) -> tuple[int, int]:
        """Rows of a tile of both operands, as they are multiplied."""
        return self.groups * WARPS * WARP_ROWS, self.lines

    @property
    def rows(self) -> int:
        return self.wides[self.turned]

    @property
    def cols(self) -> int:
        return self.wides[not self.turned]

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return 4 if self.kind == TF32 else 2

    @property
    def depth(self) -> int:
        """Steps of k of a tile: numbers of a line in shared memory."""
        return Group(8, 0, True, False, self.kind).line

    @property
    def warps(self) -> int:
        """Warps that multiply. Of four more, one copies, and three may add rows up."""
        return self.groups * WARPS

    @property
    def threads(self) -> int:
        return WARP * (self.warps + (1 + ADDING if self.sums else WARPS))

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that copies, and of one that multiplies, to which it leaves its
        own; 0: those of the launch, which are enough for the sums of one group."""
        return ((0, 0), (56, 224), (56, 152))[self.groups - 1]

    @property
    def pace(self) -> float:
        """How fast it is beside others, after all that `estimate` knows of."""
        return 1.0 if self.groups < 3 else 0.94

    @property
    def stage(self) -> int:
        """Numbers of a tile of a and one of b."""
        return (self.rows + self.cols) * self.depth * self.planes

    @property
    def room(self) -> int:
        """Numbers of shared memory for the outputs of a warp, if they are halves."""
        return 0 if self.kind == TF32 or self.planes > 1 else LINE_ROOM

    @property
    def step(self) -> int:
        """Numbers that a barrier takes."""
        return tma.BARRIER // self.size

    @property
    def full(self) -> int:
        """Where the barriers of full stages are: behind the ring and the outputs."""
        return self.stages * self.stage + self.warps * self.room

    @property
    def empty(self) -> int:
        """Where those of empty stages are."""
        return self.full + self.stages * self.step

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the ring, lines of outputs, barriers."""
        return (self.empty + self.stages * self.step) * self.size


class Moves(NamedTuple):
    """How b is read again and again: step k of column n is number k % deep of line
    n + start + i * down + j * right, with k // deep = i * wide + j.

    `length` is that of a line, `lines` says how many there are. Behind both are zeros.
    """

    length: int
    lines: int
    deep: int
    wide: int
    start: int
    down: int
    right: int


def _box_copier(wide: int, line: int, along: bool) -> Callable:
    """copy(shared, at, source, barrier, row, k, inner, outer): an operand's tile.

    An operand that lies across k comes in parts of a line's rows.
    """
    copy = tma.copy

    def boxes(shared, at, source, barrier, row, k, inner, outer):
        if along:
            copy(shared, at, source, barrier, k, row, inner, outer)
        else:
            for part in range(wide // line):
                to, first = at + part * (line * line), row + part * line
                copy(shared, to, source, barrier, first, k, inner, outer)

    return inlined(boxes)


def _storer(config: GroupConfig, group: Group, store: Callable) -> Callable:
    """put(shared, at, out, acc, matrix, row, col, sizes): a warp's outputs."""
    put_one, turned = matrix_storer(store, 4), config.turned
    if config.wide or config.kind == TF32:

        def put(shared, at, out, acc, matrix, row, col, sizes):
            if turned:
                put_one(out, acc, matrix, col, row, (sizes[1], sizes[0]))
            else:
                put_one(out, acc, matrix, row, col, sizes)

        return inlined(put)
    put_lines, vector = line_storer(group), group.strips.vector

    def put_halves(shared, at, out, acc, matrix, row, col, sizes):
        if sizes[1] % vector:
            put_one(out, acc, matrix, row, col, sizes)
        else:
            put_lines(shared, at, out, acc, matrix, row, col, sizes)

    return inlined(put_halves)


def _row_adder(config: GroupConfig) -> Callable:
    """Make `add(shared, at, warp, lane)`: of four rows of a's tile of halves, which
    lies across k, what a lane adds up: every so many steps of k.

    A warp has the rows of a line, 64. Neighbouring lanes have neighbours of a line, so
    that a warp reads two lines at once.
    """
    line, vector = config.depth, VECTOR_BYTES // config.size
    lanes, place, together = line // 4, inlined(swizzled), WARP // (line // 4)
    read = READERS[HALVES[config.kind]]

    def add(shared, at, warp, lane):
        at += warp * (line * line)
        a = b = c = d = float32(0)
        for j in range(line // together):
            k = j * together + lane // lanes
            i = place(k, lane % lanes * 4, line, vector, 1)
            x, y, z, w = load4(shared, at + k * line + i)
            a, b, c, d = a + read(x), b + read(y), c + read(z), d + read(w)
        return a, b, c, d

    return inlined(add)


def _rows_adder(config: GroupConfig, work: Callable, place: Callable) -> Callable:
    """Make `add_up(shared, warp, batch, sizes, totals)`: what a warp beside those that
    multiply does, the sums of the rows of a's tiles.

    A row of a is in as many tiles as there are columns of them, `wide`. Each of them
    takes one of so many steps, so that nobody waits for those who add.
    """
    c, line, step = config, config.depth, config.step
    full, empty = c.full, c.empty
    (tile_rows, tile_cols), stage, stages = c.wides, c.stage, c.stages
    pieces, lanes = tile_rows // line, line // 4
    add, halvings = _row_adder(c), (WARP // lanes).bit_length() - 1
    wait, release = tma.wait, tma.release

    def add_up(shared, warp, batch, sizes, totals):
        lane = thread_index() % WARP
        tiles, items = work(batch, sizes)
        wide = (sizes[1] + tile_cols - 1) // tile_cols
        n, phase = int64(0), int64(0)
        for item in range(int64(cuda.blockIdx.x), items, int64(cuda.gridDim.x)):
            _, part, row, col, _, count = place(item, tiles, batch, sizes)
            col = col // tile_cols
            turn = col if warp < pieces else count
            a = b = c = d = float32(0)
            for i in range(count):
                wait(shared, full + n * step, phase)
                if i == turn:
                    turn += wide
                    x, y, z, w = add(shared, n * stage, warp, lane)
                    a, b, c, d = a + x, b + y, c + z, d + w
                sync_warp()
                release(shared, empty + n * step, 0)
                n += 1
                if n == stages:
                    n, phase = int64(0), 1 - phase
            for i in range(halvings):  # lanes that have the same rows
                a, b = a + shuffle_xor(a, lanes << i), b + shuffle_xor(b, lanes << i)
                c, d = c + shuffle_xor(c, lanes << i), d + shuffle_xor(d, lanes << i)
            row += warp * line + lane * 4
            left = sizes[0] - row if warp < pieces and lane < lanes else 0
            to = (part * wide + col) * sizes[0] + row
            if left > 0:
                totals[to] = a
            if left > 1:
                totals[to + 1] = b
            if left > 2:
                totals[to + 2] = c
            if left > 3:
                totals[to + 3] = d

    return inlined(add_up)


def _walk(config: GroupConfig) -> tuple[Callable, Callable]:
    """Make `work(batch, sizes)`, how many tiles a matrix has and how many items there
    are to be made, and `place(item, tiles, batch, sizes)`: where one of them is."""
    (tile_rows, tile_cols), line = config.wides, config.depth
    origin = origin_of(tile_rows, tile_cols, HIGH)

    def work(batch, sizes):
        M, N, K, chunk = sizes
        tiles = (M + tile_rows - 1) // tile_rows * ((N + tile_cols - 1) // tile_cols)
        return tiles, tiles * quotient(K + chunk - 1, chunk) * batch[5]

    def place(item, tiles, batch, sizes):
        M, N, K, chunk = sizes
        matrix = quotient(item, tiles)
        row, col = origin(item - matrix * tiles, M, N)
        part = quotient(matrix, batch[5])
        k = part * chunk
        count = (min(K - k, chunk) + line - 1) // line
        return matrix, part, row, col, k, count

    return inlined(work), inlined(place)


def _opener(config: GroupConfig) -> Callable:
    """Make `open_ring(shared)`: the barriers, before anybody asks for one."""
    c, stages, step = config, config.stages, config.step
    full, empty, users = c.full, c.empty, c.warps + (ADDING if c.sums else 0)
    prepare, ready = tma.prepare, tma.ready

    def open_ring(shared):
        if thread_index() == 0:
            for s in range(stages):
                prepare(shared, full + s * step, 1)
                prepare(shared, empty + s * step, users)
            ready()
        cuda.syncthreads()

    return inlined(open_ring)


def _producer(
    config: GroupConfig, work: Callable, place: Callable, a_along: bool, b_along: bool
) -> Callable:
    """Make `produce(shared, a_map, b_map, batch, sizes)`: one thread fills the ring."""
    c, line, step = config, config.depth, config.step
    full, empty = c.full, c.empty
    (tile_rows, tile_cols), stage, stages, planes = c.wides, c.stage, c.stages, c.planes
    copy_a = _box_copier(tile_rows, line, a_along)
    copy_b = _box_copier(tile_cols, line, b_along)
    nbytes, a_size, b_size = c.size * stage, tile_rows * line, tile_cols * line
    expect, wait = tma.expect, tma.wait

    def again(col, k, batch):
        tap = quotient(k, batch[6])
        i = quotient(tap, batch[7])
        j = tap - i * batch[7]
        col += batch[8] + i * batch[9] + j * batch[10]
        return col, k - tap * batch[6]

    place_b = inlined(again if c.moved else lambda col, k, batch: (col, k))

    def produce(shared, a_map, b_map, batch, sizes):
        tiles, items = work(batch, sizes)
        n, phase = int64(0), int64(1)
        for item in range(int64(cuda.blockIdx.x), items, int64(cuda.gridDim.x)):
            matrix, part, row, col, k, count = place(item, tiles, batch, sizes)
            z = matrix - part * batch[5]
            outer = quotient(z, batch[4])
            inner = z - outer * batch[4]
            for _ in range(count):
                wait(shared, empty + n * step, phase)
                bar, at = full + n * step, n * stage
                expect(shared, bar, nbytes)
                x, y = place_b(col, k, batch)
                for p in range(planes):  # of one, the map's last dim is of the batch
                    copy_a(
                        shared, at + p * a_size, a_map, bar, row, k, inner * batch[1],
                        outer * batch[0] + p,
                    )  # fmt: skip
                    copy_b(
                        shared, at + planes * a_size + p * b_size, b_map, bar, x, y,
                        inner * batch[3], outer * batch[2] + p,
                    )  # fmt: skip
                k += line
                n += 1
                if n == stages:
                    n, phase = int64(0), 1 - phase

    return inlined(produce)


def warpgroup_template(config: GroupConfig, a_along: bool, b_along: bool) -> Callable:
    """The Python function of `matmul_warpgroup` for one way to cut the product.

    Of a turned product, a is b.T and b is a.T here.
    """
    c, stages, stage = config, config.stages, config.stage
    (tile_rows, tile_cols), warps, line, turned = c.wides, c.warps, c.depth, c.turned
    group = Group(tile_cols, line, a_along, turned, c.kind, b_along, c.wide)
    start = wgmma_tile(group._replace(fresh=True))[2]
    first, take, begin, finish, store = wgmma_tile(group)
    zero, plus = sums_of(group)
    before = make_wait(1)
    put, number = _storer(c, group, store), float32 if c.kind == TF32 else uint16
    in_place = group.both
    apart, sharing, a_size = WARPS * WARP_ROWS * line, WARP * WARPS, tile_rows * line
    lines_at, room, step, full, empty = stages * stage, c.room, c.step, c.full, c.empty
    open_ring, release, wait = _opener(c), tma.release, tma.wait
    (few, many), adds = map(tma.registers, c.registers), c.sums

    work, place = _walk(c)
    produce = _producer(c, work, place, a_along, b_along)
    adder = _rows_adder if adds else lambda *_: inlined(lambda *_: None)
    add_up = adder(c, work, place)

    def bias_of(bias, row, col, sizes, part):
        # It is in one of the parts of a sum.
        if turned:
            row += thread_index() // WARP * WARP_ROWS
            return first(bias, row, sizes[0] - row if part == 0 else 0)
        return first(bias, col, sizes[1] - col if part == 0 else 0)

    bias_of = inlined(bias_of)

    def matmul_warpgroup(a_map, b_map, batch, out, sizes, bias, totals):
        """One warp copies, eight multiply, and nobody meets at a barrier.

        # a [B, M, K] @ b [B, K, N] + bias [N] or [0] -> out [parts, B, M, N]
        # and of halves the sums of a [M, K], if asked for: totals [parts, wide, M]

            for tile in this block's:                 128 x 256 outputs
                for k0 in range(first, last, 64):     of halves; of float32 32
                    acc[64 a, 256 b] += a's tile k0 x b's tile k0   (both in shared)

            warp 8   copies | t+2 | t+3 |     |  t+4  |  ...   until the ring is full
            warps 0-7 start | t   | t+1 | t+2 |  ...           when `full` says so
            tensor cores    | t-1 | t   | t+1 |  ...           and `empty` when done

        One thread orders a box of 128-byte lines with one instruction; the engine finds
        addresses, exchanges vectors for the tensor cores, rounds float32 to TF32, and
        puts zeros where the matrix ends. A stage of the ring has two barriers: `full`,
        which counts bytes, and `empty`, which counts the warps that are done. The warps
        start product t while t - 1 is under way, wait for t - 1, and give its stage
        back.

        A block makes one tile after the other, as many blocks as there are
        multiprocessors: while it stores a tile, the ring fills for the next.
        The gradient of a weight goes with that of a bias, which adds up the rows of a.
        Warps that had nothing to do do so, from the tiles that lie there.
        Halves may lie either way; what lies across k comes in boxes of 128 bytes of
        rows. Of float32 b has to lie along k; a that does not goes to the tensor cores
        by way of registers. If only a lies along k, a block makes tiles of b.T @ a.T.
        Rounding to nearest leaves an error of 2.9e-4 of a result's size, as cuBLAS
        has it; factors that are cut off, as the tensor cores do it, would make 7.7e-4.

        Sources: "PTX ISA", on wgmma, mbarrier and cp.async.bulk.tensor; "CUTLASS",
        its warp-specialized persistent kernels, for who waits for whom, and for the
        engine's rounding.
        """
        shared = cuda.shared.array(0, number)
        open_ring(shared)
        if thread_index() // WARP >= warps:
            few()
            if thread_index() == warps * WARP:
                produce(shared, a_map, b_map, batch, sizes)
            if adds:
                helper = thread_index() // WARP - warps - 1
                if helper >= 0:
                    add_up(shared, helper, batch, sizes, totals)
        else:
            many()
            tiles, items = work(batch, sizes)
            none = zero()
            mine = thread_index() // sharing * apart
            n, phase, item = int64(0), int64(0), int64(cuda.blockIdx.x)
            matrix, part, row, col, _, count = place(item, tiles, batch, sizes)
            while item < items:
                wait(shared, full + n * step, phase)
                left = take(shared, n * stage + mine)
                acc = start(none, left, shared, n * stage + a_size)
                for _ in range(1, count):
                    last, n = n, n + 1
                    if n == stages:
                        n, phase = int64(0), 1 - phase
                    wait(shared, full + n * step, phase)
                    if not in_place:  # the registers are read until it is done
                        acc = finish(acc)
                    left = take(shared, n * stage + mine)
                    acc = begin(acc, left, shared, n * stage + a_size)
                    if in_place:
                        before()  # the product before is done, and this one goes on
                    release(shared, empty + last * step, 0)
                if not in_place:
                    acc = finish(acc)
                # While the last one is under way: the bias,
                bias_row = bias_of(bias, row, col, sizes, part)
                to_matrix, to_row, to_col = matrix, row, col
                item += cuda.gridDim.x  # and where the next tile is.
                matrix, part, row, col, _, count = place(item, tiles, batch, sizes)
                acc = finish(acc)
                release(shared, empty + n * step, 0)
                n += 1
                if n == stages:
                    n, phase = int64(0), 1 - phase
                if bias.size > 0:
                    acc = plus(acc, bias_row)
                warp = thread_index() // WARP
                to_row += warp * WARP_ROWS
                at = lines_at + warp * room
                put(shared, at, out, acc, to_matrix, to_row, to_col, sizes)

    return matmul_warpgroup


def split_template(config: GroupConfig, a_along: bool, b_along: bool) -> Callable:
    """The Python function of `matmul_split` for one way to cut the product."""
    c, stages, stage = config, config.stages, config.stage
    (tile_rows, tile_cols), warps, line, planes = c.wides, c.warps, c.depth, c.planes
    group = Group(tile_cols, line, a_along, False, c.kind, b_along, True)
    start = wgmma_tile(group._replace(fresh=True))[2]
    first, take, begin, finish, store = wgmma_tile(group)
    zero, plus = sums_of(group)
    work, place = _walk(c)
    produce = _producer(c, work, place, a_along, b_along)
    put = matrix_storer(store, 4)
    apart, sharing = WARPS * WARP_ROWS * line, WARP * WARPS
    a_size, b_size = tile_rows * line, tile_cols * line
    step, full, empty = c.step, c.full, c.empty
    open_ring, release, wait = _opener(c), tma.release, tma.wait
    few, many = map(tma.registers, c.registers)

    def multiply(none, shared, a, b):
        # The smallest first, so that few sums are cut off behind large ones.
        a0, a1 = take(shared, a), take(shared, a + a_size)
        acc = start(none, take(shared, a + 2 * a_size), shared, b)
        acc = begin(acc, a1, shared, b + b_size)
        acc = begin(acc, a0, shared, b + 2 * b_size)
        acc = begin(acc, a1, shared, b)
        acc = begin(acc, a0, shared, b + b_size)
        return begin(acc, a0, shared, b)

    multiply = inlined(multiply)

    def matmul_split(a_map, b_map, batch, out, sizes, bias, totals):
        """float32 products of tensor cores that know bfloat16: six for one.

        # a [3, B, M, K] @ b [3, B, K, N] + bias [N] or [0] -> out [parts, B, M, N]

            a = a0 + a1 + a2, each 2**-8 of the one before, and so is b:
            a b = a0 b0 + (a0 b1 + a1 b0) + (a0 b2 + a1 b1 + a2 b0) + 2**-25 of it

        What is left out is less than what a float32 is rounded by. A tile of the ring
        has all planes of 64 steps of k, and so each is fetched once for all products.
        Tensor cores cut off what they add; so each tile's sum begins anew, the small
        products first, and is added to the others by the ordinary units, which round.

        Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial
        intelligence datatype for higher-precision computations", 2019.
        """
        shared = cuda.shared.array(0, uint16)
        open_ring(shared)
        if thread_index() // WARP >= warps:
            few()
            if thread_index() == warps * WARP:
                produce(shared, a_map, b_map, batch, sizes)
        else:
            many()
            tiles, items = work(batch, sizes)
            none = zero()
            warp = thread_index() // WARP
            mine = thread_index() // sharing * apart
            n, phase = int64(0), int64(0)
            for item in range(int64(cuda.blockIdx.x), items, int64(cuda.gridDim.x)):
                matrix, part, row, col, _, count = place(item, tiles, batch, sizes)
                acc = none
                for _ in range(count):
                    wait(shared, full + n * step, phase)
                    at = n * stage
                    chunk = multiply(none, shared, at + mine, at + planes * a_size)
                    chunk = finish(chunk)
                    release(shared, empty + n * step, 0)
                    acc = plus(acc, chunk)
                    n += 1
                    if n == stages:
                        n, phase = int64(0), 1 - phase
                if bias.size > 0:  # it is in one of the parts of a sum
                    acc = plus(
                        acc, first(bias, col, sizes[1] - col if part == 0 else 0)
                    )
                put(out, acc, matrix, row + warp * WARP_ROWS, col, sizes)

    return matmul_split


if TINY:
    CUTS: tuple[GroupConfig, ...] = (GroupConfig(2, 32, 3), GroupConfig(1, 16, 3))
    SQUARE = GroupConfig(3, 48, 3)
    SMALL: tuple[GroupConfig, ...] = ()
    SPLITS: tuple[GroupConfig, ...] = (GroupConfig(2, 16, 2, wide=True, planes=3),)
else:
    CUTS = (GroupConfig(2, 256, 4), GroupConfig(2, 128, 5))
    # 768 x 3072 are 64 tiles of these: two parts of each fill 132 multiprocessors.
    SQUARE = GroupConfig(3, 192, 4)
    # 1024 x 1024 are 64 tiles of two groups, and 128 of one.
    SMALL = (GroupConfig(1, 64, 8), GroupConfig(1, 128, 6))
    SPLITS = (GroupConfig(2, 128, 2, wide=True, planes=3),)
GROUP_CONFIGS = {
    kind: tuple(c._replace(kind=kind) for c in (*CUTS, square, *SMALL))
    for kind, square in (
        (BF16, SQUARE),
        (F16, SQUARE),
        (TF32, SQUARE._replace(groups=2)),
    )
}
EXAMPLE = "tensor_map tensor_map 6*int64 uint16[] 4*int64 float32[] float32[]"
MOVED = GroupConfig(*CUTS[0][:3], moved=True)
MAIN = {
    (MOVED, True, True): "matmul_moved",
    (GROUP_CONFIGS[BF16][0], True, False): "matmul_warpgroup",
    (SPLITS[0], True, True): "matmul_split",
}


@cache
def warpgroup(config: GroupConfig, a_along: bool, b_along: bool) -> Kernel:
    """The kernel `matmul_warpgroup` for one way to cut, or `matmul_split`."""
    template = warpgroup_template if config.planes == 1 else split_template
    fn = template(config, a_along, b_along)
    key = config, a_along, b_along
    example = EXAMPLE.replace("uint16[]", "float32[]") if config.wide else EXAMPLE
    example = example.replace("6*", "11*") if config.moved else example
    return Kernel(
        fn,
        name=MAIN.get(key) or f"{fn.__name__}{(*config, a_along, b_along)}",
        examples=(example,) * (key in MAIN),
        threads=config.threads,
        launch_bounds=config.threads,
        shared=config.shared,
        arch=ARCH,
        only_arch=True,
    )


for _key in MAIN:
    warpgroup(*_key)


def bound(
    config: GroupConfig, sizes: tuple[int, ...], a_strides: tuple[int, ...],
    b_strides: tuple[int, ...], matrices: int, moves: Moves | None = None,
) -> Callable:  # fmt: skip
    """run(a, a_at, _, b, b_at, _, out, sizes, bias, sums): a product of matrices.

    It is called as a launch of `matmul_tensor_core`. Strides are of rows (columns), of
    k, of two batch dims, or of planes and one such, and the size of the last of these.
    """
    M, N, K, chunk = sizes
    views: list[Any] = []
    steps, along = [], []
    operands, way = [(M, a_strides), (N, b_strides)], -1 if config.turned else 1
    for tile, (wide, (stride, step, outer, inner, n)) in zip(
        config.wides, operands[::way]
    ):
        along.append(step == 1)
        line, lines, pitch = (K, wide, stride) if step == 1 else (wide, K, step)
        if moves and len(views) == 1:
            line, lines = moves[:2]
        last = ceil_div(matrices, n) if config.planes == 1 else config.planes
        shape = line, lines, n if inner else 1, last if outer else 1
        box = config.depth, tile if step == 1 else config.depth, 1, 1
        unit = VECTOR_BYTES // config.size
        views.append((shape, (pitch, inner or unit, outer or unit), box))
        steps += [int(outer != 0), int(inner != 0)]  # 0: it is one matrix for all
    tiles = ceil_div(M, config.rows) * ceil_div(N, config.cols) * ceil_div(K, chunk)
    most = properties().multi_processor_count * config.blocks
    kernel = warpgroup(config, *along)
    grid = fewest(tiles * matrices, most), config.threads, None, config.shared
    batch = *steps, a_strides[4], matrices, *(moves[2:] if moves else ())
    launch = kernel[grid]
    sizes = *(M, N)[::way], K, chunk

    def run(
        left: Any, a_at: int, _: Any, right: Any, b_at: int, __: Any, out: Any,
        ___: Any, bias: Any, totals: Any,
    ) -> None:  # fmt: skip
        first, second = ((left, a_at), (right, b_at))[::way]
        maps = TensorMap(*first, *views[0]), TensorMap(*second, *views[1])
        launch(*maps, batch, out, sizes, bias, totals)

    return run
