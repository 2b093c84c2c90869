"""Matrix products on the GPU: two rungs of the ladder.

With this file one can compile

    matmul_tiled      tiles of both matrices in shared memory, an output a thread
    matmul_pipelined  64 outputs a thread in registers, and copies that run meanwhile

They are the same ideas as `matmul_tiled` in `cuda_ops/ladders/matmul.py` and
`matmul_vectorized` in `cuda_ops/matmul/kernels.py`, cut in the same way, so that a
difference in speed is the compilers' and not the algorithm's.
"""

from max.gpu import barrier, block_idx, lane_id, thread_idx, warp_id
from max.gpu.memory import async_copy_commit_group, async_copy_wait_group
from std.math import ceildiv, fma
from std.utils.static_tuple import StaticTuple

from intrinsics import Floats, Shared, Vector, load_shared, shared_array
from intrinsics import start_copy, start_copy_or_zeros

# --------------------------------------------------------------- tiles in shared memory

comptime SIDE = 32  # rows and columns of a tile, and threads of a block


@export
def matmul_tiled(a: Floats, b: Floats, out_: Floats, M: Int, N: Int, K: Int) abi("C"):
    """Fetch tiles of both matrices into shared memory, and multiply there.

    # a [M, K] @ b [K, N] -> out [M, N]

        for k0 in range(0, K, 32):                            k0 ->
            a_tile <- a[rows, k0 : k0 + 32]           a  +----+####+----+   b  +----+
            b_tile <- b[k0 : k0 + 32, columns]   rows    +----+####+----+      |####|
            for k:  total += a_tile[m, k] * b_tile[k, n]                       +----+

    Thread t of a block of 1,024 makes one output, and copies one element of each tile.
    Each element is fetched from global memory once for 32 outputs, not once for each.
    Zeros stand for what lies outside of the matrices. The barriers keep threads from
    reading a tile before it is there, or writing the next before all have read this.

    Source of the idea: Kirk and Hwu, "Programming Massively Parallel Processors",
    chapter on tiling.
    """
    var a_tile = shared_array[SIDE * SIDE]()
    var b_tile = shared_array[SIDE * SIDE]()
    var x = thread_idx.x % SIDE
    var y = thread_idx.x // SIDE
    var m = block_idx.y * SIDE + y
    var n = block_idx.x * SIDE + x
    var mine = y * SIDE + x
    var total = Float32(0)
    for k0 in range(0, K, SIDE):
        var in_a = m < M and k0 + x < K
        var in_b = k0 + y < K and n < N
        a_tile[unsafe_offset=mine] = a[m * K + k0 + x] if in_a else 0
        b_tile[unsafe_offset=mine] = b[(k0 + y) * N + n] if in_b else 0
        barrier()
        comptime for k in range(SIDE):
            var left = a_tile[unsafe_offset=y * SIDE + k]
            total = fma(left, b_tile[unsafe_offset=k * SIDE + x], total)
        barrier()
    if m < M and n < N:
        out_[m * N + n] = total


# ------------------------------------------- register tiles, fed by a ring of copies

comptime WARPS_M = 2  # warps of a block, in rows and columns
comptime WARPS_N = 2
comptime ROW_GROUPS = 2  # groups of four rows of a thread
comptime COL_GROUPS = 2  # groups of four columns
comptime DEPTH = 16  # steps of k in a tile
comptime STAGES = 3  # pairs of tiles in the ring: one is multiplied, two are arriving
comptime THREADS = 32 * WARPS_M * WARPS_N
comptime WARP_ROWS = 16 * ROW_GROUPS  # the lanes of a warp form 4 lines of 8
comptime WARP_COLS = 32 * COL_GROUPS
comptime ROWS = WARPS_M * WARP_ROWS  # outputs of a block
comptime COLS = WARPS_N * WARP_COLS
comptime PITCH = ROWS + 4  # a's tile from one k to the next: 4 more, to spread banks
comptime A_TILE = DEPTH * PITCH
comptime PAIR = A_TILE + DEPTH * COLS
comptime GROUP = 8  # rows of tiles that are walked together, column by column
comptime Sums = StaticTuple[Vector, 4 * ROW_GROUPS * COL_GROUPS]  # row by row


@always_inline
def start_tile[
    lines: Int, pitch: Int, width: Int, by_k: Bool, first: Bool
](source: Floats, tile: Shared, line0: Int, k0: Int, size: Int, K: Int):
    """Start the copies of DEPTH steps of k of one operand: tile [DEPTH, pitch].

        by_k       source [size, K]: k lies side by side, and is turned on the way
        not by_k   source [K, size]: `width` neighbours are copied at a time

    Lines behind the last one of the matrix are copies of that one, and are not written
    in the end. Steps before k = 0, which only the `first` tile has, are zeros.
    """
    comptime lanes = DEPTH if by_k else lines // width
    var lane = thread_idx.x % lanes
    comptime for i in range(lines * DEPTH // width // THREADS):
        var row = thread_idx.x // lanes + i * (THREADS // lanes)
        var k = lane if by_k else row
        var line = row if by_k else lane * width
        var inner = min(line0 + line, size - width)
        var at = inner * K + k0 + k if by_k else (k0 + k) * size + inner
        comptime if first:
            var inside = k0 + k >= 0
            start_copy_or_zeros[width](source, at, tile, k * pitch + line, inside)
        else:
            start_copy[width](source, at, tile, k * pitch + line)


@always_inline
def start_pair[
    a_width: Int, b_width: Int, first: Bool
](
    a: Floats, b: Floats, pair: Shared, row: Int, col: Int, k0: Int,
    M: Int, N: Int, K: Int,
):
    """Start the copies of a tile of both matrices, for steps k0 to k0 + DEPTH of k."""
    comptime by_k = a_width == 1
    start_tile[ROWS, PITCH, a_width, by_k, first](a, pair, row, k0, M, K)
    var b_tile = pair.unsafe_offset(A_TILE)
    start_tile[COLS, COLS, b_width, False, first](b, b_tile, col, k0, N, K)


@always_inline
def multiply(tile: Shared, my_row: Int, my_col: Int, mut sums: Sums):
    """Multiply a pair of tiles: for each k, 4 loads of 16 bytes and 64 fma.

    A thread needs 8 numbers of a and 8 of b. They lie in groups of four, between those
    of other lanes, so that a warp's loads meet all banks equally often.
    """
    comptime for k in range(DEPTH):
        var left = StaticTuple[Vector, ROW_GROUPS](fill=0)
        var right = StaticTuple[Vector, COL_GROUPS](fill=0)
        comptime for g in range(ROW_GROUPS):
            left[g] = load_shared(tile, k * PITCH + my_row + 16 * g)
        comptime for h in range(COL_GROUPS):
            right[h] = load_shared(tile, A_TILE + k * COLS + my_col + 32 * h)
        comptime for i in range(4 * ROW_GROUPS):
            var x = Vector(left[i // 4][i % 4])
            comptime for h in range(COL_GROUPS):
                comptime at = i * COL_GROUPS + h
                sums[at] = fma(x, right[h], sums[at])


@always_inline
def store_sums[width: Int](out_: Floats, sums: Sums, m0: Int, n0: Int, M: Int, N: Int):
    """Write a thread's outputs, 16 bytes at a time if `width` is 4."""
    comptime for i in range(4 * ROW_GROUPS):
        comptime for h in range(COL_GROUPS):
            var m = m0 + 16 * (i // 4) + i % 4
            var n = n0 + 32 * h
            var sum4 = sums[i * COL_GROUPS + h]
            comptime if width == 4:
                if m < M and n < N:
                    out_.store(m * N + n, sum4)
            else:
                comptime for j in range(4):
                    if m < M and n + j < N:
                        out_[m * N + n + j] = sum4[j]


@always_inline
def tile_origin(M: Int, N: Int) -> Tuple[Int, Int]:
    """The first row and column of this block's outputs.

    Blocks walk down groups of 8 rows of tiles: those that run together then form a
    square, which reads less than a line of tiles does, and mostly from the cache.
    """
    var wide = ceildiv(N, COLS)
    var group = block_idx.x // (GROUP * wide)
    var within = block_idx.x - group * GROUP * wide
    var lines = min(GROUP, ceildiv(M, ROWS) - group * GROUP)
    var col = within // lines
    return (group * GROUP + within - col * lines) * ROWS, col * COLS


@always_inline
def matmul_pipelined[
    a_width: Int, b_width: Int
](a: Floats, b: Floats, out_: Floats, M: Int, N: Int, K: Int):
    """Keep outputs in registers, and fetch tiles while others are multiplied.

    # a [M, K] @ b [K, N] -> out [M, N]

        for a block of 64 x 128 outputs, for k0 in range(0, K, 16):
            tile k0 + 32 of a and b -> shared memory            (under way)
            for k in tile k0:  for i, j in 8 x 8:
                sums[i, j] += a_tile[k, row i] * b_tile[k, col j]

        ring    | tile t-1 -> t+2 | tile t      | tile t+1 |
                  being overwritten  multiplied   arriving

    A block of 128 threads makes 64 x 128 outputs, a warp 32 x 64, and a thread 8 x 8 in
    registers. With a factor in a register used for 8 fma, shared memory is asked for 16
    numbers for 64 fma; `matmul_tiled` asks for 128. A pair of tiles has 12 KB, three
    pairs fit into the 48 KB that need not be asked for, and three blocks share a
    multiprocessor: two multiply while one is at its barrier.

    Lanes form four lines of eight, two lines in turns (0, 2, 4, ... are in one, 1, 3,
    5, ... in the next): eight neighbours then need few different parts of both tiles.
    The first tile is the one that may be incomplete; the loop needs no question.

    `b_width` is 4 where rows of b and out begin at multiples of 16 bytes, else 1.
    `a_width` is 4 if a lies column by column, which it likes best, and 1 if row by row.

    Sources: Nath, Tomov and Dongarra, "An improved MAGMA GEMM for Fermi GPUs", 2010;
    "CUTLASS: fast linear algebra in CUDA C++", 2017.
    """
    var ring = shared_array[STAGES * PAIR]()
    var row, col = tile_origin(M, N)
    var lane = lane_id()
    var my_row = warp_id() // WARPS_N * WARP_ROWS + (lane // 16 * 2 + lane % 2) * 4
    var my_col = warp_id() % WARPS_N * WARP_COLS + lane % 16 // 2 * 4
    var tiles = ceildiv(K, DEPTH)
    var k0 = K - tiles * DEPTH  # below 0 if the first tile is incomplete
    comptime for t in range(STAGES - 1):
        if t < tiles:
            var free = ring.unsafe_offset(t * PAIR)
            start_pair[a_width, b_width, t == 0](a, b, free, row, col, k0, M, N, K)
            k0 += DEPTH
        async_copy_commit_group()
    var sums = Sums(fill=0)
    for t in range(tiles):
        async_copy_wait_group(STAGES - 2)  # for this thread's copies of tile t
        barrier()  # for all others'; and all are done with tile t - 1
        multiply(ring.unsafe_offset(t % STAGES * PAIR), my_row, my_col, sums)
        if t + STAGES - 1 < tiles:
            var free = ring.unsafe_offset((t + STAGES - 1) % STAGES * PAIR)
            start_pair[a_width, b_width, False](a, b, free, row, col, k0, M, N, K)
            k0 += DEPTH
        async_copy_commit_group()
    store_sums[b_width](out_, sums, row + my_row, col + my_col, M, N)


@export
def matmul_turned_4(
    a: Floats, b: Floats, out_: Floats, M: Int, N: Int, K: Int
) abi("C"):
    matmul_pipelined[4, 4](a, b, out_, M, N, K)


@export
def matmul_pipelined_4(
    a: Floats, b: Floats, out_: Floats, M: Int, N: Int, K: Int
) abi("C"):
    matmul_pipelined[1, 4](a, b, out_, M, N, K)


@export
def matmul_pipelined_1(
    a: Floats, b: Floats, out_: Floats, M: Int, N: Int, K: Int
) abi("C"):
    matmul_pipelined[1, 1](a, b, out_, M, N, K)
