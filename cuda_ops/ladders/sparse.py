"""Sparse times dense in three steps: who does a row of a sparse matrix?

With this file one can read, run and time the ways of giving the rows of a CSR matrix to
threads, by name in `LADDER`:

    row_a_thread    each thread sums one element of the result, alone
    row_a_warp      the 32 threads of a warp share a row
    balanced        groups of threads share elements and row ends, rows may be divided

All take crow [M + 1], col [nnz], values [nnz] and dense [K, N] as `csr_matmul` does,
and give the same sums; each is deterministic. What the backend uses is in
`cuda_ops/sparse.py`, which begins where `row_a_warp` ends.

Sources: Bell and Garland, "Implementing sparse matrix-vector multiplication on
throughput-oriented processors", SC 2009; Merrill and Garland, "Merge-based parallel
sparse matrix-vector multiplication", SC 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import WARP, device, shuffle_xor
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from cuda_ops.sort import end_of_run
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData

THREADS = 64 if TINY else 256
WARPS = THREADS // WARP
# Steps (row ends and elements) of a group in `balanced`.
STEPS = 16 if TINY else 256

_CSR = [
    f"{i}[] {i}[] {v}[] {v}[] {v}[] int64"
    for i in ("int64", "int32")
    for v in ("float32", "float64")
]


# ------------------------------------------------------------------- a row a thread


@kernel(examples=_CSR, threads=THREADS)
def csr_row_a_thread(crow, col, values, dense, out, n):
    """One sum for each thread.

    # A [M, K] @ dense [K, n] -> out [M, n]

        for i in range(M):
            for j in range(n):
                out[i, j] = sum(values[p] * dense[col[p], j] for p in row i)

    Thread t of the grid makes out[t // n, t % n]; the sum is kept in a register. With
    n = 1 neighbours stand in different rows, so that the 32 loads of `values` of a warp
    go to 32 places (32 sectors of 32 bytes for 128 bytes of use), and a warp takes as
    long as its longest row. With a large n neighbours share the row, and all is well
    but that every thread reads the same col[p] and values[p].
    """
    # BEGIN SOLUTION a7.2
    t = cuda.grid(1)
    if t < out.size:
        i = t // n
        j = t - i * n
        total = values.dtype.type(0)
        for p in range(crow[i], crow[i + 1]):
            total += values[p] * dense[col[p] * n + j]
        out[t] = total
    # END SOLUTION a7.2


# --------------------------------------------------------------------- a row a warp


@kernel(examples=_CSR, threads=THREADS)
def csr_row_a_warp(crow, col, values, dense, out, n):
    """The threads of a warp take the elements of a row in turn (n = 1).

    # A [M, K] @ dense [K, 1] -> out [M, 1]

        lane    0    1    2  ...  31     32 neighbouring elements: one 128-byte load
        p       0    1    2  ...  31     each lane adds up its own
               32   33   34  ...  63     then five exchanges add the 32 sums

    Rows of fewer than 32 elements leave lanes idle, and one long row keeps one warp
    busy when all others are done.
    """
    # BEGIN SOLUTION a7.2
    i = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    lane = cuda.threadIdx.x % WARP
    total = values.dtype.type(0)
    if i * n < out.size:
        for p in range(crow[i] + lane, crow[i + 1], WARP):
            total += values[p] * dense[col[p]]
    total += shuffle_xor(total, 16)
    total += shuffle_xor(total, 8)
    total += shuffle_xor(total, 4)
    total += shuffle_xor(total, 2)
    total += shuffle_xor(total, 1)
    if lane == 0 and i * n < out.size:
        out[i] = total
    # END SOLUTION a7.2


@kernel(examples=_CSR, threads=THREADS)
def csr_row_a_warp_wide(crow, col, values, dense, out, n):
    """The threads of a warp take the columns of the result in turn (n > 1).

    # A [M, K] @ dense [K, n] -> out [M, n]

    Lane l of warp (i, b) makes out[i, 32 b + l]: the warp reads col[p] and values[p]
    once, as one broadcast, and 32 neighbours of a row of `dense` in one 128-byte load.
    """
    # BEGIN SOLUTION a7.3
    blocks = (n + WARP - 1) // WARP
    w = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    i = w // blocks
    j = (w - i * blocks) * WARP + cuda.threadIdx.x % WARP
    if i * n < out.size and j < n:
        total = values.dtype.type(0)
        for p in range(crow[i], crow[i + 1]):
            total += values[p] * dense[col[p] * n + j]
        out[i * n + j] = total
    # END SOLUTION a7.3


# ------------------------------------------------------------------------- balanced


@device
def merge_row(crow, step, nnz):
    """The row at which step `step` of the merge stands; the element is step - row.

    The merge walks through elements and row ends: the end of row i comes after its
    last element, as step crow[i + 1] + i. So the row is the number of row ends that
    come before `step`. No more than nnz = crow[-1] of these steps are elements.
    """
    # BEGIN SOLUTION a7.5
    # The step of a row end rises with the row, so the row is found by halving.
    low = max(step - nnz, 0)
    high = min(step, crow.size - 1)
    while low < high:
        middle = (low + high) // 2
        if crow[middle + 1] + middle < step:
            low = middle + 1
        else:
            high = middle
    return low
    # END SOLUTION a7.5


@kernel(
    examples=[f"{words} int64 int64[] {words.split()[2]}" for words in _CSR],
    threads=THREADS,
)
def csr_balanced(crow, col, values, dense, out, n, steps, carry_row, carry):
    """Every group of 32 threads does the same work, whatever the rows are.

    # A [M, K] @ dense [K, n] -> out [M, n], carry [groups, n], carry_row [groups]

        elements   a0 a1 a2 | b0 b1 b2 b3 b4 b5 b6 | c0         rows a, b, c
        steps      a0 a1 a2 A b0 b1 | b2 b3 b4 b5 b6 B | c0 C   an end is a step, too
        groups     0                  1                  2

    Group g takes `steps` steps from g * steps on. A row that ends there is written by
    it; what it has of the row that is not at its end goes to carry[g], and
    `csr_add_carries` adds these to the row in the order of the groups. Lane l sums
    columns l, l + 32, ...; sums stay in registers. No atomics: the order of every
    addition is fixed by the shape.
    """
    # BEGIN SOLUTION a7.5
    g = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    rows, nnz = crow.size - 1, col.size
    if g < carry_row.size:
        i0 = merge_row(crow, g * steps, nnz)
        last = min((g + 1) * steps, rows + nnz)
        i1 = merge_row(crow, last, nnz)
        for j in range(cuda.threadIdx.x % WARP, n, WARP):
            p = g * steps - i0  # Of the steps before, i0 were row ends.
            for i in range(i0, i1 + 1):
                end = crow[i + 1] if i < i1 else last - i1
                total = values.dtype.type(0)
                while p < end:
                    total += values[p] * dense[col[p] * n + j]
                    p += 1
                if i < i1:
                    out[i * n + j] = total
                else:
                    carry[g * n + j] = total
        if cuda.threadIdx.x % WARP == 0:
            carry_row[g] = i1
    # END SOLUTION a7.5


@kernel(
    examples=[f"{v}[] {v}[] int64[] int64" for v in ("float32", "float64")],
    threads=THREADS,
)
def csr_add_carries(out, carry, carry_row, n):
    """out[row] += the carries of the groups that ended inside it, in their order.

    # carry [groups, n], carry_row [groups], out [M, n]

    The first group of each run of equal rows adds up the run, four carries in flight;
    lane l does columns l, l + 32, ...
    """
    g = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    if g < carry_row.size:
        row = carry_row[g]
        if row * n < out.size and (g == 0 or carry_row[g - 1] != row):
            end = end_of_run(carry_row, g)
            for j in range(cuda.threadIdx.x % WARP, n, WARP):
                total = out[row * n + j]
                at = g
                while at + 4 <= end:
                    x0, x1 = carry[at * n + j], carry[(at + 1) * n + j]
                    x2, x3 = carry[(at + 2) * n + j], carry[(at + 3) * n + j]
                    total = (((total + x0) + x1) + x2) + x3
                    at += 4
                while at < end:
                    total += carry[at * n + j]
                    at += 1
                out[row * n + j] = total


# ------------------------------------------------------------------------ launchers


def _operands(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> tuple[tuple[Any, ...], TensorData]:
    """The flat arrays of all four, and the result, not yet written."""
    arrays = tuple(contiguous(x).flat() for x in (crow, col, values, dense))
    out = empty((crow.shape[0] - 1, dense.shape[1]), values.dtype)
    return arrays, out


def row_a_thread(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> [M, N]: one thread sums one element."""
    arrays, out = _operands(crow, col, values, dense)
    csr_row_a_thread[ceil_div(out.size, THREADS), THREADS](
        *arrays, out.flat(), dense.shape[1]
    )
    return out


def row_a_warp(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> [M, N]: a warp shares a row."""
    arrays, out = _operands(crow, col, values, dense)
    rows, n = out.shape
    run = csr_row_a_warp if n == 1 else csr_row_a_warp_wide
    warps = rows * ceil_div(n, WARP)
    run[ceil_div(warps, WARPS), THREADS](*arrays, out.flat(), n)
    return out


def balanced(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> [M, N]: equal numbers of elements and row ends."""
    arrays, out = _operands(crow, col, values, dense)
    rows, n = out.shape
    groups = ceil_div(rows + col.shape[0], STEPS)
    carry = empty((groups, n), values.dtype).flat()
    carry_row = empty((groups,), int64).flat()
    blocks = ceil_div(groups, WARPS) if n else 0
    csr_balanced[blocks, THREADS](*arrays, out.flat(), n, STEPS, carry_row, carry)
    csr_add_carries[blocks, THREADS](out.flat(), carry, carry_row, n)
    return out


LADDER: dict[str, Callable[..., TensorData]] = {
    "row_a_thread": row_a_thread,
    "row_a_warp": row_a_warp,
    "balanced": balanced,
}
