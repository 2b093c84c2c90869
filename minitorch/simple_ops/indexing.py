"""Take elements from, and put elements to, places that an index tensor names.

With this file one can pick single elements (`gather`), add to them (`scatter_add`,
the gradient of the first), and overwrite slices (`index_copy_`).
"""

from __future__ import annotations

from collections.abc import Iterator

from minitorch.backend.indexing import index_error, repeated
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
    a: TensorData, dim: int, index: TensorData, src: TensorData,
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0; a itself, if it is
    `out`.

    Sums are rounded once, at the end. IndexError as in `gather`.
    """
    _check("scatter_add", index, dim, a.shape)
    values = read(a)
    used = TensorData(src.storage, index.shape, src.strides, src.offset)
    for p, x in zip(_places(a.shape, dim, index), read(used)):
        values[p] += x
    if out is None:
        return tensor(values, a.shape, a.dtype)
    write(out, values)
    return out


def index_copy_(out: TensorData, dim: int, index: TensorData, src: TensorData) -> None:
    """out[index[i], j] = src[i, j] for dim = 0, in place; the last i wins.

    IndexError as in `gather`; then nothing has been written.
    """
    _check("index_copy_", index, dim, out.shape)
    values = read(out)
    places = _places(out.shape, dim, repeated(index, dim, src.shape))
    for p, x in zip(places, read(src)):
        values[p] = x
    write(out, values)


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
            raise index_error(name, i, dim, size)
