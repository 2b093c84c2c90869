"""The seam between operations and backends, where an executor may stand.

With this file something can look on at, or take over, all that tensors do. Two things
pass here, and nothing else computes: operations (`Function.apply`, and the backward
pass of its node) and the functions of a backend that they call. Usually nobody stands
here, and both run at once; the profiler (`minitorch/profiler.py`) is one that looks on.

    class Counting(Executor):
        calls = 0

        def call(self, name, fn, args, kwargs):
            self.calls += 1
            return fn(*args, **kwargs)

    with executing(Counting()) as counting:
        y = (x @ w).relu()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from minitorch.backend import Backend
from minitorch.backend.registry import Around, between


class Executor:
    """Runs operations and backend functions at once; override what you look at."""

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """`run(*args)`: the forward or backward pass of the operation `name`."""
        return run(*args)

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """`fn(*args, **kwargs)`: the function `name` of a backend."""
        return fn(*args, **kwargs)


class Active:
    """Who stands at the seam: None, or an executor."""

    __slots__ = ("executor",)

    executor: Executor | None

    def __init__(self) -> None:
        self.executor = None


active = Active()
E = TypeVar("E", bound=Executor)


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
    active.executor = executor

    def watched(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: executor.call(name, fn, args, kwargs)

    try:
        with between(lambda backend: cast(Backend, Around(backend, watched))):
            yield executor
    finally:
        active.executor = None
