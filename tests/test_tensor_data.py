"""Shapes, strides and offsets: the layout table against NumPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    broadcastable_shapes,
    factorings,
    layouts,
    sample,
    small_shapes,
)

import minitorch
from minitorch import tensor_data
from minitorch.dtypes import int64
from minitorch.tensor_data import (
    Storage,
    TensorData,
    broadcast_shapes,
    contiguous_strides,
    index_to_position,
    normalize_dim,
    numel,
    position_to_index,
    view_strides,
)


@given(shape=small_shapes(0, 5))
def test_contiguous_strides(shape):
    strides = contiguous_strides(shape)
    assert numel(shape) == math.prod(shape)
    if 0 not in shape:
        expected = np.zeros(shape, np.int8).strides
        assert all(s == e for s, e, n in zip(strides, expected, shape) if n > 1)


@given(data=st.data())
def test_positions_and_indices_are_inverse(data):
    shape = data.draw(small_shapes(0, 4).filter(lambda s: 0 not in s))
    strides = contiguous_strides(shape)
    ordinal = data.draw(st.integers(0, numel(shape) - 1))
    place = position_to_index(ordinal, shape)
    assert place == tuple(np.unravel_index(ordinal, shape)) if shape else place == ()
    assert index_to_position(place, strides, 3) == ordinal + 3


@given(shapes=broadcastable_shapes(3))
def test_broadcast_shapes(shapes):
    assert broadcast_shapes(*shapes.input_shapes) == shapes.result_shape


@given(a=small_shapes(), b=small_shapes())
def test_broadcast_shapes_agrees_with_numpy_on_errors(a, b):
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shapes(a, b)
    else:
        assert broadcast_shapes(a, b) == expected


def numbered(shape: tuple[int, ...]) -> tuple[TensorData, np.ndarray]:
    """Elements 0, 1, ... in row-major order."""
    flat = np.arange(max(numel(shape), 1))[: numel(shape)]
    return TensorData(Storage(flat, int64, "cpu"), shape), flat.reshape(shape)


@given(data=st.data())
def test_chains_of_views(data):
    """Any sequence of views shows what the same sequence shows in NumPy."""
    x, array = numbered(data.draw(small_shapes(0, 4)))
    for _ in range(data.draw(st.integers(1, 5))):
        x, array = data.draw(a_view(x, array))
        assert x.shape == array.shape and x.dims == array.ndim
        assert x.size == array.size
        assert np.array_equal(x.array(), array)
        assert [x.storage.array[p] for p in x.positions()] == array.reshape(-1).tolist()
        big = [(n, s) for n, s in zip(array.shape, array.strides) if n > 1]
        mine = [(n, s * 8) for n, s in zip(x.shape, x.strides) if n > 1]
        if array.size:
            assert mine == big
            assert x.is_contiguous() == array.flags.c_contiguous
            if x.is_contiguous():
                assert x.flat().tolist() == array.reshape(-1).tolist()


@st.composite
def a_view(draw, x, array):
    """The same view of both."""
    kind = draw(st.sampled_from(["permute", "slice", "unsqueeze", "view", "expand"]))
    if kind == "permute":
        order = draw(st.permutations(range(x.dims)))
        return x.permute(order), array.transpose(order)
    if kind == "unsqueeze":
        dim = draw(st.integers(0, x.dims))
        return x.unsqueeze(dim), np.expand_dims(array, dim)
    if kind == "expand":
        shape = (2, *(draw(st.sampled_from([1, 3])) if n == 1 else n for n in x.shape))
        return x.expand(shape), np.broadcast_to(array, shape)
    if kind == "view":
        shape = draw(factorings(x.size))
        y = x.view(shape)
        return (x, array) if y is None else (y, array.reshape(shape))
    if not x.dims:
        return x, array
    dim = draw(st.integers(0, x.dims - 1))
    size = x.shape[dim]
    if size and draw(st.booleans()):
        i = draw(st.integers(0, size - 1))
        return x.select(dim, i), array[(slice(None),) * dim + (i,)]
    start = draw(st.integers(0, size))
    step = draw(st.integers(1, 3))
    length = len(range(start, size, step))
    part = (slice(None),) * dim + (slice(start, size, step),)
    return x.slice(dim, start, length, step), array[part]


@given(data=st.data())
def test_view_strides_is_what_numpy_can_do_without_a_copy(data):
    x, array = numbered(data.draw(small_shapes(1, 4)))
    for _ in range(data.draw(st.integers(0, 3))):
        x, array = data.draw(a_view(x, array))
    assume(array.size)
    shape = data.draw(factorings(array.size))
    strides = view_strides(x.shape, x.strides, shape)
    view = array.view()
    try:
        view.shape = shape
    except AttributeError:
        assert strides is None
    else:
        assert strides is not None
        shown = TensorData(x.storage, shape, strides, x.offset)
        assert np.array_equal(shown.array(), view)


@given(data=st.data(), layout=layouts)
def test_reshape_shares_memory_where_it_can(data, layout):
    shape = data.draw(small_shapes(0, 4))
    x, array = sample("cpu", shape, minitorch.float32, layout)
    new = data.draw(factorings(array.size))
    y = x.reshape(new)
    assert np.array_equal(y.numpy(), array.reshape(new))
    assert (y.raw.storage is x.raw.storage) == (x.raw.view(new) is not None)


def test_normalize_dim():
    assert [normalize_dim(d, 3, "f") for d in (0, 2, -1, -3)] == [0, 2, 2, 0]
    assert normalize_dim(-1, 0, "f") == 0 and normalize_dim(np.int64(1), 2, "f") == 1
    for bad in (3, -4):
        with pytest.raises(IndexError, match=r"f: dim is .*from -3 to 2"):
            normalize_dim(bad, 3, "f")
    for bad in (1.0, None, True, "0"):
        with pytest.raises(TypeError, match="expected an int"):
            normalize_dim(bad, 3, "f")


def test_what_a_tensor_says_of_itself(device):
    x = minitorch.zeros(2, 3, 4, device=device)
    assert x.shape == (2, 3, 4) and x.size() == (2, 3, 4) and x.size(-1) == 4
    assert x.dim() == x.ndim == 3 and x.numel() == 24 and x.shape.numel() == 24
    assert x.stride() == (12, 4, 1) and x.storage_offset() == 0
    assert x.element_size() == 4 and x.is_contiguous() and x.is_floating_point()
    y = x[1, :, 1:].T
    assert y.stride() == (1, 4) and y.storage_offset() == 13 and not y.is_contiguous()
    assert repr(x.shape) == "minitorch.Size([2, 3, 4])"
    assert "float32" in repr(x.raw)


def test_layouts_are_those_of_the_shape_and_few_are_kept():
    for n in range(5000):
        assert tensor_data.layouts[(n, 2)] == (2 * n, (2, 1))
    assert len(tensor_data.layouts) <= 4096
