"""The first steps from three plain loops to a fast matrix product on a GPU.

With this file one can read, call and time six kernels, each with one idea more than
the one before it:

    matmul_naive        the definition, a thread for each output
    matmul_coalesced    the same, but neighbouring threads read neighbours
    matmul_tiled        tiles of both matrices in shared memory
    matmul_coarsened    many outputs a thread, in registers
    matmul_squared      a square of them: 16 numbers loaded for 64 products
    matmul_buffered     the next tiles are on their way while these are multiplied

They take contiguous matrices. The last two steps are in `matmul.py`: they are what the
backend uses, and take any strides and batches.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import device
from cuda_ops.memory import empty
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from minitorch.backend.host.matmul import check_rung
from minitorch.tensor_data import TensorData

# Rows and columns of a tile, and threads of a block.
SIDE = 4 if TINY else 32
AREA = SIDE * SIDE
# Outputs of a thread of `matmul_column_tiles`.
HIGH = 4 if TINY else 8
# Rows and columns of its tiles.
WIDE = 4 * HIGH if TINY else 64
# Steps of k of its tiles.
DEEP = 4 if TINY else 8
# Rows of threads.
BLOCK_ROWS = WIDE // HIGH
SQUARE = WIDE * DEEP
# A thread for each element of a tile of a, and of b.
THREADS = WIDE * BLOCK_ROWS
# Threads of a block, each with HIGH x HIGH outputs, and elements of a tile for each.
FEWER = BLOCK_ROWS * BLOCK_ROWS
EACH = SQUARE // FEWER
OUTPUTS = HIGH * HIGH
SLOTS = 2 * SQUARE
EXAMPLE = "float32[] float32[] float32[] int64 int64 int64"


# BEGIN SOLUTION a5.1
@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_one_by_one(a, b, out, M, N, K):
    """The definition.

    # a [M, K] @ b [K, N] -> out [M, N]

        for m, n in parallel:  for k:  out[m, n] += a[m, k] * b[k, n]

    Thread t of a block makes one output, as a sum in a register; the threads of a warp
    make 32 rows of one column. Each load of a then touches 32 places K elements apart:
    of each 32 bytes that come from memory, 4 are used, and the same holds for the
    store. b's element is the same for the whole warp, and fetched once.
    """
    m = cuda.blockIdx.x * SIDE + cuda.threadIdx.x % SIDE
    n = cuda.blockIdx.y * SIDE + cuda.threadIdx.x // SIDE
    if m < M and n < N:
        total = out.dtype.type(0)
        for k in range(K):
            total += a[m * K + k] * b[k * N + n]
        out[m * N + n] = total


# END SOLUTION a5.1


# BEGIN SOLUTION a5.2
@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_row_by_row(a, b, out, M, N, K):
    """`matmul_one_by_one` with rows and columns of the block exchanged.

    # a [M, K] @ b [K, N] -> out [M, N]

        for m, n in parallel:  for k:  out[m, n] += a[m, k] * b[k, n]

    The threads of a warp make 32 columns of one row. A load of b and the store of out
    are now 128 bytes side by side, which memory delivers at once ("coalesced");
    a's element is the same for all. The arithmetic has not changed, only which thread
    makes which output. There are still two loads for each fma, so that the loads, not
    the multipliers, set the pace.

    Source: "CUDA C++ Best Practices Guide", section on coalesced access.
    """
    m = cuda.blockIdx.y * SIDE + cuda.threadIdx.x // SIDE
    n = cuda.blockIdx.x * SIDE + cuda.threadIdx.x % SIDE
    if m < M and n < N:
        total = out.dtype.type(0)
        for k in range(K):
            total += a[m * K + k] * b[k * N + n]
        out[m * N + n] = total


# END SOLUTION a5.2


# BEGIN SOLUTION a5.3
@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_shared_tiles(a, b, out, M, N, K):
    """`matmul_row_by_row`, fed from tiles in shared memory.

    # a [M, K] @ b [K, N] -> out [M, N]

        for k0 in range(0, K, 32):                            k0 ->
            a_tile <- a[rows, k0 : k0 + 32]           a  +----+####+----+   b  +----+
            b_tile <- b[k0 : k0 + 32, columns]   rows    +----+####+----+      |####|
            for k:  total += a_tile[m, k] * b_tile[k, n]                       +----+

    Thread t makes one output, and copies one element of each tile. The two tiles, 4 KB
    each, are in shared memory, where a load takes 30 cycles instead of 200 to 600. Each
    element is fetched from global memory once for 32 outputs, not for one: the
    traffic there falls to 1/32. Zeros stand for what lies outside of the matrices. The
    barriers keep threads from reading a tile before it is there, or writing the next
    one before all have read this one.

    Source of the idea: Kirk and Hwu, "Programming Massively Parallel Processors",
    chapter on tiling.
    """
    a_tile = cuda.shared.array(AREA, out.dtype)
    b_tile = cuda.shared.array(AREA, out.dtype)
    x, y = cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
    m = cuda.blockIdx.y * SIDE + y
    n = cuda.blockIdx.x * SIDE + x
    total = zero = out.dtype.type(0)
    for k0 in range(0, K, SIDE):
        a_tile[y * SIDE + x] = a[m * K + k0 + x] if m < M and k0 + x < K else zero
        b_tile[y * SIDE + x] = b[(k0 + y) * N + n] if n < N and k0 + y < K else zero
        cuda.syncthreads()
        for k in range(SIDE):
            total += a_tile[y * SIDE + k] * b_tile[k * SIDE + x]
        cuda.syncthreads()
    if m < M and n < N:
        out[m * N + n] = total


# END SOLUTION a5.3


# BEGIN SOLUTION a5.4
@kernel(examples=[EXAMPLE], threads=THREADS)
def matmul_column_tiles(a, b, out, M, N, K):
    """`matmul_shared_tiles` with eight outputs a thread, in registers.

    # a [M, K] @ b [K, N] -> out [M, N]

        for k0 in range(0, K, 8):
            a_tile <- a[64 rows, 8 k];  b_tile <- b[8 k, 64 columns]
            for k:  right = b_tile[k, n]
                for i in range(8):  total[i] += a_tile[m + i, k] * right

    A block of 512 threads makes 64 x 64 outputs; a thread makes eight of one column. An
    element of b, once it is in a register, is used for eight fma: 9 loads from shared
    memory for 8 fma, where `matmul_shared_tiles` had 16. `total` is an array in name
    only: its loops have a fixed length, so the compiler unrolls them, and every
    `total[i]` becomes a register. Copies are one element a thread as before.

    Source of the idea: Volkov and Demmel, "Benchmarking GPUs to tune dense linear
    algebra", 2008.
    """
    a_tile = cuda.shared.array(SQUARE, out.dtype)
    b_tile = cuda.shared.array(SQUARE, out.dtype)
    total = cuda.local.array(HIGH, out.dtype)
    t = cuda.threadIdx.x
    x, y = t % WIDE, t // WIDE
    row, col = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    m, n, k = row + t // DEEP, col + x, t % DEEP
    zero = out.dtype.type(0)
    for i in range(HIGH):
        total[i] = zero
    for k0 in range(0, K, DEEP):
        a_tile[t] = a[m * K + k0 + k] if m < M and k0 + k < K else zero
        b_tile[t] = b[(k0 + y) * N + n] if n < N and k0 + y < K else zero
        cuda.syncthreads()
        for step in range(DEEP):
            right = b_tile[step * WIDE + x]
            for i in range(HIGH):
                total[i] += a_tile[(y * HIGH + i) * DEEP + step] * right
        cuda.syncthreads()
    for i in range(HIGH):
        if row + y * HIGH + i < M and n < N:
            out[(row + y * HIGH + i) * N + n] = total[i]


# END SOLUTION a5.4


# --------------------------------------- what a thread with HIGH x HIGH outputs does


@device
def a_element(a, e, row, k0, M, K):
    """Element e of the tile [WIDE, DEEP] of a that begins at (row, k0), or a zero."""
    m, k = row + e // DEEP, k0 + e % DEEP
    return a[m * K + k] if m < M and k < K else a.dtype.type(0)


@device
def b_element(b, e, k0, col, K, N):
    """Element e of the tile [DEEP, WIDE] of b that begins at (k0, col), or a zero."""
    k, n = k0 + e // WIDE, col + e % WIDE
    return b[k * N + n] if k < K and n < N else b.dtype.type(0)


@device
def add_products(total, a_tile, b_tile, slot, t):
    """Add the products of two tiles, which begin at `slot`, to a thread's sums."""
    left = cuda.local.array(HIGH, total.dtype)
    right = cuda.local.array(HIGH, total.dtype)
    x, y = t % BLOCK_ROWS, t // BLOCK_ROWS
    for step in range(DEEP):
        for i in range(HIGH):
            left[i] = a_tile[slot + (y + i * BLOCK_ROWS) * DEEP + step]
            right[i] = b_tile[slot + step * WIDE + x + i * BLOCK_ROWS]
        for i in range(HIGH):
            for j in range(HIGH):
                total[i * HIGH + j] += left[i] * right[j]


@device
def store_square(total, out, t, row, col, M, N):
    """Store a thread's sums, as far as there are such outputs."""
    for i in range(HIGH):
        for j in range(HIGH):
            m = row + t // BLOCK_ROWS + i * BLOCK_ROWS
            n = col + t % BLOCK_ROWS + j * BLOCK_ROWS
            if m < M and n < N:
                out[m * N + n] = total[i * HIGH + j]


@kernel(examples=[EXAMPLE], threads=FEWER)
def matmul_square_outputs(a, b, out, M, N, K):
    """`matmul_column_tiles` with eight columns a thread, too: 8 x 8 outputs.

    # a [M, K] @ b [K, N] -> out [M, N]

        for k0 in range(0, K, 8):
            a_tile <- a[64 rows, 8 k];  b_tile <- b[8 k, 64 columns]
            for k:  left = a_tile[8 rows, k];  right = b_tile[k, 8 columns]
                for i, j in range(8):  total[i, j] += left[i] * right[j]

    The blocks and tiles are the same, and 64 threads do what 512 did. A thread loads 16
    numbers for 64 fma, where `matmul_column_tiles` loads 9 for 8: a's numbers, too, are
    used for eight products now. The 64 sums and 16 factors are registers; for that,
    all loops over them have fixed lengths. A thread copies eight elements of each tile,
    64 apart, so that a warp still reads neighbours.

    Its rows and columns are 8 apart as well: in one load the four rows of a's tile that
    a warp wants begin in the banks 0, 8, 16 and 24, and the eight columns of b's are
    neighbours. Rows side by side would all begin in bank 0.

    Source of the idea: Volkov and Demmel, "Benchmarking GPUs to tune dense linear
    algebra", 2008.
    """
    t = cuda.threadIdx.x
    row, col = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    total = cuda.local.array(OUTPUTS, out.dtype)
    a_tile = cuda.shared.array(SQUARE, out.dtype)
    b_tile = cuda.shared.array(SQUARE, out.dtype)
    for i in range(OUTPUTS):
        total[i] = out.dtype.type(0)
    for k0 in range(0, K, DEEP):
        for c in range(EACH):
            a_tile[t + c * FEWER] = a_element(a, t + c * FEWER, row, k0, M, K)
            b_tile[t + c * FEWER] = b_element(b, t + c * FEWER, k0, col, K, N)
        cuda.syncthreads()
        add_products(total, a_tile, b_tile, 0, t)
        cuda.syncthreads()
    store_square(total, out, t, row, col, M, N)


@kernel(examples=[EXAMPLE], threads=FEWER)
def matmul_two_slots(a, b, out, M, N, K):
    """`matmul_square_outputs`, which fetches the next tiles while it multiplies these.

    # a [M, K] @ b [K, N] -> out [M, N]

        fetch tiles 0 into slot 0
        for each pair of tiles:       slot 0          slot 1
            t = 0                     multiply 0      <- 1
            t = 1                     <- 2            multiply 1
            t = 2                     multiply 2      <- 3

    A load from global memory takes 600 cycles, and a thread waits for it only where the
    number is used. So the loads of the next tiles are begun before the products and
    stored after them, in registers in between: while the products are made, the numbers
    arrive. They go to another slot than the one that is being read, so one barrier for
    each pair of tiles is enough. Behind it the next tiles are there, for all threads;
    and nobody reads the old ones any more, whose slot is filled next.

    What it costs are twice the shared memory and registers, 16 for the numbers and more
    for where they come from. `matmul_vectorized` copies past the registers instead.
    """
    t = cuda.threadIdx.x
    row, col = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    total = cuda.local.array(OUTPUTS, out.dtype)
    a_next = cuda.local.array(EACH, out.dtype)
    b_next = cuda.local.array(EACH, out.dtype)
    a_tile = cuda.shared.array(SLOTS, out.dtype)
    b_tile = cuda.shared.array(SLOTS, out.dtype)
    for i in range(OUTPUTS):
        total[i] = out.dtype.type(0)
    for c in range(EACH):
        a_tile[t + c * FEWER] = a_element(a, t + c * FEWER, row, 0, M, K)
        b_tile[t + c * FEWER] = b_element(b, t + c * FEWER, 0, col, K, N)
    cuda.syncthreads()
    slot = 0
    for k0 in range(DEEP, K + DEEP, DEEP):
        # Behind the last tiles there are zeros, which nobody multiplies.
        for c in range(EACH):
            a_next[c] = a_element(a, t + c * FEWER, row, k0, M, K)
            b_next[c] = b_element(b, t + c * FEWER, k0, col, K, N)
        add_products(total, a_tile, b_tile, slot, t)
        slot = SQUARE - slot
        for c in range(EACH):
            a_tile[slot + t + c * FEWER] = a_next[c]
            b_tile[slot + t + c * FEWER] = b_next[c]
        cuda.syncthreads()
    store_square(total, out, t, row, col, M, N)


# ------------------------------------------------------------------------- launchers


def _run_rung(
    rung: Any, name: str, a: TensorData, b: TensorData, side: int, threads: int
) -> TensorData:
    """Check two matrices and run one of the kernels, in blocks of side x side."""
    check_rung(name, a, b)
    (M, K), N = a.shape, b.shape[1]
    out = empty((M, N), a.dtype)
    blocks = ceil_div(N, side), ceil_div(M, side)
    if rung is matmul_one_by_one:
        blocks = blocks[::-1]
    rung[blocks, threads](a.flat(), b.flat(), out.flat(), M, N, K)
    return out


def matmul_naive(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_one_by_one`; both contiguous."""
    return _run_rung(matmul_one_by_one, "matmul_naive", a, b, SIDE, AREA)


def matmul_coalesced(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_row_by_row`; both contiguous."""
    return _run_rung(matmul_row_by_row, "matmul_coalesced", a, b, SIDE, AREA)


def matmul_tiled(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_shared_tiles`; both contiguous."""
    return _run_rung(matmul_shared_tiles, "matmul_tiled", a, b, SIDE, AREA)


def matmul_coarsened(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_column_tiles`; both contiguous."""
    return _run_rung(matmul_column_tiles, "matmul_coarsened", a, b, WIDE, THREADS)


def matmul_squared(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_square_outputs`; both contiguous."""
    return _run_rung(matmul_square_outputs, "matmul_squared", a, b, WIDE, FEWER)


def matmul_buffered(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `matmul_two_slots`; both contiguous."""
    return _run_rung(matmul_two_slots, "matmul_buffered", a, b, WIDE, FEWER)
