"""Making, reading, converting and copying memory, on every installed backend."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from backends.shared import (
    by_dtype,
    by_float,
    by_layout,
    inf,
    large,
    long,
    name_of,
    nan,
)
from helpers import LAYOUTS, array_of, assert_equal, make, numbers
from minitorch import dtypes, operators
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import Shape


@by_dtype
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_empty_and_full(backend: Any, dtype: DType, shape: Shape) -> None:
    a = backend.empty(shape, dtype)
    assert (a.shape, a.dtype, a.is_contiguous()) == (shape, dtype, True)
    assert array_of(a).shape == shape
    assert_equal(backend.full(shape, 1, dtype), np.ones(shape, dtype.numpy))


@by_float
@pytest.mark.parametrize("value", [0.1, -0.0, inf, -inf, nan])
def test_full_with_special_values(backend: Any, dtype: DType, value: float) -> None:
    expected = np.full((2, 3), value, dtype.numpy)
    a = backend.full((2, 3), value, dtype)
    assert_equal(a, expected)
    np.testing.assert_array_equal(np.signbit(array_of(a)), np.signbit(expected))


def test_full_keeps_large_integers_exact(backend: Any) -> None:
    assert_equal(backend.full((2,), 2**62 + 1, int64), long(2**62 + 1, 2**62 + 1))


@by_dtype
@by_layout
def test_to_numpy_reads_any_layout(backend: Any, dtype: DType, layout: str) -> None:
    for shape in ((), (1,), (0, 3), (4, 3), (2, 3, 5)):
        a = numbers(shape, dtype, layout=layout)
        assert_equal(make(a, name_of(backend), layout), a)


@by_dtype
def test_from_numpy(backend: Any, dtype: DType) -> None:
    a = numbers((4, 6), dtype)
    frozen = a.copy()
    frozen.flags.writeable = False
    for array in (a, a.T, a[::2, 1::2], a[::-1, ::-2], a[:0], a[0, 0, ...], frozen):
        array = np.asarray(array)
        assert_equal(backend.from_numpy(array), array)


def test_from_numpy_does_not_write_to_a_read_only_array(backend: Any) -> None:
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    a = backend.from_numpy(frozen)
    backend.map(operators.exp, a, out=a)
    assert_equal(a, np.ones(4, np.float32))
    assert not frozen.any()


def test_from_numpy_names_the_types_it_takes(backend: Any) -> None:
    for dtype in ("complex64", "uint8", ">f4"):
        with pytest.raises(TypeError, match="float32"):
            backend.from_numpy(np.zeros(3, dtype))


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("target", dtypes.ALL, ids=lambda d: d.name)
def test_copy_converts(backend: Any, source: DType, target: DType) -> None:
    for layout in LAYOUTS:
        for shape in ((), (0, 2), (5, 3), (2, 3, 4, 5)):
            a = numbers(shape, source, layout=layout)
            x = make(a, name_of(backend), layout)
            copied = backend.copy(x, target)
            assert copied.is_contiguous() and copied.storage is not x.storage
            assert_equal(copied, a.astype(target.numpy))


def test_copy_of_floats_that_are_no_integers(backend: Any) -> None:
    a = np.array([1.9, -1.9, 0.5, -0.5], np.float32)
    assert_equal(backend.copy(make(a, name_of(backend)), int64), long(1, -1, 0, 0))
    a = np.array([nan, inf, 0.0, -0.0, 0.1], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.copy(make(a, name_of(backend)), int32)
        truth = backend.copy(make(a, name_of(backend)), bool_)
        rounded = backend.copy(make([1e300, -1e300, 0.1], name_of(backend)), float32)
    assert_equal(truth, np.array([True, True, False, False, True]))
    assert_equal(rounded, np.array([inf, -inf, 0.1], np.float32))


def test_copy_of_many_elements(backend: Any) -> None:
    shape = large(backend, (33, 31), (257, 1025))
    a = numbers(shape)
    for layout in ("contiguous", "permuted", "stepped"):
        x = make(a, name_of(backend), layout)
        assert_equal(backend.copy(x, float32), a)
        assert_equal(backend.copy(x, float64), a.astype(np.float64))


def test_copy_of_many_dimensions(backend: Any) -> None:
    a = numbers((2, 3, 2, 3, 2, 3), float32)
    for layout in LAYOUTS[:-1]:
        assert_equal(backend.copy(make(a, name_of(backend), layout), float32), a)


@by_dtype
@pytest.mark.parametrize("from_layout", LAYOUTS)
@pytest.mark.parametrize("to_layout", LAYOUTS[:-1])
def test_copy_into(
    backend: Any, dtype: DType, from_layout: str, to_layout: str
) -> None:
    for shape in ((), (0,), (5,), (4, 3), (2, 3, 4)):
        a = numbers(shape, dtype, layout=from_layout)
        out = make(np.zeros(shape, dtype.numpy), name_of(backend), to_layout)
        assert backend.copy_into(out, make(a, name_of(backend), from_layout)) is None
        assert_equal(out, a)


def test_copy_into_leaves_the_rest_of_the_storage_alone(backend: Any) -> None:
    whole = make(np.zeros((4, 6), np.float32), name_of(backend))
    window = whole.slice(1, 1, 2, step=3)  # columns 1 and 4
    backend.copy_into(window, make(numbers((4, 2)), name_of(backend)))
    expected = np.zeros((4, 6), np.float32)
    expected[:, 1::3] = numbers((4, 2))
    assert_equal(whole, expected)


@pytest.mark.parametrize("shift", [1, 2, 7])
def test_copy_into_where_both_overlap(backend: Any, shift: int) -> None:
    n = large(backend, (100,), (40_000,))[0]
    expected = np.arange(n, dtype=np.float32)
    for forward in (True, False):
        a = make(np.arange(n, dtype=np.float32), name_of(backend))
        low, high = a.slice(0, 0, n - shift), a.slice(0, shift, n - shift)
        out, source = (high, low) if forward else (low, high)
        backend.copy_into(out, source)
        assert_equal(out, expected[:-shift] if forward else expected[shift:])


def test_copy_into_reversed_self(backend: Any) -> None:
    a = make(np.arange(9, dtype=np.float32), name_of(backend))
    backend.copy_into(a, a.slice(0, 8, 9, step=-1))
    assert_equal(a, np.arange(9, dtype=np.float32)[::-1])


def test_synchronize(backend: Any) -> None:
    assert backend.synchronize() is None
