"""Operations that choose, for each element, one of two numbers.

With this file one can see where a gradient goes that had a choice: to the number that
was taken. Operands broadcast; the result has their common shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.arguments import dims_of, filler, only_bool
from minitorch.dtypes import DType, Number
from minitorch.function import Context, Function
from minitorch.functions.indexing import nonzero
from minitorch.functions.operands import (
    cast,
    check_broadcast,
    check_same_device,
    checked_tensor,
    is_tensor,
    operands,
    scalar_like,
    type_with_number,
    unbroadcast,
)

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Maximum(Function):
    """The larger of a and b gets the gradient; equal ones share it.

    Where one is NaN neither is larger, and both get all of it, as in PyTorch.
    """

    choose = staticmethod(operators.maximum)

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        function: Any = ctx.function
        return a.backend.zip(function.choose, a.raw, b.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        lost = (a < b, b < a) if ctx.function is Maximum else (b < a, a < b)
        grad = grad * (1.0 - 0.5 * (a == b).to(grad.dtype))
        return (
            unbroadcast(grad.masked_fill(lost[0], 0.0), a.shape),
            unbroadcast(grad.masked_fill(lost[1], 0.0), b.shape),
        )


class Minimum(Maximum):
    """The smaller of a and b gets the gradient; equal ones share it."""

    choose = staticmethod(operators.minimum)


class Clamp(Function):
    """a between two numbers, or None; the gradient passes where a stays itself."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, low: Number | None, high: Number | None
    ) -> Any:
        ctx.save_for_backward(a)
        ctx.bounds = low, high
        return a.backend.clamp(a.raw, low, high)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (a,), bounds = ctx.saved_tensors, ctx.bounds
        backend, zero = a.backend, grad.new_zeros(())
        out = backend.clamp(a.raw, *bounds)
        inside = a.wrap(backend.zip(operators.eq, a.raw, out, dtypes.bool_))
        if None not in bounds and bounds[0] > bounds[1]:
            inside = inside & False  # all are `high`, and it is nobody's own number
        return Where.apply(inside, grad, zero), None, None


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

    The gradient passes where the value was in [min, max]. (From PyTorch 2.14 on it does
    not at bounds that are numbers.)
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    dtype = clamped_type(input, min, max)
    if dtype is not None:
        return Clamp.apply(cast(input, dtype), min, max)
    if min is not None:
        input, low = operands("clamp", input, min)
        input = _where((input < low) | (low != low), low, input)
    if max is not None:
        input, high = operands("clamp", input, max)
        input = _where((input > high) | (high != high), high, input)
    return input


NUMBERS = frozenset((int, float, type(None)))


def clamped_type(a: Tensor, *bounds: Any) -> DType | None:
    """The type of `clamp` between numbers, one at least; None if one is a tensor."""
    dims_of("clamp", a)  # an error where it is no tensor
    dtype = a.raw.storage.dtype
    if not NUMBERS.issuperset(map(type, bounds)):
        return None
    for number in bounds if dtype.category < 2 else ():  # else none changes it
        if number is not None:
            dtype = dtypes.promote(dtype, type_with_number("clamp", a, number))
            dtypes.check_number(number, dtype)
    return dtype


clip = clamp


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where the bool tensor `condition` holds, else other, also numbers.

    With `condition` alone the places where it holds, as `nonzero(as_tuple=True)`.
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
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
