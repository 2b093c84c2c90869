"""Whether GPU kernels run on a GPU here, or in Numba's simulator.

With this file one can ask where checks on a device run (`simulates`).
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from functools import cache
from pathlib import Path


def simulates(device: str) -> bool:
    """Whether checks on a device run in Numba's simulator: cuda, without a GPU."""
    forced = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    return device == "cuda" and (forced or not _has_gpu())


@cache
def _has_gpu() -> bool:
    """Whether there are a driver and, where that can be seen, a GPU for it."""
    if sys.platform == "linux":
        files = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]
        if not files:
            return False
    name = "nvcuda" if os.name == "nt" else "cuda"
    return ctypes.util.find_library(name) is not None
