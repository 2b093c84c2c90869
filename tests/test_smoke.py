"""A minute before each commit: does every part of the house still stand?

`pytest -m smoke` runs these: one test for each thing that a user does first. What they
find is told in detail by the tests of the part that fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import minitorch
from minitorch import nn
from minitorch.profiler import profile

pytestmark = pytest.mark.smoke


def both(
    device: str, *shapes: tuple[int, ...]
) -> list[tuple[minitorch.Tensor, torch.Tensor]]:
    """The same random numbers for both libraries, with gradients."""
    rng = np.random.default_rng(0)
    pairs = []
    for shape in shapes:
        a = rng.standard_normal(shape).astype(np.float32)
        ours = minitorch.tensor(a, device=device, requires_grad=True)
        pairs.append((ours, torch.tensor(a, requires_grad=True)))
    return pairs


def test_an_expression_and_its_gradients(device: str) -> None:
    (x, x2), (w, w2), (b, b2) = both(device, (5, 3), (3, 4), (4,))
    ours = ((x @ w + b).relu().softmax(1) ** 2).sum()
    theirs = ((x2 @ w2 + b2).relu().softmax(1) ** 2).sum()
    ours.backward()
    theirs.backward()
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for mine, other in ((x, x2), (w, w2), (b, b2)):
        assert mine.grad is not None and other.grad is not None
        np.testing.assert_allclose(mine.grad.tolist(), other.grad.tolist(), 1e-4, 1e-5)


def test_views_share_memory(device: str) -> None:
    x = minitorch.zeros(2, 3, device=device)
    x.t()[1] = 5.0
    assert x.tolist() == [[0, 5, 0], [0, 5, 0]]


def test_a_network_learns_xor(device: str) -> None:
    minitorch.manual_seed(1)
    x = minitorch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], device=device)
    y = minitorch.tensor([[0.0], [1], [1], [0]], device=device)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = minitorch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_a_convolutional_network_takes_a_step(device: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    ).to(device)
    x = minitorch.randn(2, 1, 6, 6, device=device)
    y = minitorch.tensor([0, 2], device=device)
    nn.functional.cross_entropy(model(x), y).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    minitorch.save(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(minitorch.load(tmp_path / "model.safetensors"))
    assert other.weight.tolist() == model.weight.tolist()


def test_the_profiler_sees_an_operation() -> None:
    with profile() as prof:
        minitorch.ones(2) + 1.0
    assert "Add" in prof.key_averages().table()


def run(*words: str | Path) -> str:
    """What `python -m minitorch` prints; it must not fail."""
    command = [sys.executable, "-m", "minitorch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_command_line_knows_its_version_and_starts_an_assignment(
    tmp_path: Path,
) -> None:
    assert minitorch.__version__ in run("--version")
    run("start", "a1", tmp_path / "a1")
    assert "todo(" in (tmp_path / "a1" / "minitorch" / "scalar.py").read_text()
