"""Sorting, and the middle of the order, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.shared import by_dtype, by_number, inf, large, name_of, nan, tensor
from helpers import assert_equal, layouts, make, numbers, quick, shapes
from minitorch.dtypes import DType, float32
from minitorch.tensor_data import Shape


def check_sort(backend: Any, a: np.ndarray, dim: int, down: bool, layout: str) -> None:
    values, index = backend.sort(make(a, name_of(backend), layout), dim, down)
    expected = torch.sort(tensor(a), dim=dim, descending=down, stable=True)
    assert_equal(values, expected.values.numpy())
    assert_equal(index, expected.indices.numpy())


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts, down=st.booleans())
def test_sort(backend: Any, data: Any, shape: Shape, layout: str, down: bool) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    a = np.round(2 * numbers(shape, float32, layout=layout))
    check_sort(backend, a, dim, down, layout)


@by_dtype
@pytest.mark.parametrize("down", [False, True])
def test_sort_every_dtype(backend: Any, dtype: DType, down: bool) -> None:
    for shape, dim in (((1100,), 0), ((6, 33), 0), ((6, 33), 1), ((), 0)):
        check_sort(backend, numbers(shape, dtype), dim, down, "contiguous")


@pytest.mark.parametrize("down", [False, True])
def test_sort_puts_nan_above_all(backend: Any, down: bool) -> None:
    a = np.array([1, nan, inf, -inf, nan, 0, -0.0, 2, nan], np.float32)
    check_sort(backend, a, 0, down, "contiguous")


def check_median(backend: Any, a: np.ndarray, dim: int, layout: str = "") -> None:
    """The first NaN, else what a stable sort has in the middle."""
    x = make(a, name_of(backend), layout or "contiguous")
    values, index = backend.median(x, dim)
    middle = np.argsort(a, dim, kind="stable").take([(a.shape[dim] - 1) // 2], dim)
    unknown = a != a
    first = unknown.argmax(dim, keepdims=True)
    place = np.where(unknown.any(dim, keepdims=True), first, middle)
    assert_equal(index, place)
    assert_equal(values, np.take_along_axis(a, place, dim))


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts)
def test_median(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    a = np.round(2 * numbers(shape, float32, layout=layout))
    if shape[dim]:
        check_median(backend, a, dim, layout)
        check_median(backend, np.where(a == 0, np.float32(nan), a), dim)


@by_number
def test_median_every_dtype(backend: Any, dtype: DType) -> None:
    for shape, dim in (((1100,), 0), ((6, 33), 0), ((6, 33), 1)):
        check_median(backend, numbers(shape, dtype), dim)


# Around what one thread counts ("cpu"), a block, and the longest line that is counted
# ("cuda"; the simulator's first).
@pytest.mark.parametrize("n", [31, 32, 33, 48, 49, 80, 81, 127, 128, 129, 1024, 1025])
def test_median_of_lines_of_any_length(backend: Any, n: int) -> None:
    a = numbers(large(backend, (2, n), (5, n)))
    a[1, n // 2 :] = nan
    for rows in (a, np.round(a), np.sort(a), np.minimum(a, a[:, ::-1]), a * 0):
        check_median(backend, rows, 1)
    check_median(backend, a.T.copy(), 0)
