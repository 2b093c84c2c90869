"""Who owns a gradient's memory: nothing else may change when a `.grad` does."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operations import OPERATIONS, samples, weighted_sum

import minitorch
from minitorch import Function, Tensor


def leaf(values: Any, device: str = "cpu") -> Tensor:
    """A leaf that requires grad."""
    return minitorch.tensor(values, device=device, requires_grad=True)


class Kept(Function):
    """The identity, whose backward pass returns what `keep` makes of its gradient."""

    @staticmethod
    def forward(ctx, x, keep):
        ctx.keep = keep
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.keep(grad), None


class Both(Function):
    """a + b, whose backward pass returns one new tensor twice."""

    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, grad):
        once = grad * 1
        return once, once


def test_a_result_that_no_backward_pass_needs_is_freed():
    """Kept are the inputs of a product and the output of an exponential."""
    x, weight = leaf([[1.0, 2.0]]), leaf([[0.5, 0.25]])
    product = x @ weight.t()
    power = product.exp()
    out = power + 1.0
    seen = [weakref.ref(t.raw.storage.array) for t in (product, power)]
    del product, power
    assert [array() is None for array in seen] == [True, False]
    out.sum().backward()
    assert [array() is None for array in seen] == [True, True]
    expected = weight.detach().numpy() * math.exp(1.0)
    assert np.allclose(x.grad.numpy(), expected)


# Each makes a result from two leaves [2]; both gradients are [2, 2] for a start [1, 1].
ALIASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "both inputs of +": lambda a, b: (a + b) * 2,
    "a deeper +": lambda a, b: ((a + 0.0).view(2) + b.view(1, 2)[0]) * 2,
    "pieces of a cat": lambda a, b: minitorch.cat([a, b]).view(2, 2).sum(0) * 2,
    "pieces of a stack": lambda a, b: (minitorch.stack([a, b]) * 2).sum(0),
    "an expanded one": lambda a, b: (a + b).sum(0, keepdim=True).expand(2),
    "a user's function": lambda a, b: Both.apply(a, b) * 2,
    "a view as a user's": lambda a, b: Kept.apply(a * 2 + b * 2, lambda g: g.view(2)),
    "clones": lambda a, b: (a.clone() + b.clone()).clone() * 2,
}


@pytest.mark.parametrize("make_result", ALIASES.values(), ids=list(ALIASES))
def test_gradients_of_leaves_are_apart(device, make_result):
    start = minitorch.ones(2, device=device)
    for first in (0, 1):
        leaves = [leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)]
        make_result(*leaves).backward(start)
        leaves[first].grad.mul_(7)
        assert leaves[1 - first].grad.tolist() == [2.0, 2.0]
        assert leaves[first].grad.tolist() == [14.0, 14.0]
        assert start.tolist() == [1.0, 1.0]


def test_a_gradient_on_its_way_is_not_the_one_that_arrived(device):
    """A leaf of a + b has its gradient first; what is below the other comes later."""
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    h = a.exp()

    def spoil(_: Tensor) -> None:
        b.grad.zero_()

    h.register_hook(spoil)
    (h + b).backward(minitorch.ones(2, device=device) * 1)
    np.testing.assert_allclose(a.grad.tolist(), np.exp([1.0, 2.0]), 1e-6)
    assert b.grad.tolist() == [0.0, 0.0]


def test_a_post_accumulate_hook_changes_nothing_that_is_on_its_way(device):
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    b.register_post_accumulate_grad_hook(lambda x: x.grad.zero_().detach())
    (a * 2 + b).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0] and b.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("where", ["leaf", "result"])
def test_what_hooks_keep_or_return_stays_theirs(device, where):
    kept = minitorch.ones(2, device=device) * 3
    seen: list[Tensor] = []
    a = leaf([1.0, 2.0], device)
    c = a.clone()
    target = a if where == "leaf" else c
    target.register_hook(lambda g: g * 1)
    target.register_hook(seen.append)
    target.register_hook(lambda g: kept)
    target.register_hook(seen.append)
    (c * 5).sum().backward()
    a.grad.zero_()
    assert kept.tolist() == [3.0, 3.0]
    assert [g.tolist() for g in seen] == [[5.0, 5.0], [3.0, 3.0]]


def test_what_a_users_function_keeps_stays_its_own(device):
    kept = minitorch.ones(2, device=device) * 3
    seen: list[Tensor] = []
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    out = Kept.apply(a, lambda g: kept) + Kept.apply(b, lambda g: seen.append(g) or g)
    (out * 2).sum().backward()
    a.grad.zero_()
    b.grad.zero_()
    assert kept.tolist() == [3.0, 3.0] and seen[0].tolist() == [2.0, 2.0]


def test_retained_gradients_are_apart(device):
    """Those of two results that met in a sum, and that of the leaf below."""
    x = leaf([1.0, 2.0], device)
    a, b = x.clone(), x * 1
    for result in (a, b):
        result.retain_grad()
    (a + b).backward(minitorch.ones(2, device=device) * 1)
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0] and x.grad.tolist() == [2.0, 2.0]


def test_what_backward_was_given_stays_the_callers(device):
    x = leaf([1.0, 2.0], device)
    start = minitorch.ones(4, device=device)
    x.clone().view(1, 2).backward(start[1:3].view(1, 2))
    x.grad.zero_()
    assert start.tolist() == [1.0] * 4
    y = leaf([1.0, 2.0], device)
    y.backward(start[:2])
    y.grad.zero_()
    assert start.tolist() == [1.0] * 4


def test_a_weights_gradient_is_not_copied():
    """The memory that an operation of the library made becomes `.grad`."""
    made: list[Any] = []

    class Spy(Function):
        """Not a user's function: it hands on what it was given, as a view does."""

        shares_gradients = False

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            made.append(grad.raw.storage)
            return grad

    w, v = leaf([[1.0, 2.0]]), leaf([[1.0, 2.0]])
    v.register_post_accumulate_grad_hook(lambda v: None)
    x = minitorch.ones(3, 1)
    ((x @ Spy.apply(w)) * (x @ Spy.apply(v).view(2).view(1, 2))).sum().backward()
    assert [x.grad.raw.storage for x in (v, w)] == made


DIFFERENTIABLE = [
    op for family in OPERATIONS.values() for op in family if op.differentiable
]


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=str)
def test_no_operation_returns_memory_that_it_keeps(op):
    """Spoiling the gradients of one pass changes nothing for a second one."""
    for leaves, _ in samples(op, "cpu", minitorch.float64, "contiguous", grad=True):
        values = [x.tolist() for x in leaves]
        loss = weighted_sum(op.fn(minitorch, *leaves))
        passes = []
        for _ in range(2):
            loss.backward(retain_graph=True)
            passes.append([None if x.grad is None else x.grad.tolist() for x in leaves])
            for x in leaves:
                if x.grad is not None:
                    x.grad.fill_(math.nan)
                    x.grad = None
        assert repr(passes[0]) == repr(passes[1])  # as texts, nan is nan
        assert [x.tolist() for x in leaves] == values
