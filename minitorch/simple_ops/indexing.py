"""Take elements from, and put elements to, places that an index tensor names.

With this file one can pick single elements (`gather`) or whole slices (`index_select`),
add to them (`scatter_add`, `index_add`; each is the gradient of the line before), and
overwrite slices (`index_copy_`).
"""

from __future__ import annotations

from collections.abc import Iterator

from minitorch.simple_ops.lists import read, tensor, write
from minitorch.tensor_data import (
    Shape,
    TensorData,
    contiguous_strides,
    iter_positions,
)


def gather(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """out[i, j] = a[index[i, j], j] for dim = 0; a[i, index[i, j]] for dim = 1.

    index int64 [I, J] -> out [I, J]; I and J may be smaller than a's, but for `dim`.
    Raises IndexError where an index is outside [0, a.shape[dim]).
    """
    _check("gather", index, dim, a.shape)
    values = read(a)
    taken = [values[p] for p in _places(a.shape, dim, index)]
    return tensor(taken, index.shape, a.dtype)


def scatter_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0.

    Sums are rounded once, at the end. IndexError as in `gather`.
    """
    _check("scatter_add", index, dim, a.shape)
    values = read(a)
    used = TensorData(src.storage, index.shape, src.strides, src.offset)
    for p, x in zip(_places(a.shape, dim, index), read(used)):
        values[p] += x
    return tensor(values, a.shape, a.dtype)


def index_select(a: TensorData, dim: int, index: TensorData) -> TensorData:
    """out[i, j] = a[index[i], j] for dim = 0: a [M, N], index [n] -> [n, N].

    IndexError as in `gather`.
    """
    _check("index_select", index, dim, a.shape)
    shape = (*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :])
    values = read(a)
    taken = [values[p] for p in _places(a.shape, dim, _repeat(index, dim, shape))]
    return tensor(taken, shape, a.dtype)


def index_add(
    a: TensorData, dim: int, index: TensorData, src: TensorData
) -> TensorData:
    """A copy of a [M, N] with out[index[i], j] += src[i, j] for dim = 0, src [n, N].

    Sums are rounded once, at the end. IndexError as in `gather`.
    """
    _check("index_add", index, dim, a.shape)
    values = read(a)
    places = _places(a.shape, dim, _repeat(index, dim, src.shape))
    for p, x in zip(places, read(src)):
        values[p] += x
    return tensor(values, a.shape, a.dtype)


def index_copy_(out: TensorData, dim: int, index: TensorData, src: TensorData) -> None:
    """out[index[i], j] = src[i, j] for dim = 0, in place; the last i wins.

    IndexError as in `gather`; then nothing has been written.
    """
    _check("index_copy_", index, dim, out.shape)
    values = read(out)
    places = _places(out.shape, dim, _repeat(index, dim, src.shape))
    for p, x in zip(places, read(src)):
        values[p] = x
    write(out, values)


def _repeat(index: TensorData, dim: int, shape: Shape) -> TensorData:
    """index [n] as a view of `shape`, in which every line along `dim` is `index`."""
    strides = tuple(index.strides[0] if d == dim else 0 for d in range(len(shape)))
    return TensorData(index.storage, shape, strides, index.offset)


def _places(shape: Shape, dim: int, index: TensorData) -> Iterator[int]:
    """Where each element of `index` points to in the row-major list of a tensor.

    The place of a[i, index[i, j]] is i * strides[0] + index[i, j] * strides[1]: the
    index counts along `dim`, all other dimensions go along with it.
    """
    strides = contiguous_strides(shape or (1,))
    others = tuple(0 if d == dim else stride for d, stride in enumerate(strides))
    starts = iter_positions(index.shape or (1,), others, 0)
    for start, i in zip(starts, read(index)):
        yield start + i * strides[dim]


def _check(name: str, index: TensorData, dim: int, shape: Shape) -> None:
    """Raise an IndexError where an index is not in [0, shape[dim])."""
    size = shape[dim] if shape else 1
    for i in read(index):
        if not 0 <= i < size:
            allowed = f"from 0 to {size - 1}" if size else "none fits"
            raise IndexError(
                f"{name}: index {i} is outside dimension {dim}, which has {size} "
                f"element(s); allowed: {allowed}"
            )
