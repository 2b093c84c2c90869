"""Kernels without a GPU: Numba's simulator, with threads that wait for each other.

With this file one can ask whether kernels are simulated (`SIMULATED`, set by
`NUMBA_ENABLE_CUDASIM=1` before Numba is imported), and run a kernel's Python function
on NumPy arrays (`simulate`).

What `cuda.threadIdx`, `cuda.shared.array`, `cuda.atomic.add`, ... mean comes from
Numba's simulator. How threads run is decided here. A kernel without barriers runs as a
plain loop over its threads. Where threads meet at barriers or exchange values within a
warp, every thread of a block is a greenlet (`cuda_ops/simulator/block.py`).
"""

from __future__ import annotations

import dis
import importlib.util
import linecache
import math
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from importlib.metadata import version
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from cuda_ops.simulator import emulation
from cuda_ops.simulator import watch as watching
from cuda_ops.simulator.block import Block, Size, current_thread, places
from cuda_ops.simulator.watch import Watch


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
# Whether blocks and tiles are so small that a test runs many of them. The x-ray, which
# looks at a few, has those of a GPU: it sets the variable before anything is imported.
TINY = SIMULATED and os.environ.get("MINITORCH_REAL_SIZES") != "1"

# Names in a function's code that show that its threads wait for each other.
MEETING = {
    "current_thread",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    *emulation.OF_NUMBA,
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
        values += [part for v in values if isinstance(v, tuple) for part in v]
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


def _one_by_one(
    run: Callable, blocks: Sequence[Any], threads: Size, shared: SharedArrays
) -> None:
    """All threads of these blocks, one after the other, in this Python thread."""
    here: Any = current_thread()
    for at in blocks:
        shared.clear()
        here.blockIdx = at
        for number, index in enumerate(places(threads)):
            here.thread_id, here.threadIdx = number, index
            run()


def _together(
    run: Callable, blocks: Sequence[Any], threads: Size, shared: SharedArrays
) -> None:
    """One block after the other, its threads in turns."""
    for at in blocks:
        shared.clear()
        Block(threads, strict=shared.watch is not None).run(run, at)


class SharedArrays:
    """The shared memory of a block: one array for each place in the code that asks for
    one, of which a line can have several.

    It is full of garbage when a block begins, so that reading what nobody has written
    does not go well by chance.
    """

    def __init__(self, dynamic: int, watch: Watch | None) -> None:
        self._made: dict[Any, np.ndarray] = {}
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
        kind = _dtype(dtype)
        if shape == 0:
            return self._whole(kind)
        frame = sys._getframe(1)
        place = frame.f_code, watching.starts(frame.f_code)[frame.f_lasti // 2]
        if place not in self._made:
            self._made[place] = self._new(shape, kind, frame.f_code, frame.f_lineno)
        return self._made[place]

    def _whole(self, kind: np.dtype) -> np.ndarray:
        """All of the dynamic memory, as one array."""
        if kind not in self._made:
            size = len(self._dynamic) // kind.itemsize * kind.itemsize
            array: np.ndarray = self._dynamic[:size].view(kind)
            if self.watch is not None:
                array = self.watch.wrap(array, "shared", True)
            self._made[kind] = array
        return self._made[kind]

    def _new(self, shape: Any, kind: np.dtype, code: CodeType, line: int) -> np.ndarray:
        made = _garbage(shape, kind)
        if self.watch is None:
            return made
        name = _variable(code, line, "shared memory")
        watched: np.ndarray = self.watch.wrap(made, name, True)
        return watched


class LocalArrays:
    """A thread's own arrays; they begin as garbage, too."""

    def __init__(self, watch: Watch | None) -> None:
        self.watched = watch is not None

    def array(self, shape: Any, dtype: Any) -> np.ndarray:
        """`cuda.local.array`"""
        made = _garbage(shape, _dtype(dtype))
        if not self.watched:
            return made
        frame = sys._getframe(1)
        named = made.view(watching.Named)
        named.name = _variable(frame.f_code, frame.f_lineno, "local memory")
        return named


@cache
def _variable(code: CodeType, line: int, otherwise: str) -> str:
    """The name that a line of a kernel gives to what it makes."""
    text = linecache.getline(code.co_filename, line).partition("=")[0].strip()
    return text if text.isidentifier() else otherwise


@cache
def _dtype(kind: Any) -> np.dtype:
    """NumPy's type for a type of NumPy's or Numba's."""
    from numba.cuda.np.numpy_support import as_dtype

    known = isinstance(kind, (type, np.dtype))
    return np.dtype(kind) if known else np.dtype(as_dtype(kind))


@lru_cache(maxsize=64)
def _untouched(shape: Any, kind: np.dtype) -> np.ndarray:
    nbytes = math.prod(np.atleast_1d(shape)) * kind.itemsize
    return np.full(nbytes, GARBAGE, np.uint8).view(kind).reshape(shape)


def _garbage(shape: Any, kind: np.dtype) -> np.ndarray:
    """New memory; a copy takes a tenth of the time, and each thread asks for some."""
    made: np.ndarray = _untouched(shape, kind).copy()
    return made


GARBAGE = 0xFF  # of every byte: NaN as a float, -1 as an int


@contextmanager
def _quiet() -> Iterator[None]:
    """Floats overflow as silently as on a chip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@contextmanager
def _simulated(names: dict[str, Any], view: Any) -> Iterator[None]:
    """Let a module's `cuda` be this launch's view of it, and its `float32` and `int64`
    be NumPy's, which Numba's call by way of an import statement.
    """
    from numba.core.types import Float, Integer

    # Not `isinstance`, which asks an abstract class for each name.
    kinds = {n: v for n, v in names.items() if type(v) in (Float, Integer)}
    changed = kinds | {n: v for n, v in names.items() if v is cuda}
    names.update(dict.fromkeys(changed, view))
    names.update({name: getattr(np, kind.name) for name, kind in kinds.items()})
    try:
        yield
    finally:
        names.update(changed)


# While a kernel runs, the name `cuda` in its module stands for the simulator's view of
# that launch; so launches of several Python threads come one after the other.
_launching = threading.Lock()


@cache
def _view() -> Any:
    """The class of what `cuda` is to a kernel: Numba's, which asks Python's threads."""
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    def asks(name: str) -> property:
        return property(lambda self: getattr(current_thread(), name))

    names = ("threadIdx", "blockIdx", *(n for n in MEETING if n.startswith("syncthr")))
    members: dict[str, Any] = {name: asks(name) for name in names}
    members["laneid"] = property(lambda self: current_thread().thread_id % 32)
    members |= {name: staticmethod(act) for name, act in emulation.OF_NUMBA.items()}
    members["__getattr__"] = _unknown
    return type("View", (FakeCUDAModule,), members)


def _unknown(self: Any, name: str) -> Any:
    raise AttributeError(f"cuda.{name}: the simulator does not have it")


def simulate(
    fn: Any, blocks: Size, threads: Size, shared: int, args: tuple[Any, ...],
    name: str = "",
) -> None:  # fmt: skip
    """Run a kernel's Python function on NumPy arrays, for all threads of a grid.

    An error in a thread is raised here, with the thread's own traceback.
    """
    watch = watching.current[-1] if watching.current else None
    run, chosen = (lambda: fn(*args)), None
    if watch is not None:
        name = name or fn.__name__
        watch.begin(watching.Launch(name, fn, blocks, threads, shared, args))
        names = fn.__code__.co_varnames
        args = tuple(watch.wrap(a, n, False) for n, a in zip(names, args))
        chosen = watch.sample()
    chosen = places(blocks) if chosen is None else chosen
    module = _view()(blocks, threads, shared)
    memory = module._shared = SharedArrays(shared, watch)
    module._local = LocalArrays(watch)
    globals_seen: set[int] = set()
    with ExitStack() as stack:
        stack.enter_context(_launching)
        stack.enter_context(_quiet())
        for part in reachable(fn):
            if id(part.__globals__) not in globals_seen:
                globals_seen.add(id(part.__globals__))
                stack.enter_context(_simulated(part.__globals__, module))
        if watch is not None:
            run = stack.enter_context(watch.followed(run))
        if has_meetings(fn):
            _together(run, chosen, threads, memory)
        else:
            _one_by_one(run, chosen, threads, memory)
