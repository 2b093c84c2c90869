"""Matrix products of halves by warpgroups, which a warp of its own feeds.

With this file one can get the kernel `matmul_halves` for one way to cut a product of
bfloat16 or float16 (`half_product`), and bind it to a shape (`bound`). Only compute
capability 9.0 has its instructions; `matmul.py` widens halves elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, int64, uint16

from cuda_ops.block import tma
from cuda_ops.block.intrinsics import WARP
from cuda_ops.block.mma import BF16, HALVES
from cuda_ops.block.tiles import inlined, quotient, thread_index
from cuda_ops.block.wgmma import (
    ARCH,
    DEPTH,
    LINE_ROOM,
    WARP_ROWS,
    WARPS,
    Group,
    line_storer,
    make_wait,
    sums_of,
    wgmma_tile,
)
from cuda_ops.matmul.kernels import matrix_storer, origin_of
from cuda_ops.runtime.device import properties
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div
from cuda_ops.runtime.tensor_maps import TensorMap

# Numbers of 128 bytes, a line in shared memory: also the steps of k of a tile.
LINE = 2 * DEPTH
# Rows of tiles that are walked together.
HIGH = 16


class HalfConfig(NamedTuple):
    """How `matmul_halves` cuts a product into tiles.

    A block makes tiles of 64 `groups` x `cols` outputs, one after the other, from a
    ring of `stages` tiles of both operands. `kind` is as in `mma.Strips`, `wide` as in
    `Group`; `blocks` share a multiprocessor.
    """

    groups: int
    cols: int
    stages: int
    kind: str = BF16
    wide: bool = False
    blocks: int = 1
    depth: int = LINE

    @property
    def rows(self) -> int:
        return self.groups * WARPS * WARP_ROWS

    @property
    def warps(self) -> int:
        """Warps that multiply. Of four more, one copies."""
        return self.groups * WARPS

    @property
    def threads(self) -> int:
        return WARP * (self.warps + WARPS)

    @property
    def stage(self) -> int:
        """Numbers of a tile of a and one of b."""
        return (self.rows + self.cols) * LINE

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the ring, its barriers, lines of outputs."""
        ring = self.stages * (self.stage + 2 * tma.BARRIER)
        return 2 * (ring + self.warps * LINE_ROOM)


def _box_copier(wide: int, along: bool) -> Callable:
    """copy(shared, at, source, barrier, row, k, inner, outer): an operand's tile.

    An operand that lies across k comes in parts of a line's rows.
    """
    copy = tma.copy

    def boxes(shared, at, source, barrier, row, k, inner, outer):
        if along:
            copy(shared, at, source, barrier, k, row, inner, outer)
        else:
            for part in range(wide // LINE):
                to, first = at + part * (LINE * LINE), row + part * LINE
                copy(shared, to, source, barrier, first, k, inner, outer)

    return inlined(boxes)


def halves_template(config: HalfConfig, a_along: bool, b_along: bool) -> Callable:
    """The Python function of `matmul_halves` for one way to cut the product."""
    c, stages, stage = config, config.stages, config.stage
    tile_rows, tile_cols, warps = c.rows, c.cols, c.warps
    group = Group(c.cols, LINE, a_along, LINE, False, c.kind, b_along, c.wide)
    start = wgmma_tile(group._replace(fresh=True))[2]
    first, take, begin, finish, store = wgmma_tile(group)
    zero, plus = sums_of(group)
    copy_a, copy_b = _box_copier(c.rows, a_along), _box_copier(c.cols, b_along)
    origin, before = origin_of(c.rows, c.cols, HIGH), make_wait(1)
    put_one, put_lines = matrix_storer(store, 4), line_storer(group)
    wide, vector, a_size = c.wide, group.strips.vector, c.rows * LINE
    room, apart, sharing = LINE_ROOM, WARPS * WARP_ROWS * LINE, WARP * WARPS
    lines_at = stages * stage
    full = lines_at + warps * room
    empty = full + stages * tma.BARRIER
    step, nbytes = tma.BARRIER, 2 * stage
    prepare, ready, expect = tma.prepare, tma.ready, tma.expect
    release, wait = tma.release, tma.wait
    few, many = tma.registers(56), tma.registers(224)

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
        count = (min(K - k, chunk) + LINE - 1) // LINE
        return matrix, part, row, col, k, count

    work, place = inlined(work), inlined(place)

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
                copy_a(
                    shared, at, a_map, bar, row, k, inner * batch[1], outer * batch[0]
                )
                copy_b(
                    shared, at + a_size, b_map, bar, col, k, inner * batch[3],
                    outer * batch[2],
                )  # fmt: skip
                k += LINE
                n += 1
                if n == stages:
                    n, phase = int64(0), 1 - phase

    produce = inlined(produce)

    def matmul_halves(a_map, b_map, batch, out, sizes, bias):
        """One warp copies, eight multiply, and nobody meets at a barrier.

        # a [B, M, K] @ b [B, K, N] + bias [N] or [0] -> out [parts, B, M, N], of halves

            for tile in this block's:                 128 x 256 outputs
                for k0 in range(first, last, 64):
                    acc[64 a, 256 b] += a's tile k0 x b's tile k0   (both in shared)

            warp 8   copies | t+2 | t+3 |     |  t+4  |  ...   until the ring is full
            warps 0-7 start | t   | t+1 | t+2 |  ...           when `full` says so
            tensor cores    | t-1 | t   | t+1 |  ...           and `empty` when done

        In `matmul_warpgroup` all threads copy 16 bytes at a time, and meet at a barrier
        for each tile. Here one thread orders a box of 128-byte lines with one
        instruction; the engine finds addresses, exchanges vectors for the tensor cores,
        and puts zeros where the matrix ends. A stage of the ring has two barriers:
        `full`, which counts bytes, and `empty`, which counts the warps that are done.
        The warps start product t while t - 1 is under way, wait for t - 1, and give its
        stage back.

        A block makes one tile after the other, as many blocks as there are
        multiprocessors: while it stores a tile, the ring fills for the next.
        Operands may lie either way; one that lies across k comes in boxes of 64
        columns.

        Sources: "PTX ISA", on wgmma, mbarrier and cp.async.bulk.tensor; "CUTLASS",
        its warp-specialized persistent kernels, for who waits for whom.
        """
        shared = cuda.shared.array(0, uint16)
        if thread_index() == 0:
            for s in range(stages):
                prepare(shared, full + s * step, 1)
                prepare(shared, empty + s * step, warps)
            ready()
        cuda.syncthreads()
        if thread_index() // WARP >= warps:
            few()
            if thread_index() == warps * WARP:
                produce(shared, a_map, b_map, batch, sizes)
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
                    left = take(shared, n * stage + mine)
                    acc = begin(acc, left, shared, n * stage + a_size)
                    before()  # the product before is done, and this one goes on
                    release(shared, empty + last * step, 0)
                # While the last one is under way: the bias, in one of a sum's parts,
                bias_row = first(bias, col, sizes[1] - col if part == 0 else 0)
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
                if wide or sizes[1] % vector:
                    put_one(out, acc, to_matrix, to_row, to_col, sizes)
                else:
                    at = lines_at + warp * room
                    put_lines(shared, at, out, acc, to_matrix, to_row, to_col, sizes)

    return matmul_halves


if TINY:
    CUTS: tuple[HalfConfig, ...] = (HalfConfig(2, 32, 3), HalfConfig(1, 16, 3))
else:
    CUTS = (HalfConfig(2, 256, 4), HalfConfig(2, 128, 5))
HALF_CONFIGS = {kind: tuple(c._replace(kind=kind) for c in CUTS) for kind in HALVES}
EXAMPLE = "tensor_map tensor_map 6*int64 uint16[] 4*int64 float32[]"
MAIN = {(HALF_CONFIGS[BF16][0], True, False): "matmul_halves"}


@cache
def half_product(config: HalfConfig, a_along: bool, b_along: bool) -> Kernel:
    """The kernel `matmul_halves` for one way to cut."""
    fn = halves_template(config, a_along, b_along)
    key = config, a_along, b_along
    return Kernel(
        fn,
        name=MAIN.get(key) or f"{fn.__name__}{(*config, a_along, b_along)}",
        examples=(EXAMPLE,) * (key in MAIN),
        threads=config.threads,
        launch_bounds=config.threads,
        shared=config.shared,
        arch=ARCH,
        only_arch=True,
    )


for _key in MAIN:
    half_product(*_key)


def bound(
    config: HalfConfig, sizes: tuple[int, ...], a_strides: tuple[int, ...],
    b_strides: tuple[int, ...], matrices: int,
) -> Callable:  # fmt: skip
    """run(a, a_at, _, b, b_at, _, out, sizes, bias): the product of some matrices.

    It is called as a launch of `matmul_warpgroup`. Strides are of rows (columns), of k,
    of two batch dims, and the size of the last of these.
    """
    M, N, K, chunk = sizes
    views, steps, along = [], [], []
    for wide, tile, (stride, step, outer, inner, n) in (
        (M, config.rows, a_strides), (N, config.cols, b_strides),
    ):  # fmt: skip
        along.append(step == 1)
        line, lines, pitch = (K, wide, stride) if step == 1 else (wide, K, step)
        shape = line, lines, n if inner else 1, ceil_div(matrices, n) if outer else 1
        box = LINE, tile if step == 1 else LINE, 1, 1
        views.append((shape, (pitch, inner or 8, outer or 8), box))
        steps += [int(outer != 0), int(inner != 0)]  # 0: it is one matrix for all
    tiles = ceil_div(M, config.rows) * ceil_div(N, config.cols) * ceil_div(K, chunk)
    most = properties().multi_processor_count * config.blocks
    kernel = half_product(config, *along)
    grid = min(tiles * matrices, most), config.threads, None, config.shared
    launch, batch = kernel[grid], (*steps, a_strides[4], matrices)

    def run(
        left: Any, a_at: int, _: Any, right: Any, b_at: int, __: Any, *rest: Any
    ) -> None:
        maps = TensorMap(left, a_at, *views[0]), TensorMap(right, b_at, *views[1])
        launch(*maps, batch, *rest)

    return run
