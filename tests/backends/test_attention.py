"""Attention and its gradients, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import by_float, by_layout, name_of, tensor
from helpers import array_of, make, numbers
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import TensorData

Sizes = tuple[int, int, int, int, int, int, int]  # B, H, K, L, S, E, V

SIZES: tuple[Sizes, ...] = (
    (2, 2, 2, 3, 4, 5, 6),
    (1, 4, 2, 5, 3, 2, 2),
    (2, 3, 1, 4, 4, 3, 1),
    (1, 1, 1, 1, 1, 1, 1),
    (2, 2, 1, 0, 3, 2, 2),
    (2, 2, 1, 3, 0, 2, 2),
    (0, 2, 2, 3, 3, 2, 2),
)


def operands(sizes: Sizes, dtype: DType, layout: str = "") -> list[np.ndarray]:
    """query, key, value, and a gradient of what comes of them."""
    B, H, K, L, S, E, V = sizes
    shapes = (B, H, L, E), (B, K, S, E), (B, K, S, V), (B, H, L, V)
    return [numbers(shape, dtype, i, layout) for i, shape in enumerate(shapes)]


def expected(
    arrays: list[np.ndarray], scale: float, causal: bool
) -> tuple[np.ndarray, ...]:
    """out, logsumexp, and the three gradients, in float64 step by step."""
    q, k, v, grad = (tensor(a).double() for a in arrays)
    for x in (q, k, v):
        x.requires_grad_()
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).mT * scale
    if causal:
        hidden = torch.ones(scores.shape[2:]).triu(1) > 0
        scores = scores.masked_fill(hidden, -torch.inf)
    out = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    grads = torch.autograd.grad(out, (q, k, v), grad)
    results = (out, torch.logsumexp(scores, -1), *grads)
    return tuple(x.detach().numpy() for x in results)


def attended(
    backend: Any,
    arrays: list[np.ndarray],
    scale: float,
    causal: bool,
    layout: str = "contiguous",
    out_layout: str = "contiguous",
) -> list[TensorData]:
    """What the backend makes of the same; outputs lie as `out_layout` says."""
    device, dtype = name_of(backend), arrays[0].dtype

    def room(shape: tuple[int, ...]) -> TensorData:
        return make(np.full(shape, 7, dtype), device, out_layout)

    q, k, v, grad = (make(a, device, layout) for a in arrays)
    out, total = room(grad.shape), room(grad.shape[:3])
    backend.attention(out, total, q, k, v, scale, causal)
    grads = [room(x.shape) for x in (q, k, v)]
    backend.attention_backward(*grads, grad, q, k, v, out, total, scale, causal)
    return [out, total, *grads]


def check(results: list[TensorData], right: tuple[np.ndarray, ...]) -> None:
    for got, x in zip(results, right, strict=True):
        close = 1e-11 if got.dtype is float64 else 1e-5
        np.testing.assert_allclose(array_of(got), x, rtol=close, atol=close)


@by_float
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention(backend: Any, dtype: DType, sizes: Sizes, causal: bool) -> None:
    arrays = operands(sizes, dtype)
    check(attended(backend, arrays, 0.7, causal), expected(arrays, 0.7, causal))


@by_layout
def test_layouts_of_attention(backend: Any, layout: str) -> None:
    arrays = operands((2, 4, 2, 5, 6, 3, 4), float32, layout)
    right = expected(arrays, 0.5, True)
    check(attended(backend, arrays, 0.5, True, layout), right)
    if layout != "expanded":  # an output has one place for each element
        check(attended(backend, arrays, 0.5, True, "contiguous", layout), right)


def test_between_the_outputs_of_attention_nothing_is_written(backend: Any) -> None:
    arrays = operands((1, 2, 2, 3, 3, 2, 2), float32)
    for got in attended(backend, arrays, 0.5, False, "contiguous", "stepped"):
        total = len(got.storage.array)
        everything = array_of(TensorData(got.storage, (total,)))
        assert np.isnan(everything).sum() == total - got.size


def test_attention_with_large_scores(backend: Any) -> None:
    """exp(400) overflows; the scores of a row are only compared with each other."""
    arrays = operands((1, 1, 1, 4, 6, 4, 3), float32)
    right = expected(arrays, 200.0, False)
    results = attended(backend, arrays, 200.0, False)
    np.testing.assert_allclose(array_of(results[0]), right[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(array_of(results[1]), right[1], rtol=1e-6)


def test_attention_passes_on_what_is_no_number(backend: Any) -> None:
    """To all queries that see it: keys from 2 on are seen from query 2 on."""
    for operand in (1, 2):
        arrays = operands((1, 1, 1, 4, 4, 3, 2), float32)
        arrays[operand][0, 0, 2] = np.nan
        out = array_of(attended(backend, arrays, 0.5, True)[0])[0, 0]
        assert np.isnan(out[2:]).all()
        assert operand == 2 or np.isfinite(out[:2]).all()
