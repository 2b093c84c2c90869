"""Which element is the largest, and in which order all of them are.

With this file one can find extremes, sort and count. Where an element is has no
gradient; the values are gathered from there, and their gradients go back to these
places.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.arguments import dim_in, dims_of, not_bool, not_empty, numpy_names
from minitorch.executor import host_read
from minitorch.function import Context, Function
from minitorch.functions.choice import maximum, minimum
from minitorch.functions.indexing import ScatterAdd, number_range
from minitorch.functions.operands import (
    cast,
    check_same_device,
    checked_tensor,
    is_tensor,
)
from minitorch.functions.reduce import Extreme, amax, amin, dropped
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class ValuesIndices(tuple):
    """The pair (values, indices) with names."""

    __slots__ = ()

    def __new__(cls, values: Tensor, indices: Tensor) -> ValuesIndices:
        return super().__new__(cls, (values, indices))

    values, indices = property(itemgetter(0)), property(itemgetter(1))


class Pick(Function):
    """The extreme along `dim`, or (None) the median, and where it is; it gets the whole
    gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, largest: Any, keepdim: bool) -> Any:
        if largest is None:
            values, index = a.backend.median(a.raw, dim)
        else:
            values, index = a.backend.extreme(a.raw, dim, largest)
        ctx.save_for_backward(a.wrap(index))
        ctx.dim, ctx.shape = dim, a.raw.shape
        if keepdim:
            return values, index
        return dropped(values, (dim,)), dropped(index, (dim,))

    @staticmethod
    def backward(ctx: Context, grad: Tensor, _: Any = None) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        zeros, there = grad.new_zeros(ctx.shape), grad.reshape(index.raw.shape)
        return ScatterAdd.apply(zeros, ctx.dim, index, there), None, None, None


class Ordered(Pick):
    """The first k of a sort along `dim`, and where they are; these get the gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, descending: bool, k: int) -> Any:
        values, index = a.backend.topk(a.raw, k, dim, descending)
        ctx.save_for_backward(index)
        ctx.dim, ctx.shape = dim, a.raw.shape
        return values, index


class Median(Function):
    """The middle one of all elements; those that equal it share the gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Any:
        out = dropped(a.backend.median(flat(a), 0)[0], (0,))
        ctx.dims, ctx.kept = tuple(range(a.dim())), (1,) * a.dim()
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Any:
        return Extreme.backward(ctx, grad)[0]


def flat(a: Tensor) -> TensorData:
    """All elements of `a` in a line."""
    raw = a.raw
    line = raw if raw.contiguous else a.backend.copy(raw, raw.storage.dtype)
    return TensorData(line.storage, (raw.size,), None, line.offset)


@numpy_names
def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The maximum; with a dim, the pair (values, indices); or maximum(other)."""
    if dim is None:
        return amax(checked_tensor("max", input))
    if is_tensor(dim):
        return maximum(input, dim)
    return _pick("max", input, dim, keepdim, True)


@numpy_names
def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The minimum; with a dim, the pair (values, indices); or minimum(other)."""
    if dim is None:
        return amin(checked_tensor("min", input))
    if is_tensor(dim):
        return minimum(input, dim)
    return _pick("min", input, dim, keepdim, False)


def _pick(name: str, a: Tensor, dim: Any, keepdim: bool, largest: bool | None) -> Any:
    dim = dim_in(name, a, dim)
    if not a.raw.shape:
        return ValuesIndices(a.clone(), a.new_tensor(0, dtypes.int64))
    not_empty(name, a, (dim,))
    return ValuesIndices(*Pick.apply(a, dim, largest, keepdim))


@numpy_names
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the (first) maximum is, along a dim or in the flattened tensor."""
    return _arg("argmax", not_bool("argmax", input), dim, keepdim, True)


@numpy_names
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the (first) minimum is, along a dim or in the flattened tensor."""
    return _arg("argmin", not_bool("argmin", input), dim, keepdim, False)


def _arg(
    name: str, input: Tensor, dim: int | None, keepdim: bool, largest: bool
) -> Tensor:
    dims, whole = dims_of(name, input), dim is None
    dim = dim_in(name, input, 0 if dim is None else dim)
    not_empty(name, input, range(dims) if whole else (dim,))
    a, backend = input.raw, input.backend
    if whole:
        a, dim = flat(input), 0
    out = backend.argmax(a, dim) if largest else backend.argmin(a, dim)
    if whole:
        return input.wrap(TensorData(out.storage, (1,) * dims if keepdim else ()))
    return input.wrap(out if keepdim or not dims else dropped(out, (dim,)))


@numpy_names
def sort(input: Tensor, dim: int = -1, descending: bool = False) -> ValuesIndices:
    """Sorted values along `dim`, and where they were; the sort is stable."""
    dim = dim_in("sort", input, dim)
    if input.dim() == 0:
        return ValuesIndices(input.clone(), input.new_tensor(0, dtypes.int64))
    size = input.raw.shape[dim]
    return ValuesIndices(*Ordered.apply(input, dim, bool(descending), size))


@numpy_names
def argsort(input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The order that sorts `dim`."""
    dims_of("argsort", input)
    return sort(input.detach(), dim, descending).indices


@numpy_names
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The k largest (or smallest) along `dim`, and where they were.

    They come best first, which is more than `sorted=False` asks for.
    """
    size = input.size(dim) if dims_of("topk", input) else 1
    if not 0 <= k <= size:
        raise ValueError(
            f"topk: k is {k}; it must be from 0 to the size of dimension {dim}, {size}"
        )
    if not_bool("topk", input).dim() == 0:
        return sort(input)
    dim = dim_in("topk", input, dim)
    return ValuesIndices(*Ordered.apply(input, dim, bool(largest), k))


@numpy_names
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle number, the lower of two, or NaN where there is one.

    With a dim, the pair (values, indices).
    """
    not_bool("median", input)
    if dim is not None:
        return _pick("median", input, dim, keepdim, None)
    not_empty("median", input, range(input.dim()))
    return Median.apply(input)


def bincount(
    input: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """How often each number from 0 on is there: int64 [n] -> [max + 1], int64.

    Args:
        weights: [n], to be added up in place of 1; float32, or as float64. They have
            no gradient.
        minlength: how many numbers there are at least.
    """
    raw, backend = checked_tensor("bincount", input).raw, input.backend
    whole = raw.dtype.category == 1
    low, high = number_range(input) if whole else (0, -1)
    if raw.dims != 1 or low < 0 or minlength < 0 or not whole:
        raise ValueError(
            f"bincount: the input is {raw.shape} of {raw.dtype.name}, its lowest "
            f"number {low} and minlength {minlength}; expected one dimension of whole "
            f"numbers, none below 0"
        )
    if weights is None:
        counted = backend.full(raw.shape, 1, dtypes.int64)
    else:
        check_same_device("bincount", input, weights)
        same = weights.dtype is dtypes.float32
        counted = weights.raw if same else weights.detach().double().raw
    if counted.shape != raw.shape:
        raise ValueError(
            f"bincount: the weights are {counted.shape} and the input {raw.shape}; "
            f"expected one weight for each number"
        )
    n = high + 1 if high >= minlength else minlength
    zeros = backend.full((n,), 0, counted.storage.dtype)
    index = cast(input, dtypes.int64).raw
    return input.wrap(backend.scatter_add(zeros, 0, index, counted, zeros))


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """The different elements in one dim, the smallest first, without a gradient.

    They come sorted, which is more than `sorted=False` asks for.

    Args:
        return_inverse: also where each element of the input is among them.
        return_counts: also how often each is there.
    """
    values = host_read("unique()", checked_tensor("unique", input).raw)
    asked: Any = {"return_inverse": return_inverse, "return_counts": return_counts}
    found = np.unique(values, equal_nan=False, **asked)
    arrays = list(found) if return_inverse or return_counts else [found]
    if return_inverse:
        arrays[1] = arrays[1].reshape(values.shape)
    made = [input.wrap(input.backend.from_numpy(array)) for array in arrays]
    return made[0] if len(made) == 1 else tuple(made)
