"""Tiles as large as on a GPU, in the simulator.

There some kernels have small tiles, since each thread takes time. These give the same
values, but other requests: 4 elements of a row are not what a warp asks for. With this
file one can run them at full size (`real_sizes`), to count what a GPU would count.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

REAL = {
    "cuda_ops.ladders.matmul": {
        "SIDE": 32, "AREA": 1024, "HIGH": 8, "WIDE": 64, "DEEP": 8, "BLOCK_ROWS": 8,
        "SQUARE": 512, "THREADS": 512, "FEWER": 64, "EACH": 8, "OUTPUTS": 64,
        "SLOTS": 1024,
    },
}  # fmt: skip


@contextmanager
def real_sizes(module: str) -> Iterator[None]:
    """Give the kernels of a module (a key of `REAL`) the sizes that a GPU gets."""
    names = vars(importlib.import_module(module))
    small = {name: names[name] for name in REAL[module] if name in names}
    names.update(REAL[module])
    try:
        yield
    finally:
        names.update(small)
