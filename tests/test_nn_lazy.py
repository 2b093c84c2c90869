"""Layers that find out their inputs: what they become is PyTorch's, and stays it."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from nn_oracle import backward, pair, same, state_of

import minitorch
from minitorch import nn

CASES = {
    "LazyLinear": ((4,), {"bias": False}, (5, 3)),
    "LazyConv1d": ((4, 3), {"groups": 2}, (2, 6, 5)),
    "LazyConv2d": ((4, 3), {"padding": 1}, (2, 3, 5, 6)),
    "LazyBatchNorm1d": ((), {"momentum": None}, (5, 3)),
    "LazyBatchNorm2d": ((1e-3,), {"affine": False}, (2, 3, 4, 4)),
}


def made(lib: Any, name: str) -> Any:
    args, options, _ = CASES[name]
    return getattr(lib.nn, name)(*args, **options)


def shown(layer: Any) -> str:
    """How it prints, without the bias that newer norms of PyTorch may lack."""
    return re.sub(r", bias=\w+, track", ", track", repr(layer))


@pytest.mark.parametrize("name", CASES)
def test_a_layer_becomes_what_its_first_input_asks_for(name, device):
    mine, theirs = made(minitorch, name), made(torch, name)
    assert shown(mine) == shown(theirs)
    kind, parameters = getattr(nn, name.removeprefix("Lazy")), list(mine.parameters())
    assert isinstance(mine, kind)
    mine.to(device)
    x, tx = pair(*CASES[name][2], device=device)
    mine.eval()(x), theirs.eval()(tx)
    assert type(mine) is kind and shown(mine) == shown(theirs)
    assert all(p is q for p, q in zip(parameters, mine.parameters()))
    assert {p.device.type for p in parameters} <= {device}
    mine.load_state_dict(state_of(theirs))
    out, expected = mine.train()(x), theirs.train()(tx)
    same(out, expected)
    backward(out, expected)
    same(x.grad, tx.grad)
    for p, q in zip(parameters, theirs.parameters()):
        same(p.grad, q.grad)


@pytest.mark.parametrize("name", CASES)
def test_a_state_brings_the_size(name):
    """Also in a copy, before it was ever called."""
    x, tx = pair(*CASES[name][2])
    theirs = torch.nn.Sequential(made(torch, name))
    theirs(tx)
    mine = copy.deepcopy(nn.Sequential(made(minitorch, name)))
    mine.load_state_dict(state_of(theirs))
    same(mine.eval()(x), theirs.eval()(tx))


def test_a_state_of_nobody_knows_what_size():
    """Of a network that is copied before the first call, as that of a target is."""
    one, two = (nn.Sequential(nn.LazyLinear(4)) for _ in range(2))
    two.load_state_dict(one.state_dict())
    assert two(minitorch.ones(2, 3)).shape == (2, 4)


def test_one_image_is_no_batch():
    layer = nn.LazyConv2d(4, 3)
    assert layer(minitorch.ones(3, 8, 8)).shape == (4, 6, 6)
    assert layer.in_channels == 3


def test_an_optimizer_made_before_the_first_call():
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1)).double()
    opt = minitorch.optim.Adam(net.parameters(), lr=0.1)
    x = minitorch.ones(2, 3, dtype=minitorch.float64)
    before = net(x).sum()
    before.backward()
    opt.step()
    assert net(x).sum() < before and net[0].weight.shape == (4, 3)


def test_what_a_lazy_layer_cannot_become():
    with pytest.raises(ValueError, match=r"LazyConv2d: the input is \(3,\)"):
        nn.LazyConv2d(4, 3)(minitorch.ones(3))
    with pytest.raises(ValueError, match=r"LazyLinear: the input is \(\)"):
        nn.LazyLinear(4)(minitorch.tensor(1.0))
    with pytest.raises(ValueError, match="groups is 2; it must divide"):
        nn.LazyConv2d(4, 3, groups=2)(minitorch.ones(1, 3, 4, 4))
    with pytest.raises(RuntimeError, match="missing: 'weight'"):
        nn.LazyLinear(4).load_state_dict({})
