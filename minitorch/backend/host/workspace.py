"""Memory that kernels use for a moment, kept from call to call.

With this file a launcher can borrow room for packed or padded copies (`workspace`).
Memory fresh from the operating system costs a fault for each page, often more than
filling it; this memory has been touched before. It begins with a cache line
(`line_buffer`): a vector of AVX-512 that lies across two lines is loaded in two steps.
"""

from __future__ import annotations

import threading

import numpy as np

from minitorch.backend import fences
from minitorch.dtypes import DType

KEEP_BYTES = 1 << 26  # larger requests are given back after the call
LINE_BYTES = 64  # in a cache line, and in an AVX-512 vector

Buffer = tuple[np.ndarray, int]  # bytes, and where the first whole line begins

_local = threading.local()


def line_buffer(size: int) -> Buffer:
    """New memory with room for `size` bytes from the beginning of a cache line on."""
    buffer = np.empty(size + LINE_BYTES, np.uint8)
    return buffer, -buffer.ctypes.data % LINE_BYTES


def _on_line(size: int, dtype: DType) -> np.ndarray:
    return np.ndarray(size, dtype.numpy, *line_buffer(size * dtype.itemsize))


def line_array(size: int, dtype: DType) -> np.ndarray:
    """A new flat array of `size` elements, from the beginning of a cache line on."""
    if fences.around is not None:
        return fences.around(_on_line, size, dtype)
    return _on_line(size, dtype)


def workspace(size: int, dtype: DType) -> np.ndarray:
    """A flat array of `size` elements or more, with no particular values.

    It is valid until the next request of the same Python thread for the same dtype.
    """
    kept = _local.__dict__.get(dtype.name)
    if kept is not None and kept.size >= size:
        return kept
    fresh = _on_line(size, dtype)
    if fresh.nbytes <= KEEP_BYTES:
        _local.__dict__[dtype.name] = fresh
    return fresh
