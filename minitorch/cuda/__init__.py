"""The GPUs: how many are there, what are they, how full, and how long does work take?

With this file a program can choose its device as PyTorch programs do
(`minitorch.cuda.is_available()`, `set_device(1)`), look at the memory
(`memory_allocated`), wait (`synchronize`), measure (`Event`), and let work run side by
side (`Stream`). A GPU is named by its number or as "cuda:1"; None is the current one.
In Numba's simulator everything is done at once, and the memory functions say 0.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minitorch.backend import available_devices, get_backend
from minitorch.backend.registry import split_name
from minitorch.devices import device as minitorch_device
from minitorch.devices import named
from minitorch.executor import settle
from minitorch.random import manual_seed

if TYPE_CHECKING:
    from minitorch.cuda_callables import (
        make_graphed_callables as make_graphed_callables,
    )
    from minitorch.cuda_graphs import CUDAGraph as CUDAGraph
    from minitorch.cuda_graphs import graph as graph
    from minitorch.cuda_graphs import graph_pool_handle as graph_pool_handle
    from minitorch.cuda_graphs import make_graphed_step as make_graphed_step


def __getattr__(name: str) -> Any:
    """`amp`, and names of `cuda_graphs.py` and its kin, imported when asked for."""
    if name == "amp":
        from importlib import import_module

        return import_module("minitorch.cuda.amp")
    if name == "make_graphed_callables":
        from minitorch import cuda_callables

        return cuda_callables.make_graphed_callables
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


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be used on the GPU: from sm_80 on it converts them itself;
    before, shifts and additions do it."""
    if not is_available():
        return False
    return including_emulation or get_device_capability() >= (8, 0)


def _device() -> Any:
    """The module `cuda_ops.runtime.device`; an error where "cuda" cannot be used."""
    get_backend("cuda")
    from cuda_ops.runtime import device

    return device


# -------------------------------------------------------------------- several GPUs


def device_count() -> int:
    """How many GPUs can be used."""
    return _device().count() if is_available() else 0


def current_device() -> int:
    """The number of the GPU that "cuda" means in this thread, at first 0."""
    return _device().current_index()


def set_device(device: Any) -> None:
    """Let "cuda" mean another GPU from here on, in this thread.

    Called before anything is put on a GPU, it holds for all threads, and no other GPU
    is touched: in a program of one process a GPU, each calls `set_device(local_rank)`.
    Where another library keeps a current GPU of its own (`torch.cuda.set_device`), it
    must be the same.

    Args:
        device: a number, or a name such as "cuda:1".

    Raises:
        ValueError: there is no such GPU.
    """
    _device().set_device(_index(device))


def device(device: Any) -> Any:
    """`with minitorch.cuda.device(1):` lets "cuda" mean another GPU in the block; None
    changes nothing."""
    return _device().on(_gpu(device))


def _index(device: Any) -> int:
    """The number of a GPU; that of the current one for None and "cuda"."""
    if isinstance(device, str):
        kind, device = split_name(str(device))
        if kind != "cuda":
            raise ValueError(
                f'device: got {kind!r}; expected a GPU: a number, or "cuda:0"'
            )
    index = current_device() if device is None else operator.index(device)
    _device().check_index(index)
    return index


def _gpu(device: Any) -> Any:
    """The GPU itself, which is in use from now on."""
    return _device().gpu(_index(device))


def synchronize(device: Any = None) -> None:
    """Wait until all work on a GPU is done; errors of that work are raised here."""
    settle()
    with _device().on(_gpu(device)):
        _device().synchronize()


def get_device_properties(device: Any = None) -> Any:
    """Name, memory, compute capability, ... (`cuda_ops.runtime.device.Properties`)."""
    return _device().properties(_index(device))


def get_device_name(device: Any = None) -> str:
    """The name of a GPU: "NVIDIA H200", for example."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability: (9, 0) for an H200."""
    found = get_device_properties(device)
    return found.major, found.minor


# All devices draw from one sequence of random numbers. (In PyTorch each has its own.)
manual_seed_all = manual_seed


# -------------------------------------------------------------------------- memory


def _books(device: Any) -> Any:
    """What is noted of a GPU's memory: nothing, of one that is not in use."""
    module, index = _device(), _index(device)
    return (module.gpus.get(index) or module.Gpu(index)).pool.books


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors use on a GPU."""
    return _books(device).memory_allocated()


def memory_reserved(device: Any = None) -> int:
    """Bytes that are held for tensors, used or not."""
    return _books(device).memory_reserved()


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used at a time."""
    return _books(device).peak


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` start from what is used now."""
    _books(device).reset_peak()


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, on all GPUs there are."""
    if not is_available():
        return  # programs call this wherever they run
    for gpu in tuple(_device().gpus.values()):
        gpu.pool.books.empty_cache()


# ------------------------------------------------------------- streams and events


NONBLOCKING, TIMED, UNTIMED = 1, 0, 2  # flags of the driver for streams and events


def _call(gpu: Any, what: str, name: str, *args: Any) -> Any:
    """What a function of the driver returns on a GPU; None in the simulator."""
    module = _device()
    if module.SIMULATED:
        return None
    settle()
    with module.on(gpu):
        return module.call(what, getattr(module.driver(), name), *args)


class Stream:
    """A queue of work. Work on one stream is done in order, on two side by side.

    A tensor's memory is reused on the stream that it was made on: keep tensors that
    another stream reads until it is done (`synchronize`).

    Args:
        device: the GPU that it is of, the current one if None.

    Attributes:
        handle: the driver's handle; None is the default stream, and in the simulator
            every one.
    """

    _destroy: Any = None

    def __init__(self, device: Any = None) -> None:
        self._gpu = _gpu(device)
        self.handle = _call(self._gpu, "making a stream", "cuStreamCreate", NONBLOCKING)
        if self.handle is not None:
            self._destroy = _device().driver().cuStreamDestroy

    @property
    def device(self) -> minitorch_device:
        """The GPU whose work it is."""
        return named(self._gpu.name)

    @classmethod
    def _of(cls, gpu: Any, handle: Any) -> Stream:
        """A stream that somebody else owns; None is the default one."""
        made = cls.__new__(cls)
        made._gpu, made.handle = gpu, handle
        return made

    def synchronize(self) -> None:
        """Wait until all work on this stream is done."""
        what = "waiting for a stream"
        _call(self._gpu, what, "cuStreamSynchronize", self.handle)

    def wait_stream(self, other: Stream) -> None:
        """Let what comes next here wait for what is under way on `other`."""
        self.wait_event(other.record_event())

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
    """The stream that work on a GPU goes to."""
    gpu = _gpu(device)
    with _device().on(gpu):
        return Stream._of(gpu, _device().current.handle)


def default_stream(device: Any = None) -> Stream:
    """The stream that work on a GPU goes to if no other is chosen."""
    return Stream._of(_gpu(device), None)


@contextmanager
def stream(chosen: Stream | None) -> Iterator[None]:
    """Send the work of the block to a stream: `with minitorch.cuda.stream(s):`.

    Its GPU is the current one in the block.
    """
    if chosen is None:
        yield
        return
    settle()
    with _device().on(chosen._gpu), _device().use_stream(chosen.handle):
        try:
            yield
        finally:
            settle()


class Event:
    """A mark in a stream; the time between two marks is measured by the GPU.

        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record(); ...; end.record()
        end.synchronize()
        start.elapsed_time(end)           # in milliseconds

    It belongs to the GPU on which it is first recorded. Streams of any GPU can wait for
    it; the time between marks of two GPUs cannot be measured.

    Args:
        enable_timing: whether `elapsed_time` will be asked.
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self._gpu: Any = None
        self._handle: Any = None
        self._time = 0.0  # in the simulator
        _device()  # an error where there is no GPU

    @property
    def device(self) -> minitorch_device | None:
        """The GPU it belongs to, None before it is recorded."""
        return None if self._gpu is None else named(self._gpu.name)

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work that is under way.

        Raises:
            ValueError: the stream is of another GPU than the event.
        """
        stream = stream or current_stream()
        if self._gpu not in (None, stream._gpu):
            raise ValueError(
                f"Event: it was recorded on {self._gpu.name!r}, and the stream is of "
                f"{stream._gpu.name!r}; use an event for each GPU"
            )
        gpu = self._gpu = stream._gpu
        self._time = time.perf_counter()
        if self._handle is None:
            flag = TIMED if self.enable_timing else UNTIMED
            self._handle = _call(gpu, "making an event", "cuEventCreate", flag)
            if self._handle is not None:
                self._destroy = _device().driver().cuEventDestroy
        what = "recording an event"
        _call(gpu, what, "cuEventRecord", self._handle, stream.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes next on `stream` (the current one) wait for the mark."""
        if self._handle is not None:
            stream, name = stream or current_stream(), "cuStreamWaitEvent"
            what = "waiting for an event"
            _call(stream._gpu, what, name, stream.handle, self._handle, 0)

    def query(self) -> bool:
        """Whether the work before the mark is done."""
        if self._handle is None:
            return True
        module = _device()
        (code,) = module.driver().cuEventQuery(self._handle)
        if code and code != module.driver().CUresult.CUDA_ERROR_NOT_READY:
            module.raise_error(code, "asking for an event")
        return not code

    def synchronize(self) -> None:
        """Wait until the work before the mark is done."""
        if self._handle is not None:
            what = "waiting for an event"
            _call(self._gpu, what, "cuEventSynchronize", self._handle)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to the mark `end`; both have been reached."""
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError(
                "elapsed_time: both events need Event(enable_timing=True)"
            )
        if self._gpu is None or self._gpu is not end._gpu:
            raise ValueError(
                "elapsed_time: both events must have been recorded, on one GPU"
            )
        if self._handle is None:
            return 1e3 * (end._time - self._time)
        name = "cuEventElapsedTime"
        return _call(self._gpu, "measuring time", name, self._handle, end._handle)

    def __del__(self) -> None:
        if self._handle is not None:
            self._destroy(self._handle)
