"""Copies between NumPy arrays and the GPU.

With this file one can send an array to the GPU behind the work that is under way
(`to_device`), bring one back (`to_host`), and do either without the CPU where the array
is in pinned memory (`start_to_device`, `start_to_host`).

The GPU reads and writes host memory by itself only if that is pinned
(`cuda_ops/runtime/pinned.py`). So elements of an ordinary array pass through a pinned
buffer:
the array is copied there, the GPU is told to fetch it, and the caller goes on, and may
change the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.runtime.arrays import DeviceArray
from cuda_ops.runtime.pinned import POOL, Buffer
from cuda_ops.simulator import SIMULATED

LARGEST = 64 * 2**20  # bytes; larger arrays are copied by the driver, which waits


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _send(out: DeviceArray, address: int, nbytes: int) -> None:
    """Start a copy from the host; the driver waits if `address` is not pinned."""
    copy, stream = device.driver().cuMemcpyHtoDAsync, device.current.handle
    what = f"copying {nbytes} bytes to the GPU"
    device.call(what, copy, out.pointer, address, nbytes, stream)


def _fetch(address: int, flat: DeviceArray, nbytes: int) -> None:
    """Start a copy to the host."""
    copy, stream = device.driver().cuMemcpyDtoHAsync, device.current.handle
    what = f"copying {nbytes} bytes from the GPU"
    device.call(what, copy, address, flat.pointer, nbytes, stream)


def to_device(out: DeviceArray, flat: np.ndarray) -> None:
    """out[...] = flat, behind the work on the current stream."""
    nbytes = flat.nbytes
    if nbytes > LARGEST:
        _send(out, flat.ctypes.data, nbytes)
        device.synchronize_stream()
        return
    buffer = POOL.take(nbytes)
    buffer.bytes[:nbytes] = _as_bytes(flat)
    _send(out, buffer.pointer, nbytes)
    buffer.copied()
    POOL.give(buffer)


def to_host(out: np.ndarray, flat: DeviceArray) -> None:
    """out[...] = flat, when all work on the current stream is done."""
    nbytes = out.nbytes
    if nbytes > LARGEST:
        _fetch(out.ctypes.data, flat, nbytes)
        device.synchronize_stream()
        return
    buffer = POOL.take(nbytes)
    try:
        _fetch(buffer.pointer, flat, nbytes)
        device.synchronize_stream()
        _as_bytes(out)[:] = buffer.bytes[:nbytes]
    finally:
        POOL.give(buffer)


def start_to_device(out: Any, flat: np.ndarray, buffer: Buffer) -> None:
    """out[...] = flat, which lies in `buffer`: nobody waits, and nothing is staged."""
    if SIMULATED:
        out[:] = flat
    else:
        _send(out, flat.ctypes.data, flat.nbytes)
    buffer.copied()


def start_to_host(out: np.ndarray, flat: Any, buffer: Buffer) -> None:
    """out[...] = flat, for `out` in `buffer`; to be read when the stream is done."""
    if SIMULATED:
        out[:] = flat
    else:
        _fetch(out.ctypes.data, flat, out.nbytes)
    buffer.copied()
