"""Operations that fold dimensions away: sums, products, extremes and scans.

With this file one can see how the gradient of a reduction spreads back over what was
folded. A backend keeps the folded dims as 1; they are dropped here.

Behind the classes stand the functions that users call. They fold one dim, several, or
all (None), which are dropped from the shape, or kept as 1 where `keepdim` is set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.arguments import (
    check_floating,
    dim_in,
    not_empty,
    numpy_names,
    reduced_dims,
)
from minitorch.dtypes import DType
from minitorch.function import Context, Function
from minitorch.functions.autocasting import in_float32
from minitorch.functions.operands import cast, checked_tensor, to_counting, to_floating
from minitorch.tensor_data import TensorData, without

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Dims = tuple[int, ...]
Dim: TypeAlias = int | Sequence[int] | None


def dropped(a: TensorData, dims: Dims) -> TensorData:
    """A view of `a` without `dims`, each of which has size 1."""
    return TensorData(a.storage, without(a.shape, dims))


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
        out = a.backend.mean(a.raw, dims, count)
        ctx.shapes, ctx.count = (a.raw.shape, out.shape), count
        return out if keepdim else dropped(out, dims)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        shape, kept = ctx.shapes
        share = grad / ctx.count
        return share.reshape(kept).expand(shape), None, None, None


class Var(Function):
    """The squared distances from the mean over `dims`, by `divisor`, or their root.

    d/da = 2 (a - mean) / divisor: the mean's own share is 0, as distances add up to 0.
    Of the root it is taken to be 0, not infinite, where the root is 0.
    """

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, dims: Dims, keepdim: bool, count: int, divisor: float,
        rooted: bool,
    ) -> Any:  # fmt: skip
        run = a.backend.std if rooted else a.backend.var
        out = run(a.raw, dims, count, divisor)
        ctx.kept, ctx.dims, ctx.divisor = out.shape, dims, divisor
        out = out if keepdim else dropped(out, dims)
        ctx.save_for_backward(a, out if rooted else None)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, out = ctx.saved_tensors
        if out is not None:
            grad = grad / (2.0 * out.masked_fill(out == 0, operators.inf))
        share = grad.reshape(ctx.kept) / (0.5 * ctx.divisor)
        for _ in range(2):  # the second time what the first one's rounding has left
            a = a - mean(a, ctx.dims, keepdim=True)
        return share * a, *[None] * 5


class Folded(Function):
    """A fold over `dims` that a backend has by `name`; saves a and the result, whose
    shape with the dims is `ctx.kept`."""

    name: str

    @classmethod
    def forward(cls, ctx: Context, a: Tensor, dims: Dims, keepdim: bool) -> Any:
        out = getattr(a.backend, cls.name)(a.raw, dims)
        ctx.kept = out.shape
        out = out if keepdim else dropped(out, dims)
        ctx.save_for_backward(a, out)
        return out


class VectorNorm(Folded):
    """sqrt(sum(a^2)) over `dims`; d/da = a / out, taken to be 0 where out is 0."""

    name = "vector_norm"

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, out = ctx.saved_tensors
        out, grad = out.reshape(ctx.kept), grad.reshape(ctx.kept)
        share = grad / out.masked_fill(out == 0, operators.inf)
        return share * a, None, None


class LogSumExp(Folded):
    """log(sum(exp(a))) over `dims`; d/da = exp(a - out)"""

    name = "logsumexp"

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, out = ctx.saved_tensors
        share = (a - out.reshape(ctx.kept)).exp()
        return grad.reshape(ctx.kept) * share, None, None


class Prod(Function):
    """The product over one dim; d/da_i is the product of the others.

    The others are multiplied from both ends, so that zeros are no special case, but
    for one: a zero among factors whose product overflows.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, keepdim: bool) -> Any:
        ctx.save_for_backward(a)
        ctx.dim = dim
        out = a.backend.reduce(operators.mul, a.raw, (dim,), 1)
        ctx.kept = out.shape
        return out if keepdim else dropped(out, (dim,))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (a,) = ctx.saved_tensors
        dim: int = ctx.dim
        if not a.shape[dim]:
            return a.new_zeros(a.shape), None, None
        left = shifted(a.cumprod(dim), dim, 1, 1.0)
        right = shifted(a.flip(dim).cumprod(dim), dim, 1, 1.0).flip(dim)
        others = left * right
        zero = (a == 0).long()
        with_zero = zero.sum(dim, keepdim=True) > zero  # among the others
        overflow = others.isnan() & with_zero & (a == a).all(dim, keepdim=True)
        others = others.masked_fill(overflow, 0.0)
        return grad.reshape(ctx.kept) * others, None, None


class Extreme(Function):
    """The maximum or minimum over `dims`; equal winners share the gradient."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, fn: Callable, dims: Dims, start: float, keepdim: bool
    ) -> Any:
        out = a.backend.reduce(fn, a.raw, dims, start)
        ctx.dims, ctx.kept = dims, out.shape
        out = out if keepdim else dropped(out, dims)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        a, out = ctx.saved_tensors
        out, grad = out.reshape(ctx.kept), grad.reshape(ctx.kept)
        wins = ((a == out) | (a.isnan() & out.isnan())).to(grad.dtype)
        share = wins / wins.sum(ctx.dims, keepdim=True)
        return grad * share, None, None, None, None


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


class Cumprod(Function):
    """out_i = a_0 * ... * a_i; d/da_i is out_(i-1) * s_i, where s runs from the end:

        s_i = grad_i + a_(i+1) * s_(i+1)

    in log2(n) steps: behind step k, s_i has the gradients of 2^k outputs, and w_i is
    the product of the next 2^k factors. So zeros are no special case.

    Source: Blelloch, "Prefix sums and their applications", 1990 (recurrences).
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        ctx.dim, out = dim, a.backend.cumprod(a.raw, dim)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (a, out), dim = ctx.saved_tensors, ctx.dim
        if not a.shape[dim]:
            return grad, None
        s, w, step = grad, shifted(a, dim, -1, 0.0), 1
        while step < a.shape[dim]:
            s = s + w * shifted(s, dim, -step, 0.0)
            w = w * shifted(w, dim, -step, 0.0)
            step *= 2
        return shifted(out, dim, 1, 1.0) * s, None


def shifted(a: Tensor, dim: int, step: int, value: float) -> Tensor:
    """out_i = a_(i - step) along `dim`, and `value` where there is no such element."""
    return a.pad((0, 0) * (a.dim() - 1 - dim) + (step, -step), value)


def lowest(dtype: DType) -> float:
    """The identity of `maximum`."""
    return _bounds(dtype)[0]


def highest(dtype: DType) -> float:
    """The identity of `minimum`."""
    return _bounds(dtype)[1]


@lru_cache
def _bounds(dtype: DType) -> tuple[float, float]:
    if dtype.is_floating_point:
        return -operators.inf, operators.inf
    if dtype is dtypes.bool_:
        return False, True
    bits = 8 * dtype.itemsize - 1
    return -(2**bits), 2**bits - 1


# --------------------------------------------------------------- what users call


@numpy_names
def sum(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The sum over one, several or all (None) dims, of the elements as `dtype`.

    Integers give int64 where no dtype is named.
    """
    if dtype is not None:
        input = cast(checked_tensor("sum", input), dtypes.check(dtype))
    total = to_counting("sum", input)
    out = Sum.apply(total, reduced_dims(input, dim, "sum"), keepdim)
    return out if dtype is None else cast(out, dtype)


@numpy_names
def mean(
    input: Tensor,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The mean over one, several or all dims, of the elements as `dtype`."""
    if dtype is not None:
        input = cast(checked_tensor("mean", input), dtypes.check(dtype))
    check_floating("mean", input)
    dims = reduced_dims(input, dim, "mean")
    return Mean.apply(input, dims, keepdim, _count(input, dims))


def _count(a: Tensor, dims: Dims) -> int:
    """How many elements are folded into one."""
    shape = a.raw.shape
    return math.prod([shape[dim] for dim in dims])


@numpy_names
def var(
    input: Tensor,
    dim: Dim = None,
    *,
    correction: int = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The variance: squared distances from the mean over n - correction."""
    return _var("var", input, dim, correction, keepdim, unbiased)


@numpy_names
def std(
    input: Tensor,
    dim: Dim = None,
    *,
    correction: int = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> Tensor:
    """The square root of the variance."""
    return _var("std", input, dim, correction, keepdim, unbiased)


def _var(
    name: str, a: Tensor, dim: Dim, correction: int, keepdim: bool,
    unbiased: bool | None,
) -> Tensor:  # fmt: skip
    check_floating(name, a)
    correction = correction if unbiased is None else int(bool(unbiased))
    dims = reduced_dims(a, dim, name)
    count = _count(a, dims)
    divisor = float(count - correction if count > correction else 0)
    return Var.apply(a, dims, keepdim, count, divisor, name == "std")


@in_float32
def norm(input: Tensor, p: Any = 2, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The p-norm (1, 2 or inf) over one, several or all dims."""
    check_floating("norm", input)
    if p == 2:
        return VectorNorm.apply(input, reduced_dims(input, dim, "norm"), keepdim)
    if p == 1:
        return sum(input.abs(), dim, keepdim)
    if p == operators.inf:
        return amax(input.abs(), dim, keepdim)
    raise ValueError(f"norm: p is {p!r}; it must be 1, 2 or inf")


@numpy_names
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow."""
    a = to_floating("logsumexp", input)
    return LogSumExp.apply(a, reduced_dims(a, dim, "logsumexp"), keepdim)


@numpy_names
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The product over one or all dims. Integers give int64."""
    a = to_counting("prod", input)
    if dim is None:
        out = Prod.apply(a.reshape(-1), 0, False)
        return out.reshape((1,) * a.dim()) if keepdim else out
    if not isinstance(dim, int):
        raise TypeError(f"prod: dim is {dim!r}; it must be an int or None")
    dims = reduced_dims(a, dim, "prod")
    return Prod.apply(a, *dims, keepdim) if dims else a.clone()


@numpy_names
def amax(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The maximum over one, several or all dims."""
    return _extreme("amax", input, operators.maximum, lowest, dim, keepdim)


@numpy_names
def amin(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The minimum over one, several or all dims."""
    return _extreme("amin", input, operators.minimum, highest, dim, keepdim)


def _extreme(
    name: str, a: Tensor, fn: Callable, start: Callable, dim: Dim, keepdim: bool
) -> Tensor:
    dims = reduced_dims(a, dim, name)
    not_empty(name, a, dims)
    return Extreme.apply(a, fn, dims, start(a.raw.storage.dtype), keepdim)


@numpy_names
def any(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether one element, at least, is not 0."""
    return _fold("any", operators.logical_or, False, input, dim, keepdim)


@numpy_names
def all(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether no element is 0."""
    return _fold("all", operators.logical_and, True, input, dim, keepdim)


def _fold(
    name: str, fn: Callable, start: bool, input: Tensor, dim: Dim, keepdim: bool
) -> Tensor:
    """Fold a function of bools, which has no gradient."""
    # No dims, (), are no dims here, as in PyTorch; elsewhere they are all.
    dims = () if dim in ((), []) else reduced_dims(input, dim, name)
    out = input.backend.reduce(fn, input.raw, dims, start, dtypes.bool_)
    return input.wrap(out if keepdim else dropped(out, dims))


@numpy_names
def cumsum(input: Tensor, dim: int) -> Tensor:
    """Running sums along `dim`. Integers give int64."""
    a = to_counting("cumsum", input)
    dim = dim_in("cumsum", a, dim)
    return Cumsum.apply(a, dim) if a.dim() else a.clone()


@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running products along `dim`, of the elements as `dtype`. Integers give int64."""
    if dtype is not None:
        input = cast(checked_tensor("cumprod", input), dtypes.check(dtype))
    a = to_counting("cumprod", input)
    dim = dim_in("cumprod", a, dim)
    out = Cumprod.apply(a, dim) if a.dim() else a.clone()
    return out if dtype is None else cast(out, dtype)
