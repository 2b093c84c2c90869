"""Reductions, arg-reductions and running sums, on every installed backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.shared import by_dtype, by_number, inf, large, long, name_of, nan
from helpers import (
    array_of,
    assert_close,
    assert_equal,
    layouts,
    make,
    numbers,
    quick,
    shapes,
)
from minitorch import operators
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import Shape

FOLDS: dict[Callable, tuple[float, Callable]] = {
    operators.add: (0, np.sum),
    operators.mul: (1, np.prod),
    operators.maximum: (-inf, np.max),
    operators.minimum: (inf, np.min),
}


@quick
@given(data=st.data(), shape=shapes(), layout=layouts)
def test_reduce(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1)) if shape else st.just(()))
    a = numbers(shape, float32, layout=layout)
    x = make(a, name_of(backend), layout)
    for fn, (start, fold) in FOLDS.items():
        expected = fold(
            a.astype(np.float64), axis=tuple(dims), keepdims=True, initial=start
        ).astype(np.float32)
        out = backend.reduce(fn, x, tuple(dims), start)
        assert out.is_contiguous()
        assert_close(out, expected, tolerance=1e-5)


@by_number
@pytest.mark.parametrize(
    "dims", [(), (0,), (1,), (2,), (0, 2), (0, 1), (1, 2), (0, 1, 2)]
)
def test_reduce_every_dtype(backend: Any, dtype: DType, dims: tuple[int, ...]) -> None:
    a = numbers((4, 3, 5), dtype)
    x = make(a, name_of(backend))
    total = backend.reduce(operators.add, x, dims, 0)
    assert_close(total, a.sum(dims, keepdims=True, dtype=dtype.numpy))
    if dtype.is_floating_point:
        start = -inf
    else:
        start = np.iinfo(dtype.numpy).min
    top = backend.reduce(operators.maximum, x, dims, start)
    assert_equal(top, a.max(dims, keepdims=True))


def test_reduce_to_another_dtype(backend: Any) -> None:
    a = numbers((7, 9), bool_)
    x = make(a, name_of(backend))
    counts = backend.reduce(operators.add, x, (1,), 0, int64)
    assert_equal(counts, a.sum(1, keepdims=True))
    assert_equal(backend.reduce(operators.logical_and, x, (0,), True), a.all(0)[None])
    assert_equal(backend.reduce(operators.logical_or, x, (0,), False), a.any(0)[None])
    b = numbers((7, 9), int32)
    y = make(b, name_of(backend))
    assert_equal(
        backend.reduce(operators.add, y, (0, 1), 0, int64), b.sum(keepdims=True)
    )


def test_reduce_integers_exactly(backend: Any) -> None:
    x = make(long(2**53, 1, 2**60, 1), name_of(backend))
    total = 2**53 + 2**60 + 2
    for start in (0, 0.0):
        assert_equal(backend.reduce(operators.add, x, (0,), start), long(total))


def test_reduce_nothing_is_start(backend: Any) -> None:
    x = make(np.zeros((3, 0), np.float32), name_of(backend))
    for fn, (start, _) in FOLDS.items():
        assert_equal(backend.reduce(fn, x, (1,), start), np.full((3, 1), start, "f"))
        assert_equal(backend.reduce(fn, x, (0,), start), np.zeros((1, 0), np.float32))


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_reduce_keeps_nan(backend: Any, dims: tuple[int, ...]) -> None:
    a = numbers((40, 50))
    a[3, 7] = a[39, 49] = a[11, 0] = nan
    x = make(a, name_of(backend))
    for fn, (start, fold) in FOLDS.items():
        expected = np.isnan(fold(a, axis=dims, keepdims=True))
        np.testing.assert_array_equal(
            np.isnan(array_of(backend.reduce(fn, x, dims, start))), expected
        )


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_sums_are_accurate(backend: Any, dims: tuple[int, ...]) -> None:
    shape = large(backend, (70, 60), (700, 600))
    a = numbers(shape) + np.float32(10)
    for layout in ("contiguous", "permuted"):
        out = backend.reduce(operators.add, make(a, name_of(backend), layout), dims, 0)
        expected = a.sum(dims, keepdims=True, dtype=np.float64)
        np.testing.assert_allclose(array_of(out), expected, rtol=3e-6)


def test_reduce_with_a_function_of_the_user(backend: Any) -> None:
    a = numbers((6, 40), float64)
    x = make(a, name_of(backend))
    out = backend.reduce(
        lambda total, v: total if total > v * v else v * v, x, (1,), 0.0
    )
    assert_close(out, (a * a).max(1, keepdims=True))


def test_reduce_in_many_dimensions(backend: Any) -> None:
    a = numbers((2, 3, 2, 3, 2, 3), float64)
    x = make(a, name_of(backend), "permuted")
    for dims in ((0, 2, 4), (1, 3, 5), (5,), (0,), (1, 2), (0, 5)):
        out = backend.reduce(operators.add, x, dims, 0)
        assert_close(out, a.sum(dims, keepdims=True))


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts, low=st.booleans())
def test_argmax_and_argmin(
    backend: Any, data: Any, shape: Shape, layout: str, low: bool
) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    if shape[dim] == 0:
        return
    a = np.round(numbers(shape, float32, layout=layout))  # so that there are ties
    x = make(a, name_of(backend), layout)
    find, expected = (backend.argmin, np.argmin) if low else (backend.argmax, np.argmax)
    where = expected(a, dim, keepdims=True)
    assert_equal(find(x, dim), where, int64)
    values, index = backend.extreme(x, dim, not low)
    assert_equal(values, np.take_along_axis(a, where, dim))
    assert_equal(index, where, int64)


@by_dtype
def test_argmax_every_dtype(backend: Any, dtype: DType) -> None:
    a = numbers((6, 40), dtype)
    x = make(a, name_of(backend))
    for dim in (0, 1):
        assert_equal(backend.argmax(x, dim), a.argmax(dim, keepdims=True))
        assert_equal(backend.argmin(x, dim), a.argmin(dim, keepdims=True))
        assert_equal(backend.extreme(x, dim, True)[0], a.max(dim, keepdims=True))
    single = make(a[0, 0], name_of(backend))
    assert_equal(backend.argmax(single, 0), np.array(0))


def test_nan_wins_argmax_and_argmin(backend: Any) -> None:
    a = np.array([[1, nan, inf, nan], [nan, 0, -inf, 1], [2, inf, -inf, inf]], "f")
    x = make(a, name_of(backend))
    assert_equal(backend.argmax(x, 1), long(1, 0, 1)[:, None])
    assert_equal(backend.argmin(x, 1), long(1, 0, 2)[:, None])


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts)
def test_running_totals(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    a = numbers(shape, float32, layout=layout)
    for name in ("cumsum", "cumprod"):
        out = getattr(backend, name)(make(a, name_of(backend), layout), dim)
        expected = getattr(np, name)(a, dim, np.float64).astype(np.float32)
        assert_close(out, expected, tolerance=1e-5)


@by_number
def test_running_totals_every_dtype(backend: Any, dtype: DType) -> None:
    for shape, dim in (((), 0), ((1500,), 0), ((7, 33), 1), ((33, 7), 0)):
        a = numbers(shape, dtype)
        for name in ("cumsum", "cumprod"):
            expected = getattr(np, name)(a, dim if shape else None, dtype.numpy)
            out = getattr(backend, name)(make(a, name_of(backend)), dim)
            tolerance = 2e-5 if dtype is float32 else None
            assert_close(out, expected.reshape(shape), tolerance=tolerance)
            a = a | 1 if dtype.category == 1 else 1 + a / 999
