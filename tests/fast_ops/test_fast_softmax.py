"""Softmax and cross-entropy of the CPU backend against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

SHAPES = [
    ((), 0),
    ((5,), 0),
    ((3, 1), 1),
    ((64, 10), 1),
    ((7, 33), 0),
    ((2, 3, 40, 5), 2),
    ((3, 0), 1),
    ((0, 3), 1),
    ((500, 129), 1),  # large enough for all threads
    ((3, 20_000), 1),
]
PAIRS = [
    (cpu.softmax, cpu.softmax_backward, torch.softmax),
    (cpu.log_softmax, cpu.log_softmax_backward, torch.log_softmax),
]
EPS = {torch.float32: 5e-6, torch.float64: 1e-13}


def data(tensor: torch.Tensor) -> TensorData:
    return cpu.from_numpy(tensor.detach().numpy())


def close(got: TensorData, expected: torch.Tensor, tolerance: float) -> None:
    np.testing.assert_allclose(
        cpu.to_numpy(got), expected.numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize(("forward", "backward", "oracle"), PAIRS)
def test_against_pytorch(
    forward: Callable,
    backward: Callable,
    oracle: Callable,
    shape: tuple[int, ...],
    dim: int,
    dtype: torch.dtype,
) -> None:
    x = torch.randn(shape, dtype=dtype) * 5
    wide = x.double().requires_grad_()
    out = oracle(wide, dim)
    grad = torch.randn(shape, dtype=dtype)
    (dx,) = torch.autograd.grad(out, wide, grad.double())
    got = forward(data(x), dim)
    assert got.shape == shape and got.is_contiguous()
    close(got, out.detach(), EPS[dtype])
    close(backward(data(grad), got, dim), dx, 20 * EPS[dtype])


@pytest.mark.parametrize("columns", [3, 40])
@pytest.mark.parametrize(("forward", "_backward", "oracle"), PAIRS)
def test_infinities_and_nan(
    forward: Callable, _backward: Callable, oracle: Callable, columns: int
) -> None:
    x = torch.randn(6, columns)
    x[0], x[1, :2], x[2, 1], x[3, 0] = -torch.inf, -torch.inf, torch.nan, torch.inf
    x[4] += 1e30
    close(forward(data(x), 1), oracle(x, 1), 5e-6)


def test_strided_operands() -> None:
    x = torch.randn(40, 2, 30).permute(2, 1, 0)[::2]
    close(cpu.softmax(data(x), 2), torch.softmax(x, 2), 1e-6)
    close(cpu.softmax(data(x), 0), torch.softmax(x, 0), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (5, 3), (300, 1000), (0, 5)])
def test_cross_entropy(rows: int, classes: int, dtype: torch.dtype) -> None:
    logits, target = torch.randn(rows, classes, dtype=dtype) * 3, torch.arange(rows)
    target = target % classes
    if rows > 1:
        target[1] = -100
    wide = logits.double().requires_grad_()
    losses = torch.nn.functional.cross_entropy(wide, target, reduction="none")
    grad = torch.randn(rows, dtype=dtype)
    (dx,) = torch.autograd.grad(losses, wide, grad.double())
    got, log_sums = cpu.cross_entropy(data(logits), data(target), -100)
    close(got, losses.detach(), EPS[dtype])
    close(log_sums, torch.logsumexp(wide.detach(), 1), EPS[dtype])
    back = cpu.cross_entropy_backward(
        data(grad), data(logits), data(target), log_sums, -100
    )
    close(back, dx, 10 * EPS[dtype])


@pytest.mark.parametrize("bad", [3, -1, 10**12])
def test_bad_target_is_named(bad: int) -> None:
    target = torch.tensor([0, 2, bad, 7])
    with pytest.raises(IndexError, match=rf"target\[2\] is {bad}, .* 3 classes"):
        cpu.cross_entropy(data(torch.zeros(4, 3)), data(target), -100)


def test_large_logits_keep_their_digits() -> None:
    x = torch.tensor([[1e8, 1e8 - 16, 1e8 + 8]])
    losses, _ = cpu.cross_entropy(data(x), data(torch.tensor([0])), -100)
    expected = torch.nn.functional.cross_entropy(x.double(), torch.tensor([0]))
    np.testing.assert_allclose(cpu.to_numpy(losses), [expected.item()], rtol=1e-6)


def test_ignored_target_may_be_a_class() -> None:
    losses, _ = cpu.cross_entropy(
        data(torch.zeros(2, 3)), data(torch.tensor([1, 2])), 2
    )
    np.testing.assert_allclose(
        cpu.to_numpy(losses), np.array([np.log(3), 0]), rtol=1e-6
    )
