"""Prefix sums of counts, on the device.

With this file one can turn the lengths of consecutive runs into the places where they
begin (`exclusive_scan`).
"""

from __future__ import annotations

from numba import cuda, int64

from cuda_ops.memory import empty
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from minitorch import dtypes
from minitorch.tensor_data import TensorData

THREADS = 8 if TINY else 256
# Neighbouring elements that a thread adds up by itself.
EACH = 4
TILE = THREADS * EACH


# BEGIN SOLUTION a4.4
@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def scan_tiles(x, out, sums):
    """out[i + 1] = x[first of the tile] + ... + x[i], sums[tile] = the tile's total.

    # x [n] -> out [n + 1], sums [tiles]

    A block takes a tile, a thread EACH neighbours, in log2(THREADS) rounds:

        1 2 3 4   ->   1 3 5 7   ->   1 3 6 10

    Source: Hillis and Steele, "Data parallel algorithms", 1986.
    """
    # Each thread adds up its own; then each adds the sum of the thread 1, 2, 4, ...
    # places before it, after which it has the sum of all before it and itself.
    totals = cuda.shared.array(THREADS, int64)
    tid = cuda.threadIdx.x
    start = cuda.blockIdx.x * TILE + tid * EACH
    total = 0
    for i in range(start, min(start + EACH, x.size)):
        total += x[i]
    totals[tid] = total
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        before = totals[tid - step] if tid >= step else 0
        cuda.syncthreads()
        totals[tid] += before
        cuda.syncthreads()
        step *= 2
    running = totals[tid] - total
    for i in range(start, min(start + EACH, x.size)):
        running += x[i]
        out[i + 1] = running
    if tid == THREADS - 1:
        sums[cuda.blockIdx.x] = totals[tid]
    if cuda.grid(1) == 0:
        out[0] = 0


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_before(out, before):
    """out[i + 1] += before[tile of i]: the sum of all tiles before it."""
    i = cuda.grid(1)
    if i + 1 < out.size:
        out[i + 1] += before[i // TILE]


# END SOLUTION a4.4


def exclusive_scan(x: TensorData) -> TensorData:
    """x int64 [n] -> [n + 1]: out[i] = x[0] + ... + x[i - 1]; the last is the total.

    Tiles are summed in parallel; the tiles' sums are scanned in the same way and added.
    """
    n = x.shape[0]
    out = empty((n + 1,), dtypes.int64)
    tiles = max(ceil_div(n, TILE), 1)
    sums = empty((tiles,), dtypes.int64)
    scan_tiles[tiles, THREADS](x.flat(), out.flat(), sums.flat())
    # BEGIN SOLUTION a4.4
    if tiles > 1:
        before = exclusive_scan(sums)
        add_before[ceil_div(n, THREADS), THREADS](out.flat(), before.flat())
    # END SOLUTION a4.4
    return out
