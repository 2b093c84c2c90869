"""Matrix products, from three plain loops to nearly the limit of the machine.

With this file one can multiply batches of matrices (`matmul`), and read, call and time
each step on the way there (`LADDER`):

    matmul_naive        the definition, one sum for each output
    matmul_loop_order   the same loops in the order in which memory lies
    matmul_parallel     rows shared among the threads
    matmul_blocked      blocks that stay in the cache
    matmul_packed       tiles that stay in registers, fed from packed panels

`matmul` runs the last one for everything but integers, very small products, one row
(`_vector_matrix`), and few rows times a transposed matrix (`_dot_tiles`), where packing
would take longer than multiplying.

An element of the result is summed in one fixed order, whatever the number of threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL, compile_kernel, device_function, kernel
from fast_ops.memory import empty
from fast_ops.simd import (
    DOT,
    DOT_ROOM,
    GROUP,
    TILE,
    VECTOR_BYTES,
    copy_line,
    tile_dot,
    tile_fma,
    tile_fma_masked,
    transpose_lines,
)
from minitorch.backend.host.matmul import Products, check_rung, panels, products_of
from minitorch.backend.host.workspace import KEEP_BYTES, workspace
from minitorch.tensor_data import Shape, Strides, TensorData

ROWS = TILE.rows
DEPTH = 256  # steps of k in a row: a panel of b is then 32 KiB of float32
BLOCK_ROWS = 8 * ROWS  # rows of out in a task
CHUNK_LINES, CHUNK_STEPS = 64, 64  # what is packed in one go, at most
TINY = 1024  # multiplications for which packing is not worth while
DOT_ROWS = 32  # rows of a up to which a transposed b is not packed
PAGE = 4096  # bytes of memory
FEW = 4  # tiles that read a number: for so few it is not packed
DOT_PART = 64  # rows of a in a task of `_dot_tiles`

# ----------------------------------------------------------- the ladder, rung by rung


@kernel()
def _naive(a, b, out):
    """The definition.

    # a [M, K] @ b [K, N] -> out [M, N]

        for m, n, k:  out[m, n] += a[m, k] * b[k, n]

    One thread makes all outputs, each as one sum in a register. The innermost loop
    walks down a column of b: every step touches another cache line, and uses 4 of its
    64 bytes.
    """
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            total = out.dtype.type(0)
            for k in range(a.shape[1]):
                total += a[m, k] * b[k, n]
            out[m, n] = total


@kernel()
def _loop_order(a, b, out):
    """The loops of `_naive` in the order m, k, n.

    # a [M, K] @ b [K, N] -> out [M, N]

        for m, k, n:  out[m, n] += a[m, k] * b[k, n]

    One thread makes all outputs. The innermost loop now runs along rows of b and out,
    so all of a cache line is used and the compiler can multiply 16 neighbours at once.
    The row of out (4 N bytes) stays in the first-level cache while k runs.
    """
    for m in range(out.shape[0]):
        row = out[m]
        row[:] = 0
        for k in range(a.shape[1]):
            left, right = a[m, k], b[k]
            for n in range(row.size):
                row[n] += left * right[n]


@kernel(parallel=True)
def _parallel(a, b, out):
    """`_loop_order` with the rows of out shared among the threads.

    # a [M, K] @ b [K, N] -> out [M, N]

        parallel for m:  for k, n:  out[m, n] += a[m, k] * b[k, n]

    A thread makes whole rows. It writes to no row of another thread, so nothing has to
    be locked; each thread still reads all of b for each of its rows.
    """
    # BEGIN SOLUTION a3.3
    for m in prange(out.shape[0]):
        row = out[m]
        for n in range(row.size):
            row[n] = 0
        for k in range(a.shape[1]):
            left, right = a[m, k], b[k]
            for n in range(row.size):
                row[n] += left * right[n]
    # END SOLUTION a3.3


@kernel(parallel=True)
def _blocked(a, b, out):
    """`_parallel` in blocks of 64 k and 512 n.

    # a [M, K] @ b [K, N] -> out [M, N]

        parallel for blocks of 32 m:  for blocks of 512 n, blocks of 64 k:
            for m, k, n in the block:  out[m, n] += a[m, k] * b[k, n]

    A thread makes 32 rows. The block of b, 64 x 512 float32 = 128 KiB, fits into the
    second-level cache and is used for all 32 rows before it leaves; `_parallel` fetched
    b from memory again for each row.

    Source of the idea: Lam, Rothberg and Wolf, "The cache performance and optimizations
    of blocked algorithms", 1991.
    """
    # BEGIN SOLUTION a3.3
    M, N = out.shape
    K = a.shape[1]
    for block in prange((M + 31) // 32):
        first = np.int64(block) * 32
        last = min(first + 32, M)
        for m in range(first, last):
            out[m, :] = 0
        for n0 in range(0, N, 512):
            for k0 in range(0, K, 64):
                for m in range(first, last):
                    row = out[m, n0 : n0 + 512]
                    for k in range(k0, min(k0 + 64, K)):
                        left, right = a[m, k], b[k, n0 : n0 + 512]
                        for n in range(row.size):
                            row[n] += left * right[n]
    # END SOLUTION a3.3


@device_function
def _chunks(lines, wide, depth):
    """How many chunks `_pack` makes of a matrix."""
    group = CHUNK_LINES // wide * wide
    return (lines + group - 1) // group * ((depth + CHUNK_STEPS - 1) // CHUNK_STEPS)


@device_function
def _pack(source, at, across, step, lines, wide, depth, chunk, out, out_at):
    """Lay a chunk of a matrix out in the order in which the tiles read it.

    # source: `lines` lines of `depth` steps -> out: panels [depth, wide]

    A line is a row of a or a column of b; `across` leads to the next line, `step` to
    the next k. A panel holds `wide` lines, missing ones as zeros. A chunk is some whole
    panels and CHUNK_STEPS steps of k, so that memory is read in long runs. Those of a
    and of b are equally large, so that threads that do as many have as much to do.
    """
    group = CHUNK_LINES // wide * wide
    row, k_chunk = divmod(chunk, (depth + CHUNK_STEPS - 1) // CHUNK_STEPS)
    low, k_low = row * group, k_chunk * CHUNK_STEPS
    high, k_high = min(low + group, lines), min(k_low + CHUNK_STEPS, depth)
    if across == 1:
        zero = source.dtype.type(0)
        for k in range(k_low, k_high):
            for i in range(low, high, wide):
                copy_line(
                    source, at + k * step + i, 0, min(wide, lines - i),
                    out, out_at + i * depth + k * wide, wide, zero,
                )  # fmt: skip
        return
    lanes = VECTOR_BYTES // source.itemsize
    whole = k_low + (k_high - k_low) // lanes * lanes if step == 1 else k_low
    for i in range(low, high, wide):
        panel = out_at + i * depth
        for k in range(k_low, whole, lanes):
            for g in range(0, wide, GROUP):
                transpose_lines(
                    source, at + (i + g) * across + k, across, lines - i - g,
                    out, panel + k * wide + g, wide, wide - g,
                )  # fmt: skip
        for k in range(whole, k_high):
            for g in range(wide):
                inside = i + g < lines
                out[panel + k * wide + g] = (
                    source[at + (i + g) * across + k * step] if inside else 0
                )


@device_function
def _multiply_block(
    left, left_at, a_steps, right, right_at, b_steps,
    depth, out, at, n_size, m_last, n_last, lanes, whole,
):  # fmt: skip
    """Multiply the rows at `left_at` by the columns at `right_at`.

    # BLOCK_ROWS rows of a, BLOCK_PANELS panels of b -> their block of out

    A panel of b (DEPTH x 32 float32 = 32 KiB) stays in the first-level cache while the
    tiles of a (8 KiB each) pass by; all rows of a of this block, 64 KiB, stay in the
    second-level cache while the panels of b pass by. Unless all panels are `whole`, a
    last one is read no further than its columns.
    """
    a_tile, a_row, a_step = a_steps
    b_tile, b_step = b_steps
    for k0 in range(0, depth, DEPTH):
        steps = min(DEPTH, depth - k0)
        for j in range(0, n_last, lanes):
            for i in range(0, m_last, ROWS):
                if whole or j + lanes <= n_last:
                    tile_fma(
                        left, left_at + i * a_tile + k0 * a_step, a_row, a_step,
                        right, right_at + j * b_tile + k0 * b_step, b_step, steps,
                        out, at + i * n_size + j, n_size, m_last - i, n_last - j,
                        k0 > 0,
                    )  # fmt: skip
                else:
                    tile_fma_masked(
                        left, left_at + i * a_tile + k0 * a_step, a_row, a_step,
                        right, right_at + j * b_tile + k0 * b_step, b_step, steps,
                        out, at + i * n_size + j, n_size, m_last - i, n_last - j,
                        k0 > 0,
                    )  # fmt: skip


def _packed(
    a, a_at, a_starts, a_row, a_step, b, b_at, b_starts, b_step, b_col,
    out, left, right, work, sizes, packs,
):  # fmt: skip
    """Tiles in registers, fed from packed panels, or from a and b where they lie well.

    # a [B, M, K] @ b [B, K, N] -> out [B, M, N]

        parallel for panels:  lay the panel out in `work`
        parallel for blocks of out:  for blocks of k, panels of b, tiles of a:
            8 x 32 outputs += a's rows * b's panel, in registers

    First all threads copy: a panel is 8 rows of a or 32 columns of b, in the order in
    which `tile_fma` reads them, so that no stride of a or b matters any more. An
    operand that `_packs` finds good as it lies (`left` is a, or `right` is b) is not
    copied. Then a task makes a block of outputs; see `_multiply_block` for what stays
    where. As many products as fit into `work` are packed at a time. `_blocked` loads
    and stores an output for each multiplication; here 256 of them happen between load
    and store.

    Source of the idea: Goto and van de Geijn, "Anatomy of high-performance matrix
    multiplication", 2008.
    """
    M, N, K, wide, block_columns, together = sizes
    packs_a, packs_b = packs
    rows, panels = (M + ROWS - 1) // ROWS, (N + wide - 1) // wide
    b_part = panels * wide * K * packs_b
    part = rows * ROWS * K * packs_a + b_part
    high = (M + BLOCK_ROWS - 1) // BLOCK_ROWS
    blocks = high * ((N + block_columns - 1) // block_columns)
    a_chunks, b_chunks = _chunks(M, ROWS, K) * packs_a, _chunks(N, wide, K) * packs_b
    # From a tile to the next, a row, a step of k.
    a_steps = (K, 1, ROWS) if packs_a else (a_row, a_row, a_step)
    b_steps = (K, wide) if packs_b else (1, b_step)
    for first in range(0, a_starts.size, together):
        count = min(together, a_starts.size - first)
        if part > 0:
            for task in prange(count * (a_chunks + b_chunks)):
                which, p = divmod(np.int64(task), a_chunks + b_chunks)
                to = which * part
                if p < a_chunks:
                    start = a_at + a_starts[first + which]
                    _pack(a, start, a_row, a_step, M, ROWS, K, p, work, to + b_part)
                else:
                    start, p = b_at + b_starts[first + which], p - a_chunks
                    _pack(b, start, b_col, b_step, N, wide, K, p, work, to)
        for task in prange(count * blocks):
            which, block = divmod(np.int64(task), blocks)
            m, n = block % high * BLOCK_ROWS, block // high * block_columns
            a_first, b_first = which * part + b_part, which * part
            if not packs_a:
                a_first = a_at + a_starts[first + which]
            if not packs_b:
                b_first = b_at + b_starts[first + which]
            _multiply_block(
                left, a_first + m * a_steps[0], a_steps,
                right, b_first + n * b_steps[0], b_steps,
                K, out, ((first + which) * M + m) * N + n, N,
                min(BLOCK_ROWS, M - m), min(block_columns, N - n), wide, packs_b,
            )  # fmt: skip


packed_serial = compile_kernel(_packed, ("serial",))
packed_parallel = compile_kernel(_packed, ("parallel",), parallel=True)


def _rows(
    a, a_at, a_starts, a_row, a_step, b, b_at, b_starts, b_step, b_col, out, sizes
):
    """`_loop_order` for any strides, batches and dtypes; threads share the rows.

    # a [B, M, K] @ b [B, K, N] -> out [B, M, N]
    """
    M, N, K = sizes[0], sizes[1], sizes[2]
    for task in prange(a_starts.size * M):
        batch, m = divmod(np.int64(task), M)
        row = out[np.int64(task) * N : (np.int64(task) + 1) * N]
        for n in range(N):
            row[n] = 0
        for k in range(K):
            left = a[a_at + a_starts[batch] + m * a_row + k * a_step]
            start = b_at + b_starts[batch] + k * b_step
            for n in range(N):
                row[n] += left * b[start + n * b_col]


rows_serial = compile_kernel(_rows, ("serial",))
rows_parallel = compile_kernel(_rows, ("parallel",), parallel=True)


@kernel(parallel=True)
def _vector_matrix(
    a, a_at, a_starts, a_step, b, b_at, b_starts, b_step, b_col, out, sizes
):
    """One row times a matrix; each number of b is used once, so nothing is packed.

    # a [B, K] @ b [B, K, N] -> out [B, N]

        parallel for blocks of n:  for k, n:  out[n] += a[k] * b[k, n]

    A task makes up to 256 outputs. Where the columns of b lie row by row, it adds rows
    to them, in the first-level cache; where k is the contiguous direction, each output
    is a dot product. Both read b once, in long runs: the limit is the memory.
    """
    N, K, part = sizes
    blocks = (N + part - 1) // part
    for task in prange(a_starts.size * blocks):
        batch, block = divmod(np.int64(task), blocks)
        first, last = block * part, min(block * part + part, N)
        a_first, b_first = a_at + a_starts[batch], b_at + b_starts[batch]
        row = out[batch * N + first : batch * N + last]
        if b_step == 1 and a_step == 1:
            left = a[a_first : a_first + K]
            for n in range(row.size):
                start = b_first + (first + n) * b_col
                right = b[start : start + K]
                total = out.dtype.type(0)
                for k in range(K):
                    total += left[k] * right[k]
                row[n] = total
            continue
        row[:] = 0
        for k in range(K):
            factor, start = (
                a[a_first + k * a_step],
                b_first + k * b_step + first * b_col,
            )
            if b_col == 1:
                right = b[start : start + row.size]
                for n in range(row.size):
                    row[n] += factor * right[n]
            else:
                for n in range(row.size):
                    row[n] += factor * b[start + n * b_col]


def _dot_tiles(a, a_at, a_row, b, b_at, b_col, out, sizes):
    """Rows times rows, without packing: the forward pass of a linear layer.

    # a [M, K] @ b [N, K].T -> out [M, N]

        parallel for tiles of n, blocks of m:  for tiles of m, k:
            out[m, n] += a[m, k] * b[n, k]

    Both lie along k, so a vector of a times a vector of b is 16 terms of one sum, and
    nothing has to be laid out anew. A tile is DOT.rows x DOT.vectors sums in registers,
    whose lanes are added up at the end; that costs as much as a few steps of k. The
    last tile of rows begins early and makes some outputs twice, to the same bits.

    `_packed` reads packed panels many times for each time it writes them; with few rows
    of a it would not.
    """
    M, N, K = sizes
    parts = (M + DOT_PART - 1) // DOT_PART
    whole = K // (VECTOR_BYTES // a.itemsize) * (VECTOR_BYTES // a.itemsize)
    for task in prange((N + DOT.vectors - 1) // DOT.vectors * parts):
        tile = np.int64(task) // parts
        part = np.int64(task) - tile * parts
        n0 = tile * DOT.vectors
        offsets = np.empty(DOT.vectors, np.int64)
        for j in range(DOT.vectors):
            offsets[j] = min(n0 + j, N - 1) * b_col
        sums = np.empty(DOT_ROOM, out.dtype)
        for begin in range(part * DOT_PART, min(M, (part + 1) * DOT_PART), DOT.rows):
            m0 = max(0, min(begin, M - DOT.rows))
            sums[:] = 0
            start = a_at + m0 * a_row
            tile_dot(a, start, a_row, b, b_at, offsets, 0, whole, sums, 0, M - m0)
            for i in range(min(DOT.rows, M)):
                row = a[start + i * a_row : start + i * a_row + K]
                for j in range(min(DOT.vectors, N - n0)):
                    total = sums[i * DOT.vectors + j]
                    for k in range(whole, K):
                        total += row[k] * b[b_at + offsets[j] + k]
                    out[(m0 + i) * N + n0 + j] = total


dot_serial = compile_kernel(_dot_tiles, ("serial",))
dot_parallel = compile_kernel(_dot_tiles, ("parallel",), parallel=True)


# ------------------------------------------------------------------------ the launcher


class _Layout(NamedTuple):
    """What the kernels need to know about two shapes and their strides."""

    shape: Shape  # of the result
    a: tuple[np.ndarray, int, int]  # start of each product, stride of rows, of steps
    b: tuple[np.ndarray, int, int]  # start of each product, stride of steps, of columns
    sizes: tuple[int, int, int, int, int, int]
    packs: tuple[bool, bool]  # whether a, whether b is packed
    work: int  # elements of the packed panels
    multiplications: int
    rows: tuple[Any, Any, tuple[int, int, int]]  # a, b and sizes for `_rows`
    dots: bool  # whether `_dot_tiles` is the kernel for it


@lru_cache(maxsize=1024)
def _layout(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides, item: int
) -> _Layout:
    """Choose the sizes of blocks."""
    given = products_of(a_shape, a_strides, b_shape, b_strides)
    M, N, K = given.sizes
    wide = TILE.vectors * VECTOR_BYTES // item
    packs = _packs(given, wide, item)
    packed = (M + ROWS) * K * packs[0] + (N + wide) * K * packs[1]
    together = max(1, min(given.number, KEEP_BYTES // max(packed * item, 1)))
    columns = wide * panels(given.number * -(-M // BLOCK_ROWS), N, wide)
    return _Layout(
        given.shape,
        given.a,
        given.b,
        (M, N, K, wide, columns, together),
        packs,
        packed * together,
        given.multiplications,
        # One column is made as the transposed product, whose row is long.
        (given.a, given.b, (M, N, K))
        if N != 1
        else (given.b[::2] + given.b[1:2], given.a[::2] + given.a[1:2], (N, M, K)),
        given.number == 1
        and M <= DOT_ROWS
        and given.a[2] == given.b[1] == 1
        and K * item >= VECTOR_BYTES * (2 if M <= DOT.rows else 16),
    )


def _packs(given: Products, wide: int, item: int) -> tuple[bool, bool]:
    """Whether a, whether b has to be packed: not where it is read well as it lies.

    A step of k should not lead to another page of memory, unless all that is packed
    would be read few times only. Columns of b must lie side by side.
    """
    M, N, _ = given.sizes
    (_, a_row, a_step), (_, b_step, b_col) = given.a, given.b
    a_near = a_step == 1 or (a_row == 1 and 0 < a_step * item < PAGE)
    b_near = 0 <= b_step * item < PAGE or M <= FEW * ROWS
    return not (a_near or N <= FEW * wide), not (b_near and b_col == 1)


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

    Any strides, read in place: a transposed operand costs no copy.
    """
    dtype = a.storage.dtype
    layout = _layout(a.shape, a.strides, b.shape, b.strides, dtype.itemsize)
    out = empty(layout.shape, dtype)
    work = layout.multiplications
    if work == 0:
        out.storage.array.fill(0)
    elif work <= TINY or not dtype.is_floating_point:
        run: Any = rows_serial if work <= SERIAL else rows_parallel
        left, right, sizes = layout.rows
        if b.shape[-1] == 1:
            a, b = b, a
        run(
            a.storage.array, a.offset, *left, b.storage.array, b.offset, *right,
            out.storage.array, sizes,
        )  # fmt: skip
    elif layout.sizes[0] == 1 or layout.sizes[1] == 1:
        _launch_vector(a, b, out.storage.array, layout)
    elif layout.dots:
        run = dot_serial if work <= SERIAL else dot_parallel
        run(
            a.storage.array, a.offset, layout.a[1],
            b.storage.array, b.offset, layout.b[2], out.storage.array, layout.sizes[:3],
        )  # fmt: skip
    else:
        run = packed_serial if work <= SERIAL else packed_parallel
        _launch_packed(run, a, b, out, layout)
    return out


def _launch_vector(
    a: TensorData, b: TensorData, out: np.ndarray, layout: _Layout
) -> None:
    """A product with one row, or with one column as the transposed product."""
    (a_starts, a_row, a_step), (b_starts, b_step, b_col) = layout.a, layout.b
    M, N, K = layout.sizes[:3]
    x, y = a.storage.array, b.storage.array
    if M == 1:
        left: tuple[Any, ...] = (x, a.offset, a_starts, a_step)
        right: tuple[Any, ...] = (y, b.offset, b_starts, b_step, b_col)
    else:
        left = (y, b.offset, b_starts, b_step)
        right = (x, a.offset, a_starts, a_step, a_row)
    # Sums along k can be shared among more threads than rows that are added up.
    part = max(1, min(256, max(M, N) // (8 if right[3] == 1 else 2)))
    _vector_matrix(*left, *right, out, (max(M, N), K, part))


# ------------------------------------------------ the rungs of the ladder, callable


def _run_rung(rung: Any, name: str, a: TensorData, b: TensorData) -> TensorData:
    """Check two matrices and run one of the first four kernels on them."""
    check_rung(name, a, b)
    out = empty((a.shape[0], b.shape[1]), a.dtype)
    rung(*(each.flat().reshape(each.shape) for each in (a, b, out)))
    return out


def matmul_naive(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `_naive`; both contiguous."""
    return _run_rung(_naive, "matmul_naive", a, b)


def matmul_loop_order(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `_loop_order`; both contiguous."""
    return _run_rung(_loop_order, "matmul_loop_order", a, b)


def matmul_parallel(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `_parallel`; both contiguous."""
    return _run_rung(_parallel, "matmul_parallel", a, b)


def matmul_blocked(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by `_blocked`; both contiguous."""
    return _run_rung(_blocked, "matmul_blocked", a, b)


def matmul_packed(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N] by `_packed`, whatever the size."""
    layout = _layout(a.shape, a.strides, b.shape, b.strides, a.dtype.itemsize)
    out = empty(layout.shape, a.dtype)
    _launch_packed(packed_parallel, a, b, out, layout)
    return out


def _launch_packed(
    run: Any, a: TensorData, b: TensorData, out: TensorData, layout: _Layout
) -> None:
    if layout.multiplications == 0:
        out.storage.array.fill(0)
        return
    x, y, packs = a.storage.array, b.storage.array, layout.packs
    work = workspace(layout.work, out.storage.dtype)
    run(
        x, a.offset, *layout.a, y, b.offset, *layout.b, out.storage.array,
        work if packs[0] else x, work if packs[1] else y, work, layout.sizes, packs,
    )  # fmt: skip


# From the definition to the fastest; a benchmark draws them all.
LADDER = (
    matmul_naive,
    matmul_loop_order,
    matmul_parallel,
    matmul_blocked,
    matmul_packed,
)
