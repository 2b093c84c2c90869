"""Operations on three tensors that broadcast, each in one kernel.

With this file one can move from one tensor towards another (`lerp`), and add products
and quotients (`addcmul`, `addcdiv`), as optimizers do. The backend's `zip3` computes
them, and their gradients are tensor operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.arguments import check_floating, not_bool
from minitorch.dtypes import Number
from minitorch.function import Context, Function
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    check_same_device,
    is_tensor,
    type_with_number,
    unbroadcast,
)
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Grads = tuple[Any, ...]


class Lerp(Function):
    """a + weight (end - a); d/da = 1 - weight, d/dend = weight, d/dweight = end - a"""

    @staticmethod
    def forward(ctx: Context, a: Tensor, end: Tensor, weight: Any) -> Any:
        ctx.shapes, ctx.kept = (a.raw.shape, end.raw.shape), weight
        if is_tensor(weight):
            ctx.kept = None
            ctx.save_for_backward(a, end, weight)
        return Lerp.compute(a.raw, end, weight)

    @staticmethod
    def compute(
        a: TensorData, end: Tensor, weight: Any, out: TensorData | None = None
    ) -> TensorData:
        """The values, into `out` if given."""
        backend, share = end.backend, getattr(weight, "raw", None)
        if share is None:
            share = backend.number(weight, a.storage.dtype)
        return backend.zip3(operators.lerp, a, end.raw, share, 1.0, out)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        need_a, need_end, need_weight = ctx.needs_input_grad
        weight: Any = ctx.kept
        a: Any = None
        end: Any = None
        if weight is None:
            a, end, weight = ctx.saved_tensors
        a_shape, end_shape = ctx.shapes
        return (
            unbroadcast(grad * (1.0 - weight), a_shape) if need_a else None,
            unbroadcast(grad * weight, end_shape) if need_end else None,
            unbroadcast(grad * (end - a), weight.shape) if need_weight else None,
        )


class Addcmul(Function):
    """a + value b c"""

    fn: Any = operators.addcmul

    @classmethod
    def forward(
        cls, ctx: Context, a: Tensor, b: Tensor, c: Tensor, value: Number
    ) -> Any:
        ctx.save_for_backward(b, c)
        ctx.shape, ctx.kept = a.raw.shape, value
        return cls.compute(a.raw, b, c, value)

    @classmethod
    def compute(
        cls, a: TensorData, b: Tensor, c: Tensor, value: Number,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """The values, into `out` if given."""
        return b.backend.zip3(cls.fn, a, b.raw, c.raw, value, out)

    @classmethod
    def backward(cls, ctx: Context, grad: Tensor) -> Grads:
        b, c = ctx.saved_tensors
        need_a, *need = ctx.needs_input_grad[:3]
        to_a = unbroadcast(grad, ctx.shape) if need_a else None
        if not any(need):
            return to_a, None, None, None
        slopes = cls.slopes(grad if ctx.kept == 1 else grad * ctx.kept, b, c, need[1])
        given = zip(need, slopes, (b, c))
        to_b, to_c = [unbroadcast(g, t.raw.shape) if n else None for n, g, t in given]
        return to_a, to_b, to_c, None

    @staticmethod
    def slopes(grad: Tensor, b: Tensor, c: Tensor, need_c: bool) -> tuple[Any, Any]:
        """`grad` times the derivatives of b c."""
        return grad * c, grad * b if need_c else None


class Addcdiv(Addcmul):
    """a + value b / c"""

    fn = operators.addcdiv

    @staticmethod
    def slopes(grad: Tensor, b: Tensor, c: Tensor, need_c: bool) -> tuple[Any, Any]:
        over_c = grad / c
        return over_c, -over_c * (b / c) if need_c else None


# ---------------------------------------------------------------- what users call


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input), where the weight is a number or a tensor."""
    return Lerp.apply(*lerp_operands("lerp", input, end, weight))


def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1
) -> Tensor:
    """input + value * tensor1 * tensor2"""
    return Addcmul.apply(*added_operands("addcmul", input, tensor1, tensor2, value))


def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1
) -> Tensor:
    """input + value * tensor1 / tensor2"""
    check_floating("addcdiv", tensor1)
    return Addcdiv.apply(*added_operands("addcdiv", input, tensor1, tensor2, value))


def lerp_operands(name: str, a: Tensor, end: Tensor, weight: Any) -> Grads:
    """Those of `Lerp`, checked: one type, and shapes that broadcast."""
    third = weight if is_tensor(weight) else end
    check_alike(name, check_floating(name, a), end, third)
    if third is end:
        type_with_number(name, a, weight)
    _check_shapes(name, a, end, third)
    return a, end, weight


def added_operands(name: str, a: Tensor, b: Tensor, c: Tensor, value: Number) -> Grads:
    """Those of `Addcmul` and `Addcdiv`, brought to one type."""
    check_same_device(name, a, b, c)
    x, y, z = a.raw, not_bool(name, b).raw, c.raw
    kind = x.storage.dtype
    if not kind is y.storage.dtype is z.storage.dtype:
        other = dtypes.result_type(y.dtype, y.dims, z.dtype, z.dims)
        kind = dtypes.result_type(kind, x.dims, other, max(y.dims, z.dims))
        a, b, c = (cast(t, kind) for t in (a, b, c))
    if type(value) is int and value == 1:  # as it mostly is; no tensor is compared
        value = 1.0 if kind.category == 2 else 1
    elif type_with_number(name, a, value) is not kind:
        raise TypeError(
            f"{name}: value is {value}, and the operands are {kind.name}; it must be "
            f"an int for them"
        )
    else:
        value = dtypes.check_number(value, kind)
        value = float(value) if kind.category == 2 else value
    _check_shapes(name, a, b, c)
    return a, b, c, value


def _check_shapes(name: str, a: Tensor, b: Tensor, c: Tensor) -> None:
    if not a.raw.shape == b.raw.shape == c.raw.shape:
        check_broadcast(name, a.raw.shape, b.raw.shape, c.raw.shape)
