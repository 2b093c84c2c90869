"""The seam between operations and backends, where an executor may stand.

With this file something can look on at, or take over, all that tensors do. Four things
pass here, and nothing else computes: operations (`Function.apply`, and the backward
pass of its node), the functions of a backend that they call, reads of numbers by the
host (`item`, `bool(x)`, `print`), and steps that the host keeps count of (the place of
a random generator, an update of an optimizer). Usually nobody stands here, and all run
at once. The profiler (`minitorch/profiler.py`) looks on; the capture of a CUDA graph
(`minitorch/cuda_graphs.py`) refuses reads, and sees what must change at each replay.

    class Counting(Executor):
        calls = 0

        def call(self, name, fn, args, kwargs):
            self.calls += 1
            return fn(*args, **kwargs)

    with executing(Counting()) as counting:
        y = (x @ w).relu()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from minitorch.backend import Backend, get_backend
from minitorch.backend.around import Around
from minitorch.backend.registry import between
from minitorch.tensor_data import TensorData

# What a frame of the library itself does not tell about a user's program.
INSIDE = str(Path(__file__).parent / "_")[:-1]  # ends with a slash
READS = ("to_numpy", "to_numpy_async")  # told as reads, and not as calls as well


class Executor:
    """Runs all that passes at once; override what you look at.

    Attributes:
        postpones: whether it notes what is to be done on a GPU, to be done later.
    """

    postpones = False

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """`run(*args)`: the forward or backward pass of the operation `name`."""
        return run(*args)

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """`fn(*args, **kwargs)`: the function `name` of a backend."""
        return fn(*args, **kwargs)

    def read(self, name: str, fn: Callable[..., Any], a: TensorData) -> Any:
        """`fn(a)`: the host asks for numbers of `a`, for `name`, and waits for them."""
        return fn(a)

    def advance(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """`run(*args)`: a step `name` after which its owner, `run.__self__`, holds
        other numbers on the host: the place of a generator, counts of an optimizer."""
        return run(*args)

    def end_behind(self, wait: Callable[[], Any]) -> None:
        """Let what is noted end behind what `wait` waits for."""

    def forget(self) -> None:
        """Never do what was noted: something that it needs will be gone."""

    def settle(self) -> None:
        """Do what is put off, if it is put off for a moment only: see `settle`. Other
        threads may call this."""

    def puts_off(self, a: TensorData) -> bool:
        """Whether `a` has no memory yet, and gets it here."""
        return False


class Active(threading.local):
    """Who stands at the seam: None, or an executor.

    One that `executing` puts there is in the class, for all threads; one in a thread's
    own attributes is for this thread alone.
    """

    executor: Executor | None = None


active = Active()
# To be called before work is noted: what it cannot wait for has to arrive.
before_notes: list[Callable[[], None]] = []
E = TypeVar("E", bound=Executor)


def host_read(name: str, a: TensorData, fn: Callable[..., Any] | None = None) -> Any:
    """Numbers of `a` for the host: all reads of values in the library pass here.

    Args:
        name: who asks, as users write it: "item()".
        a: the tensor that is read.
        fn: reads it; None: the backend's `to_numpy`.
    """
    fn = fn or get_backend(a.storage.device).to_numpy
    if in_threads:
        await_others((a,))
    return fn(a) if active.executor is None else active.executor.read(name, fn, a)


def postponed() -> bool:
    """Whether what is to be done on a GPU is noted, to be done later."""
    return active.executor is not None and active.executor.postpones


def settle() -> None:
    """Memory is about to be used past the seam, or work to go to another stream: who
    stands here has to have done what it would do in a moment (the compiler)."""
    if active.executor is not None:
        active.executor.settle()


def needs_numbers(name: str, a: TensorData) -> None:
    """Refuse to begin what cannot be noted, since it will read numbers: such as `a`."""
    if postponed():
        host_read(name, a)


def advance(name: str, run: Callable[..., Any], *args: Any) -> Any:
    """`run(*args)`, a method that moves numbers on which its owner keeps on the host.

    They are others in the next step: who repeats a step by itself has to know of them.
    """
    if active.executor is None:
        return run(*args)
    return active.executor.advance(name, run, args)


@contextmanager
def executing(executor: E) -> Iterator[E]:
    """Let all work of the block, in all threads, pass `executor`.

    Raises:
        RuntimeError: another executor stands there already.
    """
    if active.executor is not None:
        raise RuntimeError(
            f"an executor, {type(active.executor).__name__}, is active already; "
            f"end its block first"
        )
    Active.executor = executor
    try:
        with between(_seen):
            yield executor
    finally:
        Active.executor = None


@contextmanager
def standing(executor: Executor | None) -> Iterator[None]:
    """Let the work of the block, in this thread, pass `executor` in the place of who
    stands there; None: who stands there for all threads."""
    mine = vars(active)
    before = mine.copy()
    mine.clear()
    if executor is not None:
        active.executor = executor
        in_threads.append(executor)
    try:
        with between(_seen):
            yield
    finally:
        mine.clear()
        mine.update(before)
        if executor is not None:
            in_threads.remove(executor)


in_threads: list[Executor] = []  # who stands in one thread, of all threads


def await_others(args: Sequence[Any]) -> None:
    """Let other threads' executors do what they put off, if `args` have tensors that
    are still without memory."""
    here = active.executor
    if not in_threads or in_threads == [here] or not _without_memory(args, here):
        return
    for executor in tuple(in_threads):
        if executor is not here:
            with standing(None):
                executor.settle()


def _without_memory(args: Sequence[Any], here: Executor | None) -> bool:
    """Whether some tensor has no memory yet, and not because of who stands `here`."""
    for arg in args:
        if isinstance(arg, TensorData):
            if arg.storage.array is None and not (here and here.puts_off(arg)):
                return True
        elif isinstance(arg, (list, tuple)) and _without_memory(arg, here):
            return True
    return False


PLAIN = Executor()


@cache
def _seen(backend: Backend) -> Backend:
    """A backend whose functions pass whoever stands here."""
    return cast(Backend, Around(backend, _watched))


def _watched(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    if name in READS:
        return fn

    def passing(*args: Any, **kwargs: Any) -> Any:
        here = active.executor
        if in_threads and (in_threads[0] is not here or len(in_threads) > 1):
            await_others(args)
        return (here or PLAIN).call(name, fn, args, kwargs)

    return passing


def users_stack() -> tuple[str, ...]:
    """Where the program is, the innermost frame first, without the library's own."""
    import traceback

    frames = reversed(traceback.extract_stack())
    return tuple(
        f"{frame.filename}({frame.lineno}): {frame.name}"
        for frame in frames
        if not frame.filename.startswith(INSIDE) and "contextlib" not in frame.filename
    )
