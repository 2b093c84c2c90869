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
    """Whether there is a GPU of NVIDIA's, or at least a driver for one."""
    if any(Path("/dev").glob("nvidia[0-9]*")):  # Linux
        return True
    if sys.platform == "linux" and not Path("/dev/dxg").exists():  # not Windows's
        return False
    name = "nvcuda" if os.name == "nt" else "cuda"
    return ctypes.util.find_library(name) is not None
