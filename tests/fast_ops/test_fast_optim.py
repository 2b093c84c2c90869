"""Fused optimizer steps of the CPU backend, against torch.optim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from minitorch import dtypes
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

SHAPES = [(3,), (40, 50), (200, 300), ()]
STEPS = 4


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run_torch(kind: Any, **options: Any) -> list[np.ndarray]:
    params = [torch.nn.Parameter(torch.from_numpy(numbers(s, 0))) for s in SHAPES]
    optimizer = kind(params, **options)
    for step in range(STEPS):
        for p, shape in zip(params, SHAPES):
            p.grad = torch.from_numpy(np.array(numbers(shape, step + 1)))
        optimizer.step()
    return [p.detach().numpy() for p in params]


def tensors(seed: int | None) -> list[TensorData]:
    """One tensor for each shape; the third is transposed in memory."""
    made = []
    for shape in SHAPES:
        array = np.zeros(shape, np.float32) if seed is None else numbers(shape, seed)
        if shape == SHAPES[2]:
            made.append(cpu.from_numpy(array.T.copy()).permute((1, 0)))
        else:
            made.append(cpu.from_numpy(np.array(array)))
    return made


def check(params: list[TensorData], expected: list[np.ndarray]) -> None:
    for p, e in zip(params, expected):
        np.testing.assert_allclose(cpu.to_numpy(p), e, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(weight_decay: float, decoupled: bool) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    expected = run_torch(kind, lr=0.02, betas=(0.8, 0.95), weight_decay=weight_decay)
    params, m, v = tensors(0), tensors(None), tensors(None)
    for step in range(STEPS):
        cpu.adam_step(
            params, tensors(step + 1), m, v, step + 1, 0.02, 0.8, 0.95, 1e-8,
            weight_decay, decoupled,
        )  # fmt: skip
    check(params, expected)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd(nesterov: bool, momentum: float, weight_decay: float) -> None:
    if nesterov and momentum == 0:
        pytest.skip("Nesterov's method needs momentum")
    damp = 0.0 if nesterov else 0.3 * momentum
    expected = run_torch(
        torch.optim.SGD, lr=0.1, momentum=momentum, dampening=damp,
        weight_decay=weight_decay, nesterov=nesterov,
    )  # fmt: skip
    params = tensors(0)
    buffers = None
    if momentum:  # what a new buffer holds must not matter, not even NaN
        buffers = [cpu.full(s, float("nan"), dtypes.float32) for s in SHAPES]
    for step in range(STEPS):
        cpu.sgd_step(
            params, tensors(step + 1), buffers, 0.1, momentum, damp, weight_decay,
            nesterov, step == 0,
        )  # fmt: skip
    check(params, expected)


def test_tensors_of_one_parameter_must_have_one_type() -> None:
    p = cpu.full((3,), 1.0, dtypes.float32)
    grad = cpu.full((3,), 1.0, dtypes.float64)
    with pytest.raises(TypeError, match="float64"):
        cpu.sgd_step([p], [grad], None, 0.1, 0.0, 0.0, 0.0, False, True)
