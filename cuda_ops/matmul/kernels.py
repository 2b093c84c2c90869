"""The two kernels that multiply matrices, and the ways to cut a product into blocks.

With this file one can get the kernel for one way to cut: `vectorized` on the ordinary
units and `tensor_core` on the tensor cores. A way to cut is a `Config` or a
`TensorConfig`, and a `Layout` to copy each operand. `matmul.py` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, float32, float64, int32, int64, uint16

from cuda_ops.block.copies import Copy, copier, fences, unit_of
from cuda_ops.block.intrinsics import WARP, store
from cuda_ops.block.mma import BF16, F16, F64, HALVES, TF32, Strips, mma_tile
from cuda_ops.block.tiles import (
    VECTOR_BYTES,
    Side,
    Tile,
    fma_tile,
    inlined,
    quotient,
    thread_index,
)
from cuda_ops.runtime.launch import TINY, Kernel, kernel

# Rows of tiles that are walked together, column by column.
GROUP = 8
NUMBERS = {"float32": float32, "float64": float64, "int64": int64, "int32": int32}
SIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4}


class Layout(NamedTuple):
    """How one operand is copied into shared memory; see `Copy`.

    Attributes:
        elements: neighbours that one instruction copies, 16 bytes full or one.
        k_fast: whether k runs along the lines, as it does in memory.
    """

    elements: int
    k_fast: bool


def pitch_of(wide: int, depth: int, layout: Layout, more: int) -> int:
    """From one line to the next in shared memory: `more` elements behind its end.

    Without these, lines of 128 bytes would all begin in the same of the 32 banks.
    """
    return (depth if layout.k_fast else wide) + more


class Config(NamedTuple):
    """How `matmul_vectorized` cuts a product into blocks, warps and threads.

    A block makes `rows` x `cols` outputs, `depth` steps of k at a time. Its warps form
    a grid of warps_m x warps_n, each thread makes thread_rows x thread_cols outputs.
    With `slices` > 1 there are that many such grids; each takes a chunk of the depth,
    and their sums are added at the end.

    Attributes:
        stages: tiles in shared memory; all but one are on their layout.
        interleave: 2 lays lanes out in pairs of rows, 1 row by row.
        blocks: blocks that shall fit on a multiprocessor, which limits registers.
    """

    warps_m: int
    warps_n: int
    slices: int
    thread_rows: int
    thread_cols: int
    lane_rows: int
    depth: int
    stages: int
    interleave: int = 2
    blocks: int = 1

    @property
    def rows(self) -> int:
        return self.warps_m * self.lane_rows * self.thread_rows

    @property
    def cols(self) -> int:
        return self.warps_n * WARP // self.lane_rows * self.thread_cols

    @property
    def threads(self) -> int:
        return WARP * self.warps_m * self.warps_n * self.slices

    def copies(
        self,
        a_layout: Layout,
        b_layout: Layout,
        vector: int = 4,
        asynchronous: bool = True,
    ) -> tuple[Copy, Copy]:
        """How the block's threads copy a tile of a and one of b.

        Lines of 64 bytes, and 16 more, begin in banks 0, 20, 8, 28, ... Eight lanes
        that copy two of them meet in 4 banks, which takes two turns. Without a gap two
        lines fill the 32 banks, and lanes that load the same batch_range of both meet
        different ones, too. So there is no gap where half a warp has two rows of a.
        """
        pairs = a_layout.k_fast and self.depth == 4 * vector and self.lane_rows == 4
        a, b = (
            Copy(
                self.depth, wide, pitch_of(wide, self.depth, layout, more),
                self.threads, layout.elements, asynchronous, layout.k_fast,
            )
            for wide, layout, more in (
                (self.rows, a_layout, 0 if pairs else vector),
                (self.cols, b_layout, vector),
            )
        )  # fmt: skip
        return a, b

    def shared(self, a_layout: Layout, b_layout: Layout, size: int) -> int:
        """Bytes of shared memory: the ring of tiles, later the sums put aside."""
        ring = ring_elements(self, a_layout, b_layout, VECTOR_BYTES // size)
        return max(ring, (self.slices - 1) * self.rows * self.cols) * size

    def tile(self, a: Copy, b: Copy, vector: int) -> Tile:
        """What a thread multiplies in one step; `vector` numbers are 16 bytes."""
        lanes = self.lane_rows, WARP // self.lane_rows
        counts = self.thread_rows, self.thread_cols
        a_side, b_side = (
            Side(count, n if c.k_fast else n * vector, c.pitch, c.k_fast)
            for count, n, c in zip(counts, lanes, (a, b))
        )
        return Tile(a_side, b_side, self.depth // self.slices)


# ------------------------------------------------- what both kinds of kernels share


@cache
def origin_of(rows: int, cols: int, high: int = GROUP) -> Callable:
    """origin(block, M, N): the first row and column of the tile of a block.

    Blocks run in the order of their numbers, more or less. Numbered row by row, those
    that run together would share one row of tiles of a and need all of b. Walking down
    groups of 8 rows of tiles they form a square instead, which needs less of both: the
    second-level cache then serves most of what they read.

    Source of the idea: CUTLASS's "threadblock rasterization".
    """

    def origin(block, M, N):
        wide = (N + cols - 1) // cols
        # In a group, blocks go down its rows first, then to the next column.
        group = quotient(block, high * wide)
        within = block - group * high * wide
        lines = min(high, (M + rows - 1) // rows - group * high)
        col = quotient(within, lines)
        return (group * high + within - col * lines) * rows, col * cols

    return inlined(origin)


def batch_start(strides):
    """Where the matrix of this block starts: strides are (.., .., outer, inner, n)."""
    z = int64(cuda.blockIdx.z)
    outer = z // strides[4]
    return outer * strides[2] + (z - outer * strides[4]) * strides[3]


class Ring(NamedTuple):
    """The device functions of a product whose shared tiles form a ring.

    Attributes:
        begin: start the first copies; see `ring_of`.
        load_a, load_b: copy one more tile of an operand (`copies.copier`).
        close, wait, wait_all: groups of copies (`copies.fences`).
        a_size: elements of a's tile, behind which b's tile starts.
        stage: elements of both.
        forward: from one tile's address to the next one's, where k has a stride of 1.
    """

    begin: Callable
    load_a: Callable
    load_b: Callable
    close: Callable
    wait: Callable
    wait_all: Callable
    a_size: int
    stage: int
    forward: int


def ring_elements(
    config: Any, a_layout: Layout, b_layout: Layout, vector: int = 4
) -> int:
    """Elements of shared memory for all stages of a ring of tiles."""
    copies = config.copies(a_layout, b_layout, vector)
    return config.stages * sum(copy.elements_shared for copy in copies)


def ring_of(config: Any, a_copy: Copy, b_copy: Copy, size: int) -> Ring:
    """The functions for a way to cut, whose elements have `size` bytes.

        row, col, count, a_from, a_walk, b_from, b_walk = begin(
            shared, a, a_at, a_strides, b, b_at, b_strides, sizes)

    finds the block's outputs, from `row` and `col` on, and starts the copies of all
    pairs of tiles but one, for its chunk of k, which takes `count` tiles. The first
    tile takes what is left over when the others are full.
    """
    depth, stages, unit = a_copy.depth, config.stages, unit_of(size)
    a_size = a_copy.elements_shared
    stage = a_size + b_copy.elements_shared
    begin_a, load_a, first_a = copier(a_copy, size)
    begin_b, load_b, first_b = copier(b_copy, size)
    close, wait, wait_all = fences(a_copy.asynchronous, stages - 2)
    origin, start_of = origin_of(config.rows, config.cols), inlined(batch_start)

    def begin(shared, a, a_at, a_strides, b, b_at, b_strides, sizes):
        M, N, K, chunk = sizes
        row, col = origin(int64(cuda.blockIdx.x), M, N)
        rows, cols, skip = M - row, N - col, cuda.blockIdx.y * chunk
        a_at += start_of(a_strides) + row * a_strides[0] + skip * a_strides[1]
        b_at += start_of(b_strides) + col * b_strides[0] + skip * b_strides[1]
        steps = min(K - skip, chunk)
        a_step, b_step = a_strides[1] * unit, b_strides[1] * unit
        a_from, a_walk = begin_a(a, a_at, a_strides[0], a_strides[1])
        b_from, b_walk = begin_b(b, b_at, b_strides[0], b_strides[1])
        count = (steps + depth - 1) // depth
        head = steps - (count - 1) * depth
        for s in range(stages - 1):
            if s == 0 and count > 0:
                first_a(shared, 0, a, a_from, a_walk, rows, head)
                first_b(shared, a_size, b, b_from, b_walk, cols, head)
                a_from += head * a_step
                b_from += head * b_step
            elif s < count:
                load_a(shared, s * stage, a, a_from, a_walk, rows)
                load_b(shared, s * stage + a_size, b, b_from, b_walk, cols)
                a_from += depth * a_step
                b_from += depth * b_step
            close()
        return row, col, count, a_from, a_walk, b_from, b_walk

    begin = inlined(begin)
    return Ring(
        begin, load_a, load_b, close, wait, wait_all, a_size, stage, unit * depth
    )


def tile_storer(store: Callable, vector: int) -> Callable:
    """finish(out, acc, row, col, sizes): store a thread's outputs from (row, col) on.

    The grid's y is the chunk of k, its z the matrix of the batch.
    """

    put = matrix_storer(store, vector)

    def finish(out, acc, row, col, sizes):
        matrix = cuda.blockIdx.y * cuda.gridDim.z + cuda.blockIdx.z
        put(out, acc, matrix, row, col, sizes)

    return inlined(finish)


def matrix_storer(store: Callable, vector: int) -> Callable:
    """put(out, acc, matrix, row, col, sizes): as `tile_storer`, into any matrix."""

    def put(out, acc, matrix, row, col, sizes):
        M, N = sizes[0], sizes[1]
        at = (matrix * M + row) * N + col
        store(out, at, N, acc, M - row, N - col, N % vector == 0)

    return inlined(put)


# ---------------------------------------------------------------- the ordinary units


def vectorized_template(
    name: str, config: Config, a_layout: Layout, b_layout: Layout, asynchronous: bool
) -> Callable:
    """The Python function of `matmul_vectorized` for one way to cut the product."""
    c, dtype, size = config, NUMBERS[name], SIZES[name]
    vector = VECTOR_BYTES // size
    a_copy, b_copy = c.copies(a_layout, b_layout, vector, asynchronous)
    begin, load_a, load_b, close, wait, wait_all, a_size, stage, forward = ring_of(
        c, a_copy, b_copy, size
    )
    tile = c.tile(a_copy, b_copy, vector)
    zero, multiply, store, put_aside, add_aside = fma_tile(dtype, tile)
    (a_row_stride, a_k), (b_row_stride, b_k) = a_copy.strides, b_copy.strides
    stages, slices, slice_depth = c.stages, c.slices, c.depth // c.slices
    add_slices, finish = (
        slice_adder(c, vector, put_aside, add_aside),
        tile_storer(store, vector),
    )
    high, wide = (1 if layout.k_fast else vector for layout in (a_layout, b_layout))
    place, ring = thread_place(c, high, wide), stages * stage

    def matmul_vectorized(a, a_at, a_strides, b, b_at, b_strides, out, sizes):
        """Register tiles, fed by 16-byte loads from a ring of tiles in shared memory.

        # a [B, M, K] @ b [B, K, N] -> out [splits, B, M, N]

            for a block of 64 x 128 outputs, for k0 in range(first, last, 16):
                tile k0 + 48 of a and b -> shared memory            (under way)
                for k in tile k0:  for i, j in 8 x 8:
                    acc[i, j] += a_tile[row i, k] * b_tile[k, col j]

            ring    | tile t-1 -> t+3 | tile t    | tile t+1, t+2 |
                      being overwritten  multiplied  arriving

        A block of 128 threads makes 64 x 128 outputs, a warp 32 x 64, and a thread
        8 x 8, in groups that lie apart: so that its 16 factors for a k are four
        16-byte loads, in which the lanes of a warp meet all banks equally often.
        64 fma follow; `matmul_coarsened` needed 9 loads for 8 fma.

        The 64 sums stay in registers, with factors, addresses and counters no more than
        168, so three blocks share a multiprocessor, and two multiply while one is at
        its barrier. A pair of tiles is 12 KB of shared memory; four pairs in a ring let
        copies take the time of two tiles.
        `cp.async` copies 16 bytes past the registers. An operand keeps the direction
        it has in memory; one that lies along k is fetched four steps of k at a time,
        which costs a tenth of the speed (`matmul` turns large ones around before).

        Sources: Nath, Tomov and Dongarra, "An improved MAGMA GEMM for Fermi GPUs", 2010
        (register tiles); "CUTLASS: fast linear algebra in CUDA C++", 2017 (warp tiles,
        interleaved lanes, the order of blocks, slices of k).
        """
        shared = cuda.shared.array(0, dtype)
        row, col, count, a_from, a_walk, b_from, b_walk = begin(
            shared, a, a_at, a_strides, b, b_at, b_strides, sizes
        )
        rows, cols = sizes[0] - row, sizes[1] - col
        _, slice_, my_row, my_col = place()
        a_mine = slice_ * slice_depth * a_k + my_row * a_row_stride
        b_mine = slice_ * slice_depth * b_k + my_col * b_row_stride + a_size
        # `a_mine` and `b_mine` are this thread's first factors, counted from a slot.
        # BEGIN SOLUTION a5.5
        acc = zero()
        slot, free = 0, ring - stage
        for t in range(count):
            wait()  # for this thread's copies of tile t
            cuda.syncthreads()  # for all others'; and all are done with tile t - 1
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            if t + stages - 1 < count:
                load_a(shared, free, a, a_from, a_walk, rows)
                load_b(shared, free + a_size, b, b_from, b_walk, cols)
                a_from += forward * a_strides[1]
                b_from += forward * b_strides[1]
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        # END SOLUTION a5.5
        thread, slice_, my_row, my_col = place()
        # Found anew: no register had to keep it through the loop.
        if slices > 1:
            wait_all()  # No copy may come into the room that the sums take.
            acc = add_slices(shared, acc, thread, slice_)
        if slice_ == 0:
            finish(out, acc, row + my_row, col + my_col, sizes)

    return matmul_vectorized


def slice_adder(
    c: Config, vector: int, put_aside: Callable, add_aside: Callable
) -> Callable:
    """add_slices(shared, acc, thread, slice) -> acc, the sum of all slices in slice 0.

    The others put their sums where the tiles were, and slice 0 adds them in order.
    """
    slices, group = c.slices, c.threads // c.slices
    size = c.thread_rows * c.thread_cols * group  # what one slice puts aside

    def add_slices(shared, acc, thread, slice_):
        cuda.syncthreads()  # All are done with the tiles.
        if slice_ > 0:
            at = (slice_ - 1) * size + thread * vector
            put_aside(shared, at, group * vector, acc)
        cuda.syncthreads()
        if slice_ == 0:
            for s in range(slices - 1):
                at = s * size + thread * vector
                acc = add_aside(shared, at, group * vector, acc)
        return acc

    return inlined(add_slices)


def thread_place(c: Config, high: int, wide: int) -> Callable:
    """place() -> thread of its slice, slice, first row and first column in the tile.

    `high` and `wide` are from the first row or column of a lane to the next lane's.

    Lanes of a warp form a grid of lane_rows lines. With `interleave` 2 neighbours pair
    up: lanes 0, 2, 4, ... are in one line and 1, 3, 5, ... in the next, so that 8
    lanes, which load 16 bytes each at a time, need few different parts of both sides.
    """
    lane_cols, pairs = WARP // c.lane_rows, c.interleave
    warp_rows, warp_cols = c.lane_rows * c.thread_rows, lane_cols * c.thread_cols
    warps_n, group = c.warps_n, c.threads // c.slices

    def place():
        index = thread_index()
        slice_, thread = index // group, index % group
        warp, lane = thread // WARP, thread % WARP
        line, rest = lane // (lane_cols * pairs), lane % (lane_cols * pairs)
        row = (line * pairs + rest % pairs) * high
        col = rest // pairs * wide
        return (
            thread, slice_, warp // warps_n * warp_rows + row,
            warp % warps_n * warp_cols + col,
        )  # fmt: skip

    return inlined(place)


# ----------------------------------------------------------------- the tensor cores


class TensorConfig(NamedTuple):
    """How `matmul_tensor_core` cuts a product into blocks and warps.

    A warp makes 8 a_strips x 8 b_strips outputs, and a block has warps_m x warps_n
    warps. `depth`, `stages` and `blocks` are as in `Config`, `kind`, `wide` and `old`
    as in `mma.Strips`.
    """

    warps_m: int
    warps_n: int
    a_strips: int
    b_strips: int
    depth: int
    stages: int
    blocks: int = 1
    kind: str = TF32
    wide: bool = False
    old: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return {TF32: 4, F64: 8}.get(self.kind, 2)

    @property
    def rows(self) -> int:
        return self.warps_m * self.a_strips * 8

    @property
    def cols(self) -> int:
        return self.warps_n * self.b_strips * 8

    @property
    def threads(self) -> int:
        return WARP * self.warps_m * self.warps_n

    @property
    def asynchronous(self) -> bool:
        """Whether the chip has `cp.async`, as all have that know float64."""
        return not self.old or self.kind == F64

    def copies(
        self, a_layout: Layout, b_layout: Layout, _: int = 4
    ) -> tuple[Copy, Copy]:
        """How the block's threads copy a tile of a and one of b.

        The lines are as far apart as a warp needs to meet all 32 banks: `ldmatrix`
        reads 4 words of each of 8 lines at a time, which 4 words more put into
        different banks; a load across k reads 8 words of each of 4 lines, and 8 words
        more do. Halves are always read by `ldmatrix`, and 8 of them are 4 words. Half a
        warp reads 4 float64 of each of 4 lines, and 4 more do in both directions.
        """
        more = 8 if self.kind in HALVES else 4
        across = 4 if self.kind == F64 else 8
        a, b = (
            Copy(
                self.depth, wide,
                pitch_of(wide, self.depth, layout, more if layout.k_fast else across),
                self.threads, layout.elements, self.asynchronous, layout.k_fast,
            )
            for wide, layout in ((self.rows, a_layout), (self.cols, b_layout))
        )  # fmt: skip
        return a, b

    def shared(self, a_layout: Layout, b_layout: Layout, size: int) -> int:
        """Bytes of shared memory for the ring of tiles."""
        return ring_elements(self, a_layout, b_layout) * size


def tensor_core_template(
    config: TensorConfig, a_layout: Layout, b_layout: Layout
) -> Callable:
    """The Python function of `matmul_tensor_core` for one way to cut the product."""
    c, stages = config, config.stages
    a_copy, b_copy = c.copies(a_layout, b_layout)
    begin, load_a, load_b, close, wait, _, a_size, stage, forward = ring_of(
        c, a_copy, b_copy, c.size
    )
    along, pitches = (a_layout.k_fast, b_layout.k_fast), (a_copy.pitch, b_copy.pitch)
    zero, multiply, store = mma_tile(
        Strips(c.a_strips, c.b_strips, *along, c.depth, *pitches, c.kind, c.wide, c.old)
    )
    number = {TF32: float32, F64: float64}.get(c.kind, uint16)
    warps_n, warp_rows, warp_cols = c.warps_n, c.a_strips * 8, c.b_strips * 8
    a_row_stride, b_row_stride = a_copy.strides[0], b_copy.strides[0]
    finish, ring = tile_storer(store, 2 if c.kind == F64 else 4), stages * stage

    def matmul_tensor_core(a, a_at, a_strides, b, b_at, b_strides, out, sizes):
        """The tensor cores: 1,024 multiplications an instruction, of rounded factors.

        # a [B, M, K] @ b [B, K, N] -> out [splits, B, M, N], float32 or halves

            for a block of 128 x 128 outputs, for k0 in range(first, last, 16):
                tile k0 + 48 of a and b -> shared memory            (under way)
                for a warp of 64 x 64 outputs, for 8 k, for i in 4, j in 8:
                    acc[i, j] += a [16 rows i, 8 k] @ b [8 k, 8 columns j]

        A warp makes 64 x 64 outputs, and its lanes hold 128 of them each. One
        `mma.sync.m16n8k8` multiplies 16 x 8 by 8 x 8 numbers that the lanes hold
        together, 4 and 2 each, and adds the product to 4 sums of each lane. So 32
        factors a lane feed 32 instructions of 1,024 multiplications; in
        `matmul_vectorized` 16 factors fed 64 of 32.

        128 sums, 32 factors and as many under way fill 200 to 230 registers; two
        blocks of 128 threads share a multiprocessor. A pair of tiles is 19 KB of shared
        memory, and four pairs in a ring keep three copies under way: a tile is used up
        in 1,000 cycles now, about as long as memory takes to answer. Each operand lies
        in shared memory in the order in which it comes: `ldmatrix` deals out the one
        that lies along k, four numbers a lane at once.

        Factors are rounded to TF32 as they come from shared memory: 10 bits after the
        point, so that a product has a relative error of up to 2^-10. Sums are float32.
        Halves are taken as they are, two in a word, and so twice as many at a time;
        float64 as well, by chips of data centers, and its sums are float64.

        Source: "PTX ISA", on mma.sync, ldmatrix and cp.async; the order of loads and
        products follows "CUTLASS: fast linear algebra in CUDA C++".
        """
        shared = cuda.shared.array(0, number)
        row, col, count, a_from, a_walk, b_from, b_walk = begin(
            shared, a, a_at, a_strides, b, b_at, b_strides, sizes
        )
        rows, cols = sizes[0] - row, sizes[1] - col
        # BEGIN SOLUTION a5.8
        warp = thread_index() // WARP
        a_mine = warp // warps_n * warp_rows * a_row_stride
        b_mine = warp % warps_n * warp_cols * b_row_stride + a_size
        acc = zero()
        slot, free = 0, ring - stage
        for t in range(count):
            wait()  # for this thread's copies of tile t
            cuda.syncthreads()  # for all others'; and all are done with tile t - 1
            if t + stages - 1 < count:
                load_a(shared, free, a, a_from, a_walk, rows)
                load_b(shared, free + a_size, b, b_from, b_walk, cols)
                a_from += forward * a_strides[1]
                b_from += forward * b_strides[1]
            close()
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        warp = thread_index() // WARP
        my_row, my_col = warp // warps_n * warp_rows, warp % warps_n * warp_cols
        finish(out, acc, row + my_row, col + my_col, sizes)
        # END SOLUTION a5.8

    return matmul_tensor_core


# --------------------------------------------------------- the cuts that are in use

if TINY:  # as small as a warp, so that products of 40 x 40 have several tiles
    CONFIGS_4: tuple[Config, ...] = (
        Config(1, 1, 1, 4, 8, 8, 8, 3),
        Config(1, 1, 2, 4, 4, 8, 16, 2, interleave=1),
    )
    CONFIGS_8: tuple[Config, ...] = (Config(1, 1, 1, 4, 4, 8, 8, 3),)
    TENSOR_CONFIGS: tuple[TensorConfig, ...] = (TensorConfig(2, 2, 2, 2, 16, 3),)
    F64_CONFIGS: tuple[TensorConfig, ...] = (TensorConfig(2, 2, 2, 2, 16, 3, 1, F64),)
else:
    CONFIGS_4 = (
        Config(2, 2, 1, 8, 8, 4, 16, 4, blocks=3),  # 64 x 128
        Config(2, 2, 1, 4, 8, 8, 16, 4, blocks=4),  # 64 x 64
        Config(2, 2, 2, 4, 8, 8, 32, 3, blocks=2),  # 64 x 64, two slices of k
        Config(1, 1, 4, 4, 8, 8, 32, 4, blocks=4),  # 32 x 32, four slices of k
        Config(1, 2, 4, 4, 4, 8, 32, 4, blocks=2),  # the same, with more threads
        Config(1, 1, 8, 4, 4, 8, 64, 3, blocks=2),  # 32 x 16, eight slices of k
    )
    CONFIGS_8 = (
        Config(2, 2, 1, 4, 8, 8, 16, 3, blocks=2),  # 64 x 64
        Config(1, 1, 4, 4, 8, 8, 32, 3, blocks=2),  # 32 x 32, four slices of k
    )
    TENSOR_CONFIGS = (
        TensorConfig(2, 2, 8, 8, 16, 4, blocks=2),  # 128 x 128
        TensorConfig(2, 2, 4, 8, 16, 4, blocks=3),  # 64 x 128
        TensorConfig(2, 2, 4, 4, 16, 4, blocks=4),  # 64 x 64
    )
    F64_CONFIGS = (
        TensorConfig(2, 2, 8, 4, 16, 3, blocks=2, kind=F64),  # 128 x 64
        TensorConfig(2, 2, 4, 4, 16, 3, blocks=2, kind=F64),  # 64 x 64
    )
# The same of halves, which are half as long.
HALF_CONFIGS = {
    kind: tuple(c._replace(depth=32, kind=kind) for c in TENSOR_CONFIGS)
    for kind in HALVES
}
# Before Ampere copies go through registers, and shared memory holds two tiles.
OLD_CONFIGS = tuple(c._replace(stages=2, old=True) for c in HALF_CONFIGS[F16])

# ------------------------------------------------------------- kernels, by their cuts

MOST_REGISTERS = 255


@cache
def vectorized(
    name: str, config: Config, a_layout: Layout, b_layout: Layout, asynchronous: bool
) -> Kernel:
    """The kernel `matmul_vectorized` for a dtype's name and one way to cut."""
    fn = vectorized_template(name, config, a_layout, b_layout, asynchronous)
    return _kernel(fn, config, (name, a_layout, b_layout, asynchronous), SIZES[name])


@cache
def tensor_core(config: TensorConfig, a_layout: Layout, b_layout: Layout) -> Kernel:
    """The kernel `matmul_tensor_core` for one way to cut."""
    fn = tensor_core_template(config, a_layout, b_layout)
    return _kernel(fn, config, (a_layout, b_layout), config.size)


def _kernel(fn: Callable, config: Any, key: tuple[Any, ...], size: int) -> Kernel:
    a_layout, b_layout = (part for part in key if isinstance(part, Layout))
    new = key[-1] is True or getattr(config, "asynchronous", False)
    registers = 65536 // (config.threads * config.blocks) // 8 * 8
    if not new and size == 4:  # older chips have room for one block's tiles only
        registers = MOST_REGISTERS
    main = key in MAIN.get(config, ())
    kind = {2: "uint16", 8: "float64"}.get(size, "float32")
    hopper = isinstance(config, TensorConfig) and config.kind == F64 and not config.old
    return Kernel(
        fn,
        name=MAIN[config][key] if main else f"{fn.__name__}{(*config, *key)}",
        examples=(EXAMPLE.replace("float32", kind),) if main else (),
        threads=config.threads,
        max_registers=min(registers, MOST_REGISTERS),
        shared=config.shared(a_layout, b_layout, size),
        arch=(9, 0) if hopper else (8, 0) if new else (7, 5),
    )


# The kernels for large float32 matrices that lie row by row, which tests compile and
# `minitorch inspect` shows, have names. The others are made when they are needed.
ACROSS_K, ALONG_K = Layout(4, False), Layout(4, True)
HALF_ACROSS = Layout(8, True), Layout(8, False)
EXAMPLE = "float32[] int64 5*int64 float32[] int64 5*int64 float32[] 4*int64"
DOUBLES = Layout(2, True), Layout(2, False)
MAIN: dict[Any, dict[tuple[Any, ...], str]] = {
    CONFIGS_4[0]: {("float32", ALONG_K, ACROSS_K, True): "matmul_vectorized"},
    CONFIGS_4[1]: {("float32", ALONG_K, ACROSS_K, False): "matmul_vectorized_sm_75"},
    TENSOR_CONFIGS[0]: {(ALONG_K, ACROSS_K): "matmul_tensor_core"},
    HALF_CONFIGS[BF16][0]: {HALF_ACROSS: "matmul_tensor_core_bfloat16"},
    OLD_CONFIGS[0]: {HALF_ACROSS: "matmul_tensor_core_sm_75"},
    F64_CONFIGS[0]: {DOUBLES: "matmul_tensor_core_float64"},
}
vectorized("float32", CONFIGS_4[0], ALONG_K, ACROSS_K, True)
vectorized("float32", CONFIGS_4[1], ALONG_K, ACROSS_K, False)
tensor_core(TENSOR_CONFIGS[0], ALONG_K, ACROSS_K)
tensor_core(HALF_CONFIGS[BF16][0], *HALF_ACROSS)
tensor_core(OLD_CONFIGS[0], *HALF_ACROSS)
tensor_core(F64_CONFIGS[0], *DOUBLES)


@kernel(examples=["float32[] float32[] int64 float32[] float32[] int64"])
def add_partials(partials, out, count, more, more_out, more_count):
    """Add the partial sums of blocks that split k, in order.

    # partials [S, n] -> out [n]; and if there are more, more [T, m] -> more_out [m]

        for i:  out[i] = partials[0, i] + partials[1, i] + ... + partials[S - 1, i]

    Thread i makes output i, so the order is the same each time. Where M and N are small
    and K is long, splitting k is what gives all multiprocessors work to do.
    """
    i = cuda.grid(1)
    n = out.size
    if i < n:
        total = partials[i]
        for s in range(1, count):
            total += partials[s * n + i]
        store(out, i, total)
    elif i < n + more_out.size:
        i, n = i - n, more_out.size
        rest = more[i]
        for s in range(1, more_count):
            rest += more[s * n + i]
        more_out[i] = rest
