"""Layer norm and batch norm of the CPU backend against PyTorch in float64."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

functional = torch.nn.functional
EPS = {torch.float32: 2e-5, torch.float64: 1e-11}


def data(tensor: torch.Tensor) -> TensorData:
    return cpu.from_numpy(tensor.detach().numpy())


def close(got: TensorData, expected: torch.Tensor, tolerance: float) -> None:
    scale = max(1.0, float(expected.detach().abs().max()))
    np.testing.assert_allclose(
        cpu.to_numpy(got),
        expected.detach().numpy(),
        rtol=tolerance,
        atol=tolerance * scale,
    )


def inputs(
    shape: tuple[int, ...], size: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(0)
    sizes = (shape, (size,), (size,), shape)
    x, *rest = (torch.randn(s, generator=random, dtype=dtype) for s in sizes)
    return x * 2 + 3, *rest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (64, 768), (513, 33), (1, 5000)])
def test_layer_norm(shape: tuple[int, int], affine: bool, dtype: torch.dtype) -> None:
    x, weight, bias, grad = inputs(shape, shape[1], dtype)
    used = (weight, bias) if affine else (None, None)
    wide = [x.double().requires_grad_()]
    wide += [
        (torch.ones if i == 0 else torch.zeros)(shape[1]).double() for i in range(2)
    ]
    if affine:
        wide[1:] = [weight.double(), bias.double()]
    for each in wide[1:]:
        each.requires_grad_()
    expected = functional.layer_norm(wide[0], (shape[1],), wide[1], wide[2], 1e-5)
    gradients = torch.autograd.grad(expected, wide, grad.double())
    sources = [None if each is None else data(each) for each in used]
    out, mean, rstd = cpu.layer_norm(data(x), *sources, 1e-5)
    close(out, expected, EPS[dtype])
    close(mean, wide[0].mean(1), EPS[dtype])
    got = cpu.layer_norm_backward(data(grad), data(x), mean, rstd, sources[0])
    more = cpu.layer_norm_backward(data(grad), data(x), mean, rstd, sources[0], data(x))
    sums = gradients[0] + x.double(), *gradients[1:]
    for ours, theirs in zip((*got, *more), (*gradients, *sums)):
        close(ours, theirs, 5 * EPS[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "shape", [(2, 3, 4), (64, 16, 784), (32, 64, 1), (5, 7, 33), (1, 3, 50), (3, 1, 2)]
)
def test_batch_norm(
    shape: tuple[int, int, int], affine: bool, dtype: torch.dtype
) -> None:
    x, weight, bias, grad = inputs(shape, shape[1], dtype)
    sources = [data(weight), data(bias)] if affine else [None, None]
    wide = [x.double(), torch.ones(shape[1]).double(), torch.zeros(shape[1]).double()]
    if affine:
        wide[1:] = [weight.double(), bias.double()]
    for each in wide:
        each.requires_grad_()
    expected = functional.batch_norm(wide[0], None, None, *wide[1:], True, 0.1, 1e-5)
    gradients = torch.autograd.grad(expected, wide, grad.double())
    out, mean, variance = cpu.batch_norm(data(x), *sources, 1e-5)
    close(out, expected, EPS[dtype])
    close(mean, wide[0].mean((0, 2)), EPS[dtype])
    close(variance, wide[0].var((0, 2), unbiased=False), EPS[dtype])
    got = cpu.batch_norm_backward(data(grad), data(x), mean, variance, sources[0], 1e-5)
    for ours, theirs in zip(got, gradients):
        close(ours, theirs, 5 * EPS[dtype])


def test_large_mean_keeps_its_digits() -> None:
    """One pass over x and x^2 would give a variance of 0 or less here."""
    x = np.random.default_rng(0).standard_normal((8, 4096)) + 10_000
    narrow = x.astype(np.float32)
    _, _, rstd = cpu.layer_norm(cpu.from_numpy(narrow), None, None, 0.0)
    expected = 1 / narrow.astype(np.float64).std(1)
    np.testing.assert_allclose(cpu.to_numpy(rstd), expected, rtol=1e-3)


def test_no_rows() -> None:
    x = torch.empty(0, 4)
    out, mean, rstd = cpu.layer_norm(data(x), None, None, 1e-5)
    assert out.shape == (0, 4) and mean.shape == rstd.shape == (0,)
    dx, dw, db = cpu.layer_norm_backward(out, data(x), mean, rstd, None)
    assert dx.shape == (0, 4)
    for each in (dw, db):
        np.testing.assert_array_equal(cpu.to_numpy(each), np.zeros(4))


def test_same_bits_on_any_number_of_threads() -> None:
    x, weight, _, grad = (data(t) for t in inputs((700, 65), 65, torch.float32))
    _, mean, rstd = cpu.layer_norm(x, weight, None, 1e-5)
    many = cpu.layer_norm_backward(grad, x, mean, rstd, weight)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = cpu.layer_norm_backward(grad, x, mean, rstd, weight)
    finally:
        numba.set_num_threads(threads)
    for a, b in zip(one, many):
        np.testing.assert_array_equal(cpu.to_numpy(a), cpu.to_numpy(b))
