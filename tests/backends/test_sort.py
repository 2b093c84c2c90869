"""Sorting, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.shared import by_dtype, inf, name_of, nan, tensor
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
