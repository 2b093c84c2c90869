"""Checkpointed parts of networks: the same gradients, from less memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import nothing_for_the_collector
from minitorch import nn
from minitorch.function import Context
from minitorch.profiler import profile
from minitorch.utils.checkpoint import checkpoint, checkpoint_sequential


def block(width: int = 6) -> nn.Module:
    """A part with all that is saved in one way or another, dropout among it."""
    return nn.Sequential(
        nn.Linear(width, 2 * width),
        nn.GELU(),
        nn.Dropout(0.4),
        nn.LayerNorm(2 * width),
        nn.Linear(2 * width, width),
        nn.Softmax(dim=-1),
    )


def gradients(run: Any, model: nn.Module, device: str, times: int = 1) -> list[Any]:
    """The output, and the gradients of the input and of all parameters."""
    minitorch.manual_seed(5)
    array = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    x = minitorch.tensor(array, device=device, requires_grad=True)
    model.zero_grad()
    out = run(x * 2)
    after = minitorch.rand(2)  # the generator goes on from the same place
    for _ in range(times):
        ((out - 1) ** 2).sum().backward(retain_graph=times > 1)
    found = [out, x.grad, *[p.grad for p in model.parameters()], after]
    return [t.detach().cpu().numpy() for t in found]


def test_gradients_are_the_same(device):
    model = block().to(device)
    plain = gradients(model, model, device)
    again = gradients(lambda x: checkpoint(model, x), model, device)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_memory_waits_for_the_garbage_collector():
    """A second run is gone with the backward pass, not when Python looks for cycles."""
    model = nn.Sequential(block(), block())
    x = minitorch.randn(4, 6, requires_grad=True)
    with nothing_for_the_collector():
        checkpoint_sequential(model, 2, x).sum().backward()
        (checkpoint(model, x) ** 2).sum().backward()
        with minitorch.autocast("cpu", minitorch.bfloat16):
            loss = checkpoint(model, x).float().sum()
        loss.backward()
        del loss  # what a name still holds is no garbage


def test_twice_through_one_graph_and_in_parts():
    model = nn.Sequential(block(), block(), block())
    plain = gradients(model, model, "cpu", times=2)
    nested = gradients(
        lambda x: checkpoint(lambda y: model[2](checkpoint(model[:2], y)), x),
        model, "cpu", times=2,
    )  # fmt: skip
    parts = gradients(lambda x: checkpoint_sequential(model, 2, x), model, "cpu", 2)
    for a, *others in zip(plain, nested, parts, strict=True):
        for b in others:
            np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("few_objects")
def test_what_is_saved_is_not_kept():
    """Between forward and backward no activation inside lives."""
    inside: list[Any] = []

    def part(x: minitorch.Tensor) -> minitorch.Tensor:
        y = (x * x).exp()
        inside.append(weakref.ref(y.raw.storage))
        return (y * y).sum()

    x = minitorch.ones(4, requires_grad=True)
    kept = part(x)
    gc.collect()
    assert inside[0]() is not None
    del kept
    out = checkpoint(part, x)
    gc.collect()
    assert inside[1]() is None
    out.backward()
    assert len(inside) == 3
    gc.collect()
    assert inside[2]() is None
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.exp(2), rtol=1e-6)


def test_closures_arguments_and_several_outputs():
    w = minitorch.tensor([2.0, 3.0], requires_grad=True)
    x = minitorch.tensor([1.0, 4.0], requires_grad=True)

    def part(a: Any, factor: float, *, more: Any = None) -> tuple[Any, Any]:
        assert minitorch.is_grad_enabled() is True
        with minitorch.no_grad():
            constant = (w * 3).sum()
        return a * w * factor, more.exp() + constant

    first, second = checkpoint(part, x, 2.0, more=x)
    (first.sum() + second.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * w.detach().numpy() + np.exp([1, 4]))
    np.testing.assert_allclose(w.grad.numpy(), [2.0, 8.0])


def test_without_recording_it_just_runs():
    calls = []
    with minitorch.no_grad():
        out = checkpoint(lambda x: calls.append(1) or x * 2, minitorch.ones(2))
    assert out.tolist() == [2.0, 2.0] and calls == [1]


def test_what_changes_between_the_runs_is_told():
    x = minitorch.ones(3, requires_grad=True)
    sizes = iter([2, 3])
    out = checkpoint(lambda a: (a * minitorch.ones(next(sizes), 3)).exp(), x)
    with pytest.raises(RuntimeError, match="must do the same each time"):
        out.sum().backward()
    y = minitorch.ones(3)
    out = checkpoint(lambda a, b: (a * b).exp(), x, y)
    y += 1
    with pytest.raises(RuntimeError, match="changed in place since"):
        out.sum().backward()
    out = checkpoint(lambda a: a.exp() * a, x)
    with pytest.raises(RuntimeError, match="no gradients of gradients"):
        minitorch.grad(out.sum(), [x], create_graph=True)
    with pytest.raises(ValueError, match="segments is 3; expected 1 to 2"):
        checkpoint_sequential([minitorch.exp, minitorch.exp], 3, x)


def test_under_an_executor():
    model = block()
    plain = gradients(model, model, "cpu")
    with profile() as profiler:
        again = gradients(lambda x: checkpoint(model, x), model, "cpu")
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)
    counts = {e.key: e.count for e in profiler.key_averages()}
    assert counts["Gelu"] == 2 and counts["GeluBackward"] == 1


def test_ordinary_nodes_are_as_before():
    x = minitorch.ones(2, requires_grad=True)
    y = x.exp()
    assert type(y.grad_fn) is Context
    checkpoint(minitorch.exp, x)
    assert type(x.exp().grad_fn) is Context
