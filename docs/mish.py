"""A new operation in one file: mish, an activation, with its gradient, on every device.

Run it: `python docs/mish.py`. docs/add_an_operation.md explains the parts; the tests
run `mish` on every device that is installed.
"""

from __future__ import annotations

import math
from typing import Any

import minitorch
from minitorch import Tensor
from minitorch.backend import available_devices
from minitorch.function import Context, Function, once_differentiable


# 1. The mathematics of one number. Every backend compiles these very functions, so they
# use numbers and `math` alone. log(1 + e^x) is written such that e^x cannot overflow.
def mish_scalar(x: float) -> float:
    """x * tanh(log(1 + e^x))"""
    return x * math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x))))


def mish_backward(grad: float, x: float) -> float:
    """grad * (t + x * s * (1 - t^2)) with t = tanh(log(1 + e^x)), s = sigmoid(x)"""
    t = math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x))))
    s = 0.5 + 0.5 * math.tanh(0.5 * x)
    return grad * (t + x * s * (1.0 - t * t))


# 2. The operation: what is computed, what is kept, and how a gradient goes back.
class Mish(Function):
    """out = x * tanh(softplus(x)); grad_x = grad * mish'(x).

    Source: Misra, "Mish: a self regularized non-monotonic activation function", 2019.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.backend.map(mish_scalar, x.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        once_differentiable("mish", "x * softplus(x).tanh()")
        (x,) = ctx.saved_tensors
        return grad.wrap(grad.backend.zip(mish_backward, grad.raw, x.raw))


# 3. The function that users call; it checks what it is given.
def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)), elementwise: x [*] -> [*].

    Raises:
        TypeError: x has no floats.
    """
    if not x.dtype.is_floating_point:
        raise TypeError(f"mish: x is {x.dtype.name}; convert it with .to(float32)")
    return Mish.apply(x)


def main() -> None:
    """A value and a slope on every device that can be used here."""
    for device in available_devices():
        try:
            x = minitorch.tensor([-1.0, 0.0, 2.0], device=device, requires_grad=True)
        except RuntimeError as error:
            print(f"{device}: {error}")
            continue
        out = mish(x)
        out.sum().backward()
        assert x.grad is not None
        print(device, out.tolist(), x.grad.tolist())


if __name__ == "__main__":
    main()
