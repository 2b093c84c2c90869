"""What this machine's processor can do at most, measured.

With this file a benchmark can say which share of the limit a kernel reaches:
`peak_flops()` multiplies and adds on registers and first-level cache alone, and
`bandwidth()` streams arrays that no cache holds. Both use as many threads as the
kernels do, and both are the best of several runs, since a limit is what can be reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numba import get_num_threads, prange

from fast_ops.launch import kernel
from fast_ops.simd import LANES, TILE, tile_fma

DEPTH = 256  # steps of one tile: its panels of a and b stay in the first-level cache
ROOM = DEPTH * (TILE.rows + TILE.vectors * LANES)
OUT = TILE.rows * TILE.vectors * LANES


@kernel(parallel=True)
def _multiply_add(panels, out, tasks, times):
    """The innermost tile of `matmul_packed`, on panels that never leave the cache."""
    for task in prange(tasks):
        at = task * ROOM
        for _ in range(times):
            tile_fma(
                panels, at, 1, TILE.rows, panels, at + DEPTH * TILE.rows,
                TILE.vectors * LANES, DEPTH, out, task * OUT, TILE.vectors * LANES,
                TILE.rows, TILE.vectors * LANES, True,
            )  # fmt: skip


@kernel(parallel=True)
def _add(a, b, out):
    """out[i] = a[i] + b[i]"""
    for i in prange(out.size):
        out[i] = a[i] + b[i]


def _best(run: Callable[[], None], repeats: int) -> float:
    """The shortest of some runs, in seconds."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_flops(repeats: int = 20) -> float:
    """float32 operations a second, a multiplication and an addition counting as two."""
    tasks, times = get_num_threads(), 2000
    panels = np.full(tasks * ROOM, 1e-3, np.float32)
    out = np.zeros(tasks * OUT, np.float32)
    seconds = _best(lambda: _multiply_add(panels, out, tasks, times), repeats)
    return 2.0 * DEPTH * OUT * tasks * times / seconds


def bandwidth(repeats: int = 20) -> float:
    """Bytes a second of out = a + b on float32 arrays of 64 MB, two read, one written.

    A write counts once, although the processor may fetch the line first.
    """
    n = 16_000_000
    a, b = np.ones(n, np.float32), np.ones(n, np.float32)
    out = np.empty(n, np.float32)
    seconds = _best(lambda: _add(a, b, out), repeats)
    return 3.0 * 4 * n / seconds
