"""The GPU itself: its context, its properties, its errors, its streams.

With this file one can find out whether there is a GPU (`require_device`), ask what it
is (`properties`), call the driver with errors raised (`check`), choose the stream that
kernels and copies go to (`current_stream`, `use_stream`), and wait (`synchronize`).

A kernel that reads outside of its arrays is noticed later, by whatever call comes next.
The error then names the last kernels that were launched; with CUDA_LAUNCH_BLOCKING=1 in
the environment every launch is waited for, and the operation that caused an error is
the one that raises it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

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
    """Make the first GPU's primary context current, or raise `NoDevice`."""
    if SIMULATED:
        return
    api = driver()
    try:
        (code,) = api.cuInit(0)
    except RuntimeError as error:  # the driver's library is not there
        raise NoDevice("there is no NVIDIA driver here") from error
    if code:
        raise NoDevice(f"the NVIDIA driver finds no GPU ({_text(code)})")
    activate()


@cache
def _context() -> Any:
    api = driver()
    device = call("opening GPU 0", api.cuDeviceGet, 0)
    return call("making a context", api.cuDevicePrimaryCtxRetain, device)


def activate() -> None:
    """Let the calling thread use the GPU."""
    (code,) = driver().cuCtxSetCurrent(_context())
    if code:
        raise_error(code, "choosing GPU 0")


@cache
def properties() -> Properties:
    """What the GPU is; in the simulator, made up."""
    if SIMULATED:
        return SIMULATOR
    require_device()
    api = driver()
    device = call("opening GPU 0", api.cuDeviceGet, 0)
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


@cache
def compute_capability() -> tuple[int, int]:
    """(9, 0) on an H200; the simulator says the same."""
    found = properties()
    return found.major, found.minor


# ------------------------------------------------------------------------ streams


class _Current:
    """The stream that work goes to.

    Attributes:
        handle: the driver's handle; None is the default stream.
        key: the handle as a number, 0 for the default stream.
        capture: what a CUDA graph notes while it is captured (`cuda_ops/graphs.py`);
            None: work is done.
    """

    __slots__ = ("capture", "handle", "key")

    def __init__(self) -> None:
        self.handle: Any = None
        self.key = 0
        self.capture: Any = None


current = _Current()


def current_stream() -> Any:
    """The driver's handle of the stream that kernels and copies go to, or None."""
    return current.handle


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
    api = driver()
    flag = api.CUevent_flags.CU_EVENT_DISABLE_TIMING
    event = call("making an event", api.cuEventCreate, flag)
    call("recording an event", api.cuEventRecord, event, first)
    call("waiting for an event", api.cuStreamWaitEvent, then, event, 0)
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
