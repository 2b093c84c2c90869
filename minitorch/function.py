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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minitorch.autodiff import Edge, Node, Variable, grad_mode
from minitorch.executor import active
from minitorch.tensor_data import TensorData


class Context(Node):
    """What an operation keeps from its forward for its backward pass.

    Attributes:
        needs_input_grad: for each argument of `apply`, whether its gradient is wanted.

    Other attributes can be set at will: `ctx.dim = dim`.
    """

    # Defaults stand here, so that making a node costs two assignments.
    edges: tuple[Edge | None, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple[Any, ...] | None = ()
    _versions: Sequence[int] = ()
    _outputs: Sequence[TensorData] = ()
    _constant_ids: frozenset[int] = frozenset()

    def __init__(self, function: type[Function], recording: bool) -> None:
        self.function = function
        self.recording = recording

    if TYPE_CHECKING:  # any attribute may be set

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __repr__(self) -> str:
        return f"<{self.function.__name__}Backward>"

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (inputs, outputs or others; None is allowed) for backward.

        They must not be changed in place before the backward pass; that is checked.
        """
        if self.recording:
            self._saved = tensors
            self._versions = [_version(t) for t in tensors]

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these outputs are constants for differentiation."""
        self._constant_ids = frozenset(id(t) for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given.

        Raises:
            RuntimeError: the graph was used before and its memory is freed, or one of
                the tensors was changed in place.
        """
        name = self.function.__name__
        if self._saved is None:
            raise RuntimeError(
                f"{name}: this graph was already used by a backward pass, which freed "
                f"its saved tensors; pass retain_graph=True to the first backward() "
                f"to use it again"
            )
        for tensor, version in zip(self._saved, self._versions):
            if _version(tensor) != version:
                raise RuntimeError(
                    f"{name}: a tensor of shape {tuple(tensor.shape)} that backward "
                    f"needs was changed in place (version {version} was saved, "
                    f"now {_version(tensor)}); use an operation that returns a new "
                    f"tensor, or change a clone()"
                )
        return tuple(self._revive(t) for t in self._saved)

    def _revive(self, saved: Any) -> Any:
        """A saved output as a tensor of this node (holding it would make a cycle)."""
        if type(saved) is not TensorData:
            return saved
        for index, output in enumerate(self._outputs):
            if output is saved:
                return self._wrap(saved, self, index)
        return self._wrap(saved)

    def _wrap(self, raw: TensorData, node: Node | None = None, index: int = 0) -> Any:
        raise NotImplementedError  # set for each context by `Function.apply`

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        outputs = self._outputs
        if len(outputs) > 1:
            grads = grads + [None] * (len(outputs) - len(grads))
            grads = [
                self._zeros(output)
                if grad is None and output.storage.dtype.is_floating_point
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
        if len(result) != len(self.edges):
            raise RuntimeError(
                f"{self.function.__name__}.backward returned {len(result)} "
                f"gradient(s) for {len(self.edges)} argument(s) of forward; return one "
                f"for each, None for those without"
            )
        if self.function.shares_gradients:
            for grad in result:
                if isinstance(grad, Variable) and hasattr(grad, "raw"):
                    grad.raw.storage.shared = True
        return result

    def _zeros(self, output: TensorData) -> Any:
        from minitorch.backend import get_backend

        backend = get_backend(output.device)
        return self._wrap(backend.full(output.shape, 0, output.dtype))

    def release(self) -> None:
        if self._saved:
            self._saved = None


def _version(tensor: Any) -> int:
    if type(tensor) is TensorData:
        return tensor.storage.version
    return 0 if tensor is None else tensor.raw.storage.version


class Function:
    """An operation with a derivative: give it `forward` and `backward`.

    Attributes:
        returns_view: whether the output shares its storage with the first argument.
        shares_gradients: whether somebody may still hold what `backward` returns; a
            `.grad`, which may change in place, is then a copy of it.
    """

    returns_view = False
    shares_gradients = False

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
        like = None
        recording = False
        for arg in args:
            if isinstance(arg, Variable):
                like = arg
                if arg._base is not None:  # type: ignore[attr-defined]
                    arg.renew_view()  # type: ignore[attr-defined]
                if arg.requires_grad and grad_mode.enabled:
                    recording = True
        if like is None:
            raise TypeError(f"{cls.__name__}: none of the arguments is a tensor")
        ctx = Context(cls, recording)
        ctx._wrap = wrap = like.wrap  # type: ignore[attr-defined,method-assign]
        if recording:
            edges = [a.edge() if isinstance(a, Variable) else None for a in args]
            ctx.edges = tuple(edges)
            ctx.needs_input_grad = tuple([edge is not None for edge in edges])
        before = grad_mode.enabled
        grad_mode.enabled = False
        try:
            if active.executor is None:
                out = cls.forward(ctx, *args)
            else:
                out = active.executor.operation(cls.__name__, cls.forward, (ctx, *args))
        finally:
            grad_mode.enabled = before
        if type(out) is TensorData:
            made = _record(ctx, out) if recording else wrap(out)
            return made.view_of(args[0]) if cls.returns_view else made
        if recording:
            return _record(ctx, out)
        if type(out) is tuple:
            return tuple([wrap(o) if type(o) is TensorData else o for o in out])
        return out


class UserFunction(Function):
    """An operation with a derivative: give it static methods `forward` and `backward`.

    This is `minitorch.Function`. Its backward pass may return a tensor that it keeps;
    those of the library return new ones, or what they were given.
    """

    shares_gradients = True


def _record(ctx: Context, out: Any) -> Any:
    """Make tensors of the outputs that point back at their node."""
    if type(out) is TensorData:
        ctx._outputs = (out,)
        if not out.storage.dtype.is_floating_point:
            return ctx._wrap(out)
        return ctx._wrap(out, ctx, 0)
    outs = out if isinstance(out, tuple) else (out,)
    raws = [o if type(o) is TensorData else o.raw for o in outs]
    ctx._outputs = raws
    if ctx._saved and not all(type(o) is TensorData for o in outs):
        raw_of = {id(o): raw for o, raw in zip(outs, raws)}
        ctx._saved = tuple(raw_of.get(id(t), t) for t in ctx._saved)
    wrapped = tuple(
        ctx._wrap(raw, ctx, i)
        if raw.dtype.is_floating_point and id(o) not in ctx._constant_ids
        else ctx._wrap(raw)
        for i, (o, raw) in enumerate(zip(outs, raws))
    )
    return wrapped if isinstance(out, tuple) else wrapped[0]


def once_differentiable(name: str, composed: str) -> None:
    """Refuse to record a fused backward kernel, and name the composed form."""
    if grad_mode.enabled:
        raise RuntimeError(
            f"{name}: its backward pass is one fused kernel, of which no gradient is "
            f"taken; for gradients of gradients compose it: {composed}"
        )
