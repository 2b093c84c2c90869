"""Transpose a matrix: the same numbers, read along rows and written along columns.

With this file `memory.py` copies whatever lies in another order than it shall
(`move`: transposed matrices, batches of them, images with their channels last), and one
can read, run and time the steps that lead there, by name in `LADDER`:

    transpose_uncoalesced   a thread an element: neighbours write far apart
    transpose_tiled         through shared memory: both sides in order
    transpose_padded        a column more in shared memory: no bank conflicts
    transpose_vectorized    16 bytes at a time, also in shared memory

A rung takes a contiguous matrix [M, N] and returns [N, M]. This is the first case in
which the order of access, and nothing else, decides on the speed: memory comes in
sectors of 32 bytes, a warp asks for 32 elements at once, and what it asks for lies in 4
of them, or in 32.

Source: Ruetsch and Micikevicius, "Optimizing matrix transpose in CUDA", 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, int64, uint32

from cuda_ops.block.intrinsics import device, is_aligned, load, load4, store, store4
from cuda_ops.block.rows import KernelFamily
from cuda_ops.runtime.arrays import BITS, allocate
from cuda_ops.runtime.launch import ceil_div, kernel
from minitorch.dtypes import DType, computed, float32, from_numpy_dtype
from minitorch.tensor_data import Shape, Strides, TensorData
from minitorch.todo import unwritten_task

# The side of a tile of elements, with neighbouring threads along it, and rows of a tile
# that the threads of a block copy at once.
SIDE = 32
BLOCK_ROWS = 8
# Bytes of a bank of shared memory.
WORD = 4
# Vectors of 4 in a row of a tile of `transpose_vectorized`, and the side of that tile.
QUADS = 16
WIDE = 4 * QUADS

# ------------------------------------------------------------------- rung by rung


@kernel(examples=["float32[] float32[] int64 int64"], threads=SIDE * BLOCK_ROWS)
def transpose_uncoalesced(a, out, m, n):
    """The two loops, with a thread for each element.

    # a [m, n] -> out [n, m]

        for i, j:  out[j, i] = a[i, j]

    Neighbouring threads have neighbouring j. They read neighbouring addresses, and
    write addresses m elements apart: each of a warp's 32 stores goes to a sector of
    32 bytes of its own, of which 4 bytes are used.
    """
    across = (n + SIDE - 1) // SIDE
    tile_i = cuda.blockIdx.x // across
    j = (cuda.blockIdx.x - tile_i * across) * SIDE + cuda.threadIdx.x % SIDE
    for k in range(cuda.threadIdx.x // SIDE, SIDE, BLOCK_ROWS):
        i = tile_i * SIDE + k
        if i < m and j < n:
            store(out, j * m + i, load(a, i * n + j))


@device
def tile_of_block(side, a_at, a_steps, out_at, out_steps, shape):
    """The tile of this block: its first element in `a` and in `out`, rows, columns.

    A matrix of shape[2] x shape[3] elements is cut into tiles of side x side, and there
    are shape[0] x shape[1] matrices. Rows and columns are how many there are from the
    tile's first one on, which at the edges is less than `side`.
    """
    across = uint32((shape[3] + side - 1) // side)
    down = uint32((shape[2] + side - 1) // side)
    block = uint32(cuda.blockIdx.x)
    line = uint32(block // across)
    matrix = uint32(line // down)
    i = uint32(matrix // uint32(shape[1]))
    j = int64(matrix - i * uint32(shape[1]))
    top, left = int64(line - matrix * down) * side, int64(block - line * across) * side
    i = int64(i)
    a_at += i * a_steps[0] + j * a_steps[1] + top * a_steps[2] + left * a_steps[3]
    out_at += i * out_steps[0] + j * out_steps[1]
    out_at += top * out_steps[2] + left * out_steps[3]
    return a_at, out_at, shape[2] - top, shape[3] - left


def elements_of_a_word(dtype: DType) -> int:
    """How many elements lie in one bank of shared memory, or one that takes two."""
    return max(1, WORD // dtype.itemsize)


def tile_kernel(padding: int, dtype: DType) -> Callable:
    """Make `transpose_tiled` (no padding) or `transpose_padded` for a type."""
    kind, pitch = dtype.numpy.type, SIDE + padding * elements_of_a_word(dtype)

    def kernel(a, a_at, a_steps, out, out_at, out_steps, shape):
        a_first, out_first, rows, cols = tile_of_block(
            SIDE, a_at, a_steps, out_at, out_steps, shape
        )
        # BEGIN SOLUTION a4.5
        tile = cuda.shared.array((SIDE, pitch), kind)
        x = cuda.threadIdx.x % SIDE
        y = cuda.threadIdx.x // SIDE
        for k in range(y, SIDE, BLOCK_ROWS):
            if k < rows and x < cols:
                tile[k, x] = load(a, a_first + k * a_steps[2] + x * a_steps[3])
        cuda.syncthreads()
        for k in range(y, SIDE, BLOCK_ROWS):
            if x < rows and k < cols:
                p = out_first + x * out_steps[2] + k * out_steps[3]
                store(out, p, tile[x, k])
        # END SOLUTION a4.5

    return kernel


def transpose_tiled(dtype: DType) -> Callable:
    """Through a tile in shared memory: rows come in, columns go out.

    # a [B, C, m, n] -> out [B, C, m, n]; a has neighbours along n, out along m

        a:  . . . . . .        out:  . . . .        a tile is read row by row,
            . A A . . .              . A A .        and written row by row, both
            . A A . . .              . A A .        SIDE elements at a time

    A block moves a tile of SIDE x SIDE. Neighbouring threads read neighbours in a row
    of `a`, and after the barrier write neighbours in a row of `out`; the crooked way is
    gone in shared memory, which can give any 32 words at once, as long as they are in
    32 different banks. Here they are not: SIDE elements of a column are all in the same
    bank, and come one after the other.
    """
    return tile_kernel(0, dtype)


def transpose_padded(dtype: DType) -> Callable:
    """`transpose_tiled` with rows that are a word longer in shared memory.

    # a [B, C, m, n] -> out [B, C, m, n]; a has neighbours along n, out along m

        bank of tile[x, k]:  (x * 32 + k) % 32 = k              all the same
                             (x * 33 + k) % 32 = (x + k) % 32   all different

    So a column is read as fast as a row. Of 8 bytes each, half a warp is served at
    once, and the same holds of 16 pairs of banks. For bools a byte more would not do:
    33 x + k is in word (33 x + k) // 4, and two of these banks meet unless 4 divides k.
    With 4 bytes more it is word 9 x + k // 4, and 9 x % 32 is all different.
    """
    return tile_kernel(1, dtype)


def transpose_vectorized(dtype: DType) -> Callable:
    """Four elements for each load and store, of global and of shared memory.

    # a [B, C, m, n] -> out [B, C, m, n]; a's step along n and out's along m are 1, and
    # all other steps, m and n multiples of 4

        a thread's part of `a`, by rows      in registers      of `out`, by columns
             a0 a1 a2 a3                                        a0 b0 c0 d0
             b0 b1 b2 b3                     turned around      a1 b1 c1 d1
             c0 c1 c2 c3                         -->            a2 b2 c2 d2
             d0 d1 d2 d3                                        a3 b3 c3 d3

    A block moves a tile of WIDE x WIDE elements. A thread reads four vectors, which are
    four lines of a square of 4 x 4, and stores the four columns into shared memory as
    vectors. So the crooked way is done in registers, with a quarter of the instructions
    of `transpose_padded`, and 64 bytes under way for each thread, on which the speed of
    the memory depends (Little's law). Then line by line of `out` goes through the warp.

    In shared memory vector q of line l is at (`vector_at`)

        row l ^ (q & 1), column q ^ (l // 4)

    A warp is served in turns of 128 bytes. With elements of 4 bytes these are 8 lanes,
    whose vectors must differ in column % 8. When 8 threads store vector q of the lines
    e, 4 + e, ... 28 + e, their columns are q ^ 0, q ^ 1, ... q ^ 7; when they load
    vectors of one line l, columns 0 ^ (l // 4), 1 ^ (l // 4), ... Without the exchange
    all stores would meet in one column. With elements of a byte a turn is the whole
    warp, two times 16 lanes with q and q + 1, or l and l + 1, and the same 16 columns:
    one of the two is in an odd row, that is in the other 16 banks.
    """
    kind, size = dtype.numpy.type, WIDE * WIDE

    def kernel(a, a_at, a_steps, out, out_at, out_steps, shape):
        tile = cuda.shared.array(size, kind)
        a_first, out_first, rows, cols = tile_of_block(
            WIDE, a_at, a_steps, out_at, out_steps, shape
        )
        # BEGIN TWIN a4.5
        x = cuda.threadIdx.x % QUADS
        y = cuda.threadIdx.x // QUADS
        if 4 * y < rows and 4 * x < cols:
            p, step = a_first + 4 * y * a_steps[2] + 4 * x, a_steps[2]
            a0, a1, a2, a3 = load4(a, p)
            b0, b1, b2, b3 = load4(a, p + step)
            c0, c1, c2, c3 = load4(a, p + 2 * step)
            d0, d1, d2, d3 = load4(a, p + 3 * step)
            store4(tile, vector_at(4 * x, y), a0, b0, c0, d0)
            store4(tile, vector_at(4 * x + 1, y), a1, b1, c1, d1)
            store4(tile, vector_at(4 * x + 2, y), a2, b2, c2, d2)
            store4(tile, vector_at(4 * x + 3, y), a3, b3, c3, d3)
        cuda.syncthreads()
        for k in range(y, WIDE, QUADS):
            if 4 * x < rows and k < cols:
                x0, x1, x2, x3 = load4(tile, vector_at(k, x))
                store4(out, out_first + k * out_steps[3] + 4 * x, x0, x1, x2, x3)
        # END TWIN a4.5

    return kernel


@device
def vector_at(line, quad):
    """Where vector `quad` of a line of `out` is in `transpose_vectorized`'s tile."""
    return ((line ^ (quad & 1)) * QUADS + (quad ^ (line // 4))) * 4


# Students' editions lack that rung while they write the one before.
VECTORS_WRITTEN = unwritten_task(transpose_vectorized) is None

_TEXT = "T[] int64 4*int64 T[] int64 4*int64 4*int64"
TILED = KernelFamily(transpose_tiled, _TEXT, (float32,), threads=SIDE * BLOCK_ROWS)
PADDED = KernelFamily(
    transpose_padded, _TEXT, (float32,), (BITS,), threads=SIDE * BLOCK_ROWS
)
VECTORIZED = KernelFamily(
    transpose_vectorized, _TEXT, (float32,), (BITS,), threads=QUADS * QUADS
)

# ------------------------------------------------------------------------- launchers


def move(
    a: Any, a_at: int, a_steps: Strides, out: Any, out_at: int, out_steps: Strides,
    shape: Shape,
) -> None:  # fmt: skip
    """out[i, j, y, x] = a[i, j, y, x], converted to out's type, by the best rung.

    `a` and `out` are flat arrays in which the first element is at `a_at` and `out_at`.
    The steps are any, but it is fast where a's smallest is along x, out's along y.
    """
    dtype = BITS if a.dtype == BITS.numpy else computed(from_numpy_dtype(a.dtype))
    outer, inner, m, n = shape
    evenly = (m, n, a_at, *a_steps[:3], out_at, *out_steps[:2], out_steps[3])
    if (
        a_steps[3] == out_steps[2] == 1
        and min(m, n) >= SIDE
        and not any(number % 4 for number in evenly)
        and dtype.itemsize <= 4
        and is_aligned(a, out)
        and VECTORS_WRITTEN
    ):
        side, threads, kernels = WIDE, QUADS * QUADS, VECTORIZED
    else:
        side, threads, kernels = SIDE, SIDE * BLOCK_ROWS, PADDED
    blocks = ceil_div(m, side) * ceil_div(n, side) * outer * inner
    kernels[dtype,][blocks, threads](a, a_at, a_steps, out, out_at, out_steps, shape)


def _output(name: str, a: TensorData) -> TensorData:
    """The output of a rung; an error where it cannot take `a`."""
    if a.dims != 2 or not a.is_contiguous():
        raise ValueError(
            f"{name}: a is {a.shape}; expected a contiguous matrix (contiguous() takes "
            f"any layout)"
        )
    out = allocate(a.size, a.dtype)
    return TensorData.around(out, a.dtype, a.device, (a.shape[1], a.shape[0]))


def _blocks(a: TensorData, side: int) -> int:
    return ceil_div(a.shape[0], side) * ceil_div(a.shape[1], side)


def uncoalesced(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_uncoalesced`."""
    out = _output("uncoalesced", a)
    transpose_uncoalesced[_blocks(a, SIDE), SIDE * BLOCK_ROWS](
        a.flat(), out.storage.array, *a.shape
    )
    return out


def _by_tiles(kernels: KernelFamily, name: str, a: TensorData) -> TensorData:
    out = _output(name, a)
    kernels[a.dtype,][_blocks(a, SIDE), SIDE * BLOCK_ROWS](*_both(a, out))
    return out


def _both(a: TensorData, out: TensorData) -> tuple[Any, ...]:
    """The arguments of `move` for a contiguous matrix and its transpose."""
    m, n = a.shape
    return a.flat(), 0, (0, 0, n, 1), out.flat(), 0, (0, 0, 1, m), (1, 1, m, n)


def tiled(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_tiled`."""
    return _by_tiles(TILED, "tiled", a)


def padded(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_padded`."""
    return _by_tiles(PADDED, "padded", a)


def vectorized(a: TensorData) -> TensorData:
    """a [M, N] -> [N, M], by `transpose_vectorized`, or `transpose_padded` where M or
    N is no multiple of 4 or short, or an element has 8 bytes."""
    out = _output("vectorized", a)
    move(*_both(a, out))
    return out


LADDER: tuple[Callable[[TensorData], TensorData], ...] = (
    uncoalesced,
    tiled,
    padded,
    vectorized,
)
