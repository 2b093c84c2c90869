"""The GPUs themselves: their contexts, their properties, their errors, their streams.

With this file one can find out whether there is a GPU (`require_device`), ask what it
is (`properties`), call the driver with errors raised (`call`), choose the GPU and the
stream that kernels and copies go to (`set_device`, `on`, `use_stream`), and wait
(`synchronize`).

All that a process knows of a GPU hangs on one object (`Gpu`), and where the work of a
thread goes is told by another (`current`). As long as one GPU is used, which may be any
of them, all threads share `current`, and nobody asks which GPU a tensor is on. From the
second GPU on each thread has a `current` of its own, and the functions of the backend
change to the GPU of their tensors first (`cuda_ops/backend.py`).

A kernel that reads outside of its arrays is noticed later, by whatever call comes next.
The error then names the last kernels that were launched; with CUDA_LAUNCH_BLOCKING=1 in
the environment every launch is waited for, and the operation that caused an error is
the one that raises it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, NamedTuple

from cuda_ops.simulator import SIMULATED

NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: this thread has not used the GPU
BLOCKING = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
recent: deque[str] = deque(maxlen=8)  # names of the last kernels launched
after_waiting: list[Callable[[], None]] = []  # `index_errors.raise_pending`, once used


class CudaError(RuntimeError):
    """An error that the driver or the device reported.

    Attributes:
        code: the driver's number for it, `driver.CUresult`.
    """

    code: Any = None


class CaptureError(RuntimeError):
    """Something that cannot be part of a CUDA graph (`cuda_ops/graphs.py`)."""


# ------------------------------------------------------------------------- errors


@cache
def driver() -> Any:
    """The module `cuda.bindings.driver`."""
    from cuda.bindings import driver

    return driver


def _text(code: Any) -> str:
    _, name = driver().cuGetErrorName(code)
    _, text = driver().cuGetErrorString(code)
    parts = [part.decode() for part in (name, text) if part]
    return ": ".join(parts) or str(code)


def raise_error(code: Any, what: str) -> None:
    """Raise a `CudaError` for the driver's result `code` of doing `what`."""
    message = f"{what} failed: {_text(code)}"
    if 900 <= int(code) <= 908:
        raise CaptureError(
            f"{message}. While a CUDA graph is captured, nothing may wait for the GPU "
            f"or use another stream: do it before the capture, or after the replay"
        )
    if int(code) == NOT_INITIALIZED:  # though `require_device` did that, in a parent
        message += (
            ". A process cannot use the GPU if its parent did so before fork(): start "
            'it with multiprocessing.get_context("spawn"), or let the parent leave '
            '"cuda" alone'
        )
    if _is_asynchronous(code):
        names = ", ".join(recent) or "none"
        message += (
            f". A kernel that ran before caused it; launched last were: {names}. The "
            f"device cannot be used in this process any more. To learn which kernel it "
            f"was, run again with CUDA_LAUNCH_BLOCKING=1"
        )
    error = CudaError(message)
    error.code = code
    raise error


def _is_asynchronous(code: Any) -> bool:
    """Whether the error stays: the context is lost after it."""
    return int(code) in (700, 701, 702, 710, 714, 715, 716, 717, 718, 719)


def call(what: str, function: Any, *args: Any) -> Any:
    """The value of a driver call in any thread, or a `CudaError` naming `what`."""
    result = function(*args)
    if result[0]:
        if int(result[0]) == INVALID_CONTEXT:
            activate()
            result = function(*args)
        if result[0]:
            raise_error(result[0], what)
    return None if len(result) == 1 else result[1] if len(result) == 2 else result[1:]


# ------------------------------------------------------------------------- device


class Properties(NamedTuple):
    """What the chip is.

    Attributes:
        name: "NVIDIA H200", for example.
        total_memory: bytes.
        major, minor: the compute capability.
        multi_processor_count: streaming multiprocessors (SMs).
        shared_memory_per_block: bytes, with the opt-in for large blocks.
        shared_memory_per_multiprocessor: bytes.
        l2_cache_size: bytes.
    """

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_block: int
    shared_memory_per_multiprocessor: int
    l2_cache_size: int


SIMULATOR = Properties("Numba's simulator", 2**32, 9, 0, 2, 232448, 233472, 2**20)


class NoDevice(ImportError):
    """There is neither a GPU nor the simulator."""

    def __init__(self, message: str) -> None:
        super().__init__(message, name="cuda device")


@cache
def require_device() -> None:
    """Open the driver, or raise `NoDevice`; no GPU is chosen and no memory taken."""
    if SIMULATED:
        return
    try:
        (code,) = driver().cuInit(0)
    except RuntimeError as error:  # the driver's library is not there
        raise NoDevice("there is no NVIDIA driver here") from error
    if code or not count():
        raise NoDevice(f"the NVIDIA driver finds no GPU ({_text(code)})")


@cache
def count() -> int:
    """How many GPUs there are; the simulator has MINITORCH_SIMULATED_GPUS, or one."""
    if SIMULATED:
        return int(os.environ.get("MINITORCH_SIMULATED_GPUS", "1"))
    return call("counting GPUs", driver().cuDeviceGetCount)


def properties(index: int | None = None) -> Properties:
    """What a GPU is, the current one if no index is given; in the simulator, made up.

    A GPU that is only asked what it is is not taken into use.
    """
    return _properties(current.gpu.index if index is None else index)


@cache
def _properties(index: int) -> Properties:
    if SIMULATED:
        return SIMULATOR
    require_device()
    api = driver()
    device = call(f"opening GPU {index}", api.cuDeviceGet, index)
    kind = api.CUdevice_attribute

    def ask(attribute: Any) -> int:
        return call("asking the GPU", api.cuDeviceGetAttribute, attribute, device)

    name = call("asking the GPU", api.cuDeviceGetName, 256, device)
    return Properties(
        name.split(b"\0")[0].decode(),
        call("asking the GPU", api.cuDeviceTotalMem, device),
        ask(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        ask(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ask(kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        ask(kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        ask(kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        ask(kind.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    )


def compute_capability() -> tuple[int, int]:
    """(9, 0) on an H200; the simulator says the same."""
    return _capability(current.gpu.index)


@cache
def _capability(index: int) -> tuple[int, int]:
    found = _properties(index)
    return found.major, found.minor


# --------------------------------------------------------------------- GPUs in use


class Gpu:
    """A GPU that this process uses, and all that belongs to it.

    The parts are made when they are first asked for, by the files that know how; they
    put their functions into `parts`.

    Attributes:
        index, name: 1 and "cuda:1", for example.
        context: the driver's primary context, which torch and CuPy use as well.
        pool: where its memory comes from (`cuda_ops/runtime/allocator.py`).
        notes: of bad indices (`cuda_ops/index_errors.py`).
        side_stream: on which graphs are captured (`cuda_ops/graphs.py`).
        zero: an int64 array [1] that holds 0 (`cuda_ops/random.py`).
    """

    parts: ClassVar[dict[str, Callable[[Gpu], Any]]] = {}
    context: Any
    pool: Any
    notes: Any
    side_stream: Any
    zero: Any

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"

    def __getattr__(self, name: str) -> Any:
        """Called for a part that is not there yet."""
        if name not in Gpu.parts:
            raise AttributeError(f"a GPU has no part {name!r}")
        with _lock:
            if name not in vars(self):  # else another thread has been here first
                setattr(self, name, Gpu.parts[name](self))
        return vars(self)[name]


def _make_context(gpu: Gpu) -> Any:
    if SIMULATED:
        return None
    require_device()
    api = driver()
    device = call(f"opening GPU {gpu.index}", api.cuDeviceGet, gpu.index)
    return call("making a context", api.cuDevicePrimaryCtxRetain, device)


Gpu.parts["context"] = _make_context
gpus: dict[int, Gpu] = {}  # those in use, by index
when_several: list[Callable[[], None]] = []  # called when the second one is used
_lock = threading.RLock()


def check_index(index: int) -> None:
    """Raise a ValueError if there is no GPU of this number."""
    if not 0 <= index < count():
        known = ", ".join(repr(f"cuda:{i}") for i in range(count()))
        raise ValueError(f"device: there is no 'cuda:{index}'; there is {known}")


def gpu(index: int) -> Gpu:
    """The GPU of this number, which is in use from now on; see `check_index`."""
    with _lock:
        if index not in gpus:
            check_index(index)
            gpus[index] = Gpu(index)
            if len(gpus) == 2:
                _each_thread_its_own()
        return gpus[index]


class Current:
    """Where work goes.

    Attributes:
        gpu, name: the GPU, and its name.
        pool: where memory is taken from: the GPU's, or a graph's.
        handle: the driver's handle of the stream; None is the default stream.
        key: the handle as a number, 0 for the default stream.
        capture: what a CUDA graph notes while it is captured (`cuda_ops/graphs.py`);
            None: work is done.
        elsewhere: handle, key and pool of the other GPUs, for when work returns there.
    """

    __slots__ = ("capture", "elsewhere", "gpu", "handle", "key", "name", "pool")

    def __init__(self) -> None:
        self.handle: Any = None
        self.key = 0
        self.capture: Any = None
        self.elsewhere: dict[Gpu, tuple[Any, int, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        """Called before a GPU is in use: it is the first, if nobody chose another."""
        if name not in ("gpu", "name", "pool"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with _lock:
            _enter(self, gpu(0))
        return object.__getattribute__(self, name)


class ThreadsOwn(threading.local):
    """A `Current` of each thread; slower to read.

    A thread begins where all threads were before there was a second GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.handle = self.capture = None
        self.key, self.elsewhere = 0, dict[Gpu, Any]()
        _enter(self, gpu)


current: Any = Current()


def _each_thread_its_own() -> None:
    """From the second GPU on."""
    global current
    before = current
    own = ThreadsOwn(before.gpu)
    own.handle, own.key = before.handle, before.key
    own.capture, own.pool = before.capture, before.pool
    current = own
    for tell in when_several:
        tell()


def _enter(here: Any, gpu: Gpu) -> None:
    """Let work go to a GPU, to the stream that it went to there before."""
    here.handle, here.key, here.pool = here.elsewhere.get(gpu) or (None, 0, gpu.pool)
    here.name, here.gpu = gpu.name, gpu


def _change(gpu: Gpu) -> None:
    """Let the work of this thread go from one GPU to another."""
    here = current
    not_in_graph(
        f"work on {gpu.name!r} while a graph of {here.name!r} is captured",
        "capture the work of each GPU in a graph of its own",
    )
    here.elsewhere[here.gpu] = here.handle, here.key, here.pool
    _enter(here, gpu)


def set_device(index: int) -> None:
    """Let the work of this thread go to the GPU of this number, from here on.

    The first GPU that a process uses is that of all its threads.
    """
    if not gpus:
        _enter(current, gpu(index))
    elif gpu(index) is not current.gpu:
        _change(gpu(index))
    activate()


def current_index() -> int:
    """The number of the current GPU, which is not taken into use by being asked for."""
    return current.gpu.index if gpus else 0


class on:
    """Let the work of the block go to a GPU: `with on(gpu):`."""

    __slots__ = ("before", "gpu")

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def __enter__(self) -> None:
        self.before = current.gpu
        if self.before is not self.gpu:
            context = self.gpu.context  # an error, if it cannot be made, comes first
            _change(self.gpu)
            _bind(context)

    def __exit__(self, *error: object) -> None:
        if self.before is not self.gpu:
            _change(self.before)
            _bind(vars(self.before).get("context"))  # which it need not have


def activate() -> None:
    """Let the driver do what the calling thread asks for on the current GPU."""
    _bind(current.gpu.context)


def _bind(context: Any) -> None:
    """Make a context that of the calling thread; None: none."""
    if not SIMULATED:
        (code,) = driver().cuCtxSetCurrent(context)
        if code:
            raise_error(code, "choosing a GPU")


# ------------------------------------------------------------------------ streams


@contextmanager
def use_stream(handle: Any) -> Iterator[None]:
    """Send kernels and copies of the block to the stream with this handle."""
    before = current.handle, current.key
    current.handle, current.key = handle, int(handle or 0)
    try:
        yield
    finally:
        current.handle, current.key = before


def not_in_graph(what: str, advice: str) -> None:
    """Raise a `CaptureError` if a CUDA graph is being captured."""
    if current.capture is not None:
        raise CaptureError(f"{what} cannot be captured in a CUDA graph: {advice}")


@contextmanager
def between_captures() -> Iterator[None]:
    """Allow calls of the driver, such as taking memory, that no graph takes note of."""
    if current.capture is None or SIMULATED:
        yield
        return
    exchange = driver().cuThreadExchangeStreamCaptureMode
    relaxed = driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("capturing a CUDA graph", exchange, relaxed)
    try:
        yield
    finally:
        call("capturing a CUDA graph", exchange, before)


def order(first: Any, then: Any) -> None:
    """Let the stream `then` wait for what is under way on the stream `first`."""
    wait_for(event_on(first), then)


def event_on(stream: Any) -> Any:
    """An event behind the work that is under way on a stream of the current GPU."""
    api = driver()
    flag = api.CUevent_flags.CU_EVENT_DISABLE_TIMING
    event = call("making an event", api.cuEventCreate, flag)
    call("recording an event", api.cuEventRecord, event, stream)
    return event


def wait_for(event: Any, stream: Any) -> None:
    """Let a stream of the current GPU wait for an event of any; then forget that."""
    api = driver()
    call("waiting for an event", api.cuStreamWaitEvent, stream, event, 0)
    call("deleting an event", api.cuEventDestroy, event)


WAITING = (
    "nothing is computed before the graph is replayed, so there is nothing to wait "
    "for; wait after g.replay()"
)


def synchronize() -> None:
    """Wait until all work that was started is done."""
    not_in_graph("synchronize", WAITING)
    if not SIMULATED:
        require_device()
        call("waiting for the GPU", driver().cuCtxSynchronize)
        look_at_notes()


def synchronize_stream() -> None:
    """Wait until the work on the current stream is done."""
    call("waiting for the GPU", driver().cuStreamSynchronize, current.handle)
    look_at_notes()


def look_at_notes() -> None:
    """After a wait: raise the errors that kernels left notes of."""
    for look in after_waiting:
        look()
