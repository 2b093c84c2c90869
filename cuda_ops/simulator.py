"""Kernels without a GPU: Numba's simulator, with threads that wait for each other.

With this file one can ask whether kernels are simulated (`SIMULATED`, set by
`NUMBA_ENABLE_CUDASIM=1` before Numba is imported), and run a kernel's Python function
on NumPy arrays (`simulate`).

What `cuda.threadIdx`, `cuda.shared.array`, `cuda.atomic.add`, ... mean comes from
Numba's simulator. How threads run is decided here. A kernel without barriers runs as a
plain loop over its threads. Where threads meet at barriers or exchange values within a
warp, every thread of a block is a Python thread, and a barrier is a place where all
that are still alive wait for the last one.
"""

from __future__ import annotations

import dis
import importlib.util
import itertools
import linecache
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from cuda_ops import watch as watching
from cuda_ops.watch import Watch


def _import_numba_cuda() -> Any:
    """The module `numba.cuda` of the package numba-cuda, or an error that says why."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise ModuleNotFoundError(
            "the package numba-cuda is not installed", name="numba_cuda"
        )
    try:
        from numba import cuda
    except AttributeError as error:  # NumPy dropped a name that numba-cuda imports
        raise ImportError(
            f"numba-cuda {version('numba-cuda')} does not work with NumPy "
            f"{np.__version__} ({error})",
            name="numba_cuda",
        ) from error
    return cuda


cuda = _import_numba_cuda()
SIMULATED = bool(cuda.config.ENABLE_CUDASIM)

Size = tuple[int, int, int]

# Names in a function's code that show that its threads wait for each other.
MEETING = {
    "current_thread",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
}


@cache
def reachable(fn: FunctionType) -> tuple[FunctionType, ...]:
    """`fn` and all Python functions that it calls, directly or not."""
    found: dict[FunctionType, None] = {fn: None}
    todo = [fn]
    while todo:
        here = todo.pop()
        loads = (i.argval for i in dis.get_instructions(here) if "GLOBAL" in i.opname)
        values = [here.__globals__.get(name) for name in loads]
        values += [cell.cell_contents for cell in here.__closure__ or ()]
        for module in [v for v in values if isinstance(v, ModuleType)]:
            if module.__name__.startswith("cuda_ops"):  # `tiles.multiply(...)`
                values += [vars(module).get(name) for name in here.__code__.co_names]
        for value in values:
            value = getattr(value, "py_func", value)  # of a compiled device function
            if isinstance(value, FunctionType) and value not in found:
                found[value] = None
                todo.append(value)
    return tuple(found)


@cache
def has_meetings(fn: FunctionType) -> bool:
    """Whether threads of the kernel `fn` wait for each other."""
    return any(MEETING & set(part.__code__.co_names) for part in reachable(fn))


class Block:
    """The threads of a block that are alive, and how many wait at the barrier."""

    def __init__(self, size: Size, threads: int, strict: bool = False) -> None:
        self._block_dim = size
        self._threads = threads
        self._strict = strict  # whether all threads have to come to each barrier
        self.warps: dict[int, Any] = {}
        self.block_state = np.zeros(size, dtype=np.bool_)
        self.alive = threads
        self.waiting = 0
        self.round = 0
        self.failed: BaseException | None = None
        self.changed = threading.Condition()

    def wait(self) -> None:
        """Return when all threads that are alive have come here."""
        with self.changed:
            now = self.round
            self.waiting += 1
            self._open()
            while self.round == now and self.failed is None:
                self.changed.wait()
            if self.failed is not None:
                raise RuntimeError("another thread of the block failed")

    def leave(self, error: BaseException | None) -> None:
        """A thread is done, or has failed."""
        with self.changed:
            self.alive -= 1
            if error is not None and self.failed is None:
                self.failed = error
                for warp in self.warps.values():
                    warp.barrier.abort()
                self.changed.notify_all()
            self._open()

    def _open(self) -> None:
        if self.waiting and self.waiting == self.alive:
            if self._strict and self.alive < self._threads and self.failed is None:
                self.failed = RuntimeError(
                    f"{self.waiting} threads wait at a barrier that the other "
                    f"{self._threads - self.alive} of their block never reach; keep "
                    f"barriers out of branches that threads of a block take differently"
                )
            self.waiting = 0
            self.round += 1
            self.changed.notify_all()


class CudaThread(threading.Thread):
    """One CUDA thread; Numba's simulator looks here for its indices and barriers."""

    def __init__(self, block: Block, run: Callable, index: Size, at: Size) -> None:
        super().__init__(daemon=True)
        self._manager = block
        self._run_kernel = run
        _place(self, index, at, block._block_dim)

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._run_kernel()
        except BaseException as caught:  # raised again by the launching thread
            error = caught
        self._manager.leave(error)

    def syncthreads(self) -> None:
        """Wait for all threads of the block."""
        self._manager.wait()

    def _vote(self, value: Any) -> np.ndarray:
        i = self.threadIdx  # type: ignore[attr-defined]
        self._manager.block_state[i.x, i.y, i.z] = bool(value)
        self.syncthreads()
        votes = self._manager.block_state.copy()
        self.syncthreads()
        return votes

    def syncthreads_count(self, value: Any) -> int:
        """How many threads of the block have a true value."""
        return int(self._vote(value).sum())

    def syncthreads_and(self, value: Any) -> int:
        """Whether all threads of the block have a true value."""
        return int(self._vote(value).all())

    def syncthreads_or(self, value: Any) -> int:
        """Whether a thread of the block has a true value."""
        return int(self._vote(value).any())


def _place(thread: Any, index: Size, at: Size, size: Size) -> None:
    """Write a CUDA thread's indices where the simulator reads them."""
    from numba.cuda.simulator.kernelapi import Dim3

    thread.threadIdx = Dim3(*index)
    thread.blockIdx = Dim3(*at)
    thread.thread_id = index[0] + size[0] * (index[1] + size[1] * index[2])


def _indices(size: Size) -> Iterator[Size]:
    """All index triples of a grid or a block, x fastest."""
    for z, y, x in itertools.product(*map(range, reversed(size))):
        yield x, y, z


def _one_by_one(run: Callable, blocks: Size, threads: Size) -> None:
    """All threads of all blocks, one after the other, in this Python thread."""
    here = threading.current_thread()
    for at in _indices(blocks):
        for index in _indices(threads):
            _place(here, index, at, threads)
            run()


def _together(run: Callable, blocks: Size, threads: Size, shared: SharedArrays) -> None:
    """One block after the other, its threads at the same time."""
    for at in _indices(blocks):
        shared.clear()
        block = Block(threads, math.prod(threads), shared.watch is not None)
        started = [CudaThread(block, run, index, at) for index in _indices(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        if block.failed is not None:
            raise block.failed


class SharedArrays:
    """The shared memory of a block: one array for each line that asks for one.

    In place of Numba's, where two threads that ask at the same time may get one each.
    It is full of garbage when a block begins, so that reading what nobody has written
    does not go well by chance.
    """

    def __init__(self, dynamic: int, watch: Watch | None) -> None:
        self._made: dict[Any, np.ndarray] = {}
        self._making = threading.Lock()
        self.watch = watch
        self._dynamic = np.full(dynamic, GARBAGE, np.uint8)

    def clear(self) -> None:
        """Begin a block."""
        for array in self._made.values():
            if self.watch is not None:
                self.watch.forget(array)
            array.view(np.ndarray).view(np.uint8)[...] = GARBAGE
        self._dynamic[...] = GARBAGE

    def array(self, shape: Any, dtype: Any) -> np.ndarray:
        """`cuda.shared.array`; the shape 0 stands for all of the dynamic memory."""
        from numba.cuda.np.numpy_support import as_dtype

        known = isinstance(dtype, (type, np.dtype))
        kind = np.dtype(dtype) if known else as_dtype(dtype)
        if shape == 0:
            whole = len(self._dynamic) // kind.itemsize * kind.itemsize
            return self._dynamic[:whole].view(kind)
        frame = sys._getframe(1)
        line = frame.f_code, frame.f_lineno
        with self._making:
            if line not in self._made:
                self._made[line] = self._new(shape, kind, *line)
            return self._made[line]

    def _new(self, shape: Any, kind: np.dtype, code: CodeType, line: int) -> np.ndarray:
        bare = np.full(math.prod(np.atleast_1d(shape)) * kind.itemsize, GARBAGE, "u1")
        made: np.ndarray = bare.view(kind).reshape(shape)
        if self.watch is None:
            return made
        text = linecache.getline(code.co_filename, line).partition("=")[0].strip()
        name = text if text.isidentifier() else "shared memory"
        watched: np.ndarray = self.watch.wrap(made, name, True)
        return watched


GARBAGE = 0xFF  # of every byte: NaN as a float, -1 as an int

# Seconds after which Python lets another thread run; the default is 5 ms.
SWITCH = 1e-4


@contextmanager
def _quiet() -> Iterator[None]:
    """Floats overflow as silently as on a chip, and threads take turns quickly."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.setswitchinterval(interval)


def simulate(
    fn: Any, blocks: Size, threads: Size, shared: int, args: tuple[Any, ...]
) -> None:
    """Run a kernel's Python function on NumPy arrays, for all threads of a grid.

    An error in a thread is raised here, with the thread's own traceback.
    """
    from numba.cuda.simulator.kernelapi import FakeCUDAModule, swapped_cuda_module

    watch = watching.current[-1] if watching.current else None
    if watch is not None:
        watch.begin()
        names = fn.__code__.co_varnames
        args = tuple(watch.wrap(a, n, False) for n, a in zip(names, args))
    module = FakeCUDAModule(blocks, threads, shared)
    memory = module._shared = SharedArrays(shared, watch)
    globals_seen: set[int] = set()
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        for part in reachable(fn):
            if id(part.__globals__) not in globals_seen:
                globals_seen.add(id(part.__globals__))
                stack.enter_context(swapped_cuda_module(part, module))
        if has_meetings(fn):
            _together(lambda: fn(*args), blocks, threads, memory)
        else:
            _one_by_one(lambda: fn(*args), blocks, threads)
