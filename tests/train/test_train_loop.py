"""The training loop against PyTorch, the schedule, and what is measured."""

from __future__ import annotations

import gc
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch import optim
from minitorch.optim.lr_scheduler import LambdaLR
from minitorch.train import ConvNet, LeNet, Mlp, evaluate, train_epoch
from minitorch.train.running import prepared
from minitorch.train.schedule import one_cycle

torch = pytest.importorskip("torch")


def batches(sizes: list[int], shape: tuple[int, ...], classes: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (
            rng.standard_normal((n, *shape), dtype=np.float32),
            rng.integers(0, classes, n),
        )
        for n in sizes
    ]


def ours(pairs: list[Any]) -> list[Any]:
    return [(minitorch.tensor(x), minitorch.tensor(y)) for x, y in pairs]


def torch_mlp(model: Mlp) -> Any:
    """PyTorch's network with the same weights."""
    layers: list[Any] = []
    for linear in [*model.hidden, model.output]:
        out, inputs = linear.weight.shape
        layer = torch.nn.Linear(inputs, out)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(linear.weight.detach().numpy()))
            layer.bias.copy_(torch.tensor(linear.bias.detach().numpy()))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(torch.nn.Flatten(), *layers[:-1])


def test_an_epoch_is_pytorchs() -> None:
    minitorch.manual_seed(3)
    model = Mlp(6, hidden=16, layers=2, classes=4)
    reference = torch_mlp(model)
    pairs = batches([16] * 11 + [5], (2, 3), 4)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    scheduler = LambdaLR(optimizer, one_cycle(12))
    seen: list[float] = []
    train_epoch(
        model, ours(pairs), optimizer, scheduler, "cpu",
        lambda loss, scores, y: seen.append(loss.item()),
    )  # fmt: skip
    theirs = torch.optim.AdamW(reference.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, one_cycle(12))
    expected = []
    for x, y in pairs:
        loss = torch.nn.functional.cross_entropy(
            reference(torch.tensor(x)), torch.tensor(y)
        )
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        schedule.step()
        expected.append(loss.item())
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    for a, b in zip(model.parameters(), reference.parameters()):
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("sizes", [[4], [4, 4], [5, 3, 1]])
def test_evaluate_weighs_examples_not_batches(sizes: list[int]) -> None:
    model = Mlp(6, hidden=8, layers=1, classes=3)
    pairs = batches(sizes, (6,), 3)
    result = evaluate(model, ours(pairs), "cpu")
    x = torch.tensor(np.concatenate([x for x, _ in pairs]))
    y = torch.tensor(np.concatenate([y for _, y in pairs]))
    scores = torch_mlp(model)(x).detach()
    loss = torch.nn.functional.cross_entropy(scores, y).item()
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.accuracy == pytest.approx((scores.argmax(1) == y).float().mean())
    np.testing.assert_allclose(result.probabilities, scores.softmax(1), atol=1e-5)
    assert np.array_equal(result.labels, y)


def test_evaluate_records_nothing_and_drops_nothing() -> None:
    minitorch.manual_seed(0)
    model = ConvNet()
    pairs = ours(batches([8], (1, 28, 28), 10))
    first, second = (evaluate(model, pairs, "cpu") for _ in range(2))
    assert np.array_equal(first.probabilities, second.probabilities)
    assert all(p.grad is None for p in model.parameters())
    assert minitorch.is_grad_enabled()
    assert not model.training


@pytest.mark.parametrize("make", [ConvNet, LeNet])
def test_networks_read_digits(make: Any) -> None:
    scores = make()(minitorch.zeros(3, 1, 28, 28))
    assert tuple(scores.shape) == (3, 10)


def test_conv_net_is_pytorchs() -> None:
    model = ConvNet().eval()
    x = np.random.default_rng(1).standard_normal((4, 1, 28, 28), dtype=np.float32)
    w = {k: torch.tensor(v.detach().numpy()) for k, v in model.state_dict().items()}
    f = torch.nn.functional
    h = f.conv2d(torch.tensor(x), w["conv1.weight"], w["conv1.bias"])
    h = f.max_pool2d(f.relu(h), 2)  # ReLU first, as in textbooks: it is the same
    h = f.max_pool2d(f.relu(f.conv2d(h, w["conv2.weight"], w["conv2.bias"])), 2)
    expected = f.linear(h.flatten(1), w["output.weight"], w["output.bias"])
    scores = model(minitorch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 5000))
def test_one_cycle_rises_then_falls(steps: int) -> None:
    factor = one_cycle(steps)
    values = [factor(step) for step in range(steps)]
    top = int(np.argmax(values))
    assert 0 < min(values) and max(values) == 1.0
    assert all(a < b for a, b in pairwise(values[: top + 1]))
    assert all(a >= b for a, b in pairwise(values[top:]))
    assert factor(steps) < 1e-9 or steps == 1
    if steps >= 100:
        assert abs(top / steps - 0.2) < 0.02 and values[-1] < 0.01


@pytest.mark.parametrize("frozen", [0, 7])
def test_what_was_there_is_no_garbage(frozen: int, tmp_path: Any, monkeypatch: Any):
    """Until training ends, and unless somebody else has frozen it."""
    done: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    config = SimpleNamespace(profile=False, device="cpu", graph=True)
    with pytest.raises(KeyError), prepared(len, config, tmp_path, print) as step:
        assert step is len and done == ([] if frozen else ["collect", "freeze"])
        raise KeyError
    assert done[2:] == ([] if frozen else ["unfreeze"])
