"""Attention and its gradients, on every installed backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import by_float, by_layout, name_of, tensor
from helpers import array_of, make, numbers
from minitorch.backend.attention import KEEP_ALL, Drop
from minitorch.dtypes import DType, float32, float64
from minitorch.simple_ops import random
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
    arrays: list[np.ndarray], scale: float, causal: bool,
    mask: np.ndarray | None = None, drop: Drop = KEEP_ALL,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """out, logsumexp, and the three gradients, in float64 step by step."""
    q, k, v, grad = (tensor(a).double() for a in arrays)
    for x in (q, k, v):
        x.requires_grad_()
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).mT * scale
    if causal:
        hidden = torch.ones(scores.shape[2:]).triu(1) > 0
        scores = scores.masked_fill(hidden, -torch.inf)
    if mask is not None:
        added = torch.tensor(mask)
        if mask.dtype == bool:
            added = torch.zeros(mask.shape).masked_fill(~added, -torch.inf)
        scores = scores + added
    none = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    out = (weights * torch.tensor(kept(weights.shape, drop))) @ v.repeat_interleave(
        group, 1
    )
    grads = torch.autograd.grad(out, (q, k, v), grad)
    results = (out, torch.logsumexp(scores, -1), *grads)
    return tuple(x.detach().numpy() for x in results)


def kept(shape: Any, drop: Drop) -> np.ndarray:
    """`kept_weights`: each row starts with a new block of four words."""
    p, seed, offset = drop
    *rows, keys = shape
    words = random.words(math.prod(rows) * -(-keys // 4) * 4, seed, offset)
    found = np.array(list(words), np.int64).reshape(*rows, -(-keys // 4) * 4)
    return (found[..., :keys] >= p * 2**32) / (1 - p)


def attended(
    backend: Any, arrays: list[np.ndarray], scale: float, causal: bool,
    layout: str = "contiguous", out_layout: str = "contiguous",
    mask: TensorData | None = None, drop: Drop = KEEP_ALL,
) -> list[TensorData]:  # fmt: skip
    """What the backend makes of the same; outputs lie as `out_layout` says."""
    device, dtype = name_of(backend), arrays[0].dtype

    def room(shape: tuple[int, ...]) -> TensorData:
        return make(np.full(shape, 7, dtype), device, out_layout)

    q, k, v, grad = (make(a, device, layout) for a in arrays)
    out, total = room(grad.shape), room(grad.shape[:3])
    options = scale, causal, mask, drop
    backend.attention(out, total, q, k, v, *options)
    grads = [room(x.shape) for x in (q, k, v)]
    backend.attention_backward(*grads, grad, q, k, v, out, total, *options)
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


# ------------------------------------------------------------------- dropout and masks

DROP: Drop = (0.3, 12345678901, 2**32 - 5)


@by_float
def test_dropout_of_weights(backend: Any, dtype: DType) -> None:
    """The words are those of `kept_weights`, in the backward pass as well."""
    for sizes, causal in (
        ((2, 4, 2, 5, 7, 3, 4), True),
        ((1, 2, 2, 3, 8, 4, 4), False),
    ):
        arrays = operands(sizes, dtype)
        right = expected(arrays, 0.7, causal, None, DROP)
        got = attended(backend, arrays, 0.7, causal, drop=DROP)
        check(got, right)
        shape = (*arrays[0].shape[:3], arrays[1].shape[2])
        factors = array_of(backend.kept_weights(shape, DROP, got[0].dtype))
        np.testing.assert_allclose(factors, kept(shape, DROP), rtol=1e-6)


@by_float
@pytest.mark.parametrize("kind", ["bool", "numbers"])
def test_masks_of_attention(backend: Any, dtype: DType, kind: str) -> None:
    """Of any strides; a query that sees no key gets zeros, and gives no gradient."""
    arrays = operands((2, 4, 2, 5, 7, 3, 4), dtype)
    for shape, drop in (
        ((2, 4, 5, 7), KEEP_ALL),
        ((1, 1, 5, 7), DROP),
        ((2, 1, 1, 7), DROP),
        ((1, 4, 5, 1), KEEP_ALL),
    ):
        mask = np.random.default_rng(0).random(shape) > 0.4
        mask[-1, -1, 0] = False
        if kind == "numbers":
            mask = np.where(mask, numbers(shape, dtype), -np.inf).astype(dtype.numpy)
        whole = np.broadcast_to(mask, (2, 4, 5, 7))
        given = make(mask, name_of(backend)).expand(whole.shape)
        right = expected(arrays, 0.7, False, whole, drop)
        check(attended(backend, arrays, 0.7, False, mask=given, drop=drop), right)


def test_a_row_of_the_lowest_numbers_is_none_of_infinities(backend: Any) -> None:
    """So PyTorch's users hide keys, too: such a row is a mean, as its scores drown."""
    arrays = operands((1, 1, 1, 2, 5, 3, 4), float32)
    mask = np.full((1, 1, 2, 5), np.finfo(np.float32).min, np.float32)
    given = make(mask, name_of(backend))
    out, _, *grads = attended(backend, arrays, 0.7, False, mask=given)
    mean = np.broadcast_to(arrays[2].mean(2, keepdims=True), out.shape)
    np.testing.assert_allclose(array_of(out), mean, rtol=1e-5)
    assert all(np.isfinite(array_of(grad)).all() for grad in grads)


def test_triangles(backend: Any) -> None:
    for rows, cols, diagonal in ((3, 5, 0), (4, 2, -1), (2, 4, 2), (0, 3, 0)):
        got = array_of(backend.triangle(rows, cols, diagonal))
        assert got.dtype == bool
        assert np.array_equal(got, np.tri(rows, cols, diagonal, bool))
