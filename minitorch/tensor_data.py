"""How a tensor lies in memory: a flat storage, and a window of strides onto it.

With this file one can view the same numbers in many shapes without copying them. A
`TensorData` is four things:

    storage   one flat array that any number of views share
    shape     the size of each dimension                     (2, 3)
    strides   storage elements from one index to the next    (3, 1)
    offset    the storage position of the first element       0

so that the element at index (i, j) lies at `offset + i * strides[0] + j * strides[1]`.
`permute`, `expand`, `select`, `narrow` and `view` only write new numbers into that
table; no element moves. Backends take and return `TensorData`; there is no gradient
and no arithmetic here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from minitorch.dtypes import DType

Shape = tuple[int, ...]
Strides = tuple[int, ...]
_new = object.__new__


class Storage:
    """The flat memory behind one or more tensors.

    Attributes:
        array: a one-dimensional array; NumPy's on the CPU, a device array on a GPU.
        dtype: the element type.
        device: the name of the backend that owns the memory, "cpu" for example.
        version: how often the memory was written in place; saved tensors check it.
        shared: whether this, as a gradient, may have several holders; only
            `minitorch.autodiff.mark_shared` writes it.
    """

    __slots__ = (
        "__weakref__",
        "array",
        "device",
        "dtype",
        "rebased",
        "shared",
        "version",
    )

    def __init__(self, array: Any, dtype: DType, device: str) -> None:
        self.array = array
        self.dtype = dtype
        self.device = device
        self.version = 0
        self.rebased = -1  # version at which a recorded in-place operation wrote here
        self.shared = False


# BEGIN SOLUTION a2.1
@lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape) -> Strides:
    """The strides of a tensor that lies row by row, without gaps.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def index_to_position(index: Sequence[int], strides: Strides, offset: int = 0) -> int:
    """The storage position of the element at `index`.

    >>> index_to_position((1, 2), (3, 1))
    5
    """
    position = offset
    for i, stride in zip(index, strides):
        position += i * stride
    return position


def position_to_index(ordinal: int, shape: Shape) -> Shape:
    """The index of element number `ordinal` in row-major order.

    >>> position_to_index(5, (2, 3))
    (1, 2)
    """
    index = []
    for size in reversed(shape):
        ordinal, i = divmod(ordinal, size)
        index.append(i)
    return tuple(reversed(index))


# END SOLUTION a2.1


class _Layouts(dict[Shape, tuple[int, Strides]]):
    """How many elements a shape has, and its strides without gaps: for 4096 shapes.

    Every new tensor asks for both, so that they are looked up, and in one place.
    """

    def __missing__(self, shape: Shape) -> tuple[int, Strides]:
        if len(self) >= 4096:
            self.clear()
        made = self[shape] = math.prod(shape), contiguous_strides(shape)
        return made


layouts = _Layouts()


# BEGIN SOLUTION a2.2
@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all of `shapes` expand to.

    Sizes are compared from the last dimension; they must be equal, or 1, or missing.

    >>> broadcast_shapes((5, 1, 3), (4, 1))
    (5, 4, 3)
    """
    dims = max(len(shape) for shape in shapes)
    out = [1] * dims
    for shape in shapes:
        for i, size in enumerate(shape, dims - len(shape)):
            if out[i] == 1:
                out[i] = size
            elif size not in (1, out[i]):
                raise ValueError(_cannot_broadcast(shapes, dims - i, out[i], size))
    return tuple(out)


# END SOLUTION a2.2


def _cannot_broadcast(
    shapes: Sequence[Shape], from_last: int, one: int, other: int
) -> str:
    return (
        f"shapes {' and '.join(str(tuple(s)) for s in shapes)} do not broadcast: "
        f"counted from the last, dimension {from_last} is {one} in one and {other} in "
        f"another; sizes must be equal, or 1"
    )


@lru_cache(maxsize=4096)
def lies_row_by_row(shape: Shape, strides: Strides) -> bool:
    """Whether elements lie in row-major order without gaps (size-1 dims aside)."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def numel(shape: Shape) -> int:
    """How many elements a shape holds; 1 for ()."""
    return math.prod(shape)


@lru_cache(maxsize=4096)
def without(shape: Shape, dims: tuple[int, ...]) -> Shape:
    """The sizes of a shape but those of `dims`."""
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def normalize_dim(dim: int, dims: int, name: str) -> int:
    """`dim` counted from the front; an IndexError where there is no such dimension.

    A tensor without dimensions accepts 0 and -1, as in PyTorch.
    """
    if type(dim) is int and -dims <= dim < dims:
        return dim if dim >= 0 else dim + dims
    bound = max(dims, 1)
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool):
        raise TypeError(f"{name}: dim is {dim!r}; expected an int")
    if not -bound <= dim < bound:
        raise IndexError(
            f"{name}: dim is {dim}, but the tensor has {dims} dimension(s); "
            f"dim must be from {-bound} to {bound - 1}"
        )
    return int(dim) % bound


class TensorData:
    """A window of `shape` and `strides` onto a flat `storage`, from `offset` on.

    `contiguous` says whether its elements lie row by row without gaps.
    """

    __slots__ = ("contiguous", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        storage: Storage,
        shape: Shape,
        strides: Strides | None = None,
        offset: int = 0,
    ) -> None:
        self.storage = storage
        self.shape = shape
        self.offset = offset
        if strides is None:
            self.strides = layouts[shape][1]
            self.contiguous = True
        else:
            self.strides = strides
            self.contiguous = lies_row_by_row(shape, strides)

    @staticmethod
    def around(array: Any, dtype: DType, device: str, shape: Shape) -> TensorData:
        """A contiguous tensor of `shape` on a storage of its own, a flat `array`.

        Every result of a kernel is made here: what both `__init__` do, in half the
        time, since a class that is called goes through C to its `__init__`.
        """
        out = _new(TensorData)
        out.storage = storage = _new(Storage)
        storage.array = array
        storage.dtype = dtype
        storage.device = device
        storage.version = out.offset = 0
        storage.rebased = -1
        storage.shared = False
        out.shape = shape
        out.strides = layouts[shape][1]
        out.contiguous = True
        return out

    # ------------------------------------------------------------- what it is

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @property
    def device(self) -> str:
        return self.storage.device

    @property
    def dims(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements the window shows."""
        return layouts[self.shape][0]

    def is_contiguous(self) -> bool:
        """Whether the elements lie row by row without gaps (size-1 dims aside)."""
        return self.contiguous

    def flat(self) -> Any:
        """The elements of a contiguous tensor as a flat array [size] (no copy)."""
        array = self.storage.array
        size = layouts[self.shape][0]
        if size == array.shape[0]:
            return array
        return array[self.offset : self.offset + size]

    def array(self) -> np.ndarray:
        """This window as a NumPy array that shares the memory (CPU storage only)."""
        base = self.storage.array
        item = base.itemsize
        steps = tuple([s * item for s in self.strides])
        if 0 in self.shape:
            return base[:0].reshape(self.shape)
        return np.ndarray(self.shape, base.dtype, base, self.offset * item, steps)

    def positions(self) -> Iterator[int]:
        """The storage positions of all elements in row-major order."""
        return iter_positions(self.shape, self.strides, self.offset)

    def __repr__(self) -> str:
        return (
            f"TensorData(shape={self.shape}, strides={self.strides}, "
            f"offset={self.offset}, {self.dtype.name} on {self.device!r})"
        )

    # ----------------------------------------------------- views: nothing is copied

    def permute(self, order: Sequence[int]) -> TensorData:
        """Dimension i of the view is dimension order[i] of this."""
        # BEGIN SOLUTION a2.1
        shape = tuple(map(self.shape.__getitem__, order))
        strides = tuple(map(self.strides.__getitem__, order))
        return TensorData(self.storage, shape, strides, self.offset)
        # END SOLUTION a2.1

    def expand(self, shape: Shape) -> TensorData:
        """Repeat dimensions of size 1 (or new leading ones), without a copy."""
        # BEGIN SOLUTION a2.2
        # A stride of 0 shows the same element at every index.
        lead = len(shape) - len(self.shape)
        strides = [0] * lead
        for old, new, stride in zip(self.shape, shape[lead:], self.strides):
            strides.append(stride if old == new else 0)
        return TensorData(self.storage, shape, tuple(strides), self.offset)
        # END SOLUTION a2.2

    def select(self, dim: int, index: int) -> TensorData:
        """The slice at `index` (0 or more) of `dim`, without that dimension."""
        offset = self.offset + index * self.strides[dim]
        shape = self.shape[:dim] + self.shape[dim + 1 :]
        strides = self.strides[:dim] + self.strides[dim + 1 :]
        return TensorData(self.storage, shape, strides, offset)

    def unbind(self, dim: int) -> tuple[TensorData, ...]:
        """The slices of `dim`, as `select` makes each."""
        first, step, slices = self.select(dim, 0), self.strides[dim], []
        for i in range(self.shape[dim]):
            out = _new(TensorData)
            out.storage, out.offset = first.storage, first.offset + i * step
            out.shape, out.strides = first.shape, first.strides
            out.contiguous = first.contiguous
            slices.append(out)
        return tuple(slices)

    def slice(self, dim: int, start: int, length: int, step: int = 1) -> TensorData:
        """`length` indices of `dim`, from `start`, `step` apart."""
        strides, size = self.strides, self.shape
        offset = self.offset + start * strides[dim] if length else self.offset
        shape = (*size[:dim], length, *size[dim + 1 :])
        if step != 1:
            strides = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
        return TensorData(self.storage, shape, strides, offset)

    def unsqueeze(self, dim: int) -> TensorData:
        """A new dimension of size 1 at `dim`."""
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        if self.contiguous:
            return TensorData(self.storage, shape, None, self.offset)
        inner = self.shape[dim] * self.strides[dim] if dim < len(self.shape) else 1
        strides = (*self.strides[:dim], max(inner, 1), *self.strides[dim:])
        return TensorData(self.storage, shape, strides, self.offset)

    def squeeze(self, dims: Sequence[int]) -> TensorData:
        """Without the dimensions `dims`, each of which has size 1."""
        keep = [i for i in range(self.dims) if i not in dims]
        return self.permute(keep)

    def view(self, shape: Shape) -> TensorData | None:
        """The same elements in another shape, or None where that needs a copy."""
        if self.contiguous:
            return TensorData(self.storage, shape, None, self.offset)
        strides = view_strides(self.shape, self.strides, shape)
        if strides is None:
            return None
        return TensorData(self.storage, shape, strides, self.offset)


def iter_positions(shape: Shape, strides: Strides, offset: int) -> Iterator[int]:
    """Storage positions in row-major order, without recursion."""
    if 0 in shape:
        return
    index = [0] * len(shape)
    position = offset
    while True:
        yield position
        for dim in range(len(shape) - 1, -1, -1):
            index[dim] += 1
            position += strides[dim]
            if index[dim] < shape[dim]:
                break
            position -= index[dim] * strides[dim]
            index[dim] = 0
        else:
            return


@lru_cache(maxsize=4096)
def view_strides(old: Shape, strides: Strides, new: Shape) -> Strides | None:
    """Strides that show `old` elements in the shape `new`, or None if none do.

    Walks both shapes from the back in groups of equal product. Within a group the old
    dimensions must follow each other without gaps.
    """
    if 0 in old:
        return contiguous_strides(new)
    dims = [(s, t) for s, t in zip(old, strides) if s != 1]
    out: list[int] = [0] * len(new)
    i = len(dims) - 1
    j = len(new) - 1
    while j >= 0:
        if new[j] == 1:
            out[j] = 1 if j == len(new) - 1 else out[j + 1] * new[j + 1]
            j -= 1
            continue
        size, step = dims[i]
        while size % new[j] != 0 or size < new[j]:  # the group needs one more old dim
            i -= 1
            outer, outer_step = dims[i]
            if outer_step != size * step:
                return None
            size *= outer
        out[j] = step
        rest = size // new[j]
        dims[i] = (rest, step * new[j])
        if rest == 1:
            i -= 1
        j -= 1
    return tuple(out)
