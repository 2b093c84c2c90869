"""The GPU: is there one, what is it, how full is it, and how long does work take?

With this file a program can choose its device as PyTorch programs do
(`minitorch.cuda.is_available()`), look at the memory (`memory_allocated`), wait
(`synchronize`), measure (`Event`), and let work run side by side (`Stream`). In Numba's
simulator everything is done at once, and the memory functions say 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minitorch.backend import available_devices, get_backend

if TYPE_CHECKING:
    from minitorch.cuda_graphs import CUDAGraph as CUDAGraph
    from minitorch.cuda_graphs import graph as graph
    from minitorch.cuda_graphs import graph_pool_handle as graph_pool_handle
    from minitorch.cuda_graphs import make_graphed_step as make_graphed_step


def __getattr__(name: str) -> Any:
    """The names of `cuda_graphs.py`, imported with all of `optim` when asked for."""
    if name not in ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_step"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from minitorch import cuda_graphs

    return vars(cuda_graphs)[name]


def is_available() -> bool:
    """Whether tensors can be put on the device "cuda" here."""
    if "cuda" not in available_devices():
        return False
    try:
        get_backend("cuda")
    except RuntimeError:
        return False
    return True


def device_count() -> int:
    """How many GPUs can be used: one or none."""
    return int(is_available())


def current_device() -> int:
    """The number of the GPU in use: 0."""
    _device()
    return 0


def _device() -> Any:
    """The module `cuda_ops.runtime.device`; an error where "cuda" cannot be used."""
    get_backend("cuda")
    from cuda_ops.runtime import device

    return device


def _allocator() -> Any:
    get_backend("cuda")
    from cuda_ops.runtime import allocator

    return allocator


def synchronize() -> None:
    """Wait until all work on the GPU is done; errors of that work are raised here."""
    _device().synchronize()


def get_device_properties(device: Any = None) -> Any:
    """Name, memory, compute capability, ... (`cuda_ops.runtime.device.Properties`)."""
    return _device().properties()


def get_device_name(device: Any = None) -> str:
    """The name of the GPU: "NVIDIA H200", for example."""
    return get_device_properties().name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability: (9, 0) for an H200."""
    found = get_device_properties()
    return found.major, found.minor


# -------------------------------------------------------------------------- memory


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors use."""
    return _allocator().memory_allocated()


def memory_reserved(device: Any = None) -> int:
    """Bytes that are held for tensors, used or not."""
    return _allocator().memory_reserved()


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used at a time."""
    return _allocator().max_memory_allocated()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` start from what is used now."""
    _allocator().reset_peak_memory_stats()


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver."""
    _allocator().empty_cache()


# ------------------------------------------------------------- streams and events


class Stream:
    """A queue of work. Work on one stream is done in order, on two side by side.

    A tensor's memory is reused on the stream that it was made on: keep tensors that
    another stream reads until it is done (`synchronize`).

    Attributes:
        handle: the driver's handle, None in the simulator.
    """

    def __init__(self) -> None:
        self.handle: Any = None
        self._destroy: Callable | None = None
        device = _device()
        if not device.SIMULATED:
            api = device.driver()
            self._destroy = api.cuStreamDestroy
            flag = api.CUstream_flags.CU_STREAM_NON_BLOCKING
            self.handle = device.call("making a stream", api.cuStreamCreate, flag)

    @classmethod
    def _of(cls, handle: Any) -> Stream:
        """A stream that somebody else owns; None is the default one."""
        made = cls.__new__(cls)
        made.handle, made._destroy = handle, None
        return made

    def synchronize(self) -> None:
        """Wait until all work on this stream is done."""
        device = _device()
        if not device.SIMULATED:
            wait = device.driver().cuStreamSynchronize
            device.call("waiting for a stream", wait, self.handle)

    def wait_stream(self, other: Stream) -> None:
        """Let what comes next here wait for what is under way on `other`."""
        device = _device()
        if not device.SIMULATED:
            device.order(other.handle, self.handle)

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind the work that is under way here."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what comes next here wait for `event`."""
        event.wait(self)

    def __del__(self) -> None:
        if self._destroy is not None:
            self._destroy(self.handle)


def current_stream(device: Any = None) -> Stream:
    """The stream that work goes to."""
    return Stream._of(_device().current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream that work goes to if no other is chosen."""
    return Stream._of(None)


@contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Send the work of the block to a stream: `with minitorch.cuda.stream(s):`."""
    if chosen is None:
        yield
        return
    with _device().use_stream(chosen.handle):
        yield


class Event:
    """A mark in a stream; the time between two marks is measured by the GPU.

        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record(); ...; end.record()
        end.synchronize()
        start.elapsed_time(end)           # in milliseconds

    Args:
        enable_timing: whether `elapsed_time` will be asked.
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self._handle: Any = None
        self._time = 0.0  # in the simulator
        device = _device()
        if not device.SIMULATED:
            api = device.driver()
            self._destroy = api.cuEventDestroy
            kinds = api.CUevent_flags
            flag = (
                kinds.CU_EVENT_DEFAULT
                if enable_timing
                else kinds.CU_EVENT_DISABLE_TIMING
            )
            self._handle = device.call("making an event", api.cuEventCreate, flag)

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work that is under way."""
        device = _device()
        if self._handle is None:
            self._time = time.perf_counter()
            return
        handle = device.current_stream() if stream is None else stream.handle
        record = device.driver().cuEventRecord
        device.call("recording an event", record, self._handle, handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes next on `stream` (the current one) wait for the mark."""
        device = _device()
        if self._handle is not None:
            handle = device.current_stream() if stream is None else stream.handle
            wait = device.driver().cuStreamWaitEvent
            device.call("waiting for an event", wait, handle, self._handle, 0)

    def query(self) -> bool:
        """Whether the work before the mark is done."""
        device = _device()
        if self._handle is None:
            return True
        (code,) = device.driver().cuEventQuery(self._handle)
        if code and code != device.driver().CUresult.CUDA_ERROR_NOT_READY:
            device.raise_error(code, "asking for an event")
        return not code

    def synchronize(self) -> None:
        """Wait until the work before the mark is done."""
        device = _device()
        if self._handle is not None:
            wait = device.driver().cuEventSynchronize
            device.call("waiting for an event", wait, self._handle)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to the mark `end`; both have been reached."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError(
                "elapsed_time: both events need Event(enable_timing=True)"
            )
        if self._handle is None:
            return 1e3 * (end._time - self._time)
        device = _device()
        ask = device.driver().cuEventElapsedTime
        return device.call("measuring time", ask, self._handle, end._handle)

    def __del__(self) -> None:
        if self._handle is not None:
            self._destroy(self._handle)
