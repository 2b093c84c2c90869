"""Products of a matrix and a vector: every number of the matrix is used once.

With this file one can get the kernel for such a product (`cut_of`, `VectorConfig`).
There is nothing to keep in tiles: the time is that of reading the matrix, of halves
half as long. Two kernels, for the two ways in which it can lie:

    matvec_rows       a row is a stretch of memory       4 to 32 lanes or a block a row
    matvec_columns    neighbours are in other rows       a thread 1 or 4 rows

Where there are few rows, several blocks share k, and `add_partials` adds their sums. A
vector times a matrix is the same with the operands exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from numba import cuda

from cuda_ops.block.intrinsics import WARP, load, load4, store
from cuda_ops.block.rows import BLOCK, barrier, summed
from cuda_ops.block.tiles import inlined
from cuda_ops.matmul.kernels import EXAMPLE, NUMBERS, batch_start
from cuda_ops.runtime.launch import Kernel, ceil_div

if TYPE_CHECKING:
    from cuda_ops.matmul.plans import Sides

# Threads that share a row in `matvec_columns`.
WARPS = BLOCK // WARP
# Blocks that fill the GPU: 4 for each of 132 multiprocessors.
BLOCKS = 528
# Steps of k for a thread, at least, where blocks share a row.
LEAST = 8


class VectorConfig(NamedTuple):
    """How a product with a vector is cut into blocks.

    Attributes:
        group: threads for a row in `matvec_rows`, a power of two; 0 for
            `matvec_columns`.
        width: 4 where the matrix is read 16 bytes at a time, else 1.
        turned: whether the matrix is b, and a is the vector.
    """

    group: int
    width: int
    turned: bool

    @property
    def depth(self) -> int:
        """A chunk of k is a multiple of this."""
        return 4

    @property
    def span(self) -> int:
        """Outputs of a block."""
        return BLOCK // self.group if self.group else WARP * self.width

    @property
    def rows(self) -> int:
        return 1 if self.turned else self.span

    @property
    def cols(self) -> int:
        return self.span if self.turned else 1

    @property
    def threads(self) -> int:
        return BLOCK

    def shared(self, *_: Any) -> int:
        """Bytes of shared memory beyond what the kernel names itself."""
        return 0


def cut_of(sides: Sides, aligned: tuple[bool, bool]) -> tuple[VectorConfig, int] | None:
    """The config and the splits of k; None unless an operand is a vector."""
    turned = sides.M == 1
    if not (turned or sides.N == 1):
        return None
    count = sides.N if turned else sides.M
    (row, step), (_, vector_step) = (sides.b, sides.a) if turned else (sides.a, sides.b)
    matrices = math.prod([dim[0] for dim in sides.batch])

    def even(operand: int) -> bool:
        """Whether each matrix of a (0) or b (1) begins at a multiple of 16 bytes."""
        return aligned[operand] and all(
            dim[1 + operand] % 4 == 0 for dim in sides.batch
        )

    if step == 1 or count == 1:
        wide = even(0) and even(1) and step == vector_step == 1
        wide = wide and sides.K % 4 == 0 and (count == 1 or row % 4 == 0)
        config = VectorConfig(
            _group(count * matrices, sides.K), 4 if wide else 1, turned
        )
    elif row == 1:
        wide = even(turned) and count % 4 == 0 and step % 4 == 0
        config = VectorConfig(0, 4 if wide else 1, turned)
    else:
        return None
    blocks = max(1, ceil_div(count, config.span) * matrices)
    least = LEAST * (config.group * config.width or WARPS)
    return config, max(1, min(BLOCKS // blocks, sides.K // least))


def _group(rows: int, K: int) -> int:
    """Threads for a row: each has 32 numbers or more; a block where rows are few."""
    if rows < BLOCKS and K >= 4 * BLOCK:
        return BLOCK
    return min(WARP, max(4, 1 << max(K // 32, 1).bit_length() - 1))


def rows_template(name: str, config: VectorConfig) -> Callable:
    """The Python function of `matvec_rows`."""
    group, width, turned = config.group, config.width, config.turned
    add, start_of, rows = summed(group), inlined(batch_start), BLOCK // group
    dtype, zero = NUMBERS[name], NUMBERS[name](0)

    def matvec_rows(a, a_at, a_strides, b, b_at, b_strides, out, sizes):
        """out[m] = sum of a[m, k] * b[k], a group of threads a row.

        # a [B, M, K] @ b [B, K, 1] -> out [splits, B, M, 1]

        Each thread has four loads of a under way, and four sums that need not wait for
        each other. b comes from the caches: all rows read it.
        """
        M, N, K, chunk = sizes
        if turned:
            M, a, b, a_at, b_at = N, b, a, b_at, a_at
            a_strides, b_strides = b_strides, a_strides
        cells = cuda.shared.array(WARP, dtype)
        t = cuda.threadIdx.x % group
        m = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        skip = cuda.blockIdx.y * chunk
        n = min(K - skip, chunk)
        i = a_at + start_of(a_strides) + (m if m < M else 0) * a_strides[0]
        i += skip * a_strides[1]
        j = b_at + start_of(b_strides) + skip * b_strides[1]
        p = q = r = s = zero
        if width == 4:
            k, step = 4 * t, 4 * group
            while k + 3 * step < n:
                a0, a1, a2, a3 = load4(a, i + k)
                c0, c1, c2, c3 = load4(a, i + k + step)
                d0, d1, d2, d3 = load4(a, i + k + 2 * step)
                e0, e1, e2, e3 = load4(a, i + k + 3 * step)
                b0, b1, b2, b3 = load4(b, j + k)
                p, q, r, s = p + a0 * b0, q + a1 * b1, r + a2 * b2, s + a3 * b3
                b0, b1, b2, b3 = load4(b, j + k + step)
                p, q, r, s = p + c0 * b0, q + c1 * b1, r + c2 * b2, s + c3 * b3
                b0, b1, b2, b3 = load4(b, j + k + 2 * step)
                p, q, r, s = p + d0 * b0, q + d1 * b1, r + d2 * b2, s + d3 * b3
                b0, b1, b2, b3 = load4(b, j + k + 3 * step)
                p, q, r, s = p + e0 * b0, q + e1 * b1, r + e2 * b2, s + e3 * b3
                k += 4 * step
            while k < n:
                a0, a1, a2, a3 = load4(a, i + k)
                b0, b1, b2, b3 = load4(b, j + k)
                p, q, r, s = p + a0 * b0, q + a1 * b1, r + a2 * b2, s + a3 * b3
                k += step
        else:
            k, a_step, b_step = t, a_strides[1], b_strides[1]
            while k + 3 * group < n:
                a0 = load(a, i + k * a_step)
                a1 = load(a, i + (k + group) * a_step)
                a2 = load(a, i + (k + 2 * group) * a_step)
                a3 = load(a, i + (k + 3 * group) * a_step)
                p += a0 * load(b, j + k * b_step)
                q += a1 * load(b, j + (k + group) * b_step)
                r += a2 * load(b, j + (k + 2 * group) * b_step)
                s += a3 * load(b, j + (k + 3 * group) * b_step)
                k += 4 * group
            while k < n:
                p += load(a, i + k * a_step) * load(b, j + k * b_step)
                k += group
        total = add((p + q) + (r + s), t, cells)
        if t == 0 and m < M:
            matrix = cuda.blockIdx.y * cuda.gridDim.z + cuda.blockIdx.z
            store(out, matrix * M + m, total)

    return matvec_rows


def columns_template(name: str, config: VectorConfig) -> Callable:
    """The Python function of `matvec_columns`."""
    width, turned = config.width, config.turned
    start_of, span = inlined(batch_start), config.span
    dtype, zero = NUMBERS[name], NUMBERS[name](0)

    def matvec_columns(a, a_at, a_strides, b, b_at, b_strides, out, sizes):
        """out[m] = sum of a[m, k] * b[k], where a[m, k] and a[m + 1, k] are neighbours.

        # a [B, M, K] @ b [B, K, 1] -> out [splits, B, M, 1]

        The lanes of a warp make neighbouring outputs, so that they read neighbours; the
        warps of a block take turns with k, and their sums meet in shared memory.
        """
        M, N, K, chunk = sizes
        if turned:
            M, a, b, a_at, b_at = N, b, a, b_at, a_at
            a_strides, b_strides = b_strides, a_strides
        cells = cuda.shared.array((WARPS, span), dtype)
        lane, warp = cuda.threadIdx.x % WARP * width, cuda.threadIdx.x // WARP
        m = cuda.blockIdx.x * span + lane
        skip = cuda.blockIdx.y * chunk
        n = min(K - skip, chunk)
        a_step, b_step = a_strides[1], b_strides[1]
        i = a_at + start_of(a_strides) + skip * a_step + (m if m < M else 0)
        j = b_at + start_of(b_strides) + skip * b_step
        p = q = r = s = zero
        if width == 4:
            k = warp
            while k + 3 * WARPS < n:
                a0, a1, a2, a3 = load4(a, i + k * a_step)
                c0, c1, c2, c3 = load4(a, i + (k + WARPS) * a_step)
                d0, d1, d2, d3 = load4(a, i + (k + 2 * WARPS) * a_step)
                e0, e1, e2, e3 = load4(a, i + (k + 3 * WARPS) * a_step)
                x = load(b, j + k * b_step)
                p, q, r, s = p + a0 * x, q + a1 * x, r + a2 * x, s + a3 * x
                x = load(b, j + (k + WARPS) * b_step)
                p, q, r, s = p + c0 * x, q + c1 * x, r + c2 * x, s + c3 * x
                x = load(b, j + (k + 2 * WARPS) * b_step)
                p, q, r, s = p + d0 * x, q + d1 * x, r + d2 * x, s + d3 * x
                x = load(b, j + (k + 3 * WARPS) * b_step)
                p, q, r, s = p + e0 * x, q + e1 * x, r + e2 * x, s + e3 * x
                k += 4 * WARPS
            while k < n:
                a0, a1, a2, a3 = load4(a, i + k * a_step)
                x = load(b, j + k * b_step)
                p, q, r, s = p + a0 * x, q + a1 * x, r + a2 * x, s + a3 * x
                k += WARPS
            cells[warp, lane + 1] = q
            cells[warp, lane + 2] = r
            cells[warp, lane + 3] = s
        else:
            k = warp
            while k + 3 * WARPS < n:
                a0 = load(a, i + k * a_step)
                a1 = load(a, i + (k + WARPS) * a_step)
                a2 = load(a, i + (k + 2 * WARPS) * a_step)
                a3 = load(a, i + (k + 3 * WARPS) * a_step)
                p += a0 * load(b, j + k * b_step)
                q += a1 * load(b, j + (k + WARPS) * b_step)
                r += a2 * load(b, j + (k + 2 * WARPS) * b_step)
                s += a3 * load(b, j + (k + 3 * WARPS) * b_step)
                k += 4 * WARPS
            while k < n:
                p += load(a, i + k * a_step) * load(b, j + k * b_step)
                k += WARPS
            p = (p + q) + (r + s)
        cells[warp, lane] = p
        barrier()
        matrix = cuda.blockIdx.y * cuda.gridDim.z + cuda.blockIdx.z
        first = cuda.blockIdx.x * span
        for own in range(cuda.threadIdx.x, min(span, M - first), BLOCK):
            total = cells[0, own]
            for other in range(1, WARPS):
                total += cells[other, own]
            store(out, matrix * M + first + own, total)

    return matvec_columns


@cache
def matvec(name: str, config: VectorConfig) -> Kernel:
    """The kernel for a dtype's name and one way to cut."""
    template = rows_template if config.group else columns_template
    fn = template(name, config)
    main = name == "float32" and config.width == 4 and not config.turned
    return Kernel(
        fn,
        name=f"{fn.__name__}[{name},{','.join(map(str, config))}]",
        examples=(EXAMPLE,) if main else (),
        threads=BLOCK,
    )


for _threads in (0, WARP, BLOCK):
    matvec("float32", VectorConfig(_threads, 4, False))
