"""Gathering and scattering by indices, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import by_dtype, by_layout, indices, long, name_of, tensor
from helpers import LAYOUTS, array_of, assert_close, assert_equal, make, numbers
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import Shape, TensorData

GATHERS = [  # shape of a, dim, shape of index
    ((6,), 0, (9,)),
    ((5, 7), 0, (3, 7)),
    ((5, 7), 1, (5, 12)),
    ((5, 7), 0, (11, 4)),  # fewer columns than a
    ((5, 7), 1, (2, 3)),
    ((3, 4, 5), 1, (3, 9, 5)),
    ((3, 4, 5), 2, (2, 3, 1)),
    ((3, 4), 1, (3, 0)),
    ((3, 4), 1, (0, 2)),
    ((), 0, ()),
    ((40, 60), 0, (35, 60)),
]


@by_layout
@pytest.mark.parametrize("shape, dim, index_shape", GATHERS)
def test_gather(
    backend: Any, layout: str, shape: Shape, dim: int, index_shape: Shape
) -> None:
    size = shape[dim] if shape else 1
    i = indices(index_shape, size)
    kind = layout if layout != "expanded" else "contiguous"
    for dtype in (float32, int64, bool_):
        a = numbers(shape, dtype, layout=layout)
        x, index = make(a, name_of(backend), layout), make(i, name_of(backend), kind)
        expected = torch.gather(tensor(a), dim, tensor(i)).numpy()
        assert_equal(backend.gather(x, dim, index), expected)


@by_layout
@pytest.mark.parametrize("shape, dim, index_shape", GATHERS)
def test_scatter_and_scatter_add(
    backend: Any, layout: str, shape: Shape, dim: int, index_shape: Shape
) -> None:
    size = shape[dim] if shape else 1
    i = indices(index_shape, size)
    src_shape = tuple(n + 1 for n in index_shape)  # src may be larger than index
    kind = layout if layout != "expanded" else "contiguous"
    for dtype in (float64, int64, bool_):
        a = numbers(shape, dtype, 1, layout)
        src = numbers(src_shape, dtype, 2, layout)
        x, index = make(a, name_of(backend), layout), make(i, name_of(backend), kind)
        added = make(src, name_of(backend), layout)
        expected = tensor(a).scatter_add(dim, tensor(i), tensor(src)).numpy()
        put = a.copy()
        for at in np.ndindex(index_shape):  # in order, so that the last one wins
            put[(*at[:dim], i[at], *at[dim + 1 :]) if shape else ()] = src[at]
        assert_close(backend.scatter_add(x, dim, index, added), expected)
        assert_equal(backend.scatter(x, dim, index, added), put)
        assert_equal(x, a)  # copies were made
        for fn, wanted in ((backend.scatter_add, expected), (backend.scatter, put)):
            out = make(a, name_of(backend), "offset")
            assert fn(out, dim, index, added, out) is out
            assert_close(out, wanted)


@by_layout
@pytest.mark.parametrize("shape, dim", [((6,), 0), ((5, 7), 0), ((5, 7), 1)])
def test_slices_by_index(backend: Any, layout: str, shape: Shape, dim: int) -> None:
    kind = layout if layout != "expanded" else "contiguous"
    for count in (0, 1, 4, 33):
        i = indices((count,), shape[dim], seed=count)
        src_shape = (*shape[:dim], count, *shape[dim + 1 :])
        for dtype in (float64, int32, bool_):
            a = numbers(shape, dtype, 1, layout)
            src = numbers(src_shape, dtype, 2, layout)
            x, y = (make(c, name_of(backend), layout) for c in (a, src))
            index = make(i, name_of(backend), kind)
            assert_equal(backend.index_select(x, dim, index), np.take(a, i, dim))
            expected = tensor(a).index_add(dim, tensor(i), tensor(src)).numpy()
            assert_close(backend.index_add(x, dim, index, y), expected)
            assert_equal(x, a)
            out = make(a, name_of(backend), "offset")
            assert backend.index_add(out, dim, index, y, out) is out
            assert_close(out, expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_of_three_dimensions(backend: Any, dim: int) -> None:
    a, i = numbers((9, 8, 17), float64), indices((40,), 8)
    src_shape = [9, 8, 17]
    src_shape[dim] = 40
    src = numbers(tuple(src_shape), float64, 2)
    x, y, index = (make(c, name_of(backend)) for c in (a, src, i))
    assert_equal(backend.index_select(x, dim, index), np.take(a, i, dim))
    expected = tensor(a).index_add(dim, tensor(i), tensor(src)).numpy()
    assert_close(backend.index_add(x, dim, index, y), expected)


@by_dtype
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
@pytest.mark.parametrize("dim", [0, 1])
def test_index_copy_writes_in_place(
    backend: Any, dtype: DType, layout: str, dim: int
) -> None:
    a, i = numbers((5, 6), dtype, 1), long(3, 0, 3, 4, 0)
    src = numbers((5, 6) if dim == 0 else (5, 5), dtype, 2)
    out, y = (make(c, name_of(backend), layout) for c in (a, src))
    assert backend.index_copy_(out, dim, make(i, name_of(backend)), y) is None
    expected = a.copy()
    for k, row in enumerate(i):  # in order, so that the last one wins
        expected[(slice(None),) * dim + (row,)] = src[(slice(None),) * dim + (k,)]
    assert_equal(out, expected)


@pytest.mark.parametrize("src_shape", [(), (1,)], ids=str)
def test_indexing_without_dimensions(backend: Any, src_shape: Shape) -> None:
    """One element, in the middle of a storage: its offset must not be lost."""

    def place(value: Any, shape: Shape = ()) -> TensorData:
        return make(np.array(value).reshape(shape), name_of(backend), "offset")

    a, src, zero = place(3.0), place(5.0, src_shape), place(0, (1,))
    assert_equal(backend.gather(a, 0, place(0)), np.array(3.0))
    assert_equal(backend.scatter_add(a, 0, place(0), place(5.0)), np.array(8.0))
    assert_equal(backend.scatter(a, 0, place(0), place(5.0)), np.array(5.0))
    assert_equal(backend.index_select(a, 0, zero).view((1,)), np.array([3.0]))
    assert_equal(backend.index_add(a, 0, zero, src), np.array(8.0))
    backend.index_copy_(a, 0, zero, src)
    assert_equal(a, np.array(5.0))
    storage = array_of(TensorData(a.storage, (6,)))
    assert np.isnan(storage[:3]).all() and np.isnan(storage[4:]).all()


def test_index_copy_with_overlapping_memory(backend: Any) -> None:
    a = make(np.arange(12, dtype=np.float32).reshape(4, 3), name_of(backend))
    backend.index_copy_(a, 0, make(long(1, 2, 3), name_of(backend)), a.slice(0, 0, 3))
    assert_equal(a, np.array([[0, 1, 2], [0, 1, 2], [3, 4, 5], [6, 7, 8]], np.float32))


@pytest.mark.parametrize("bad", [5, -1, 2**40])
def test_indices_out_of_range(backend: Any, bad: int) -> None:
    """At once, or on a GPU when one waits for it."""
    x = make(numbers((3, 5)), name_of(backend))
    i, grid = long(0, bad), np.array([[0, 4], [1, bad], [2, 2]])
    index, index_grid = make(i, name_of(backend)), make(grid, name_of(backend))
    src = make(numbers((3, 2)), name_of(backend))
    message = rf"{bad}\b.*1.*0 to 4"
    with pytest.raises(IndexError, match="gather.*" + message):
        backend.gather(x, 1, index_grid)
        backend.synchronize()
    for name in ("scatter", "scatter_add"):
        with pytest.raises(IndexError, match=f"{name}:.*{message}"):
            getattr(backend, name)(x, 1, index_grid, src)
            backend.synchronize()
    with pytest.raises(IndexError, match="index_select.*" + message):
        backend.index_select(x, 1, index)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_add.*" + message):
        backend.index_add(x, 1, index, src)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_copy_.*" + message):
        backend.index_copy_(x, 1, index, src)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_copy_.*" + message):
        one = make(long(bad), name_of(backend))
        backend.index_copy_(x, 1, one, src.slice(1, 0, 1))
        backend.synchronize()
    assert_equal(x, numbers((3, 5)))  # nothing was written


def test_indices_are_checked_where_slices_are_empty(backend: Any) -> None:
    x = make(np.zeros((3, 0), np.float32), name_of(backend))
    with pytest.raises(IndexError, match=r"5\b.*0.*0 to 2"):
        backend.index_select(x, 0, make(long(1, 5), name_of(backend)))
        backend.synchronize()
    none = make(np.zeros((0, 3), np.float32), name_of(backend))
    with pytest.raises(IndexError, match="index_select"):
        backend.index_select(none, 0, make(long(0), name_of(backend)))
        backend.synchronize()
