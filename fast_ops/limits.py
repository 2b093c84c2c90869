"""What this machine's processor can do at most, measured.

With this file a benchmark can say which share of the limit a kernel reaches:
`peak_flops()` multiplies and adds on registers and first-level cache alone, and
`bandwidth()` and `read_bandwidth()` stream arrays that no cache holds (`cache_bytes()`
says how much it is). All use as many threads as the kernels do, and are the best of
several runs, since a limit is what can be reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba import get_num_threads, prange

from fast_ops.launch import kernel
from fast_ops.simd import LANES, TILE, tile_fma
from minitorch.backend.host.workspace import line_buffer

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
def _add(a, b):
    """a[i] += b[i]"""
    for i in prange(a.size):
        a[i] += b[i]


@kernel(parallel=True)
def _total(a, parts, out):
    """out[p] = the sum of part p of a"""
    for p in prange(parts):
        at = np.int64(p) * (a.size // parts)
        part, total = a[at : at + a.size // parts], a.dtype.type(0)
        for i in range(part.size):
            total += part[i]
        out[p] = total


def _best(run: Callable[[], None], repeats: int) -> float:
    """The shortest of some runs, in seconds."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def from_line(size: int, value: float) -> np.ndarray:
    """`size` float32, all `value`, from the beginning of a cache line on.

    A vector that lies in two lines is two loads for the processor.
    """
    array = np.ndarray(size, np.float32, *line_buffer(4 * size))
    array.fill(value)
    return array


def peak_flops(repeats: int = 200) -> float:
    """float32 operations a second, a multiplication and an addition counting as two.

    As many as a loop of multiply-adds that loads nothing at all (one in C had 0.99 to
    1.01 of it): the loads of the tile fit beside them. The runs together take 0.3 s, so
    that on a machine shared with others one of them is likely to be undisturbed.
    """
    tasks, times = get_num_threads(), 2000
    panels = from_line(tasks * ROOM, 1e-3)
    out = from_line(tasks * OUT, 0.0)
    seconds = _best(lambda: _multiply_add(panels, out, tasks, times), repeats)
    return 2.0 * DEPTH * OUT * tasks * times / seconds


def bandwidth(repeats: int = 20) -> float:
    """Bytes a second of a += b on float32 arrays of 64 MB: two read, one written.

    An output of its own would be slower: the processor fetches a line before it writes
    a part of it, and those bytes would not be counted.
    """
    n = 16_000_000
    a, b = np.ones(n, np.float32), np.full(n, 1e-3, np.float32)
    return 3.0 * 4 * n / _best(lambda: _add(a, b), repeats)


def read_bandwidth(repeats: int = 20) -> float:
    """Bytes a second of the sum of a float32 array of 128 MB."""
    a, parts = np.ones(32_000_000, np.float32), 1000
    out = np.empty(parts, np.float32)
    return 4.0 * a.size / _best(lambda: _total(a, parts, out), repeats)


def cache_bytes() -> float:
    """The size of the largest cache of a core, or 64 MiB where the system hides it."""
    sizes = [0.0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 2.0**10, "M": 2.0**20}.get(text[-1:], 1.0)
        sizes.append(float(text.rstrip("KM")) * unit)
    return max(sizes) or 64 * 2.0**20
