"""When the backward pass does what: nodes in reverse, leaves as soon as they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
import minitorch.nn.functional as F
from minitorch import Function
from minitorch.autodiff import topological_sort
from minitorch.scalar import Scalar, ScalarFunction


class Tick(Function):
    """x + other, whose backward pass writes its name down."""

    @staticmethod
    def forward(ctx, x, other, name, log):
        ctx.name, ctx.log = name, log
        return x + other

    @staticmethod
    def backward(ctx, grad):
        ctx.log.append(ctx.name)
        return grad, grad, None, None


def watch(log: list[str], **leaves: Any) -> None:
    """Write a leaf's name down when its gradient has been added up."""
    for name, leaf in leaves.items():
        leaf.register_post_accumulate_grad_hook(lambda _, name=name: log.append(name))


def ones(n: int, device: str) -> list[Any]:
    """n leaves [2] of ones."""
    return [minitorch.ones(2, device=device, requires_grad=True) for _ in range(n)]


def test_a_chain_accumulates_layer_by_layer(device):
    log: list[str] = []
    weights = ones(4, device)
    watch(log, **{f"w{i}": w for i, w in enumerate(weights)})
    h = minitorch.ones(2, device=device)
    for i, w in enumerate(weights):
        h = Tick.apply(h, w, f"layer {i}", log)
    h.sum().backward()
    assert log == [
        *("layer 3", "w3", "layer 2", "w2", "layer 1", "w1", "layer 0", "w0")
    ]


def test_a_weight_used_twice_accumulates_once_after_its_last_use(device):
    log: list[str] = []
    w, v, u = ones(3, device)
    watch(log, w=w, v=v, u=u)
    h = Tick.apply(u, v, "first", log)
    h = Tick.apply(h, w, "second", log)
    h = Tick.apply(h, h.detach(), "third", log)
    h = Tick.apply(h, w, "fourth", log)
    h.sum().backward()
    assert log == ["fourth", "third", "second", "w", "first", "u", "v"]
    assert w.grad.tolist() == [2.0, 2.0]


def test_branches_run_in_reverse_whatever_the_order_of_operands(device):
    for swapped in (False, True):
        log: list[str] = []
        a, b, c = ones(3, device)
        watch(log, a=a, b=b, c=c)
        old = Tick.apply(a, 1.0, "old", log)
        new = Tick.apply(b, c, "new", log)
        (new * old if swapped else old * new).sum().backward()
        assert log == ["new", "b", "c", "old", "a"]


@pytest.mark.parametrize("keep", [{"retain_graph": True}, {"create_graph": True}])
def test_a_graph_that_is_kept_runs_in_the_same_order_again(device, keep):
    log: list[str] = []
    w, v = ones(2, device)
    watch(log, w=w, v=v)
    h = Tick.apply(Tick.apply(v * v, 1.0, "first", log), w, "second", log)
    out = (h * h).sum()
    out.backward(**keep)
    out.backward()
    assert log == ["second", "w", "first", "v"] * 2
    assert v.grad.tolist() == [2 * 12.0] * 2  # d (v^2 + 1 + w)^2 / dv = 2 * 3 * 2 v


def test_only_what_leads_to_the_inputs_runs():
    log: list[str] = []
    w, v, u = ones(3, "cpu")
    watch(log, w=w, v=v, u=u)
    first = Tick.apply(u, v, "first", log)
    out = Tick.apply(Tick.apply(first, w, "second", log), v, "third", log).sum()
    grads = minitorch.autograd.grad(out, [first, w])
    assert log == ["third", "second"]
    assert [g.tolist() for g in grads] == [[1.0, 1.0]] * 2
    assert w.grad is None


def test_hooks_see_gradients_that_are_there():
    """A weight's hook finds its gradient, and older layers still without theirs."""
    weights = ones(3, "cpu")
    seen: list[list[bool]] = []
    for w in weights:
        w.register_post_accumulate_grad_hook(
            lambda _: seen.append([w.grad is not None for w in weights])
        )
    h = minitorch.ones(2)
    for w in weights:
        h = (h * w).tanh()
    h.sum().backward()
    assert seen == [[False, False, True], [False, True, True], [True, True, True]]


def test_an_exception_in_a_hook_keeps_what_was_accumulated():
    old, new = ones(2, "cpu")

    def fail(_: Any) -> None:
        raise ValueError("no more")

    new.register_post_accumulate_grad_hook(fail)
    with pytest.raises(ValueError, match="no more"):
        ((old * 2).exp() * new).sum().backward()
    assert new.grad is not None and old.grad is None
    assert minitorch.is_grad_enabled()


def test_roots_that_are_leaves_or_the_same():
    x, y = ones(2, "cpu")
    z = x * y
    roots = [x, z.grad_fn, y, z.grad_fn, x]
    order = topological_sort(roots)
    assert len(order) == 3 and order[0] is z.grad_fn
    assert [item is x for item in topological_sort([x, x])] == [True]
    grads = minitorch.autograd.grad([x.sum(), z.sum(), x.sum()], [x, y])
    assert [g.tolist() for g in grads] == [[3.0, 3.0], [1.0, 1.0]]


# ------------------------------------------------------------------- as PyTorch does


def pytorch_and_ours(
    run: Callable[[Any, Sequence[Any]], Any], shapes: Sequence[tuple[int, ...]]
) -> list[tuple[list[str], list[Any]]]:
    """For both libraries the order of the leaves' hooks, and their gradients."""
    found = []
    rng = np.random.default_rng(0)
    values = [rng.uniform(-1, 1, shape).tolist() for shape in shapes]
    for lib in (torch, minitorch):
        log: list[str] = []
        leaves = [lib.tensor(v, dtype=lib.float64, requires_grad=True) for v in values]
        watch(log, **{str(i): x for i, x in enumerate(leaves)})
        run(lib, leaves).sum().backward()
        found.append((log, [x.grad.tolist() for x in leaves]))
    return found


def layers(lib: Any, w: Sequence[Any]) -> Any:
    """A residual network, with one weight used in all blocks."""
    h = w[0]
    for weight in w[1:4]:
        h = h + (h @ weight).tanh() @ w[4]
    return h


def towers(lib: Any, w: Sequence[Any]) -> Any:
    """Two networks side by side, whose results meet."""
    left = (w[0] @ w[1]).tanh() @ w[2]
    right = (w[0] @ w[3]).tanh() @ w[4]
    return left * right


def attention(lib: Any, w: Sequence[Any]) -> Any:
    """softmax(q k^T) v, and an output layer."""
    x = w[0].tanh()
    q, k, v = x @ w[1], x @ w[2], x @ w[3]
    return (q @ k.T).softmax(-1) @ v @ w[4]


def recurrent(lib: Any, w: Sequence[Any]) -> Any:
    """Three steps with the same two weights, and a loss at each."""
    h, loss = w[0] @ w[3], w[0].sum()
    for _ in range(3):
        h = (h @ w[1] + w[0] @ w[2]).tanh()
        loss = (h @ w[4]).sum() + loss
    return loss


def pieces(lib: Any, w: Sequence[Any]) -> Any:
    """Views, and leaves that meet in one operation."""
    whole = lib.stack([w[1].T, w[0]])
    return (whole[0] * w[2]).reshape(-1) * (whole[1] - w[3]).T.reshape(-1) + w[4].sum()


@pytest.mark.parametrize("run", [layers, towers, attention, recurrent, pieces])
def test_leaves_in_pytorchs_order(run):
    theirs, ours = pytorch_and_ours(run, [(3, 3)] * 5)
    assert ours[0] == theirs[0] and sorted(ours[0]) == list("01234")
    for mine, other in zip(ours[1], theirs[1]):
        np.testing.assert_allclose(mine, other, 1e-12, 1e-12)


def test_layers_of_nn_in_reverse():
    log: list[str] = []
    model = minitorch.nn.Sequential(
        minitorch.nn.Linear(3, 4), minitorch.nn.LayerNorm(4), minitorch.nn.Linear(4, 2)
    )
    watch(log, **{k.replace(".", "_"): p for k, p in model.named_parameters()})
    F.cross_entropy(model(minitorch.ones(5, 3)), minitorch.tensor([0] * 5)).backward()
    layer = [name[0] for name in log]
    assert layer == ["2", "2", "1", "1", "0", "0"]


PROGRAM = st.lists(
    st.tuples(st.sampled_from(["add", "mul", "tanh", "hook"]), st.integers(0, 50),
              st.integers(0, 50)),
    min_size=1,
    max_size=25,
)  # fmt: skip


def run_program(lib: Any, leaves: Sequence[Any], program: Any, log: list[Any]) -> Any:
    """The sum of the last two values; a "hook" writes down when a gradient is there."""
    values = list(leaves)
    for n, (operation, i, j) in enumerate(program):
        x, y = values[i % len(values)], values[j % len(values)]
        out = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y}.get(
            operation, lambda x, y: x.tanh()
        )(x, y)
        if operation == "hook":
            out.register_hook(lambda _, n=n: log.append(n))
        values.append(out)
    return values[-1] + values[-2]


@given(PROGRAM, st.integers(1, 4))
def test_random_graphs_run_in_pytorchs_order(program, count):
    """Hooks of nodes and of leaves come in PyTorch's order, with its gradients."""
    found = []
    for lib in (torch, minitorch):
        log: list[Any] = []
        leaves = [
            lib.tensor([0.3 * i - 0.5, 0.1], dtype=lib.float64, requires_grad=True)
            for i in range(count)
        ]
        watch(log, **{f"leaf {i}": leaf for i, leaf in enumerate(leaves)})
        run_program(lib, leaves, program, log).sum().backward()
        grads = [None if x.grad is None else x.grad.tolist() for x in leaves]
        found.append((log, grads))
    (theirs, expected), (ours, received) = found
    assert ours == theirs
    for mine, other in zip(received, expected):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_allclose(mine, other, 1e-12, 1e-12)


class Item:
    """A node that only has edges and a number."""

    def __init__(self, number: int, below: Sequence[Any]) -> None:
        self.number = number
        self.edges = tuple(None if x is None else (x, 0) for x in below)


@given(st.data())
def test_an_order_of_random_graphs(data):
    """Each once, after all of its uses; a leaf after its last use at once."""
    items: list[Item] = []
    for n in range(data.draw(st.integers(1, 25))):
        choices = st.sampled_from([None, *items])
        items.append(Item(n, data.draw(st.lists(choices, max_size=4))))
    roots = data.draw(st.lists(st.sampled_from(items), min_size=1, max_size=3))
    order = topological_sort(roots)
    place = {id(item): at for at, item in enumerate(order)}
    assert len(place) == len(order)
    users: dict[int, list[int]] = {}
    for item in order:
        for edge in item.edges:
            if edge is not None:
                assert place[id(edge[0])] > place[id(item)]
                users.setdefault(id(edge[0]), []).append(place[id(item)])
    assert {id(root) for root in roots} <= set(place)
    for item in order:
        if not item.edges:
            last = max(users.get(id(item), [-1]))
            assert all(not x.edges for x in order[last + 1 : place[id(item)]])


def test_a_scalar_accumulates_as_soon_as_its_last_use_has_arrived():
    class Look(ScalarFunction):
        """x y, whose backward pass looks which leaves have a gradient already."""

        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, d_out):
            seen.append([w.grad is not None for w in weights])
            return d_out, d_out

    seen: list[list[bool]] = []
    weights = [Scalar(float(i)) for i in range(3)]
    h: Any = 1.0
    for w in weights:
        h = Look.apply(h, w)
    h.backward()
    assert seen == [[False] * 3, [False, False, True], [False, True, True]]
