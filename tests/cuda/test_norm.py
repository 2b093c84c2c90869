"""Layer norm and batch norm of the CUDA backend against PyTorch on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import make, numbers
from minitorch import dtypes, operators
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import batch_norm, fused_norm, norm
from cuda_ops.block.rows import BLOCK, LONGEST
from cuda_ops.elementwise import zip as zip_elements
from cuda_ops.memory import empty, to_numpy
from cuda_ops.random import dropout

EPS = 1e-5
Shape = tuple[int, ...]


def assert_close(ours: TensorData, expected: np.ndarray, **tolerance: float) -> None:
    assert ours.shape == expected.shape
    np.testing.assert_allclose(to_numpy(ours), expected, **tolerance)  # type: ignore[arg-type]


def close(
    ours: TensorData, theirs: torch.Tensor, dtype: DType, scale: float = 1
) -> None:
    tol = (3e-5, 3e-5 * scale) if dtype is float32 else (1e-9, 1e-10)
    assert_close(ours, theirs.detach().numpy(), rtol=tol[0], atol=tol[1])


def parameters(n: int, dtype: DType, affine: str) -> list[np.ndarray | None]:
    weight, bias = numbers((n,), dtype, 2), numbers((n,), dtype, 3)
    return [weight if "w" in affine else None, bias if "b" in affine else None]


def check_layer_norm(
    shape: Shape, dtype: DType = float32, affine: str = "wb", layout: str = "contiguous"
) -> None:
    a = numbers(shape, dtype, layout=layout) * 3 + 5
    g = numbers(shape, dtype, 1)
    weight, bias = parameters(shape[1], dtype, affine)
    wide = [
        None if p is None else torch.tensor(p, dtype=torch.float64, requires_grad=True)
        for p in (a, weight, bias)
    ]
    expected = torch.nn.functional.layer_norm(wide[0], shape[1:], *wide[1:], EPS)
    asked = [p for p in wide if p is not None]
    slopes = torch.autograd.grad(expected, asked, torch.tensor(g).double())
    x = make(a, "cuda", layout)
    w, b = (None if p is None else make(p, "cuda") for p in (weight, bias))
    out, mean, rstd = norm.layer_norm(x, w, b, EPS)
    close(out, expected, dtype)
    close(mean, wide[0].mean(1), dtype, 5)
    close(rstd, (wide[0].var(1, correction=0) + EPS).rsqrt(), dtype)
    ours = norm.layer_norm_backward(make(g, "cuda", layout), x, mean, rstd, w)
    made = [ours[0], *(o for o, p in zip(ours[1:], (w, b)) if p is not None)]
    for one, slope in zip(made, slopes):
        close(one, slope, dtype, 10)
    half = empty(shape, dtypes.float16)
    g = make(g, "cuda", layout)
    more, *_ = norm.layer_norm_backward(g, x, mean, rstd, w, x, half)
    close(more, slopes[0] + wide[0].detach(), dtype, 10)
    rounded = to_numpy(more).astype(np.float32).astype(np.float16)
    assert np.array_equal(to_numpy(half), rounded)


@pytest.mark.parametrize("n", [2, 10, 33, 128, 132, 260, 4 * BLOCK + 4, 8 * BLOCK + 4])
def test_layer_norm(n: int) -> None:
    check_layer_norm((pick(3, 70), n))


def test_layer_norm_many_rows() -> None:
    check_layer_norm((pick(70, 5000), 36))
    check_layer_norm((pick(40, 3000), 16 * 33))


@pytest.mark.parametrize("affine", ["", "w", "b"])
def test_layer_norm_without_parameters(affine: str) -> None:
    check_layer_norm((3, 40), affine=affine)


def test_layer_norm_float64() -> None:
    check_layer_norm((3, 100), float64)


@pytest.mark.parametrize("n", [LONGEST, LONGEST + 4, LONGEST + 1])
def test_layer_norm_of_long_rows(n: int) -> None:
    check_layer_norm((2, n))


@pytest.mark.parametrize("layout", ["offset", "permuted", "stepped", "negative"])
def test_layer_norm_layouts(layout: str) -> None:
    check_layer_norm((5, 36), layout=layout)


def test_layer_norm_of_nothing() -> None:
    w = make(np.ones(3, np.float32), "cuda")
    out, mean, rstd = norm.layer_norm(
        make(np.ones((0, 3), np.float32), "cuda"), w, w, 1
    )
    assert out.shape == (0, 3) and mean.shape == rstd.shape == (0,)
    _, dw, db = norm.layer_norm_backward(out, out, mean, rstd, w)
    assert np.array_equal(to_numpy(dw), np.zeros(3)) and db.shape == (3,)
    one = norm.layer_norm(make(np.full((1, 1), 7, np.float32), "cuda"), None, None, 1)
    assert to_numpy(one[0]).item() == 0


def test_large_mean() -> None:
    a = (numbers((4, 256), float32) + 1e4).astype(np.float32)
    expected = torch.nn.functional.layer_norm(torch.tensor(a).double(), (256,))
    out, _, _ = norm.layer_norm(make(a, "cuda"), None, None, EPS)
    assert_close(out, expected.numpy(), rtol=1e-2, atol=2e-3)


# ---------------------------------------------------- dropout, residual, layer norm


@pytest.mark.parametrize(
    "shape,p",
    [
        ((3, 8), 0.0), ((3, 8), 1.0), ((5, 33), 0.3), ((2, 260), 0.3),
        ((3, 4 * BLOCK + 4), 0.5), ((1, LONGEST + 4), 0.3),
    ],
)  # fmt: skip
def test_all_in_one(shape: Shape, p: float) -> None:
    """The same as the three operations by themselves, the mask to the last bit."""
    a, r, g = (make(numbers(shape, float32, k), "cuda") for k in range(3))
    w, b = (make(numbers(shape[1:], float32, k), "cuda") for k in (3, 4))
    how = (p, 2**40 + 5, 77)
    dropped = zip_elements(operators.add, dropout(a, *how), r)
    expected = norm.layer_norm(dropped, w, b, EPS)
    ours = fused_norm.dropout_residual_layer_norm(a, r, w, b, *how, EPS)
    for one, other in zip(ours, expected):
        assert_close(one, to_numpy(other), rtol=2e-5, atol=2e-5)
    inner, dw, db = norm.layer_norm_backward(g, dropped, *expected[1:], w)
    slopes = fused_norm.dropout_residual_layer_norm_backward(
        g, a, r, *ours[1:], w, *how
    )
    for one, other in zip(slopes, (dropout(inner, *how), inner, dw, db)):
        assert_close(one, to_numpy(other), rtol=1e-4, atol=1e-4)
    kept = to_numpy(slopes[0]) != 0
    assert np.array_equal(kept, (to_numpy(dropout(inner, *how)) != 0))


# ---------------------------------------------------------------------- batch norm

BATCHES = [
    (2, 1, 1), (5, 3, 1), (40, 17, 1), (3, 2, 7), (4, 3, 49), (2, 3, 64), (3, 2, 33),
    (pick(2, 64), 2, pick(516, 3136)),
]  # fmt: skip


@pytest.mark.parametrize("shape", BATCHES)
@pytest.mark.parametrize("affine", ["wb", ""])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_batch_norm(shape: Shape, affine: str, dtype: DType) -> None:
    a, g = numbers(shape, dtype) * 3 + 2, numbers(shape, dtype, 1)
    weight, bias = parameters(shape[1], dtype, affine)
    wide = [
        None if p is None else torch.tensor(p, dtype=torch.float64, requires_grad=True)
        for p in (a, weight, bias)
    ]
    expected = torch.nn.functional.batch_norm(
        wide[0], None, None, wide[1], wide[2], True, 0, EPS
    )
    asked = [p for p in wide if p is not None]
    slopes = torch.autograd.grad(expected, asked, torch.tensor(g).double())
    x = make(a, "cuda")
    w, b = (None if p is None else make(p, "cuda") for p in (weight, bias))
    out, mean, variance = batch_norm.batch_norm(x, w, b, EPS)
    close(out, expected, dtype, 10)
    close(mean, wide[0].mean((0, 2)), dtype, 10)
    close(variance, wide[0].var((0, 2), correction=0), dtype, 10)
    ours = batch_norm.batch_norm_backward(make(g, "cuda"), x, mean, variance, w, EPS)
    for one, slope in zip(ours, slopes):
        close(one, slope, dtype, 100)


def test_batch_norm_of_nothing() -> None:
    out, mean, variance = batch_norm.batch_norm(
        make(np.zeros((0, 3, 2), np.float32), "cuda"), None, None, EPS
    )
    assert out.shape == (0, 3, 2)
    assert np.isnan(to_numpy(mean)).all() and np.isnan(to_numpy(variance)).all()
    _, dw, db = batch_norm.batch_norm_backward(out, out, mean, variance, None, EPS)
    assert not to_numpy(dw).any() and not to_numpy(db).any()


def test_batch_norm_layouts() -> None:
    a = numbers((4, 6, 10), float32)
    for layout in ("permuted", "negative", "stepped"):
        out, _, _ = batch_norm.batch_norm(make(a, "cuda", layout), None, None, EPS)
        expected = torch.nn.functional.batch_norm(
            torch.tensor(a), None, None, training=True, eps=EPS
        )
        close(out, expected, dtypes.float32)
