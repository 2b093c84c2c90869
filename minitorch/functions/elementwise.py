"""Operations that treat every element by itself, with broadcasting.

With this file one can see the derivative of each: a class computes the values with the
backend's `map` or `zip` of a function from `minitorch/operators.py`. Where the backward
pass is itself recorded (for gradients of gradients), it is composed of tensor
operations; otherwise one fused `zip` does it.

Behind the classes stand the functions that users call, as `minitorch.exp(x)` and as
`x.exp()`. One operand gives a result of its shape, [*] -> [*]; two broadcast, and one
of them may be a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import (
    dividends,
    not_bool,
    times_alpha,
    without_bools,
)
from minitorch.autodiff import grad_mode
from minitorch.dtypes import Number, float32
from minitorch.function import Context, Function
from minitorch.functions.operands import (
    cast,
    checked_tensor,
    is_tensor,
    operands,
    to_floating,
    type_with_number,
    unbroadcast,
)

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


class Curve(Function):
    """`fn` of one number. The gradient is `slope` of the one from above and of x, or
    where it `keeps_output` of the result; `kernel` does the same in one pass, if there
    is one, where that is not recorded."""

    fn: Any
    slope: Any
    kernel: Any = None
    keeps_output = False

    @classmethod
    def forward(cls, ctx: Context, x: Tensor) -> Any:
        out = x.backend.map(cls.fn, x.raw)
        ctx.save_for_backward(out if cls.keeps_output else x)
        return out

    @classmethod
    def backward(cls, ctx: Context, grad: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors
        if cls.kernel is None or grad_mode.enabled:
            return cls.slope(grad, kept)
        return fused(cls.kernel, grad, kept)


class Log1p(Curve):
    """log(1 + x); 1 / (1 + x)"""

    fn = operators.log1p

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad / (1.0 + x)


class Log2(Curve):
    """log2(x); 1 / (x log(2))"""

    fn = operators.log2

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad / (math.log(2) * x)


class Log10(Curve):
    """log10(x); 1 / (x log(10))"""

    fn = operators.log10

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad / (math.log(10) * x)


class Expm1(Curve):
    """exp(x) - 1; out + 1"""

    fn = operators.expm1
    keeps_output = True

    @staticmethod
    def slope(grad: Tensor, out: Tensor) -> Tensor:
        return grad * (out + 1.0)


class Sqrt(Curve):
    """sqrt(x); 1 / (2 sqrt(x))"""

    fn = operators.sqrt
    kernel = operators.sqrt_backward
    keeps_output = True

    @staticmethod
    def slope(grad: Tensor, out: Tensor) -> Tensor:
        return grad / (2.0 * out)


class Rsqrt(Curve):
    """1 / sqrt(x); -out^3 / 2"""

    fn = operators.rsqrt
    keeps_output = True

    @staticmethod
    def slope(grad: Tensor, out: Tensor) -> Tensor:
        return grad * (-0.5 * (out * out * out))


class Reciprocal(Curve):
    """1 / x; -out^2"""

    fn = operators.reciprocal
    keeps_output = True

    @staticmethod
    def slope(grad: Tensor, out: Tensor) -> Tensor:
        return -grad * (out * out)


class Sin(Curve):
    """sin(x); cos(x)"""

    fn = operators.sin

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * x.cos()


class Cos(Curve):
    """cos(x); -sin(x)"""

    fn = operators.cos

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return -grad * x.sin()


class Acos(Curve):
    """acos(x); -1 / sqrt(1 - x^2)"""

    fn = operators.acos

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return -grad * (1.0 - x * x).rsqrt()


class Sinh(Curve):
    """sinh(x); cosh(x)"""

    fn = operators.sinh

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * x.cosh()


class Cosh(Curve):
    """cosh(x); sinh(x)"""

    fn = operators.cosh

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * x.sinh()


class Tanh(Curve):
    """tanh(x); 1 - out^2"""

    fn = operators.tanh
    kernel = operators.tanh_backward
    keeps_output = True

    @staticmethod
    def slope(grad: Tensor, out: Tensor) -> Tensor:
        return grad * (1.0 - out * out)


class Erf(Curve):
    """erf(x); 2 / sqrt(pi) exp(-x^2)"""

    fn = operators.erf

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * (1.1283791670955126 * (-(x * x)).exp())


# -------------------------------------------------- what users call: two operands


class AddMixed(Function):
    """a + b of float32 and a half type, which kernels read as they are.

    Who makes the gradient may leave it in the half type, too: `rounded` is then the
    gradient, the version of its memory, and the same in that type.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.kinds, ctx.rounded = (a.dtype, b.dtype), None
        return a.backend.zip(operators.add, a.raw, b.raw, float32)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        rounded: Any = ctx.rounded or (None, 0, None)
        (raw, version, half), ctx.rounded = rounded, None
        known = raw is grad.raw and raw.storage.version == version
        pairs = zip(ctx.kinds, ctx.needs_input_grad)
        return tuple([
            None if not need else grad.wrap(half) if known and kind.half
            else cast(grad, kind)
            for kind, need in pairs
        ])  # fmt: skip


def plus(a: Any, b: Any) -> Tensor:
    """a + b; as one kernel reads them, where their types are float32 and a half one."""
    x, y = getattr(a, "raw", None), getattr(b, "raw", None)
    if x is None or y is None or x.storage.dtype is y.storage.dtype:
        return Add.apply(*operands("add", a, b))
    alike = x.shape == y.shape and x.device == y.device
    mixed = float32 in (x.dtype, y.dtype) and (x.dtype.half or y.dtype.half)
    if alike and mixed and "zip" in a.backend.takes_half:
        return AddMixed.apply(a, b)
    return Add.apply(*operands("add", a, b))


def add(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other"""
    return plus(input, other if alpha == 1 else times_alpha("add", input, other, alpha))


def sub(input: Tensor, other: Any, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other"""
    if alpha != 1:
        other = times_alpha("sub", input, other, alpha)
    return Sub.apply(*without_bools("sub", input, other))


def mul(input: Tensor, other: Any) -> Tensor:
    """input * other"""
    return Mul.apply(*operands("mul", input, other))


def div(input: Tensor, other: Any) -> Tensor:
    """input / other; integers give float32."""
    a, b = operands("div", input, other)
    return Div.apply(to_floating("div", a), to_floating("div", b))


def floor_divide(input: Tensor, other: Any) -> Tensor:
    """floor(input / other)"""
    return FloorDivide.apply(*dividends("floor_divide", input, other))


def remainder(input: Tensor, other: Any) -> Tensor:
    """input - floor(input / other) * other"""
    return Remainder.apply(*dividends("remainder", input, other))


def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent, of which one may be a number."""
    if not is_tensor(exponent):
        kind = checked_tensor("pow", input).dtype
        twice = isinstance(exponent, (int, float)) and exponent == 2
        if not (twice and kind.is_floating_point):
            kind = type_with_number("pow", input, exponent)
            input = cast(input, kind)
        if twice and grad_mode.autocast is None:  # also the fastest
            return mul(input, input)
        if exponent < 0 and not kind.is_floating_point:
            raise ValueError("pow: integers to negative powers; use .float() first")
    a, b = operands("pow", input, exponent)
    return Pow.apply(not_bool("pow", a), b)


# --------------------------------------------------- what users call: one operand


def neg(input: Tensor) -> Tensor:
    """-input"""
    return Neg.apply(not_bool("neg", input))


def abs(input: Tensor) -> Tensor:
    """|input|"""
    return Abs.apply(not_bool("abs", input))


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1"""
    return Step.apply(checked_tensor("sign", input), operators.sign)


def floor(input: Tensor) -> Tensor:
    """The largest whole number that is not above the element."""
    return Step.apply(not_bool("floor", input), operators.floor)


def ceil(input: Tensor) -> Tensor:
    """The smallest whole number that is not below the element."""
    return Step.apply(not_bool("ceil", input), operators.ceil)


def round(input: Tensor) -> Tensor:
    """The nearest whole number, halves to the even one."""
    return Step.apply(not_bool("round", input), operators.round)


def exp(input: Tensor) -> Tensor:
    """e ** input"""
    return Exp.apply(to_floating("exp", input))


def expm1(input: Tensor) -> Tensor:
    """exp(input) - 1, exact for small numbers."""
    return Expm1.apply(to_floating("expm1", input))


def log(input: Tensor) -> Tensor:
    """The natural logarithm."""
    return Log.apply(to_floating("log", input))


def log1p(input: Tensor) -> Tensor:
    """log(1 + input), exact for small numbers."""
    return Log1p.apply(to_floating("log1p", input))


def log2(input: Tensor) -> Tensor:
    """The logarithm to base 2."""
    return Log2.apply(to_floating("log2", input))


def log10(input: Tensor) -> Tensor:
    """The logarithm to base 10."""
    return Log10.apply(to_floating("log10", input))


def sqrt(input: Tensor) -> Tensor:
    """The square root."""
    return Sqrt.apply(to_floating("sqrt", input))


def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input)"""
    return Rsqrt.apply(to_floating("rsqrt", input))


def reciprocal(input: Tensor) -> Tensor:
    """1 / input"""
    return Reciprocal.apply(to_floating("reciprocal", input))


def square(input: Tensor) -> Tensor:
    """input * input"""
    return pow(checked_tensor("square", input), 2)


def sin(input: Tensor) -> Tensor:
    """The sine of radians."""
    return Sin.apply(to_floating("sin", input))


def cos(input: Tensor) -> Tensor:
    """The cosine of radians."""
    return Cos.apply(to_floating("cos", input))


def acos(input: Tensor) -> Tensor:
    """The angle in radians whose cosine is the element."""
    return Acos.apply(to_floating("acos", input))


def sinh(input: Tensor) -> Tensor:
    """The hyperbolic sine."""
    return Sinh.apply(to_floating("sinh", input))


def cosh(input: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    return Cosh.apply(to_floating("cosh", input))


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return Tanh.apply(to_floating("tanh", input))


def erf(input: Tensor) -> Tensor:
    """The error function."""
    return Erf.apply(to_floating("erf", input))


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))"""
    return Sigmoid.apply(to_floating("sigmoid", input))


def relu(input: Tensor) -> Tensor:
    """The element where it is above 0, else 0."""
    return Relu.apply(not_bool("relu", input))
