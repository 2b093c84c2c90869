"""Operations that treat every element by itself, with broadcasting.

With this file one can see the derivative of each: a class computes the values with the
backend's `map` or `zip` of a function from `minitorch/operators.py`. Where the backward
pass is itself recorded (for gradients of gradients), it is composed of tensor
operations; otherwise one fused `zip` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minitorch import dtypes, operators
from minitorch.autodiff import grad_mode
from minitorch.function import Context, Function
from minitorch.functions.operands import unbroadcast

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Grads = tuple[Any, ...]


def fused(fn: Callable, grad: Tensor, x: Tensor) -> Tensor:
    """One kernel for a derivative times the gradient from above; not recorded."""
    return grad.wrap(grad.backend.zip(fn, grad.raw, x.raw))


# ---------------------------------------------------------------- two operands


# BEGIN SOLUTION a2.4
class Add(Function):
    """a + b"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.shapes = a.raw.shape, b.raw.shape
        return a.backend.zip(operators.add, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        # The gradient goes to both.
        a_shape, b_shape = ctx.shapes
        need_a, need_b = ctx.needs_input_grad
        return (
            unbroadcast(grad, a_shape) if need_a else None,
            unbroadcast(grad, b_shape) if need_b else None,
        )


class Sub(Function):
    """a - b"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.shapes = a.raw.shape, b.raw.shape
        return a.backend.zip(operators.sub, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        # The gradient goes to a, and with the sign changed to b.
        a_shape, b_shape = ctx.shapes
        need_a, need_b = ctx.needs_input_grad
        return (
            unbroadcast(grad, a_shape) if need_a else None,
            unbroadcast(-grad, b_shape) if need_b else None,
        )


class Mul(Function):
    """a * b"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.mul, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        # d/da = b, d/db = a
        a, b = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        return (
            unbroadcast(grad * b, a.shape) if need_a else None,
            unbroadcast(grad * a, b.shape) if need_b else None,
        )


class Div(Function):
    """a / b"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.div, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        # d/da = 1 / b, d/db = -a / b^2
        a, b = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        over_b = grad / b
        return (
            unbroadcast(over_b, a.shape) if need_a else None,
            unbroadcast(-over_b * (a / b), b.shape) if need_b else None,
        )


# END SOLUTION a2.4


class FloorDivide(Function):
    """floor(a / b)"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        return a.backend.zip(operators.floor_divide, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        raise RuntimeError(
            "floor_divide: no gradient is defined for its steps, as in PyTorch; use "
            "(a / b).floor(), whose gradient is 0, or detach() the operands"
        )


class Remainder(Function):
    """a - floor(a / b) b; d/da = 1, d/db = -floor(a / b)"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a.detach(), b.detach())
        return a.backend.zip(operators.remainder, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        a, b = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        return (
            unbroadcast(grad, a.shape) if need_a else None,
            unbroadcast(-grad * (a // b), b.shape) if need_b else None,
        )


class Pow(Function):
    """a ** b; d/da = b a^(b-1), d/db = a^b log(a), which is 0 where a is 0."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        integer = not a.dtype.is_floating_point
        fn = operators.pow_int if integer else operators.pow
        out = a.backend.zip(fn, a.raw, b.raw)
        ctx.save_for_backward(a, b, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        a, b, out = ctx.saved_tensors
        need_a, need_b = ctx.needs_input_grad
        grad_a = grad_b = None
        if need_a:  # where b is 0 the slope is 0, even at a = 0
            slope = (b * a ** (b - 1)).masked_fill(b == 0, 0.0)
            grad_a = unbroadcast(grad * slope, a.shape)
        if need_b:
            slope = (out * a.log()).masked_fill((a == 0) & (b >= 0), 0.0)
            grad_b = unbroadcast(grad * slope, b.shape)
        return grad_a, grad_b


class Maximum(Function):
    """The larger of a and b gets the gradient; equal ones share it.

    Where one is NaN neither is larger, and both get all of it, as in PyTorch.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.maximum, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        a, b = ctx.saved_tensors
        return _share(grad, a, b, a < b, b < a)


class Minimum(Function):
    """The smaller of a and b gets the gradient; equal ones share it."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.minimum, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        a, b = ctx.saved_tensors
        return _share(grad, a, b, b < a, a < b)


def _share(
    grad: Tensor, a: Tensor, b: Tensor, a_loses: Tensor, b_loses: Tensor
) -> Grads:
    grad = grad * (1.0 - 0.5 * (a == b).to(grad.dtype))
    return (
        unbroadcast(grad.masked_fill(a_loses, 0.0), a.shape),
        unbroadcast(grad.masked_fill(b_loses, 0.0), b.shape),
    )


class Where(Function):
    """a where the condition holds, else b; each gets the gradient it was used for."""

    @staticmethod
    def forward(ctx: Context, condition: Tensor, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(condition)
        ctx.shapes = a.raw.shape, b.raw.shape
        return a.backend.where(condition.raw, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        (condition,) = ctx.saved_tensors
        a_shape, b_shape = ctx.shapes
        zero = grad.new_zeros(())
        _, need_a, need_b = ctx.needs_input_grad
        grad_a = grad_b = None
        if need_a:
            grad_a = unbroadcast(Where.apply(condition, grad, zero), a_shape)
        if need_b:
            grad_b = unbroadcast(Where.apply(condition, zero, grad), b_shape)
        return None, grad_a, grad_b


class LeakyRelu(Function):
    """x where x > 0, else slope * x"""

    @staticmethod
    def forward(ctx: Context, x: Tensor, slope: Tensor) -> Any:
        ctx.save_for_backward(x, slope)
        return x.backend.zip(operators.leaky_relu, x.raw, slope.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        x, slope = ctx.saved_tensors
        return Where.apply(x > 0, grad, grad * slope), None


class Elu(Function):
    """x where x > 0, else alpha (exp(x) - 1), whose slope is out + alpha"""

    @staticmethod
    def forward(ctx: Context, x: Tensor, alpha: Tensor) -> Any:
        out = x.backend.zip(operators.elu, x.raw, alpha.raw)
        ctx.save_for_backward(x, out, alpha)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        x, out, alpha = ctx.saved_tensors
        return Where.apply(x > 0, grad, grad * (out + alpha)), None


def compare(fn: Callable, a: Tensor, b: Tensor) -> Tensor:
    """A bool tensor of fn(a, b); comparisons have no gradient."""
    return a.wrap(a.backend.zip(fn, a.raw, b.raw, dtypes.bool_))


def test(fn: Callable, a: Tensor) -> Tensor:
    """A bool tensor of fn(a)."""
    return a.wrap(a.backend.map(fn, a.raw, dtypes.bool_))


# ------------------------------------------------------------------ one operand


# BEGIN SOLUTION a2.4
class Neg(Function):
    """-x"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        return x.backend.map(operators.neg, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        # The gradient changes its sign.
        return -grad


class Exp(Function):
    """exp(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.exp, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        # It is its own derivative.
        (out,) = ctx.saved_tensors
        return grad * out


class Log(Function):
    """log(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.log, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        # d/dx = 1 / x
        (x,) = ctx.saved_tensors
        return grad / x


class Sigmoid(Function):
    """s = 1 / (1 + exp(-x))"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.sigmoid, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        # ds/dx = s (1 - s)
        (out,) = ctx.saved_tensors
        if grad_mode.enabled:
            return grad * (out * (1.0 - out))
        return fused(operators.sigmoid_backward, grad, out)


class Relu(Function):
    """x where x > 0, else 0; at 0 the slope counts as 0."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.relu, x.raw)
        ctx.save_for_backward(out)  # out > 0 just where x > 0, and out lives on anyway
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        # The slope is 1 where x > 0, else 0.
        (out,) = ctx.saved_tensors
        if grad_mode.enabled:
            return grad.masked_fill(out <= 0, 0.0)
        return fused(operators.relu_backward, grad, out)


# END SOLUTION a2.4


class Abs(Function):
    """|x|; the sign of x, and 0 at 0"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        fn = operators.abs if x.dtype.is_floating_point else operators.abs_int
        return x.backend.map(fn, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if grad_mode.enabled:
            return grad * x.detach().sign()
        return fused(operators.abs_backward, grad, x)


class Step(Function):
    """sign, floor, ceil or round: flat between jumps, so the gradient is 0."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, fn: Callable) -> Any:
        return x.backend.map(fn, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        return grad.new_zeros(grad.shape), None


class Log1p(Function):
    """log(1 + x); 1 / (1 + x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.log1p, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad / (1.0 + x)


class Expm1(Function):
    """exp(x) - 1; out + 1"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.expm1, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return grad * (out + 1.0)


class Sqrt(Function):
    """sqrt(x); 1 / (2 sqrt(x))"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.sqrt, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        if grad_mode.enabled:
            return grad / (2.0 * out)
        return fused(operators.sqrt_backward, grad, out)


class Rsqrt(Function):
    """1 / sqrt(x); -out^3 / 2"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.rsqrt, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return grad * (-0.5 * (out * out * out))


class Reciprocal(Function):
    """1 / x; -out^2"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.reciprocal, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return -grad * (out * out)


class Sin(Function):
    """sin(x); cos(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.sin, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class Cos(Function):
    """cos(x); -sin(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.cos, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return -grad * x.sin()


class Tanh(Function):
    """tanh(x); 1 - out^2"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(operators.tanh, x.raw)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        if grad_mode.enabled:
            return grad * (1.0 - out * out)
        return fused(operators.tanh_backward, grad, out)


class Erf(Function):
    """erf(x); 2 / sqrt(pi) exp(-x^2)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.erf, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (1.1283791670955126 * (-(x * x)).exp())


class Gelu(Function):
    """x P(X <= x) for a standard normal X; P(X <= x) + x density(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.gelu, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if not grad_mode.enabled:
            return fused(operators.gelu_backward, grad, x)
        cdf = 0.5 * (1.0 + (x * operators.SQRT_HALF).erf())
        return grad * (cdf + x * operators.INV_SQRT_2PI * (-0.5 * x * x).exp())


class GeluTanh(Function):
    """GELU with tanh in the place of erf"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.gelu_tanh, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if not grad_mode.enabled:
            return fused(operators.gelu_tanh_backward, grad, x)
        t = (operators.SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)).tanh()
        slope = operators.SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x)
        return grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


class Silu(Function):
    """x s with s = sigmoid(x); s (1 + x (1 - s))"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.silu, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if not grad_mode.enabled:
            return fused(operators.silu_backward, grad, x)
        s = x.sigmoid()
        return grad * (s * (1.0 + x * (1.0 - s)))


class Softplus(Function):
    """log(1 + exp(x)); sigmoid(x)"""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(operators.softplus, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.sigmoid()
