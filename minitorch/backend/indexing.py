"""Whole slices: by their numbers, and one tensor's after another's.

With this file a backend selects slices (`index_select`) and adds to them (`index_add`),
made of `gather` and `scatter_add`: the number of a slice is the index of each of its
elements. It overwrites single elements (`scatter`), which are slices of a line. And it
copies tensors together (`cat`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.backend.primitives import Primitives
from minitorch.tensor_data import Shape, TensorData


class Indexing(Primitives):
    """Defaults for the slices of a dimension."""

    def cat(self, tensors: Sequence[TensorData], dim: int) -> TensorData:
        """[A, *], [B, *], ... -> [A + B + ..., *] for dim = 0; all of one dtype."""
        out, start = self.empty(cat_shape(tensors, dim), tensors[0].dtype), 0
        for a in tensors:
            self.copy_into(out.slice(dim, start, a.shape[dim]), a)
            start += a.shape[dim]
        return out

    def roll(
        self, a: TensorData, shifts: Sequence[int], dims: Sequence[int]
    ) -> TensorData:
        """A copy with elements moved on along `dims`; what falls off comes in again."""
        out = a
        for shift, dim in zip(shifts, dims):
            size = out.shape[dim]
            first = -shift % size if size else 0
            if first:  # the element that becomes the first one
                parts = out.slice(dim, first, size - first), out.slice(dim, 0, first)
                out = self.cat(parts, dim)
        return self.copy(out, a.dtype) if out is a else out

    def extreme(
        self, a: TensorData, dim: int, largest: bool
    ) -> tuple[TensorData, TensorData]:
        """The first maximum or minimum along `dim` (kept as 1), and where it is."""
        index = self.argmax(a, dim) if largest else self.argmin(a, dim)
        return self.gather(a, dim, index), index

    def topk(
        self, a: TensorData, k: int, dim: int, largest: bool
    ) -> tuple[TensorData, TensorData]:
        """The first k of a sort along `dim`, and their int64 positions."""
        values, index = self.sort(a, dim, largest)
        if k == a.shape[dim]:
            return values, index
        values, index = values.slice(dim, 0, k), index.slice(dim, 0, k)
        return self.copy(values, a.dtype), self.copy(index, index.dtype)

    def median(self, a: TensorData, dim: int) -> tuple[TensorData, TensorData]:
        """The middle one along `dim` (kept as 1), of two the lower, and where it is.

        The first NaN where there is one; of equals, what a stable sort puts there.
        """
        values, places = self.sort(a, dim, False)
        last = a.shape[dim] - 1  # where a NaN is now
        unknown = self.map(operators.isnan, values.slice(dim, last, 1), dtypes.bool_)
        middle = places.slice(dim, last // 2, 1)
        index = self.where(unknown, self.argmax(a, dim), middle)
        return self.gather(a, dim, index), index

    def scatter(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """A copy of a with out[index[i, j], j] = src[i, j] for dim = 0, of which the
        last one wins; a itself, if it is `out`, which has no gaps."""
        out = self.copy(a, a.dtype) if out is None else out
        size, given = out.size, self.copy(cropped(src, -1, index.shape), src.dtype)
        numbers = self.arange(0, 1, size, dtypes.int64, size - 1).storage
        with renamed("gather", "scatter"):
            places = self.gather(TensorData(numbers, out.shape), dim, index)
        line, where, put = (
            TensorData(x.storage, (x.size,), None, x.offset)
            for x in (out, places, given)
        )
        self.index_copy_(line, 0, where, put)
        return out

    def index_select(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """The slices `index` [n] of `dim`, in that order. IndexError as in gather."""
        shape = (*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :])
        with renamed("gather", "index_select"):
            self._check_slices(a, dim, index)
            return self.gather(a, dim, repeated(index, dim, shape))

    def index_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """A copy of a with src's slice i added to slice index[i] of `dim`; a itself, if
        it is `out`, which has no gaps."""
        with renamed("gather", "index_add"):
            self._check_slices(a, dim, index)
        with renamed("scatter_add", "index_add"):
            made = self.scatter_add(a, dim, repeated(index, dim, src.shape), src)
        return self.into(out, made)

    def _check_slices(self, a: TensorData, dim: int, index: TensorData) -> None:
        """Empty slices have no elements whose index could be found to be wrong."""
        if a.size == 0:
            self.gather(self.full(a.shape[dim : dim + 1], 0, a.dtype), 0, index)


def cat_shape(tensors: Sequence[TensorData], dim: int) -> Shape:
    """The shape of tensors one after the other along `dim`."""
    shape, size = tensors[0].shape, 0
    for a in tensors:
        size += a.shape[dim]
    return (*shape[:dim], size, *shape[dim + 1 :])


def index_error(name: str, index: int, dim: int, size: int) -> IndexError:
    """The error of all backends for an index that is not in [0, size)."""
    allowed = f"from 0 to {size - 1}" if size else "none fits"
    return IndexError(
        f"{name}: index {index} is outside dimension {dim}, which has {size} "
        f"element(s); allowed: {allowed}"
    )


@contextmanager
def renamed(primitive: str, name: str) -> Iterator[None]:
    """Let an IndexError of a primitive speak of the function that was called."""
    try:
        yield
    except IndexError as error:
        raise IndexError(str(error).replace(primitive, name, 1)) from None


def repeated(index: TensorData, dim: int, shape: Shape) -> TensorData:
    """index [n] as a view of `shape`, in which every line along `dim` is `index`."""
    strides = tuple(index.strides[0] if d == dim else 0 for d in range(len(shape)))
    return TensorData(index.storage, shape, strides, index.offset)


def line_of(a: TensorData) -> TensorData:
    """A tensor without dimensions as one of shape (1,)."""
    return TensorData(a.storage, (1,), (1,), a.offset)


def cropped(a: TensorData, dim: int, shape: Shape) -> TensorData:
    """a's first shape[i] indices of every dimension but `dim` (-1: of all)."""
    if a.shape == shape:
        return a
    for i in range(a.dims):
        if i != dim and a.shape[i] != shape[i]:
            a = a.slice(i, 0, shape[i])
    return a
