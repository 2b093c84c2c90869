"""Pooling and its gradients, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import inf, long, name_of, nan, tensor
from helpers import FLOATS, assert_close, assert_equal, make, numbers
from minitorch.tensor_data import Shape

POOLS = [  # x, kernel, stride, padding, dilation
    ((1, 1, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 3, 7, 9), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((2, 1, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 2, 9, 8), (2, 3), (2, 2), (1, 1), (2, 3)),
    ((3, 2, 5, 6), (5, 6), (5, 6), (0, 0), (1, 1)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((4, 5, 33, 17), (2, 2), (2, 2), (0, 0), (1, 1)),
]


@pytest.mark.parametrize("x_shape, kernel, stride, padding, dilation", POOLS)
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
def test_max_pool2d(
    backend: Any, x_shape: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any,
    layout: str,
) -> None:  # fmt: skip
    for dtype in FLOATS:
        a = np.round(numbers(x_shape, dtype, 1))  # so that there are ties
        x = tensor(a).requires_grad_()
        out, where = torch.nn.functional.max_pool2d(
            x, kernel, stride, padding, dilation, return_indices=True
        )
        result, index = backend.max_pool2d(
            make(a, name_of(backend), layout), kernel, stride, padding, dilation
        )
        assert_equal(result, out.detach().numpy())
        assert_equal(index, where.numpy())
        grad = numbers(tuple(out.shape), dtype, 2)
        (expected,) = torch.autograd.grad(out, x, tensor(grad))
        back = backend.max_pool2d_backward(
            make(grad, name_of(backend), layout), index, x_shape
        )
        assert_close(back, expected.numpy())


def test_nan_is_the_largest_of_its_window(backend: Any) -> None:
    a = np.array([1, nan, 3, nan, 5, -inf, -inf, -inf], np.float32).reshape(1, 1, 1, 8)
    pair = ((1, 2), (1, 2), (0, 0), (1, 1))
    out, index = backend.max_pool2d(make(a, name_of(backend)), *pair)
    assert_equal(out, np.array([nan, nan, 5, -inf], np.float32).reshape(1, 1, 1, 4))
    assert_equal(index, long(1, 3, 4, 6).reshape(1, 1, 1, 4))


@pytest.mark.parametrize("x_shape, kernel, stride, padding, dilation", POOLS)
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool2d(
    backend: Any, x_shape: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any,
    layout: str, include: bool,
) -> None:  # fmt: skip
    for dtype in FLOATS:
        a = numbers(x_shape, dtype, 1)
        x = tensor(a).requires_grad_()
        out = torch.nn.functional.avg_pool2d(
            x, kernel, stride, padding, count_include_pad=include
        )
        result = backend.avg_pool2d(
            make(a, name_of(backend), layout), kernel, stride, padding, include
        )
        assert_close(result, out.detach().numpy())
        grad = numbers(tuple(out.shape), dtype, 2)
        (expected,) = torch.autograd.grad(out, x, tensor(grad))
        back = backend.avg_pool2d_backward(
            make(grad, name_of(backend), layout),
            x_shape,
            kernel,
            stride,
            padding,
            include,
        )
        assert_close(back, expected.numpy())
