"""`minitorch.compile`: operations that follow each other become one kernel.

With this file one can let a module or a function be compiled, and see what was made:

    model = minitorch.compile(model)            # or @minitorch.compile on a function
    print(minitorch.compiler.explain(model, x))

Where a + b writes a tensor that tanh reads again, the compiled program has a loop that
keeps the sum in a register; and a softmax that is written out goes through memory once.
Such operations are limited by memory, and many take about the time of one
(docs/compiler.md). Four parts do it:

    recorder.py                   notes elementwise functions, and folds of rows, as the
                                  program runs
    recompute.py                  what the backward pass computes again
    minitorch/backend/fusion.py   what is noted, as a program; its text
    fast_ops/fused.py, cuda_ops/fused.py, cuda_ops/fused_rows.py
                                  the loop or the kernel that is written for it

On devices without the last of them ("simple", "mojo") all runs as it would without.
Source of the idea to note operations and compile what is noted: Suhan et al.,
"LazyTensor: combining eager execution with domain-specific compilers", 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from minitorch.autodiff import call_after_backward
from minitorch.compiler.recorder import Fused, Recorder
from minitorch.executor import active, standing
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The module or function, whose operations are put together where they can be.

    Its backward pass is compiled as well. Python runs as ever at each call, so that
    results never depend on what an earlier call saw; on the device "cpu" they are
    those of the same program without `compile`, to the bit, but for the last digits of
    sums of views. A NumPy array that shares a tensor's memory must not be changed
    while the function runs, nor an input before the backward pass, which computes from
    it what was not kept (you are told). The first calls are slow: each new loop takes
    about a second to compile, and is kept on disk.

    With `mode="reduce-overhead"` calls on a GPU, and their backward passes, become CUDA
    graphs when inputs of a kind come for the second time (`cuda_callables.py`): for
    small networks, for which the GPU waits. Python does not run in their replays.

    A module comes back in an `OptimizedModule` with the same parameters. `compile`
    works as a decorator as well: `@compile`, `@compile(mode="reduce-overhead")`. The
    other options are PyTorch's, which choose how it compiles; there is nothing to
    choose here.

    Raises:
        TypeError: the model cannot be called.
    """
    if model is None:
        return lambda fn: compile(fn, mode=mode, disable=disable)
    if not callable(model):
        raise TypeError(
            f"compile: got a {type(model).__name__}; expected a module or a function"
        )
    if disable:
        return model
    graphs = mode == "reduce-overhead"
    if isinstance(model, Module):
        return OptimizedModule(model, graphs)
    run = _runner(model, None, graphs)

    @wraps(model)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return run(args, kwargs)

    return compiled


def _runner(fn: Callable, module: Module | None, graphs: bool) -> Callable:
    """What calls `fn`, recorded, and with CUDA graphs if asked for."""
    if not graphs:
        return lambda args, kwargs: _recorded(fn, args, kwargs)
    from minitorch.cuda_callables import GraphedCalls

    return GraphedCalls(lambda *a, **named: _recorded(fn, a, named), module)


class OptimizedModule(Module):
    """A module that is compiled: `_orig_mod`, whose attributes it shows as its own.

    As in PyTorch, the names in its `state_dict` begin with "_orig_mod.".
    """

    def __init__(self, module: Module, graphs: bool = False) -> None:
        super().__init__()
        self.__dict__["_graphs"] = graphs
        self._orig_mod = module
        self.__dict__["_run"] = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        if self._run is None:  # made anew in a copy
            own = self._orig_mod
            self.__dict__["_run"] = _runner(own, own, self._graphs)
        return self._run(args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}

    def __getattr__(self, name: str) -> Any:
        inner = self.__dict__.get("_modules", {}).get("_orig_mod")
        if inner is None or name in ("_orig_mod", "__setstate__"):
            return super().__getattr__(name)
        return getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or "_orig_mod" not in self.__dict__.get("_modules", {}):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)


_OWN = {*vars(Module()), "_orig_mod"}


def _recorded(fn: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call `fn`, recorded; what it returns has its backward pass recorded, too."""
    if is_compiling():
        return fn(*args, **kwargs)
    with Recorder():
        out = fn(*args, **kwargs)
        for tensor in tensors_of(out):
            if tensor.node is not None:
                tensor.register_hook(_record_backward)
    return out


def _record_backward(grad: Tensor) -> None:
    """A backward pass has come to a compiled function: record the rest of it."""
    if not is_compiling():
        recorder = Recorder().__enter__()
        call_after_backward(lambda: recorder.__exit__(None, None, None))


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_of(each)


def is_compiling() -> bool:
    """Whether what this thread does now is recorded."""
    return isinstance(active.executor, Recorder)


def disable(fn: Callable) -> Callable:
    """Decorate what is not to be compiled where compiled functions call it."""

    @wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _without():
            return fn(*args, **kwargs)

    return plain


@contextmanager
def _without() -> Iterator[None]:
    recorder = active.executor
    if not isinstance(recorder, Recorder):
        yield
        return
    recorder.flush()
    with standing(recorder.outer):
        yield


def explain(fn: Callable, *args: Any, **kwargs: Any) -> str:
    """Call `fn`, and say what of it became one kernel, a line for each.

    >>> explain(lambda x: (x * 2.0).tanh() + 1.0, minitorch.ones(4))
    '(4,) cpu: mul tanh add (3 read, 1 written)'
    """
    told: list[Fused] = []
    with Recorder(told):
        out = fn(*args, **kwargs)
    del out  # up to here somebody wants it
    return "\n".join(map(str, told))
