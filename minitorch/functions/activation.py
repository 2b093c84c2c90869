"""Activations: functions of one number that are put between the layers of a network.

With this file one can see the slope of each. (`Relu`, `Sigmoid` and `Tanh` are with the
other functions of one number, in `elementwise.py`.) All of them are [*] -> [*].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import check_floating
from minitorch.function import Context, Function
from minitorch.functions.choice import Where
from minitorch.functions.elementwise import Curve
from minitorch.functions.operands import scalar_like

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class LeakyRelu(Function):
    """x where x > 0, else slope * x"""

    @staticmethod
    def forward(ctx: Context, x: Tensor, slope: Tensor) -> Any:
        ctx.save_for_backward(x, slope)
        return x.backend.zip(operators.leaky_relu, x.raw, slope.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
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
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, out, alpha = ctx.saved_tensors
        return Where.apply(x > 0, grad, grad * (out + alpha)), None


class Gelu(Curve):
    """x P(X <= x) for a standard normal X; P(X <= x) + x density(x)"""

    fn = operators.gelu
    kernel = operators.gelu_backward

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        cdf = 0.5 * (1.0 + (x * operators.SQRT_HALF).erf())
        return grad * (cdf + x * operators.INV_SQRT_2PI * (-0.5 * x * x).exp())


class GeluTanh(Curve):
    """GELU with tanh in the place of erf"""

    fn = operators.gelu_tanh
    kernel = operators.gelu_tanh_backward

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        t = (operators.SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)).tanh()
        slope = operators.SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x)
        return grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


class Silu(Curve):
    """x s with s = sigmoid(x); s (1 + x (1 - s))"""

    fn = operators.silu
    kernel = operators.silu_backward

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        s = x.sigmoid()
        return grad * (s * (1.0 + x * (1.0 - s)))


class Softplus(Curve):
    """log(1 + exp(x)); sigmoid(x)"""

    fn = operators.softplus

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * x.sigmoid()


class LogSigmoid(Curve):
    """log(sigmoid(x)); sigmoid(-x)"""

    fn = operators.logsigmoid

    @staticmethod
    def slope(grad: Tensor, x: Tensor) -> Tensor:
        return grad * (-x).sigmoid()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x P(X <= x) for a standard normal X; "tanh" for the approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(
            f'gelu: approximate is {approximate!r}; it must be "none" or "tanh"'
        )
    op = Gelu if approximate == "none" else GeluTanh
    return op.apply(check_floating("gelu", input))


def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x)"""
    return Silu.apply(check_floating("silu", input))


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)."""
    x = check_floating("elu", input)
    return Elu.apply(x, scalar_like(x, alpha, x.dtype))


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    x = check_floating("leaky_relu", input)
    return LeakyRelu.apply(x, scalar_like(x, negative_slope, x.dtype))


def softplus(input: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return Softplus.apply(check_floating("softplus", input))
