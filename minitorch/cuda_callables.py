"""A model's forward and backward pass as CUDA graphs, in a loop of one's own.

With this file a module or a function of tensors replays what it did before, so that
the host does next to nothing (`make_graphed_callables`); all around it, the loss, the
optimizer, stays as it is. `GraphedCalls` decides by itself what to capture, and is what
`minitorch.compile(model, mode="reduce-overhead")` makes:

    model = minitorch.compile(model, mode="reduce-overhead")
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)     # replayed from the third call on
        loss.backward()                         # and so is this

Python does not run in a replay: what the callable prints, counts or decides is what it
was when it was captured, and so is the memory of tensors that are not its arguments. To
capture a whole step, with the optimizer, see `minitorch/cuda_graphs.py`.

Source: the interface is PyTorch's (its documentation, "CUDA semantics", CUDA graphs).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

from minitorch import autograd
from minitorch.autodiff import grad_mode, topological_sort
from minitorch.compiler import tensors_of
from minitorch.cuda import device
from minitorch.cuda_graphs import CUDAGraph, graph, graph_pool_handle
from minitorch.dtypes import DType
from minitorch.executor import active, standing
from minitorch.function import Context, Function, once_differentiable
from minitorch.nn.module import Module
from minitorch.tensor import Tensor
from minitorch.tensor_data import Storage, TensorData

KINDS = 8  # of inputs for which a callable has graphs, at most


class Graphed:
    """A function of tensors, captured.

    What a call returns lies in the graph's memory. Before the next call overwrites it,
    whoever still has it gets a copy in its place.

    Args:
        fn: returns tensors, in tuples, lists and dicts if it likes.
        inputs: of the kind that all calls will have; kernels for them are compiled.
        pool: see `graph_pool_handle`.

    Raises:
        CaptureError: something cannot be captured; the message says what to do.
    """

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[Tensor], pool: Any = None
    ) -> None:
        from cuda_ops.graphs import CaptureError

        self.inputs = [x.detach().clone() for x in inputs]
        for static, x in zip(self.inputs, inputs):
            static.requires_grad_(x.requires_grad)
        self.pool, self.graph = pool or graph_pool_handle(), CUDAGraph()
        with _captured_into(self.graph, self.pool, self.inputs[0]):
            self.made = fn(*self.inputs)
        if any(x.raw.storage.version for x in self.inputs):
            raise CaptureError("the callable changes an input, of which it has a copy")
        self.outputs = list(tensors_of(self.made))
        below = topological_sort([x.node or x for x in self.outputs])
        leaves = [x for x in below if isinstance(x, Tensor) and x.requires_grad]
        mine = {id(x) for x in self.inputs}
        self.params = [x for x in leaves if id(x) not in mine]
        if any(_is_watched(x) for x in self.params):
            raise CaptureError("a parameter has hooks, which would run twice")
        self.wanted = [x for x in (*self.inputs, *self.params) if x.requires_grad]
        nodes = [x for x in below if isinstance(x, Context)]
        kept = [t for x in nodes for t in x._saved or () if t is not None]
        self.saved = {
            id(getattr(t, "raw", t).storage) for t in kept if hasattr(t, "shape")
        }
        for node in nodes:
            node.trust()
        self.calls = 0
        self.shown: list[ref[Storage]] = []  # the outputs of the last call
        self.call: Any = None  # the last one's node
        self.passes: dict[tuple[int, ...], Any] = {}  # by the outputs with gradients
        self.counter: Any = None  # on the device: where random numbers of a call begin

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function returns."""
        if grad_mode.enabled and self.wanted:
            outs = list(Replay.apply(self, *inputs, *self.params))
        else:
            outs = [self.outputs[0].wrap(raw) for raw in self.replay(inputs)]
        return _put_back(self.made, iter(outs))

    @property
    def waits(self) -> bool:
        """Whether the backward pass of the last call may still come."""
        return self.call is not None and self.call() is not None

    def replay(self, inputs: Sequence[Tensor]) -> tuple[TensorData, ...]:
        """The outputs for these inputs."""
        for each in self.shown:
            storage = each()
            if storage is not None:
                window = TensorData(storage, (storage.array.shape[0],))
                backend = self.inputs[0].backend
                storage.array = backend.copy(window, storage.dtype).storage.array
        for static, x in zip(self.inputs, inputs):
            static.backend.copy_into(static.raw, x.raw)
        self.graph.replay()
        self.calls += 1
        outs = tuple([_beside(x.raw) for x in self.outputs])
        self.shown = [ref(raw.storage) for raw in outs]
        return outs

    def gradients(self, call: int, grads: Sequence[Tensor | None]) -> list[Any]:
        """Of all `wanted`, from those of the outputs."""
        if call != self.calls:
            raise RuntimeError(
                "the callable of this backward pass was called again before it, and "
                "its memory has the numbers of the last call; call backward() before "
                "the next call, or do without the graph"
            )
        for x, shown in zip(self.outputs, self.shown):
            storage = shown()
            if id(x.raw.storage) in self.saved and storage and storage.version:
                raise RuntimeError(
                    "what a graphed callable returned was changed in place, and its "
                    "backward pass needs it; change a clone() of it"
                )
        asked = tuple(k for k, g in enumerate(grads) if g is not None)
        outputs, given = [self.outputs[k] for k in asked], [grads[k] for k in asked]
        with standing(None):
            if active.executor is not None or asked not in self.passes:
                self.passes.setdefault(asked, None)  # kernels are compiled now
                self._start_counter()
                return self._gradients(outputs, given)
            if self.passes[asked] is None:
                self.passes[asked] = self._captured(outputs, given)
            return self._replayed(self.passes[asked], given)

    def _gradients(self, outputs: list[Tensor], given: list[Any]) -> list[Any]:
        with self._drawing():
            found = autograd.grad(
                outputs, self.wanted, given, retain_graph=True, allow_unused=True
            )
        return list(found)

    def _captured(self, outputs: list[Tensor], given: list[Any]) -> Any:
        static, made = [g.clone() for g in given], CUDAGraph()
        self._start_counter()
        with _captured_into(made, self.pool, static[0]):
            return made, static, self._gradients(outputs, static)

    def _replayed(self, captured: Any, given: list[Any]) -> list[Any]:
        made, static, found = captured
        for to, g in zip(static, given):
            to.backend.copy_into(to.raw, g.raw)
        self._start_counter()
        made.replay()
        there = [g for g in found if g is not None]
        fresh = [g.wrap(g.backend.empty(g.raw.shape, g.dtype)) for g in there]
        if there:
            raws = [[x.raw for x in xs] for xs in (fresh, there)]
            there[0].backend.copy_all(*raws)
        rest = iter(fresh)
        return [None if g is None else next(rest) for g in found]

    def _start_counter(self) -> None:
        """Random numbers of a backward pass are those of its call."""
        begin = self.graph.random_start()
        if begin is not None:
            from cuda_ops.graphs import new_counter, set_counter

            self.counter = new_counter() if self.counter is None else self.counter
            set_counter(self.counter, begin)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        if self.counter is None:
            yield
            return
        from cuda_ops.random import counted_from

        with counted_from(self.counter):
            yield


class Replay(Function):
    """A call of a `Graphed`, as an operation."""

    @staticmethod
    def forward(ctx: Context, graphed: Graphed, *tensors: Tensor) -> Any:
        outs = graphed.replay(tensors[: len(graphed.inputs)])
        ctx.graphed, ctx.call = graphed, graphed.calls
        if ctx.edges:
            ctx.__class__ = ReplayNode
            graphed.call = ref(ctx)
        pairs = zip(graphed.outputs, outs)
        ctx.mark_non_differentiable(*[raw for x, raw in pairs if not x.requires_grad])
        return outs


class ReplayNode(Context):
    """Its node: outputs that nobody used have no gradient, and not one of zeros."""

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        once_differentiable("a CUDA graph", "the callable without one")
        graphed = self.graphed
        found = iter(graphed.gradients(self.call, grads))
        ends = [next(found) if x.requires_grad else None for x in graphed.inputs]
        return [None, *ends, *found]

    def release(self) -> None:
        if self.graphed.calls == self.call:
            self.graphed.call = None


# ------------------------------------------------------------------- what is captured

PLAIN = (bool, int, float, str, type(None), DType)  # arguments that are as they look


class GraphedCalls:
    """A callable whose calls are captured when inputs of a kind come again.

    The first call of a kind runs as usual, and so does what cannot be captured: inputs
    on other devices, parameters with hooks, calls within another graph, and those while
    the backward pass of the call before is still to come.

    Args:
        fn: the function.
        module: what it calls, if it is one.
    """

    def __init__(self, fn: Callable[..., Any], module: Module | None) -> None:
        self.fn, self.module = fn, module
        self.found: dict[Hashable, Any] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs, kind = list(tensors_of([args, kwargs])), self._kind(args, kwargs)
        if kind not in self.found:
            if kind is not None and len(self.found) < KINDS:
                self.found[kind] = None
            return self.fn(*args, **kwargs)
        if self.found[kind] is None:
            self.found[kind] = self._captured(args, kwargs, inputs)
        graphed = self.found[kind]
        if not graphed or graphed.waits:
            return self.fn(*args, **kwargs)
        return graphed(*inputs)

    def _kind(self, args: Any, kwargs: Any) -> Hashable:
        """What has to be equal for a graph to be the right one; None: there is none."""
        told = [*_told(args), *_told(kwargs)]
        devices = {x[2] for x in told if isinstance(x, tuple)}
        if (
            len(devices) != 1
            or not next(iter(devices)).startswith("cuda")
            or active.executor is not None
            or grad_mode.enabled not in (True, False)  # within a checkpoint
            or any(x is Any for x in told)
        ):
            return None
        params = list(self.module.parameters()) if self.module is not None else []
        if {p.raw.storage.device for p in params} - devices or any(
            map(_is_watched, params)
        ):
            return None
        cast = grad_mode.autocast
        types = None if cast is None else tuple(cast.types.items())
        modules = self.module.modules() if self.module is not None else ()
        return (
            tuple(told), bool(grad_mode.enabled), types,
            tuple([m.training for m in modules]),
            tuple([(id(p.raw.storage), p.requires_grad) for p in params]),
        )  # fmt: skip

    def _captured(self, args: Any, kwargs: Any, inputs: list[Tensor]) -> Any:
        from cuda_ops.graphs import CaptureError
        from cuda_ops.runtime.allocator import OutOfMemoryError

        def fn(*static: Tensor) -> Any:
            given, named = _put_back([args, kwargs], iter(static))
            return self.fn(*given, **named)

        try:
            return Graphed(fn, inputs)
        except (CaptureError, OutOfMemoryError) as error:
            warnings.warn(f"runs without a CUDA graph: {error}", stacklevel=2)
            return False


def _told(value: Any) -> Iterator[Any]:
    """What tells arguments apart: of tensors their kind; `Any` where it is unknown."""
    if isinstance(value, Tensor):
        raw = value.raw
        yield raw.shape, raw.storage.dtype, raw.storage.device, value.requires_grad
    elif isinstance(value, dict):
        yield from value
        yield from _told(list(value.values()))
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for each in value:
            yield from _told(each)
    elif isinstance(value, PLAIN):
        yield type(value)
        yield value
    else:
        yield Any


def _is_watched(x: Any) -> bool:
    """Whether somebody waits for the gradient of a leaf, or has a place for it."""
    return bool(x._hooks or x._post_hooks) or any(
        getattr(x, name, None) is not None for name in ("home", "dealt")
    )


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Modules or functions whose calls replay CUDA graphs, forward and backward.

    A module comes back with its `forward` replaced; in the other mode (`train`, `eval`)
    it runs as before. Several callables are captured in the order in which they will
    run, and share memory.

    Args:
        callables: one, or a tuple of several.
        sample_args: the tensors of a call, or a tuple of such tuples: of the shapes,
            dtypes, and need of gradients that all calls will have.
        num_warmup_iters: how often each runs before it is captured, at least 1.
        allow_unused_input: is true here: what does not come to an output has no
            gradient.
        pool: memory to share, see `graph_pool_handle`.
    """
    if not isinstance(callables, tuple):
        one = (callables,), (sample_args,), num_warmup_iters, True, pool
        return make_graphed_callables(*one)[0]
    pool = pool or graph_pool_handle()
    made = []
    for fn, inputs in zip(callables, sample_args):
        run = fn.forward if isinstance(fn, Module) else fn
        for _ in range(max(1, num_warmup_iters)):
            outs = [x for x in tensors_of(run(*inputs)) if x.requires_grad]
            leaves = topological_sort([x.node or x for x in outs])
            wanted = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
            if wanted:
                ones = [x.detach().new_ones(*x.shape) for x in outs]
                autograd.grad(outs, wanted, ones, allow_unused=True)
        graphed = Graphed(run, inputs, pool)
        made.append(_replaced(fn, graphed) if isinstance(fn, Module) else graphed)
    return tuple(made)


def _replaced(module: Module, graphed: Graphed) -> Module:
    mode, plain = module.training, module.forward

    def forward(*args: Any) -> Any:
        return (graphed if module.training == mode else plain)(*args)

    module.forward = forward  # type: ignore[method-assign]
    return module


def _beside(raw: TensorData) -> TensorData:
    """A window on the same memory with a count of changes of its own."""
    there = raw.storage
    storage = Storage(there.array, there.dtype, there.device)
    return TensorData(storage, raw.shape, raw.strides, raw.offset)


@contextmanager
def _captured_into(made: CUDAGraph, pool: Any, like: Tensor) -> Iterator[None]:
    """Capture the block, on the GPU of `like`. Weights that were cast before are cast
    again: a replay has to do it."""
    before = grad_mode.autocast
    grad_mode.autocast = before and before.afresh()
    try:
        with device(like.raw.storage.device), graph(made, pool):
            yield
    finally:
        grad_mode.autocast = before


def _put_back(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The same tuples, lists and dicts with other tensors."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return type(value)((k, _put_back(v, tensors)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        parts = [_put_back(each, tensors) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
