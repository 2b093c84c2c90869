"""Mixtures of experts: by one process, and by ranks that are threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import parallel_checks
import pytest
import torch

import minitorch
from minitorch import nn
from minitorch.distributed import init_device_mesh, spawn_threads
from minitorch.distributed.tensor.parallel import ExpertParallel, parallelize_module


@pytest.mark.parametrize("n, top_k, factor", [(2, 2, 1.0), (4, 1, 0.7), (4, 2, 9.0)])
def test_ranks_share_experts(n: int, top_k: int, factor: float) -> None:
    apart = spawn_threads(parallel_checks.shares_experts, n, top_k, factor)
    assert max(apart) < 1e-10


def mixture(top_k: int, factor: float) -> Any:
    minitorch.manual_seed(1)
    options: Any = {"dtype": minitorch.float64, "device": "simple"}
    return nn.MixtureOfExperts(4, 6, 3, top_k, factor, **options)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("factor", [0.4, 1.0, 10.0])
def test_each_token_hears_its_experts(top_k: int, factor: float) -> None:
    """Against loops over rows, choices and tokens, in the order of who comes first."""
    layer = mixture(top_k, factor)
    numbers = np.random.default_rng(0).standard_normal((2, 7, 4))
    found, balance = layer(minitorch.tensor(numbers, device="simple"))
    weights = layer.gate.weight, layer.up, layer.down
    gate, up, down = (torch.tensor(w.detach().numpy()) for w in weights)
    x = torch.tensor(numbers)
    p = (x @ gate.T).softmax(-1).numpy()
    places = min(7, int(np.ceil(top_k * 7 / 3 * factor)))
    expected, loads = np.zeros((2, 7, 4)), np.zeros((2, 3))
    for b in range(2):
        free = [places] * 3
        order = np.argsort(-p[b], -1)[:, :top_k]
        for choice in range(top_k):
            for t in range(7):
                e = order[t, choice]
                loads[b, e] += 1 / (7 * top_k)
                if free[e]:
                    free[e] -= 1
                    share = p[b, t, e]
                    share /= p[b, t, order[t]].sum() if top_k > 1 else 1
                    said = torch.nn.functional.gelu(x[b, t] @ up[e]) @ down[e]
                    expected[b, t] += share * said.numpy()
    np.testing.assert_allclose(found.detach().numpy(), expected, 1e-12, 1e-12)
    even = 3 * (loads * p.mean(1)).sum(-1).mean()
    assert balance.item() == pytest.approx(even, rel=1e-12)


def test_gradients_are_slopes() -> None:
    layer = mixture(2, 0.6)
    numbers = np.random.default_rng(3).standard_normal((2, 5, 4))
    x = minitorch.tensor(numbers, device="simple")
    inputs = [x.requires_grad_(), *layer.parameters()]

    def loss() -> Any:
        y, balance = layer(x)
        return (y * y).sum() + balance

    loss().backward()
    for parameter in inputs:
        direction = minitorch.tensor(
            np.random.default_rng(4).standard_normal(tuple(parameter.shape)),
            device="simple",
        )
        ends = []
        for sign in (1, -2):
            with minitorch.no_grad():
                parameter.add_(direction * (sign * 1e-6))
                ends.append(loss().item())
        with minitorch.no_grad():
            parameter.add_(direction * 1e-6)
        slope = (ends[0] - ends[1]) / 2e-6
        assert (parameter.grad * direction).sum().item() == pytest.approx(slope, 1e-5)


def test_an_expert_may_have_room_for_all() -> None:
    assert mixture(1, float("inf")).capacity(5) == 5


@pytest.mark.parametrize("rows, tokens", [(0, 5), (2, 0)])
def test_nobody_asks(rows: int, tokens: int) -> None:
    layer = mixture(2, 1.0)
    x = minitorch.ones(rows, tokens, 4, dtype=minitorch.float64, device="simple")
    y, _ = layer(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert (layer.up.grad == 0).all()


def test_what_is_refused() -> None:
    for sizes in ((4, 6, 3, 4), (4, 6, 0, 0), (4, 6, 3, 1, 0.0)):
        with pytest.raises(ValueError, match="expected 1 <= top_k <= num_experts"):
            nn.MixtureOfExperts(*sizes)
    with pytest.raises(ValueError, match=r"x is \(7, 4\); expected \(B, T, 4\)"):
        mixture(1, 1.0)(minitorch.ones(7, 4, device="simple"))

    def program() -> None:
        parallelize_module(
            mixture(1, 1), init_device_mesh("cpu", (2,)), ExpertParallel()
        )

    with pytest.raises(
        RuntimeError, match="3 experts and 2 ranks; expected a multiple"
    ):
        spawn_threads(program, 2)
