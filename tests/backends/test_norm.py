"""Layer and batch norm and their gradients, on every installed backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import by_float, name_of, tensor
from helpers import array_of, assert_close, make, numbers
from minitorch.dtypes import DType, float32
from minitorch.tensor_data import Shape, TensorData


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize("rows, size", [(1, 1), (4, 7), (0, 5), (33, 16), (3, 1030)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(
    backend: Any, dtype: DType, layout: str, rows: int, size: int, affine: bool
) -> None:
    grad, a = numbers((rows, size), dtype, 4), 2 + numbers((rows, size), dtype, 1)
    w, b = (numbers((size,), dtype, seed) for seed in (2, 3))
    if not affine:
        w, b = np.ones_like(w), np.zeros_like(b)
    wanted = [tensor(c).double().requires_grad_() for c in (a, w, b)]
    out = torch.nn.functional.layer_norm(wanted[0], (size,), *wanted[1:], 1e-5)
    grads = torch.autograd.grad(out, wanted, tensor(grad).double())
    mean = wanted[0].mean(1)
    variance = ((wanted[0] - mean[:, None]) ** 2).mean(1)

    x, weight, bias, g = (make(c, name_of(backend), layout) for c in (a, w, b, grad))
    weights = (weight, bias) if affine else (None, None)
    result = backend.layer_norm(x, *weights, 1e-5)
    back = backend.layer_norm_backward(g, x, *result[1:], weights[0])
    tolerance = 1e-5 if dtype is float32 else 1e-11
    check_all(result, (out, mean, (variance + 1e-5).rsqrt()), dtype, tolerance)
    check_all(back, grads, dtype, 10 * tolerance)


def check_all(
    results: Sequence[TensorData],
    expected: Sequence[torch.Tensor],
    dtype: DType,
    tolerance: float,
) -> None:
    assert len(results) == len(expected)
    for result, want in zip(results, expected):
        assert result.is_contiguous()
        assert_close(result, want.detach().numpy().astype(dtype.numpy), None, tolerance)


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 2), (4, 3, 1), (2, 5, 9), (8, 16, 33), (3, 0, 4), (1, 2, 1030)]
)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(
    backend: Any, dtype: DType, layout: str, shape: Shape, affine: bool
) -> None:
    grad, a = numbers(shape, dtype, 4), 2 + numbers(shape, dtype, 1)
    w, b = (numbers(shape[1:2], dtype, seed) for seed in (2, 3))
    if not affine:
        w, b = np.ones_like(w), np.zeros_like(b)
    wanted = [tensor(c).double().requires_grad_() for c in (a, w, b)]
    mean = wanted[0].mean((0, 2))
    variance = ((wanted[0] - mean[:, None]) ** 2).mean((0, 2))
    normal = (wanted[0] - mean[:, None]) / torch.sqrt(variance + 1e-5)[:, None]
    out = normal * wanted[1][:, None] + wanted[2][:, None]
    grads = torch.autograd.grad(out, wanted, tensor(grad).double())

    x, weight, bias, g = (make(c, name_of(backend), layout) for c in (a, w, b, grad))
    weights = (weight, bias) if affine else (None, None)
    result = backend.batch_norm(x, *weights, 1e-5)
    back = backend.batch_norm_backward(g, x, *result[1:], weights[0], 1e-5)
    tolerance = 1e-5 if dtype is float32 else 1e-11
    check_all(result, (out, mean, variance), dtype, tolerance)
    check_all(back, grads, dtype, 10 * tolerance)


@pytest.mark.parametrize("shift", [1e3, 1e4])
def test_norms_are_accurate_far_from_zero(backend: Any, shift: float) -> None:
    """The variance is not a small difference of two large numbers."""
    a = numbers((4, 300)) + np.float32(shift)
    x = make(a, name_of(backend))
    variance = a.astype(np.float64).var(1)
    rstd = array_of(backend.layer_norm(x, None, None, 1e-5)[2])
    np.testing.assert_allclose(rstd, 1 / np.sqrt(variance + 1e-5), rtol=1e-4)
    stats = backend.batch_norm(x.view((1, 4, 300)), None, None, 1e-5)
    np.testing.assert_allclose(array_of(stats[2]), variance, rtol=1e-4)
