"""The matrix product in all of PyTorch's cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import TORCH_DTYPES, assert_same
from strategies import broadcastable_shapes, layouts, sample, seeds

import minitorch

sizes = st.integers(0, 5)


@given(
    batch=broadcastable_shapes(), m=sizes, k=sizes, n=sizes, seed=seeds, data=st.data()
)
def test_batches_of_any_layout(device, batch, m, k, n, seed, data):
    first, second = batch.input_shapes
    a = sample(device, (*first, m, k), minitorch.float64, data.draw(layouts), seed)
    b = sample(device, (*second, k, n), minitorch.float64, data.draw(layouts), seed + 1)
    expected = torch.tensor(a.array) @ torch.tensor(b.array)
    assert_same(a.tensor @ b.tensor, expected, 1e-12)


@pytest.mark.parametrize(
    "m, k, n", [(17, 33, 65), (64, 64, 64), (1, 129, 1), (65, 1, 9)]
)
def test_sizes_around_blocks(device, m, k, n):
    if device == "simple" and m * k * n > 40_000:
        m, k, n = m // 4 + 1, k // 4 + 1, n // 4 + 1
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    for dtype in (minitorch.float32, minitorch.float64, minitorch.int64):
        x = minitorch.tensor(a * 4, dtype=dtype, device=device).requires_grad_(
            dtype.is_floating_point
        )
        y = minitorch.tensor((b * 4).T, dtype=dtype, device=device).T
        s = torch.tensor(a * 4, dtype=TORCH_DTYPES[dtype])
        t = torch.tensor(b * 4, dtype=TORCH_DTYPES[dtype])
        tolerance = 1e-4 if dtype is minitorch.float32 else 1e-10
        assert_same(x @ y, s @ t, tolerance)
        if dtype.is_floating_point:
            (x @ y).sum().backward()
            assert_same(x.grad, t.sum(1).expand(m, k), tolerance)


def test_nan_and_infinity_spread(device):
    a = [[float("nan"), 0.0], [1.0, float("inf")]]
    x, t = minitorch.tensor(a, device=device), torch.tensor(a)
    assert_same(x @ x, t @ t)
    zeros = minitorch.zeros(2, 2, device=device)
    assert_same(x @ zeros, t @ torch.zeros(2, 2))


def test_addmm_does_not_look_at_an_input_that_counts_nothing(device):
    nan, a = (minitorch.full((2, 2), x, device=device) for x in (float("nan"), 1.0))
    assert nan.addmm(a, a, beta=0).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_addmm_of_halves_and_in_autocast(kind):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((3,), (2, 4), (4, 3))]
    found = []
    for lib in (minitorch, torch):
        x, a, b = map(lib.tensor, arrays)
        dtype = getattr(lib, kind)
        halves = [t.to(dtype) for t in (x, a, b)]
        with lib.autocast("cpu", dtype=dtype):
            cast = lib.addmm(x, a, halves[2], beta=0.5)
        found.append([lib.addmm(*halves, alpha=2), cast])
    assert_same(*found, 0.02)


def test_addmm_of_what_does_not_fit():
    a, ints = minitorch.ones(2, 2), minitorch.ones(2, 2).long()
    with pytest.raises(
        ValueError, match=r"addmm: input is \(1, 2, 2\), which does not"
    ):
        minitorch.addmm(a[None], a, a)
    with pytest.raises(ValueError, match="addmm: the second operand is"):
        minitorch.addmm(a, a, a[0])
    with pytest.raises(TypeError, match=r"addmm: .* convert one"):
        minitorch.addmm(a.double(), a, a)
    with pytest.raises(TypeError, match=r"alpha 0.5, and the operands are int64"):
        minitorch.addmm(ints, ints, ints, alpha=0.5)
    with pytest.raises(TypeError, match="addmm: expected a minitorch tensor, got int"):
        minitorch.addmm(1, a, a)
