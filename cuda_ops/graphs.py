"""CUDA graphs: a sequence of kernels that is noted once and then started as a whole.

With this file one can capture what a block of code starts (`Graph.capture`), and start
all of it again with one call (`Graph.replay`). `minitorch.cuda.CUDAGraph` adds what a
training step needs: random numbers that move on, and learning rates that change.

A launch from Python takes a few microseconds, and a step of a small network starts some
thirty kernels that the GPU would do in two microseconds each: it waits for Python most
of the time. While a stream captures, the driver computes nothing. It writes down each
launch with its arguments, and which launch has to wait for which:

    x, w            capture: [matmul] -> [bias] -> [relu] -> ...      nothing runs
      |             replay:  one call; the GPU starts each node after those before it
    addresses, fixed

Arguments are part of the note, addresses too. From this follow the rules of graphs:

- memory is static: a replay reads and writes where the capture did, so new input is
  copied into the tensors that were captured (`x.copy_(batch)`);
- memory that is taken during the capture comes from a pool that nobody else uses while
  the graph lives, since each replay writes there (`Pool.graphs`);
- nothing can be read on the CPU during the capture: there are no numbers yet.

In the simulator (`SimulatedGraph`) the same rules hold: launches are put into a list,
which a replay goes through.

Source: CUDA C++ Programming Guide, "CUDA Graphs"; the shape of the interface, and the
private pool, are PyTorch's ("CUDA semantics", CUDA graphs).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuda_ops import index_errors, memory
from cuda_ops.runtime import allocator, device
from cuda_ops.runtime.allocator import Pool
from cuda_ops.runtime.device import CaptureError
from cuda_ops.runtime.launch import SIMULATED
from minitorch.dtypes import int64

__all__ = ["Capture", "CaptureError", "Graph", "Pool"]


class Capture:
    """What is noted while a graph is captured.

    Attributes:
        names: of the kernels, in order.
        afterwards: to be called when the capture is over.
        launches: in the simulator, kernel, configuration and arguments.
        kept: memory that the graph needs as long as it lives; in the simulator all that
            was taken.
    """

    def __init__(self) -> None:
        self.names: deque[str] = deque()
        self.afterwards: list[Callable[[], None]] = []
        self.launches: list[tuple[Any, Any, tuple[Any, ...]]] = []
        self.kept: list[Any] = []

    def note(self, kernel: Any, config: Any, args: tuple[Any, ...]) -> None:
        """A launch, in the simulator."""
        self.names.append(kernel.name)
        self.launches.append((kernel, config, args))


@contextmanager
def _noting(pool: Pool) -> Iterator[Capture]:
    """Let the block's launches be noted, not done."""
    device.not_in_graph("capturing another graph", "end the first capture before")
    if pool.books is not device.current.gpu.pool.books:
        raise ValueError(
            f"CUDAGraph: pool is memory of another GPU than {device.current.name!r}, "
            f"which is captured; call graph_pool_handle() there"
        )
    index_errors.notes()  # pinned memory, which could not be taken in between
    capture, before = Capture(), device.recent
    device.current.capture, device.recent = capture, capture.names
    try:
        yield capture
    finally:
        device.current.capture, device.recent = None, before


class DriverGraph:
    """A graph of the driver.

    Attributes:
        names: of the kernels, in the order of their launches.
        gpu: whose work it is; `replay` is called where that is the current one.
        nodes: how many there are: kernels, copies and fills.
        kept: see `Capture`.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.nodes = 0
        self._ready: Any = None  # the executable graph
        self._text = ""  # for errors
        self.kept: list[Any] = []
        self._pool: Pool | None = None
        self.gpu = device.current.gpu

    @contextmanager
    def capture(self, pool: Pool, stream: Any) -> Iterator[None]:
        """Capture what the block starts, with memory from `pool`, on `stream`."""
        self._pool, self.gpu = pool, device.current.gpu
        pool.graphs += 1  # from here on nobody gives its memory back
        try:
            with _noting(pool) as capture, device.use_stream(stream):
                with allocator.use_pool(pool), _stream_capture(stream) as graphs:
                    yield
            self._make_ready(graphs[0])
        except BaseException:
            self._release_pool()
            raise
        self.names, self.kept = tuple(capture.names), capture.kept
        self._text = f"a CUDA graph of {_short(self.names)}"
        for action in capture.afterwards:
            action()

    def _make_ready(self, graph: Any) -> None:
        """Let the driver prepare all of it, so that a replay is nothing but a start."""
        api, call = device.driver(), device.call
        try:
            _, self.nodes = call(CAPTURING, api.cuGraphGetNodes, graph, 0)
            self._ready = call(CAPTURING, api.cuGraphInstantiate, graph, 0)
        finally:
            call(CAPTURING, api.cuGraphDestroy, graph)
        call(CAPTURING, api.cuGraphUpload, self._ready, device.current.handle)

    def replay(self) -> None:
        """Start all of it on the current stream."""
        device.recent.append(self._text)
        launch = device.driver().cuGraphLaunch
        device.call(
            "replaying a CUDA graph", launch, self._ready, device.current.handle
        )
        if device.BLOCKING:
            device.synchronize()

    def destroy(self) -> None:
        """Give the graph back; a replay that runs is ended before."""
        if self._ready is None:
            return
        destroy = device.driver().cuGraphExecDestroy
        with device.between_captures():
            device.call("deleting a CUDA graph", destroy, self._ready)
        self._ready, self.kept = None, []
        self._release_pool()

    def _release_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.graphs -= 1
            if not pool.graphs:
                pool.empty_cache()


CAPTURING = "capturing a CUDA graph"


@contextmanager
def _stream_capture(stream: Any) -> Iterator[list[Any]]:
    """Capture on `stream` what the block starts; the graph is put into the list."""
    api = device.driver()
    graphs: list[Any] = []
    mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    device.call(CAPTURING, api.cuStreamBeginCapture, stream, mode)
    try:
        yield graphs
    except BaseException:
        code, graph = api.cuStreamEndCapture(stream)  # whatever state it is in
        if not code and int(graph):
            api.cuGraphDestroy(graph)
        raise
    graphs.append(device.call(CAPTURING, api.cuStreamEndCapture, stream))


def _short(names: tuple[str, ...]) -> str:
    shown = ", ".join(dict.fromkeys(names))
    return f"{len(names)} kernels ({shown})"


class SimulatedGraph:
    """The same for the simulator: a list of launches, and the arrays they work on."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.nodes = 0
        self._launches: list[tuple[Any, Any, tuple[Any, ...]]] = []
        self._memory: list[Any] = []
        self.gpu = device.current.gpu

    @contextmanager
    def capture(self, pool: Pool, stream: Any) -> Iterator[None]:
        """Note what the block starts."""
        self.gpu = device.current.gpu
        with _noting(pool) as capture:
            yield
        self.names, self.nodes = tuple(capture.names), len(capture.launches)
        self._launches, self._memory = capture.launches, capture.kept
        for action in capture.afterwards:
            action()

    def replay(self) -> None:
        """Run the kernels of the list, one after the other."""
        for kernel, config, args in self._launches:
            kernel.simulate(config, *args)
        index_errors.after_launch()

    def destroy(self) -> None:
        """Forget the launches and their memory."""
        self._launches, self._memory = [], []


Graph: Any = SimulatedGraph if SIMULATED else DriverGraph


def _side_stream(_: device.Gpu) -> Any:
    """The driver's handle of a stream for captures, which the default one cannot be;
    None in the simulator."""
    if SIMULATED:
        return None
    api = device.driver()
    flag = api.CUstream_flags.CU_STREAM_NON_BLOCKING
    return device.call("making a stream", api.cuStreamCreate, flag)


device.Gpu.parts["side_stream"] = _side_stream


def new_counter() -> Any:
    """An int64 device array [1] that holds 0."""
    counter = memory.empty((1,), int64).flat()
    memory.fill(counter, np.int64(0))
    return counter


def set_counter(counter: Any, number: int) -> None:
    """counter[0] = number, behind the work on the current stream."""
    memory.fill(counter, np.int64(number))
