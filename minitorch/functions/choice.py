"""Operations that choose, for each element, one of two numbers.

With this file one can see where a gradient goes that had a choice: to the number that
was taken. Operands broadcast; the result has their common shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.arguments import filler, only_bool
from minitorch.function import Context, Function
from minitorch.functions.operands import (
    cast,
    check_broadcast,
    check_same_device,
    checked_tensor,
    is_tensor,
    operands,
    scalar_like,
    unbroadcast,
)

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Maximum(Function):
    """The larger of a and b gets the gradient; equal ones share it.

    Where one is NaN neither is larger, and both get all of it, as in PyTorch.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.maximum, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        return _share(grad, a, b, a < b, b < a)


class Minimum(Function):
    """The smaller of a and b gets the gradient; equal ones share it."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return a.backend.zip(operators.minimum, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        return _share(grad, a, b, b < a, a < b)


class Clamp(Function):
    """a, raised to `low` and then lowered to `high`, of which either may be None.

    A bound that was taken gets the gradient, else a does, also where it is the bound.
    """

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, low: Tensor | None, high: Tensor | None
    ) -> Any:
        ctx.save_for_backward(a, low, high)
        backend, out = a.backend, a.raw
        if low is not None:
            out = backend.zip(operators.maximum, out, low.raw)
        if high is not None:
            out = backend.zip(operators.minimum, out, high.raw)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, low, high = ctx.saved_tensors
        _, need_low, need_high = ctx.needs_input_grad
        to_low = to_high = None
        raised = a if low is None else maximum(a, low).detach()
        if high is not None:
            above = raised > high
            if need_high:
                to_high = unbroadcast(grad.masked_fill(~above, 0.0), high.shape)
            grad = grad.masked_fill(above, 0.0)
        if low is not None:
            below = a < low
            if need_low:
                to_low = unbroadcast(grad.masked_fill(~below, 0.0), low.shape)
            grad = grad.masked_fill(below, 0.0)
        return unbroadcast(grad, a.shape), to_low, to_high


def _share(
    grad: Tensor, a: Tensor, b: Tensor, a_loses: Tensor, b_loses: Tensor
) -> tuple[Any, ...]:
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
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
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


def maximum(input: Tensor, other: Any) -> Tensor:
    """The larger of each pair."""
    return Maximum.apply(*operands("maximum", input, other))


def minimum(input: Tensor, other: Any) -> Tensor:
    """The smaller of each pair."""
    return Minimum.apply(*operands("minimum", input, other))


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Values below `min` raised to it, those above `max` lowered to it.

    The gradient passes where the value was in [min, max].
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    low = high = None
    if min is not None:
        input, low = operands("clamp", input, min)
    if max is not None:
        input, high = operands("clamp", input, max)
        low = low if low is None else cast(low, input.raw.storage.dtype)
    return Clamp.apply(input, low, high)


clip = clamp


def where(condition: Tensor, input: Any, other: Any) -> Tensor:
    """input where the bool tensor `condition` holds, else other, also numbers."""
    condition = only_bool("where", condition)
    if not is_tensor(input) and not is_tensor(other):
        kind = dtypes.promote(dtypes.infer(input), dtypes.infer(other))
        input = scalar_like(condition, input, kind)
        other = scalar_like(condition, other, kind)
    return _where(condition, *operands("where", input, other))


def _where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    check_same_device("where", condition, a)
    shape = condition.raw.shape
    if not shape == a.raw.shape == b.raw.shape:
        check_broadcast("where", shape, a.raw.shape, b.raw.shape)
    return Where.apply(condition, a, b)


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a tensor without dims, where the mask holds, else input.

    The dtype stays; what does not fit into it is an error.
    """
    checked_tensor("masked_fill", input)
    mask = only_bool("masked_fill", mask)
    return _where(mask, filler(input, value), input)
