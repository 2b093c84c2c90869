"""Memory that kernels use for a moment, kept from call to call.

With this file a launcher can borrow room for packed or padded copies (`workspace`).
Memory fresh from the operating system costs a fault for each page, often more than
filling it; this memory has been touched before.
"""

from __future__ import annotations

import threading

import numpy as np

from minitorch.dtypes import DType

KEEP_BYTES = 1 << 26  # larger requests are given back after the call

_local = threading.local()


def workspace(size: int, dtype: DType) -> np.ndarray:
    """A flat array of `size` elements or more, with no particular values.

    It is valid until the next request of the same Python thread for the same dtype.
    """
    kept = _local.__dict__.get(dtype.name)
    if kept is not None and kept.size >= size:
        return kept
    fresh = np.empty(size, dtype.numpy)
    if fresh.nbytes <= KEEP_BYTES:
        _local.__dict__[dtype.name] = fresh
    return fresh
