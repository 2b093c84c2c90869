"""Saved tensors that are computed again: less is kept, and nothing else changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch import Tensor, autograd, compiler, nn
from minitorch.bench.compiled import gelu, softmax
from minitorch.compiler.recompute import Later
from minitorch.compiler.recorder import Fused, Recorder
from minitorch.distributed import spawn_threads
from minitorch.distributed.fsdp import fully_shard
from minitorch.utils.checkpoint import checkpoint


def chain(x: Tensor) -> Tensor:
    """Saves three results, but not x."""
    return (x + 1.0).tanh().exp().sin()


def layer_norm(x: Tensor) -> Tensor:
    away = x - x.mean(-1, keepdim=True)
    return away * ((away * away).mean(-1, keepdim=True) + 1e-5).rsqrt() * 1.5


PROGRAMS = [gelu, chain, layer_norm, softmax]


def leaf() -> Tensor:
    minitorch.manual_seed(1)
    return minitorch.randn(7, 5, requires_grad=True)


def nodes(y: Tensor) -> list[Any]:
    found, open = list[Any](), [y.node]
    while open:
        node = open.pop()
        if node is not None and node not in found and hasattr(node, "_saved"):
            found.append(node)
            open += [edge[0] for edge in node.edges if edge is not None]
    return found


def full_size(y: Tensor, x: Tensor) -> int:
    """How many tensors as large as x the graph of y keeps, besides x."""
    kept = {
        id(t.storage): t
        for node in nodes(y)
        for s in node._saved or ()
        if (t := getattr(s, "raw", s)) is not None and type(s) is not Later
    }
    kept.pop(id(x.raw.storage), None)
    return sum(t.shape == x.raw.shape for t in kept.values())


def same(a: Tensor | None, b: Tensor | None) -> None:
    assert a is not None and b is not None
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("fn", PROGRAMS)
def test_the_graph_keeps_less(fn: Callable) -> None:
    x = leaf()
    assert full_size(fn(x), x) > 0
    assert full_size(minitorch.compile(fn)(x), x) == 0


@pytest.mark.parametrize("fn", PROGRAMS)
def test_backward_passes_are_equal(fn: Callable) -> None:
    """To the bit; also the second one, and gradients of gradients."""
    grads = []
    for run in (fn, minitorch.compile(fn)):
        x = leaf()
        y = run(x)
        (first,) = autograd.grad(y.sum(), x, retain_graph=True)
        (again,) = autograd.grad((y * y).sum(), x, retain_graph=True)
        (g,) = autograd.grad((y * y).sum(), x, create_graph=True)
        assert g is not None
        (second,) = autograd.grad((g * g).sum(), x)
        grads.append((y, first, again, g, second))
    for a, b in zip(*grads):
        same(a, b)


def test_what_somebody_holds_is_written() -> None:
    def program(x: Tensor, kept: list[Tensor]) -> Tensor:
        a = (x + 1.0).tanh()
        b = a.exp()
        kept += [a, b.reshape(-1)]
        return b.sin() * b

    told: list[Fused] = []
    x, kept = leaf(), list[Tensor]()
    with Recorder(told):
        y = program(x, kept)
    assert [len(f.program.kept) for f in told] == [3]
    eager: list[Tensor] = []
    z = program(x, eager)
    for a, b in zip((y, *kept), (z, *eager)):
        same(a, b)
    kept[0].node = None  # nobody is asked for what it computes
    (g,) = autograd.grad(y.sum(), x)
    same(g, autograd.grad(z.sum(), x)[0])


def test_a_backward_pass_in_the_same_program() -> None:
    """A node that has run both ways is one holder; variables are others."""

    def program(x: Tensor) -> list[Tensor | None]:
        a = x + 1.0
        b = (a * x).tanh()
        c = b.exp()
        (g,) = autograd.grad(c, x, minitorch.ones(7, 5), retain_graph=True)
        return [a, b, b.detach(), c, g]

    x = leaf()
    for a, b in zip(minitorch.compile(program)(x), program(x)):
        same(a, b)


class SinAndCos(minitorch.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        s, c = ctx.saved_tensors
        return grads[0] * c - grads[1] * s


def test_outputs_that_are_saved() -> None:
    """The one that is not used has a gradient of zeros, made as it was."""
    for k in (0, 1):
        x, z = leaf(), leaf()

        def program(x: Tensor, k: int = k) -> Tensor:
            return SinAndCos.apply(x + 1.0)[k] * 2.0

        y = minitorch.compile(program)(x)
        assert full_size(y, x) == 0
        y.sum().backward()
        program(z).sum().backward()
        same(x.grad, z.grad)


def test_a_backward_pass_that_nobody_records() -> None:
    """The compiled function does not say what it returns, so no hook is there."""
    fn = minitorch.compile(lambda x: SimpleNamespace(y=gelu(x)))
    x = leaf()
    y = fn(x).y
    assert full_size(y, x) == 0
    same(*(autograd.grad(z.sum(), x)[0] for z in (y, gelu(x))))


@contextmanager
def often_switched() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_backward_passes_in_threads() -> None:
    """They share a graph, which none of them changes."""
    x = leaf()
    y = minitorch.compile(gelu)(x)
    (expected,) = autograd.grad(gelu(x).sum(), x)

    def work(_: int) -> None:
        same(autograd.grad(y.sum(), x, retain_graph=True)[0], expected)

    with often_switched(), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1000)))


def test_a_thread_needs_what_is_noted_meanwhile() -> None:
    """It lets all run that is noted, also between steps that are noted once more."""
    x, one = leaf(), minitorch.ones(7, 5)
    y = minitorch.compile(gelu)(x)
    (expected,) = autograd.grad(gelu(x), x, one)
    noted = [one]

    @minitorch.compile
    def backward() -> Any:
        noted[0] = one * 2.0
        return autograd.grad(y, x, one, retain_graph=True)[0]

    def work() -> None:
        while not ended:
            noted[0] * 1.0

    ended = False
    with often_switched(), ThreadPoolExecutor(1) as pool:
        other = pool.submit(work)
        try:
            for _ in range(200):
                same(backward(), expected)
        finally:
            ended = True
        other.result()


def test_a_source_that_was_changed() -> None:
    x = leaf()
    y = minitorch.compile(chain)(x)
    with minitorch.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError, match=r"\(7, 5\) was changed in place between"):
        y.sum().backward()


def test_it_pays_or_is_left() -> None:
    """Two sources would be held for one result."""
    a, b = leaf(), leaf()
    y = minitorch.compile(lambda a, b: (a + b).tanh().sum(-1))(a, b)
    assert full_size(y, a) == 1


def test_all_that_is_kept_is_counted() -> None:
    """In bytes, with the memory around a window, and the numbers of rows."""

    def window(x: Tensor) -> Tensor:
        return chain((x @ minitorch.ones(5, 50))[:, :5])

    def masks(x: Tensor) -> Tensor:
        y = (x @ minitorch.ones(5, 5)).detach()
        return minitorch.where(y > 0.0, x, 0.0) + minitorch.where(y > 1.0, x, 1.0)

    def pairs(x: Tensor) -> Tensor:
        z = x.view(-1, 7, 1).expand(-1, 7, 2).detach()
        rows = [f(z * 2.0, -1, True) for f in (Tensor.sum, Tensor.amax, Tensor.amin)]
        return (z + rows[0] + rows[1] + rows[2]).exp() * x.view(-1, 7, 1)

    for fn in (window, masks, pairs):
        y = minitorch.compile(fn)(leaf())
        kept = [s for node in nodes(y) for s in node._saved or ()]
        assert kept and Later not in map(type, kept)
        x, z = leaf(), leaf()
        minitorch.compile(fn)(x).sum().backward()
        fn(z).sum().backward()
        same(x.grad, z.grad)


def test_with_checkpoints() -> None:
    grads = []
    for run in (
        gelu,
        minitorch.compile(lambda x: checkpoint(gelu, x, use_reentrant=False)),
        lambda x: checkpoint(minitorch.compile(gelu), x, use_reentrant=False),
    ):
        x = leaf()
        run(x).sum().backward()
        grads.append(x.grad)
    same(grads[0], grads[1])
    same(grads[0], grads[2])


def test_a_used_graph_says_so() -> None:
    x = leaf()
    y = minitorch.compile(gelu)(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="already used by a backward pass"):
        y.sum().backward()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(minitorch.ones(5) * 0.7)
        self.linear = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear((x * self.scale).tanh().exp().sin()) * self.scale


def test_parameters_that_come_and_go() -> None:
    """Those of `fully_shard` are gathered again when what needs them is computed."""

    def rank() -> list[np.ndarray]:
        minitorch.manual_seed(3)
        model = nn.Sequential(Scaled(), Scaled())
        plain = nn.Sequential(Scaled(), Scaled())
        plain.load_state_dict(model.state_dict())
        for part in model:
            fully_shard(part)
        fully_shard(model)
        x = leaf().detach()
        found = []
        for run in (minitorch.compile(model), plain):
            z = x * 1.0
            z.requires_grad_()
            run(z).sum().backward()
            assert z.grad is not None
            found.append(z.grad.numpy())
        return found

    for a, b in spawn_threads(rank, 2):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_explain_tells() -> None:
    x = leaf()
    assert compiler.explain(gelu, x).endswith("(5 read, 1 written)")
