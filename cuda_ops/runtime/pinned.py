"""Pinned memory: host memory that the GPU reads and writes by itself.

With this file one can make a NumPy array in such memory (`empty`), and find out whether
an array lies in it (`buffer_of`).

The system may move the pages of ordinary memory at any time, so the GPU cannot be given
their addresses. Pinned pages are locked in place. The GPU copies from and to them while
the CPU does something else:

    host     start copy | make the next batch ...   | ask: done?
    GPU      ... kernel | copy       | kernel ...

Until a copy is done nobody else may get the memory. So each copy is followed by an
event (`Buffer.copied`), and memory whose array is gone waits in a list until its events
have happened. Pinning takes a millisecond, so buffers are kept for the next request.

In the simulator all host memory will do, and copies are done at once.

Source: the idea is that of PyTorch's caching host allocator (PyTorch documentation,
"CUDA semantics", use pinned memory buffers).
"""

from __future__ import annotations

import ctypes
from collections import deque
from threading import Lock
from typing import Any

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.simulator import SIMULATED

LEAST = 4096  # bytes of the smallest buffer; sizes are powers of two
LIMIT = 512 * 2**20  # bytes of all buffers; above it a request waits for an old one

NOT_READY = 600  # CUDA_ERROR_NOT_READY
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class HostDriver:
    """Where pinned memory and events come from; tests put another one in its place."""

    def allocate(self, size: int) -> int | None:
        """The address of `size` new bytes, None if the system gives no more."""
        with device.between_captures():
            code, pointer = device.driver().cuMemHostAlloc(size, 0)
            if int(code) == device.INVALID_CONTEXT:  # the first call in this thread
                device.activate()
                code, pointer = device.driver().cuMemHostAlloc(size, 0)
        if int(code) == OUT_OF_MEMORY:
            return None
        if code:
            device.raise_error(code, f"pinning {size} bytes of host memory")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give memory back to the system."""
        with device.between_captures():
            device.call("freeing pinned memory", device.driver().cuMemFreeHost, pointer)

    def stream(self) -> Any:
        """What tells the current stream from others, on this GPU and elsewhere."""
        return device.current.gpu, device.current.key

    def new_event(self) -> Any:
        """An event that can be recorded again and again."""
        flag = device.driver().CUevent_flags.CU_EVENT_DISABLE_TIMING
        return device.call("making an event", device.driver().cuEventCreate, flag)

    def record(self, event: Any) -> None:
        """Let the event happen when the work on the current stream is done."""
        stream = device.current.handle
        device.call("recording an event", device.driver().cuEventRecord, event, stream)

    def happened(self, event: Any) -> bool:
        """Whether the work before the event is done."""
        (code,) = device.driver().cuEventQuery(event)
        if int(code) == device.INVALID_CONTEXT:
            device.activate()
            (code,) = device.driver().cuEventQuery(event)
        if code and int(code) != NOT_READY:
            device.raise_error(code, "copying between host and GPU")
        return not code

    def wait(self, event: Any) -> None:
        """Return when the event has happened."""
        wait = device.driver().cuEventSynchronize
        device.call("copying between host and GPU", wait, event)

    def delete(self, event: Any) -> None:
        """The event is not needed any more."""
        device.call("deleting an event", device.driver().cuEventDestroy, event)


class SimulatedHost(HostDriver):
    """Ordinary memory, and events that have happened."""

    def __init__(self) -> None:
        self.held: dict[int, np.ndarray] = {}

    def allocate(self, size: int) -> int | None:
        """The address of `size` new bytes."""
        array = np.empty(size, np.uint8)
        self.held[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, pointer: int) -> None:
        """Forget the memory."""
        del self.held[pointer]

    def new_event(self) -> Any:
        """Nothing has to be remembered."""

    def record(self, event: Any) -> None:
        """Nothing is under way."""

    def happened(self, event: Any) -> bool:
        """Copies are done at once."""
        return True

    def wait(self, event: Any) -> None:
        """Copies are done at once."""

    def delete(self, event: Any) -> None:
        """There is nothing to delete."""


class Buffer:
    """Pinned memory, and the events behind the copies that may be under way.

    Attributes:
        bytes: the memory, uint8 [size].
        events: for each stream that ever copied, the event behind the last copy. They
            are kept for the next user.
    """

    __slots__ = ("bytes", "driver", "events", "pointer")

    def __init__(self, driver: HostDriver, pointer: int, size: int) -> None:
        self.driver = driver
        self.pointer = pointer
        memory = (ctypes.c_uint8 * size).from_address(pointer)
        self.bytes = np.ctypeslib.as_array(memory)
        self.events: dict[Any, Any] = {}

    def copied(self) -> None:
        """To be called when a copy was started on the current stream."""
        stream = self.driver.stream()
        if stream not in self.events:
            self.events[stream] = self.driver.new_event()
        self.driver.record(self.events[stream])

    def done(self) -> bool:
        """Whether no copy is under way."""
        return all(map(self.driver.happened, self.events.values()))

    def wait(self) -> None:
        """Return when no copy is under way."""
        for event in self.events.values():
            self.driver.wait(event)

    def free(self) -> None:
        """Give the memory back to the system, when no copy is under way."""
        self.wait()
        for event in self.events.values():
            self.driver.delete(event)
        self.driver.free(self.pointer)


class PinnedPool:
    """Buffers by size; the one that was used longest ago comes first.

    Attributes:
        idle: buffers that nobody uses; copies may still be under way.
        returned: buffers that were given back, from any thread, at any moment.
        total: bytes of all buffers.
    """

    def __init__(self, driver: HostDriver) -> None:
        self.driver = driver
        self.idle: dict[int, deque[Buffer]] = {}
        self.returned: deque[Buffer] = deque()
        self.total = 0
        self.lock = Lock()

    def take(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`, which no copy uses.

        Raises:
            RuntimeError: the system pins no more memory.
        """
        size = max(LEAST, 1 << (nbytes - 1).bit_length())
        with self.lock:
            self._collect()
            queue = self.idle.get(size)
            if queue and (queue[0].done() or self.total + size > LIMIT):
                buffer = queue.popleft()
                buffer.wait()
                return buffer
            return self._new(size)

    def _collect(self) -> None:
        while self.returned:
            buffer = self.returned.popleft()
            self.idle.setdefault(buffer.bytes.size, deque()).append(buffer)

    def _new(self, size: int) -> Buffer:
        pointer = self.driver.allocate(size)
        if pointer is None:
            self._free_idle()
            pointer = self.driver.allocate(size)
        if pointer is None:
            raise RuntimeError(
                f"the system pins no more memory: {size / 2**20:,.1f} MiB were asked "
                f"for, and {self.total / 2**20:,.1f} MiB are pinned already. Use "
                f"smaller batches, or leave pin_memory out"
            )
        self.total += size
        return Buffer(self.driver, pointer, size)

    def give(self, buffer: Buffer) -> None:
        """Put a buffer back; copies that are under way may go on."""
        self.returned.append(buffer)

    def _free_idle(self) -> None:
        """Give buffers that nobody uses back to the system."""
        for size, queue in self.idle.items():
            for buffer in queue:
                buffer.free()
                self.total -= size
        self.idle.clear()


class Lease:
    """Keeps a buffer as long as there are arrays in it: NumPy's `base` of them all."""

    def __init__(self, pool: PinnedPool, nbytes: int) -> None:
        self.pool = pool
        self.buffer = pool.take(nbytes)
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.buffer.pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            self.pool.give(self.buffer)


POOL = PinnedPool(SimulatedHost() if SIMULATED else HostDriver())


def empty(
    shape: tuple[int, ...], dtype: np.dtype, pool: PinnedPool = POOL
) -> np.ndarray:
    """An array in pinned memory, whose elements have no particular value."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    return np.asarray(Lease(pool, nbytes)).view(dtype).reshape(shape)


def buffer_of(array: np.ndarray | None) -> Buffer | None:
    """The pinned buffer that the array lies in, None if it lies elsewhere."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.buffer if isinstance(array, Lease) else None
