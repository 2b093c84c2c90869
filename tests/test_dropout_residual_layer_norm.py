"""Dropout, residual and layer norm in one operation, against the three one by one."""

from __future__ import annotations

import numpy as np
import pytest

import minitorch as mt
import minitorch.nn.functional as F
from helpers import DEVICES, loaded


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    loaded(request.param)
    return request.param


def values(tensor: mt.Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().cpu().numpy()


def leaves(device: str, rows: int, width: int) -> list[mt.Tensor]:
    rng = np.random.default_rng(rows * 1000 + width)
    shapes = ((rows, width), (rows, width), (width,), (width,))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [mt.tensor(a, device=device, requires_grad=True) for a in arrays]


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 5), (7, 64), (2, 33), (0, 4)])
def test_it_is_the_composition(device: str, rows: int, width: int, p: float) -> None:
    fused, composed = leaves(device, rows, width), leaves(device, rows, width)
    up = np.random.default_rng(1).standard_normal((rows, width)).astype(np.float32)
    x, residual, weight, bias = composed
    mt.manual_seed(5)
    expected = F.layer_norm(F.dropout(x, p) + residual, width, weight, bias)
    mt.manual_seed(5)
    out = F.dropout_residual_layer_norm(*fused[:2], width, *fused[2:], p=p)
    np.testing.assert_allclose(values(out), values(expected), rtol=1e-5, atol=1e-5)
    for result in (expected, out):
        result.backward(mt.tensor(up, device=device))
    for ours, theirs in zip(fused, composed):
        np.testing.assert_allclose(
            values(ours.grad), values(theirs.grad), rtol=1e-4, atol=1e-4
        )


def test_without_training_nothing_is_dropped() -> None:
    x, residual, weight, bias = leaves("cpu", 4, 8)
    out = F.dropout_residual_layer_norm(
        x, residual, 8, weight, bias, p=0.9, training=False
    )
    expected = F.layer_norm(x + residual, 8, weight, bias)
    np.testing.assert_allclose(values(out), values(expected), rtol=1e-6)


def test_bad_arguments_are_named() -> None:
    x = mt.ones(2, 3)
    with pytest.raises(ValueError, match=r"x is \(2, 3\) and residual \(3, 2\)"):
        F.dropout_residual_layer_norm(x, mt.ones(3, 2), 3)
    with pytest.raises(ValueError, match=r"p is 1\.0; it must be from 0 to below 1"):
        F.dropout_residual_layer_norm(x, x, 3, p=1.0)
    with pytest.raises(ValueError, match="normalized_shape"):
        F.dropout_residual_layer_norm(x, x, 4)
