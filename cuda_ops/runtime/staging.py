"""Copies between NumPy arrays and the GPU.

With this file one can send an array to the GPU behind the work that is under way
(`to_device`), bring one back (`to_host`), do either without the CPU where the array is
in pinned memory (`start_to_device`, `start_to_host`), and copy from one GPU to another
(`to_peer`).

The GPU reads and writes host memory by itself only if that is pinned
(`cuda_ops/runtime/pinned.py`). So elements of an ordinary array pass through a pinned
buffer:
the array is copied there, the GPU is told to fetch it, and the caller goes on, and may
change the array.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.runtime.arrays import DeviceArray
from cuda_ops.runtime.pinned import POOL, Buffer
from cuda_ops.simulator import SIMULATED

# Bytes; the driver itself copies what is larger, and waits. To the host it copies what
# is smaller, too: faster than a buffer is taken, copied from and given back.
LARGEST, SMALLEST = 64 * 2**20, 256


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
    if not SMALLEST < nbytes <= LARGEST:
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


def to_peer(out: DeviceArray, flat: DeviceArray, source: device.Gpu) -> None:
    """out[...] = flat, from the GPU `source` to the current one; nobody waits.

    It runs on the stream of `source`, behind the work on both streams, and what comes
    next on either runs behind it: the elements are complete then, and out's memory may
    have been in use on this GPU until now.
    """
    target, here = device.current.gpu, device.current.handle
    arrived = device.event_on(here)
    with device.on(source):
        there = device.current.handle
        device.wait_for(arrived, there)
        _enable_peer(source, target)
        what = f"copying {flat.nbytes} bytes from {source.name} to {target.name}"
        copy = device.driver().cuMemcpyPeerAsync
        contexts = target.context, source.context
        ends = out.pointer, contexts[0], flat.pointer, contexts[1]
        device.call(what, copy, *ends, flat.nbytes, there)
        copied = device.event_on(there)
    device.wait_for(copied, here)


@cache
def _enable_peer(source: device.Gpu, target: device.Gpu) -> None:
    """Let the current GPU, `source`, write to the memory of `target` by itself.

    Where it cannot, the driver takes the copies through the host. It may also have been
    enabled by somebody else, such as torch.
    """
    api = device.driver()
    codes = [
        device.call("opening a GPU", api.cuDeviceGet, gpu.index)
        for gpu in (source, target)
    ]
    if device.call("asking a GPU", api.cuDeviceCanAccessPeer, *codes):
        api.cuCtxEnablePeerAccess(target.context, 0)
