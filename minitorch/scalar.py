"""One number with a recorded history: automatic differentiation at its smallest.

With this file one can compute with `Scalar`s as with numbers and ask for derivatives:

    x, y = Scalar(2.0, name="x"), Scalar(3.0, name="y")
    z = x * y + x.log()
    z.backward()
    x.grad  # 3.5

Every operation is a `ScalarFunction`: `forward` computes with plain numbers, and
`backward` multiplies the gradient from above with a derivative. The history is the same
graph of nodes and edges that tensors have, and `backpropagate` of
`minitorch/autodiff.py` runs through it for both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import minitorch.operators as operators
from minitorch.autodiff import (
    Edge,
    Node,
    Variable,
    backpropagate,
    central_difference,
    grad_mode,
    numbers,
)

Number = bool | int | float


class ScalarContext(Node):
    """What a function keeps from its forward for its backward."""

    def __init__(self, function: type[ScalarFunction]) -> None:
        self.function = function
        self.edges: tuple[Edge | None, ...] = ()
        self.hooks = None
        self.number = next(numbers)
        self.saved_values: tuple[float, ...] = ()

    def save_for_backward(self, *values: float) -> None:
        """Keep numbers that the derivative needs."""
        self.saved_values = values

    def backward_node(self, grads: list[float]) -> Sequence[float]:
        """The gradient of each argument, from that of the one output, `grads[0]`."""
        # BEGIN SOLUTION a1.3
        result = self.function.backward(self, grads[0])
        return result if isinstance(result, tuple) else (result,)
        # END SOLUTION a1.3

    def __repr__(self) -> str:
        return f"<{self.function.__name__}Backward>"


class ScalarFunction:
    """A function of numbers that knows its derivative."""

    @staticmethod
    def forward(ctx: ScalarContext, *args: Any) -> float:
        """The result, from plain numbers."""
        raise NotImplementedError("a ScalarFunction needs forward(ctx, ...)")

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float | tuple[float, ...]:
        """For each argument: d_out times the derivative with respect to it."""
        raise NotImplementedError("a ScalarFunction needs backward(ctx, d_out)")

    @classmethod
    def apply(cls, *args: Scalar | Number) -> Scalar:
        """Compute, and record the step if a gradient may be wanted."""
        ctx = ScalarContext(cls)
        values = [a.data if isinstance(a, Scalar) else float(a) for a in args]
        out = Scalar(cls.forward(ctx, *values), requires_grad=False)
        # BEGIN SOLUTION a1.3
        edges = tuple([a.edge() if isinstance(a, Scalar) else None for a in args])
        if grad_mode.enabled and any(edge is not None for edge in edges):
            ctx.edges = edges
            out.node, out.requires_grad = ctx, True
        return out
        # END SOLUTION a1.3


# BEGIN SOLUTION a1.2
class Add(ScalarFunction):
    """f(x, y) = x + y"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float, y: float) -> float:
        return operators.add(x, y)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> tuple[float, ...]:
        # df/dx = 1, df/dy = 1
        return d_out, d_out


class Sub(ScalarFunction):
    """f(x, y) = x - y"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float, y: float) -> float:
        return operators.sub(x, y)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> tuple[float, ...]:
        # df/dx = 1, df/dy = -1
        return d_out, -d_out


class Mul(ScalarFunction):
    """f(x, y) = x y"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float, y: float) -> float:
        ctx.save_for_backward(x, y)
        return operators.mul(x, y)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> tuple[float, ...]:
        # df/dx = y, df/dy = x
        x, y = ctx.saved_values
        return d_out * y, d_out * x


class Div(ScalarFunction):
    """f(x, y) = x / y"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float, y: float) -> float:
        ctx.save_for_backward(x, y)
        return operators.div(x, y)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> tuple[float, ...]:
        # df/dx = 1 / y, df/dy = -x / y^2
        x, y = ctx.saved_values
        over_y = operators.div(d_out, y)
        return over_y, -over_y * operators.div(x, y)


class Pow(ScalarFunction):
    """f(x, y) = x^y"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float, y: float) -> float:
        ctx.save_for_backward(x, y)
        return operators.pow(x, y)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> tuple[float, ...]:
        # df/dx = y x^(y-1), df/dy = x^y log(x), which is 0 at x = 0
        x, y = ctx.saved_values
        slope_x = y * operators.pow(x, y - 1) if y != 0 else 0.0
        slope_y = operators.pow(x, y) * operators.log(x) if x != 0 else 0.0
        return d_out * slope_x, d_out * slope_y


class Neg(ScalarFunction):
    """f(x) = -x"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        return operators.neg(x)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = -1
        return operators.neg(d_out)


class Log(ScalarFunction):
    """f(x) = log(x)"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        ctx.save_for_backward(x)
        return operators.log(x)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = 1 / x
        (x,) = ctx.saved_values
        return operators.log_backward(d_out, x)


class Exp(ScalarFunction):
    """f(x) = e^x"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        out = operators.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = e^x
        (out,) = ctx.saved_values
        return d_out * out


class Sigmoid(ScalarFunction):
    """f(x) = s = 1 / (1 + e^-x)"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        out = operators.sigmoid(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = s (1 - s)
        (out,) = ctx.saved_values
        return operators.sigmoid_backward(d_out, out)


class ReLU(ScalarFunction):
    """f(x) = max(x, 0)"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        ctx.save_for_backward(x)
        return operators.relu(x)

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = 1 where x > 0, else 0
        (x,) = ctx.saved_values
        return operators.relu_backward(d_out, x)


class Tanh(ScalarFunction):
    """f(x) = t = tanh(x)"""

    @staticmethod
    def forward(ctx: ScalarContext, x: float) -> float:
        out = operators.tanh(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: ScalarContext, d_out: float) -> float:
        # df/dx = 1 - t^2
        (out,) = ctx.saved_values
        return operators.tanh_backward(d_out, out)


# END SOLUTION a1.2

_ids = itertools.count()


class Scalar(Variable):
    """A number that remembers how it was made.

    Args:
        value: the number.
        name: what to call it when printed; its unique_id by default.
        requires_grad: whether `backward()` leaves a gradient in `.grad`.
    """

    __slots__ = ("data", "name", "unique_id")

    data: float
    grad: float | None

    def __init__(
        self, value: Number, name: str | None = None, requires_grad: bool = True
    ) -> None:
        if not isinstance(value, (bool, int, float)):
            raise TypeError(
                f"Scalar: got a {type(value).__name__}; expected a Python number"
            )
        self.data = float(value)
        self.unique_id = next(_ids)
        self.name = name if name is not None else str(self.unique_id)
        self.requires_grad = requires_grad
        self.grad = None
        self.node = None
        self.output_index = 0
        self._hooks = None
        self._post_hooks = None

    def __repr__(self) -> str:
        made = f", grad_fn={self.node}" if self.node is not None else ""
        return f"Scalar({self.data}, name={self.name!r}{made})"

    def item(self) -> float:
        """The number itself."""
        return self.data

    def __float__(self) -> float:
        return self.data

    def __bool__(self) -> bool:
        return self.data != 0.0

    __hash__ = object.__hash__

    def backward(self, d_out: float = 1.0) -> None:
        """Add the derivative of this to the `.grad` of all leaves it was made from.

        Args:
            d_out: the gradient of this scalar itself.
        """
        if not self.requires_grad:
            raise RuntimeError(
                "backward(): the scalar was not made from any with requires_grad=True"
            )
        backpropagate([self], [float(d_out)])

    def accumulate_grad(self, grad: float, create_graph: bool) -> None:
        """Add `grad` to what the leaf has in `.grad`."""
        if create_graph:
            raise RuntimeError("Scalar: gradients of gradients need tensors")
        self.grad = grad if self.grad is None else self.grad + grad

    # ----------------------------------------------------------------- arithmetic

    def __add__(self, other: Scalar | Number) -> Scalar:
        return Add.apply(self, other) if _fits(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return Sub.apply(self, other) if _fits(other) else NotImplemented

    def __rsub__(self, other: Scalar | Number) -> Scalar:
        return Sub.apply(other, self) if _fits(other) else NotImplemented

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return Mul.apply(self, other) if _fits(other) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return Div.apply(self, other) if _fits(other) else NotImplemented

    def __rtruediv__(self, other: Scalar | Number) -> Scalar:
        return Div.apply(other, self) if _fits(other) else NotImplemented

    def __pow__(self, other: Scalar | Number) -> Scalar:
        return Pow.apply(self, other) if _fits(other) else NotImplemented

    def __rpow__(self, other: Scalar | Number) -> Scalar:
        return Pow.apply(other, self) if _fits(other) else NotImplemented

    def __neg__(self) -> Scalar:
        return Neg.apply(self)

    def log(self) -> Scalar:
        """The natural logarithm."""
        return Log.apply(self)

    def exp(self) -> Scalar:
        """e to the power of this."""
        return Exp.apply(self)

    def sigmoid(self) -> Scalar:
        """1 / (1 + exp(-x))"""
        return Sigmoid.apply(self)

    def relu(self) -> Scalar:
        """x where x > 0, else 0"""
        return ReLU.apply(self)

    def tanh(self) -> Scalar:
        """The hyperbolic tangent."""
        return Tanh.apply(self)

    # ---------------------------------- comparisons: bools, without a derivative

    def __lt__(self, other: Scalar | Number) -> bool:
        return operators.lt(self.data, float(other))

    def __le__(self, other: Scalar | Number) -> bool:
        return operators.le(self.data, float(other))

    def __gt__(self, other: Scalar | Number) -> bool:
        return operators.gt(self.data, float(other))

    def __ge__(self, other: Scalar | Number) -> bool:
        return operators.ge(self.data, float(other))

    def __eq__(self, other: object) -> Any:
        if not _fits(other):
            return NotImplemented
        return operators.eq(self.data, float(other))  # type: ignore[arg-type]


def _fits(other: object) -> bool:
    return isinstance(other, (Scalar, bool, int, float))


def derivative_check(f: Callable[..., Scalar], *scalars: Scalar) -> None:
    """Compare the derivatives of f from `backward()` with finite differences.

    Args:
        scalars: leaves to call f with.

    Raises:
        ValueError: a derivative differs by more than 1% of its size (or of 1).
    """
    values = [x.data for x in scalars]
    leaves = [Scalar(value) for value in values]
    out = f(*leaves)
    if out.requires_grad:
        out.backward()

    def plain(*numbers: float) -> float:
        return f(*[Scalar(x, requires_grad=False) for x in numbers]).data

    for i, leaf in enumerate(leaves):
        expected = central_difference(plain, *values, arg=i)
        found = 0.0 if leaf.grad is None else leaf.grad
        if not operators.abs(found - expected) <= 1e-2 * max(1.0, abs(expected)):
            raise ValueError(
                f"derivative_check: at {values}, the derivative with respect to "
                f"argument {i} is {found} by backward(), but {expected} by central "
                f"differences"
            )
