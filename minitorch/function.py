"""Operations that know their derivative.

With this file one can define an operation on tensors (`minitorch.Function` is
`UserFunction` here):

    class Square(minitorch.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x

    y = Square.apply(x)

`apply` runs `forward` without recording, and hangs the operation into the graph when a
gradient will be wanted. All operations of the library are made in the same way; their
`forward` hands the work to a backend and may return the backend's `TensorData`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from minitorch.autodiff import (
    Edge,
    Node,
    Variable,
    grad_mode,
    mark_shared,
    modes,
    numbers,
)
from minitorch.dtypes import DType
from minitorch.executor import active
from minitorch.tensor_data import Shape, TensorData


class Like(NamedTuple):
    """What an output was whose memory the backward pass does not need."""

    shape: Shape
    dtype: DType
    device: str


_like = lru_cache(maxsize=1024)(Like)


class Context(Node):
    """What an operation keeps from its forward for its backward pass.

    Attributes:
        needs_input_grad: for each argument of `apply`, whether its gradient is wanted.

    Other attributes can be set at will: `ctx.dim = dim`.
    """

    # What most operations set has a slot, which is the fastest to write.
    __slots__ = (
        "_outputs",
        "_saved",
        "_versions",
        "_wrap",
        "dim",
        "function",
        "kept",
        "shape",
        "shapes",
    )

    function: type[Function]
    _saved: tuple[Any, ...] | None
    _versions: Sequence[int]
    _outputs: Sequence[TensorData | Like]
    _constant_ids: Sequence[int] = ()
    before: Any = None  # the gradient that the first input has from elsewhere
    home: TensorData | None = None  # memory for the gradient of input `writes`
    _wrap: Callable[..., Any]  # makes a tensor

    if TYPE_CHECKING:  # any attribute may be set

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __repr__(self) -> str:
        return f"<{self.function.__name__}Backward>"

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        return tuple([edge is not None for edge in self.edges])

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (inputs, outputs or others; None is allowed) for backward.

        They must not be changed in place before the backward pass; that is checked.
        """
        if self.edges:  # else nothing is recorded
            self._saved = tensors
            self._versions = versions = []
            for t in tensors:  # which takes less than a comprehension, being short
                if type(t) is TensorData:
                    versions.append(t.storage.version)
                else:
                    versions.append(0 if t is None else t.raw.storage.version)

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these outputs are constants for differentiation."""
        self._constant_ids = [id(t) for t in tensors]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given.

        Raises:
            RuntimeError: the graph was used before and its memory is freed, or one of
                the tensors was changed in place.
        """
        return self._as_saved(self._saved, self._outputs)

    def _as_saved(self, kept: Sequence[Any] | None, outputs: Sequence[Any]) -> Any:
        """Of what was saved, and of the outputs, what `saved_tensors` returns."""
        name = self.function.__name__
        if kept is None:
            raise RuntimeError(
                f"{name}: this graph was already used by a backward pass, which freed "
                f"its saved tensors; pass retain_graph=True to the first backward() "
                f"to use it again"
            )
        for tensor, version in zip(kept, self._versions):
            if _version(tensor) != version:
                raise RuntimeError(
                    f"{name}: a tensor of shape {tuple(tensor.shape)} that backward "
                    f"needs was changed in place (version {version} was saved, "
                    f"now {_version(tensor)}); use an operation that returns a new "
                    f"tensor, or change a clone()"
                )
        return tuple(
            [self._revive(t, outputs) if type(t) is TensorData else t for t in kept]
        )

    def trust(self) -> None:
        """Take what was saved as it is from now on: a graph's replays write it anew."""
        self._versions = ()

    def _revive(self, saved: TensorData, outputs: Sequence[Any]) -> Any:
        """A saved output as a tensor of this node (holding it would make a cycle)."""
        for index, output in enumerate(outputs):
            if output is saved:
                return self._wrap(saved, self, index)
        return self._wrap(saved)

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        outputs = self._outputs
        if len(outputs) > 1:
            grads = grads + [None] * (len(outputs) - len(grads))
            grads = [
                self._zeros(output)
                if grad is None and output.dtype.is_floating_point
                else grad
                for grad, output in zip(grads, outputs)
            ]
        backward = self.function.backward
        if active.executor is None:
            result = backward(self, *grads)
        else:
            name = f"{self.function.__name__}Backward"
            result = active.executor.operation(name, backward, (self, *grads))
        if not isinstance(result, tuple):
            result = (result,)
        while len(result) > len(self.edges) and result[-1] is None:
            result = result[:-1]  # of an argument that was left to its default
        if len(result) != len(self.edges):
            raise RuntimeError(
                f"{self.function.__name__}.backward returned {len(result)} "
                f"gradient(s) for {len(self.edges)} argument(s) of forward; return one "
                f"for each, None for those without"
            )
        if self.function.shares_gradients:
            mark_shared(result)
        elif len(result) > 1 and _overlap(result):
            mark_shared(result)
        return result

    def _zeros(self, output: TensorData | Like) -> Any:
        from minitorch.backend import get_backend

        backend = get_backend(output.device)
        return self._wrap(backend.full(output.shape, 0, output.dtype))

    def take(self, pending: dict[int, list[Any]]) -> None:
        edge, function = self.edges[0], self.function
        if function.adds and edge is not None:
            grads = pending.get(id(edge[0]), [])
            if len(grads) > edge[1]:
                self.before, grads[edge[1]] = grads[edge[1]], None
        if function.writes is not None:
            self.home = _home(self.edges[function.writes], pending)

    def release(self) -> None:
        if self._saved:
            self._saved, self._outputs = None, ()


def _home(edge: Edge | None, pending: dict[int, list[Any]]) -> TensorData | None:
    """The home of a leaf's gradient, for the first part of it that comes: it is given
    away once, and need not be used. A weight may have been cast on the way."""
    if edge is None or id(edge[0]) in pending:
        return None
    end, function = edge[0], getattr(edge[0], "function", None)
    if function is not None and function.hands_on and end.edges[0] is not None:
        end = end.edges[0][0]
    home = getattr(end, "home", None) if isinstance(end, Variable) else None
    if home is None or id(end) in pending or end.grad is not None:
        return None
    if end._hooks or getattr(edge[0], "hooks", None):
        return None  # a hook may keep what it sees, and the next step writes there
    end.home, found = None, home()
    fits = found is not None and _like_of(found) == _like_of(end)
    return found.raw if fits else None


def _like_of(a: Any) -> Like:
    return _like(a.raw.shape, a.raw.dtype, a.raw.device)


def _overlap(gradients: Sequence[Any]) -> bool:
    """Whether two of the gradients lie in one memory."""
    seen: list[Any] = []
    for grad in gradients:
        if grad is not None:
            if grad.raw.storage in seen:
                return True
            seen.append(grad.raw.storage)
    return False


def _version(tensor: Any) -> int:
    if type(tensor) is TensorData:
        return tensor.storage.version
    return 0 if tensor is None else tensor.raw.storage.version


class Function:
    """An operation with a derivative: give it `forward` and `backward`.

    Attributes:
        returns_view: whether the output shares its storage with the first argument.
        shares_gradients: whether somebody may still hold what `backward` returns (see
            `minitorch.autodiff.mark_shared`).
        composed: whether `forward` is made of operations on tensors, which then are
            not recorded; else it hands all work to a backend.
        adds: whether `backward` adds `ctx.before`, if there is one, to the gradient
            of its first input.
        writes: the input whose gradient `backward` may write to `ctx.home`, if there
            is one, and then returns in this very `TensorData`.
        hands_on: whether it returns the gradient that it is given, if that has the
            input's type already.
    """

    returns_view = False
    shares_gradients = False
    composed = False
    adds = False
    writes: int | None = None
    hands_on = False

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """Compute the output(s) from the arguments of `apply`."""
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """One gradient for each argument of forward, from one for each output."""
        raise NotImplementedError(
            "a Function needs a static method backward(ctx, grad)"
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the operation on `args`, recorded if a gradient will be wanted."""
        enabled, autocast = modes.get()
        if autocast is not None:
            args = autocast.cast(cls, args)
        like = node = None
        edges: list[Edge | None] = []
        for arg in args:
            if isinstance(arg, Variable):
                like = arg
                if arg._base is not None:  # type: ignore[attr-defined]
                    arg.renew_view()  # type: ignore[attr-defined]
                if enabled and arg.requires_grad:  # `edge()`, without a call for each
                    node = arg.node or arg
                    edges.append((node, arg.output_index))
                    continue
            edges.append(None)
        if like is None:
            raise TypeError(f"{cls.__name__}: none of the arguments is a tensor")
        ctx = Context()
        ctx.function = cls
        ctx._wrap = wrap = like.wrap  # type: ignore[attr-defined]
        if node is None:
            ctx.edges = ()
        else:  # record
            ctx.edges = edges
            ctx._saved = ctx._outputs = ()
            ctx.number = next(numbers)
            if enabled is not True:  # a part of a network that is computed twice
                enabled.record(ctx)
        if active.executor is not None or cls.composed:
            out = _run(ctx, args)
        elif len(args) == 1:  # which is called in half the time without a star
            out = cls.forward(ctx, args[0])
        elif len(args) == 2:
            out = cls.forward(ctx, args[0], args[1])
        else:
            out = cls.forward(ctx, *args)
        if type(out) is TensorData:
            if node is not None:
                for kept in ctx._saved:  # type: ignore[union-attr]
                    if kept is out:  # else nobody may need its memory any more
                        ctx._outputs = (out,)
                node = ctx if out.storage.dtype.is_floating_point else None
            made = wrap(out, node)
            return made.view_of(args[0]) if cls.returns_view else made
        if ctx.edges:
            return _record(ctx, out)
        if type(out) is tuple:
            return tuple([wrap(o) if type(o) is TensorData else o for o in out])
        return out


class UserFunction(Function):
    """An operation with a derivative: give it static methods `forward` and `backward`.

    This is `minitorch.Function`. It may compute with tensors, and its backward pass may
    return a tensor that it keeps; those of the library return new ones, or what they
    were given. With a static method `setup_context(ctx, inputs, output)`, which keeps
    what backward needs, `forward(*inputs)` gets no context.
    """

    shares_gradients = True
    composed = True

    def __init_subclass__(cls) -> None:
        setup, forward = getattr(cls, "setup_context", None), cls.forward
        if setup is None or "forward" not in cls.__dict__:
            return

        def both(ctx: Context, *inputs: Any) -> Any:
            output = forward(*inputs)
            setup(ctx, inputs, output)
            return output

        cls.forward = staticmethod(both)  # type: ignore[method-assign]


def _run(ctx: Context, args: Any) -> Any:
    """The forward pass where an executor stands, or where a user wrote it."""
    function, executor = ctx.function, active.executor
    before = grad_mode.enabled if function.composed else None
    if before is not None:
        grad_mode.enabled = False
    try:
        if executor is None:
            return function.forward(ctx, *args)
        return executor.operation(function.__name__, function.forward, (ctx, *args))
    finally:
        if before is not None:
            grad_mode.enabled = before


def _record(ctx: Context, out: Any) -> Any:
    """Make tensors of the outputs that point back at their node."""
    outs = out if isinstance(out, tuple) else (out,)
    raw_of = {id(o): o.raw for o in outs if type(o) is not TensorData}
    if raw_of and ctx._saved:
        ctx._saved = tuple([raw_of.get(id(t), t) for t in ctx._saved])
    kept = {id(t) for t in ctx._saved or ()}
    outputs: list[Any] = []
    wrapped: list[Any] = []
    ctx._outputs, wrap = outputs, ctx._wrap
    storage = shape = like = None
    for index, o in enumerate(outs):
        raw = o if type(o) is TensorData else o.raw
        if raw.storage is not storage or raw.shape is not shape:  # else another view
            storage, shape = raw.storage, raw.shape
            like = _like(shape, storage.dtype, storage.device)
        outputs.append(raw if id(raw) in kept else like)
        differs = storage.dtype.is_floating_point and id(o) not in ctx._constant_ids
        wrapped.append(wrap(raw, ctx, index) if differs else wrap(raw))
    return tuple(wrapped) if isinstance(out, tuple) else wrapped[0]


def once_differentiable(name: str, composed: str) -> None:
    """Refuse to record a fused backward kernel, and name the composed form."""
    if grad_mode.enabled:
        raise RuntimeError(
            f"{name}: its backward pass is one fused kernel, of which no gradient is "
            f"taken; for gradients of gradients compose it: {composed}"
        )
