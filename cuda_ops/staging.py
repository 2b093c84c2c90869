"""Copies between NumPy arrays and the GPU that do not wait.

With this file one can send an array to the GPU behind the work that is under way
(`to_device`), and bring one back (`to_host`).

The GPU reads and writes host memory by itself only if that is pinned (locked in place).
So elements pass through pinned buffers: an array is copied into one, the GPU is told to
fetch it from there, and the caller goes on. An event behind the copy tells when the
buffer can be used again. Pinning takes a millisecond, so buffers are kept.
"""

from __future__ import annotations

import ctypes
from threading import Lock

import numpy as np

from cuda_ops import device
from cuda_ops.arrays import DeviceArray

LEAST = 4096  # bytes of the smallest buffer; sizes are powers of two
LARGEST = 64 * 2**20  # larger arrays are copied by the driver, which waits
LIMIT = 512 * 2**20  # bytes of all buffers; above it a copy waits for an old one

NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Buffer:
    """Pinned memory, and the event behind the last copy from it."""

    __slots__ = ("bytes", "event", "pointer")

    def __init__(self, size: int) -> None:
        api, what = device.driver(), f"pinning {size} bytes of host memory"
        self.pointer = int(device.call(what, api.cuMemHostAlloc, size, 0))
        memory = (ctypes.c_uint8 * size).from_address(self.pointer)
        self.bytes = np.ctypeslib.as_array(memory)
        flag = api.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self.event = device.call("making an event", api.cuEventCreate, flag)

    def ready(self) -> bool:
        """Whether the GPU has done with it."""
        (code,) = device.driver().cuEventQuery(self.event)
        if code and int(code) != NOT_READY:
            device.raise_error(code, "copying to the GPU")
        return not code

    def wait(self) -> None:
        """Return when the GPU has done with it."""
        device.call("copying", device.driver().cuEventSynchronize, self.event)


class Buffers:
    """Pinned buffers by size; the one that was used longest ago comes first."""

    def __init__(self) -> None:
        self.idle: dict[int, list[Buffer]] = {}
        self.total = 0
        self.lock = Lock()

    def take(self, nbytes: int) -> Buffer:
        """A buffer for `nbytes` that nobody uses."""
        size = max(LEAST, 1 << (nbytes - 1).bit_length())
        with self.lock:
            queue = self.idle.setdefault(size, [])
            if queue and (queue[0].ready() or self.total + size > LIMIT):
                buffer = queue.pop(0)
                buffer.wait()
                return buffer
            self.total += size
        return Buffer(size)

    def give(self, buffer: Buffer) -> None:
        """Put a buffer back, behind a copy that may be under way."""
        api = device.driver()
        device.call("copying", api.cuEventRecord, buffer.event, device.current.handle)
        self.keep(buffer)

    def keep(self, buffer: Buffer) -> None:
        """Put a buffer back that nobody uses any more."""
        with self.lock:
            self.idle[buffer.bytes.size].append(buffer)


_buffers = Buffers()


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def to_device(out: DeviceArray, flat: np.ndarray) -> None:
    """out[...] = flat, behind the work on the current stream."""
    nbytes, stream = flat.nbytes, device.current.handle
    copy = device.driver().cuMemcpyHtoDAsync
    what = f"copying {nbytes} bytes to the GPU"
    if nbytes > LARGEST:
        device.call(what, copy, out.pointer, flat.ctypes.data, nbytes, stream)
        device.synchronize_stream()
        return
    buffer = _buffers.take(nbytes)
    buffer.bytes[:nbytes] = _as_bytes(flat)
    device.call(what, copy, out.pointer, buffer.pointer, nbytes, stream)
    _buffers.give(buffer)


def to_host(out: np.ndarray, flat: DeviceArray) -> None:
    """out[...] = flat, when all work on the current stream is done."""
    nbytes, stream = out.nbytes, device.current.handle
    copy = device.driver().cuMemcpyDtoHAsync
    what = f"copying {nbytes} bytes from the GPU"
    if nbytes > LARGEST:
        device.call(what, copy, out.ctypes.data, flat.pointer, nbytes, stream)
        device.synchronize_stream()
        return
    buffer = _buffers.take(nbytes)
    try:
        device.call(what, copy, buffer.pointer, flat.pointer, nbytes, stream)
        device.synchronize_stream()
        _as_bytes(out)[:] = buffer.bytes[:nbytes]
    finally:
        _buffers.keep(buffer)
