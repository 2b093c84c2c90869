"""Dropout: random zeros, the same again in the backward pass.

With this file one can see what a counter-based generator buys: the mask is never
stored; the backward pass draws the same numbers a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitorch.function import Context, Function

if TYPE_CHECKING:
    from minitorch.creation import Generator
    from minitorch.tensor import Tensor


class Dropout(Function):
    """x / (1 - p) with probability 1 - p, else 0; linear, so it is its own gradient.

    Source: Srivastava et al., 2014.
    """

    # BEGIN SOLUTION a6.5
    @staticmethod
    def forward(ctx: Context, x: Tensor, p: float, seed: int, offset: int) -> Any:
        ctx.options = p, seed, offset
        return x.backend.dropout(x.raw, p, seed, offset)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        options: Any = ctx.options
        return Dropout.apply(grad, *options), None, None, None

    # END SOLUTION a6.5


def dropout(x: Tensor, p: float = 0.5, generator: Generator | None = None) -> Tensor:
    """Elements zeroed with probability p, the others divided by 1 - p."""
    from minitorch.creation import default_generator

    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: p is {p}; it must be from 0 to 1")
    if not x.dtype.is_floating_point:
        raise TypeError(f"dropout: x is {x.dtype.name}; expected float32 or float64")
    if p == 1.0:
        return x * 0.0
    seed, offset = (generator or default_generator).take(x.numel())
    return Dropout.apply(x, float(p), seed, offset)
