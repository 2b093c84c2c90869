"""Sums on the GPU.

With this file one can compile the kernels that add up the rows of a matrix: long ones
by a block each, or by several, piece by piece (`sum_pieces`), and short ones by a part
of a warp each (`sum_short`). The sum of all elements is that of one row; `reduce.py`
adds up the pieces with a second launch.
"""

from max.gpu import block_idx, grid_dim, thread_idx
from max.gpu.primitives import warp
from std.utils.static_tuple import StaticTuple

from intrinsics import Floats, Vector, block_sum

comptime THREADS = 256  # of a block
comptime VECTORS = 4  # loads of 16 bytes that a thread has under way
comptime STEP = 4 * THREADS  # numbers from one vector of a thread to its next


@always_inline
def vector_sum(a: Floats, begin: Int, end: Int) -> Float32:
    """What this thread adds up of a[begin : end], which is a multiple of 4 numbers.

        vector   0    1    2   ...  255   256  257  ...
        thread   0    1    2   ...  255    0    1   ...

    `VECTORS` loads are under way at a time. There are as many sums, so that an addition
    does not wait for the one before it.
    """
    var sums = StaticTuple[Vector, VECTORS](fill=0)
    var i = begin + 4 * thread_idx.x
    while i + (VECTORS - 1) * STEP < end:
        comptime for v in range(VECTORS):
            sums[v] += a.load(i + v * STEP)
        i += VECTORS * STEP
    while i < end:
        sums[0] += a.load(i)
        i += STEP
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])).reduce_add()


@export
def sum_pieces(a: Floats, out_: Floats, n: Int, piece: Int, aligned: Int) abi("C"):
    """Add up the rows of a matrix, or pieces of them.

    # a [R, n] -> out [R, pieces], with a grid of R x pieces blocks

        for r, p:  out[r, p] = sum of a[r, p * piece : (p + 1) * piece]

    A block makes one output. Its threads read the piece together, 16 bytes at a time if
    `aligned` is not 0: rows and pieces then begin at multiples of 16 bytes. The last
    three numbers at most, and what is not aligned, are read one by one. A thread adds
    up in registers what it reads; `block_sum` then adds up the threads.

    What limits it is memory: eight blocks of a multiprocessor have 128 KB under way,
    and 25 KB hide the latency (Little's law).

    Source of the idea: Harris, "Optimizing parallel reduction in CUDA", 2007.
    """
    var begin = block_idx.x * n + block_idx.y * piece
    var end = min(begin + piece, block_idx.x * n + n)
    var total = Float32(0)
    if aligned != 0:
        var last = end - (end - begin) % 4
        total = vector_sum(a, begin, last)
        begin = last
    for i in range(begin + thread_idx.x, end, THREADS):
        total += a[i]
    total = block_sum[THREADS](total)
    if thread_idx.x == 0:
        out_[block_idx.x * grid_dim.y + block_idx.y] = total


@always_inline
def sum_short[lanes: Int](a: Floats, out_: Floats, rows: Int, n: Int, aligned: Int):
    """Add up short rows, each by `lanes` neighbours of a warp.

    # a [rows, n] -> out [rows]

    A block has THREADS / lanes rows. A row of 64 numbers is 16 vectors: for 8 lanes two
    each, where a whole block would have 240 threads without work. Shuffles bring the
    lanes of a row together. Lanes behind the last row take part in those with zeros,
    since a shuffle waits for all lanes of a warp.
    """
    var row = (block_idx.x * THREADS + thread_idx.x) // lanes
    var lane = thread_idx.x % lanes
    var total = Float32(0)
    if row < rows and aligned != 0:
        for i in range(4 * lane, n, 4 * lanes):
            total += a.load(row * n + i).reduce_add()
    elif row < rows:
        for i in range(lane, n, lanes):
            total += a[row * n + i]
    total = warp.lane_group_sum[num_lanes=lanes](total)
    if row < rows and lane == 0:
        out_[row] = total


@export
def sum_short_8(a: Floats, out_: Floats, rows: Int, n: Int, aligned: Int) abi("C"):
    sum_short[8](a, out_, rows, n, aligned)


@export
def sum_short_32(a: Floats, out_: Floats, rows: Int, n: Int, aligned: Int) abi("C"):
    sum_short[32](a, out_, rows, n, aligned)
