"""Which element is the largest, and in which order all of them are.

With this file one can find extremes and sort. Where an element is has no gradient; the
values are gathered from there, and their gradients go back to these places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitorch.arguments import dim_in, dims_of, not_bool, not_empty, reduced_dims
from minitorch.functions.choice import maximum, minimum
from minitorch.functions.indexing import Gather
from minitorch.functions.operands import checked_tensor, is_tensor
from minitorch.functions.reduce import amax, amin, drop

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class ValuesIndices(tuple):
    """The pair (values, indices) with names."""

    __slots__ = ()

    def __new__(cls, values: Tensor, indices: Tensor) -> ValuesIndices:
        return super().__new__(cls, (values, indices))

    @property
    def values(self) -> Tensor:
        return self[0]

    @property
    def indices(self) -> Tensor:
        return self[1]


def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The maximum; with a dim, the pair (values, indices); or maximum(other)."""
    if is_tensor(dim):
        return maximum(input, dim)
    if dim is None:
        return amax(checked_tensor("max", input))
    return _pick("max", input, _arg("argmax", input, dim, True), dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The minimum; with a dim, the pair (values, indices); or minimum(other)."""
    if is_tensor(dim):
        return minimum(input, dim)
    if dim is None:
        return amin(checked_tensor("min", input))
    return _pick("min", input, _arg("argmin", input, dim, True), dim, keepdim)


def _pick(name: str, a: Tensor, index: Tensor, dim: Any, keepdim: bool) -> Any:
    if a.dim() == 0:
        return ValuesIndices(a.clone(), index)
    dims = reduced_dims(a, dim, name)
    values = Gather.apply(a, dims[0], index)
    return ValuesIndices(drop(values, dims, keepdim), drop(index, dims, keepdim))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the (first) maximum is, along a dim or in the flattened tensor."""
    return _arg("argmax", not_bool("argmax", input), dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the (first) minimum is, along a dim or in the flattened tensor."""
    return _arg("argmin", not_bool("argmin", input), dim, keepdim)


def _arg(name: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    dims = dims_of(name, input)
    a = input.detach()
    if dim is not None:
        dim = dim_in(name, input, dim)
    flat = dim is None or dims == 0
    if dim is None or flat:
        a, dim = a.reshape(-1), 0
    not_empty(name, a, (dim,))
    fn = a.backend.argmax if name == "argmax" else a.backend.argmin
    out = a.wrap(fn(a.raw, dim))
    if flat:
        return out.reshape((1,) * dims if keepdim else ())
    return drop(out, (dim,), keepdim)


def sort(input: Tensor, dim: int = -1, descending: bool = False) -> ValuesIndices:
    """Sorted values along `dim`, and where they were; the sort is stable."""
    dim = dim_in("sort", input, dim)
    if input.dim() == 0:
        return ValuesIndices(input.clone(), input.new_tensor(0))
    _, order = input.backend.sort(input.raw, dim, bool(descending))
    index = input.wrap(order)
    return ValuesIndices(Gather.apply(input, dim, index), index)


def argsort(input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The order that sorts `dim`."""
    dims_of("argsort", input)
    return sort(input.detach(), dim, descending).indices


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True) -> ValuesIndices:
    """The k largest (or smallest) along `dim`, best first, and where they were."""
    size = input.size(dim) if dims_of("topk", input) else 1
    if not 0 <= k <= size:
        raise ValueError(
            f"topk: k is {k}; it must be from 0 to the size of dimension {dim}, {size}"
        )
    values, indices = sort(not_bool("topk", input), dim, largest)
    if input.dim() == 0:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.narrow(dim, 0, k), indices.narrow(dim, 0, k))
