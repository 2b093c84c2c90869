"""Operations that fold dimensions away: sums, products, extremes and scans.

With this file one can see how the gradient of a reduction spreads back over what was
folded. A backend keeps the folded dims as 1; they are dropped here, or in `Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minitorch import dtypes, operators
from minitorch.dtypes import DType
from minitorch.function import Context, Function
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Dims = tuple[int, ...]


def dropped(a: TensorData, dims: Dims) -> TensorData:
    """A view of `a` without `dims`, each of which has size 1."""
    if len(dims) == len(a.shape):
        return TensorData(a.storage, ())
    shape = tuple([n for i, n in enumerate(a.shape) if i not in dims])
    return TensorData(a.storage, shape)


# BEGIN SOLUTION a2.4
class Sum(Function):
    """The sum over `dims`."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dims: Dims, keepdim: bool) -> Any:
        out = a.backend.reduce(operators.add, a.raw, dims, 0)
        ctx.shapes = a.raw.shape, out.shape
        return out if keepdim else dropped(out, dims)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        # Every summand gets the gradient of the sum.
        shape, kept = ctx.shapes
        return grad.reshape(kept).expand(shape), None, None


# END SOLUTION a2.4


class Mean(Function):
    """The sum over `dims` by `count`; every summand gets its share of the gradient."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, dims: Dims, keepdim: bool, count: float
    ) -> Any:
        backend = a.backend
        out = backend.reduce(operators.add, a.raw, dims, 0)
        ctx.shapes, ctx.count = (a.raw.shape, out.shape), count
        divisor = backend.full((), count, out.dtype)
        backend.zip(operators.div, out, divisor, None, out)
        return out if keepdim else dropped(out, dims)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        shape, kept = ctx.shapes
        share = grad / ctx.count
        return share.reshape(kept).expand(shape), None, None, None


class Prod(Function):
    """The product over one dim; d/da_i is the product of the others.

    The others are multiplied from both ends, so that zeros are no special case, but
    for one: a zero among factors whose product overflows.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        ctx.save_for_backward(a)
        ctx.dim = dim
        return a.backend.reduce(operators.mul, a.raw, (dim,), 1)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (a,) = ctx.saved_tensors
        dim: int = ctx.dim
        if not a.shape[dim]:
            return a.new_zeros(a.shape), None
        parts = a.split(1, dim)
        left = [a.new_ones(parts[0].shape)]
        right = left[:]
        for first, last in zip(parts[:-1], parts[:0:-1]):
            left.append(left[-1] * first)
            right.append(right[-1] * last)
        others = a.cat(left, dim) * a.cat(right[::-1], dim)
        zero = (a == 0).long()
        with_zero = zero.sum(dim, keepdim=True) > zero  # among the others
        overflow = others.isnan() & with_zero & (a == a).all(dim, keepdim=True)
        return grad * others.masked_fill(overflow, 0.0), None


class Extreme(Function):
    """The maximum or minimum over `dims`; equal winners share the gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, fn: Callable, dims: Dims, start: float) -> Any:
        out = a.backend.reduce(fn, a.raw, dims, start)
        ctx.save_for_backward(a, out)
        ctx.dims = dims
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, out = ctx.saved_tensors
        wins = ((a == out) | (a.isnan() & out.isnan())).to(grad.dtype)
        share = wins / wins.sum(ctx.dims, keepdim=True)
        return grad * share, None, None, None


class Cumsum(Function):
    """out_i = a_0 + ... + a_i; a_i gets the gradients of out_i and all after it."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        ctx.dim = dim
        return a.backend.cumsum(a.raw, dim)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        dim: int = ctx.dim
        return grad.flip(dim).cumsum(dim).flip(dim), None


def lowest(dtype: DType) -> float:
    """The identity of `maximum`."""
    return _bounds(dtype)[0]


def highest(dtype: DType) -> float:
    """The identity of `minimum`."""
    return _bounds(dtype)[1]


def _bounds(dtype: DType) -> tuple[float, float]:
    if dtype.is_floating_point:
        return -operators.inf, operators.inf
    if dtype is dtypes.bool_:
        return False, True
    bits = 8 * dtype.itemsize - 1
    return -(2**bits), 2**bits - 1


def fold(fn: Callable, a: Tensor, dims: Sequence[int], start: float) -> Tensor:
    """Fold a function without a gradient: `any` and `all`."""
    return a.wrap(a.backend.reduce(fn, a.raw, tuple(dims), start, dtypes.bool_))
