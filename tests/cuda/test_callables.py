"""Graphed callables: forward and backward passes that are replayed, in any loop."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch import Tensor, autograd, nn, optim
from minitorch.nn import functional as F
from tests.cuda.sizes import met

pytest.importorskip("numba_cuda")

pytestmark = pytest.mark.cuda


class Net(nn.Module):
    """Dropout, batch norm, and outputs of which not all are used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(5, 16), nn.BatchNorm1d(16)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        scores = self.last(self.drop(self.norm(self.first(x)).tanh()))
        if y is None:
            return scores
        return scores, F.cross_entropy(scores, y)


def made(seed: int = 0) -> Net:
    minitorch.manual_seed(seed)
    return Net().to("cuda")


def batch(seed: int, n: int = 8) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = minitorch.tensor(rng.standard_normal((n, 5), dtype=np.float32), device="cuda")
    return x, minitorch.tensor(rng.integers(0, 3, n), device="cuda")


def trained(
    compiled: Callable, sizes: list[int], amp: bool = False, parts: int = 1
) -> tuple[list[float], list[np.ndarray], Any]:
    """Losses, and all that the model has in the end."""
    model = made()
    run, losses = compiled(model), []
    optimizer = optim.AdamW(model.parameters(), 0.01)
    for i, n in enumerate(sizes):
        with minitorch.autocast("cuda", minitorch.bfloat16, enabled=amp):
            _, loss = run(*batch(i, n))
        (loss / parts).backward()
        losses.append(loss.item())
        if i % parts == parts - 1:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    state = [x.cpu().numpy() for x in model.state_dict().values()]
    return losses, state, minitorch.default_generator.get_state()


def reduced(model: Any) -> Any:
    return minitorch.compile(model, mode="reduce-overhead")


def equal(a: Any, b: Any) -> None:
    assert a[0] == b[0]
    for x, y in zip(a[1], b[1]):
        np.testing.assert_array_equal(x, y)


@met("amp, parts", [False, True], [1, 3])
def test_training_is_the_same(amp: bool, parts: int) -> None:
    """With a smaller batch now and then, dropout, and gradients that add up."""
    sizes = [8, 8, 8, 8, 5, 8, 8, 5, 5, 8, 8, 8]
    plain = trained(minitorch.compile, sizes, amp, parts)
    equal(plain, trained(reduced, sizes, amp, parts))


def test_graphs_are_replayed() -> None:
    model = made()
    run, told = reduced(model), []
    model.register_buffer("count", minitorch.zeros(1, device="cuda"))
    model.forward = lambda x, f=model.forward: (told.append(1), f(x))[1]
    for i in range(5):
        run(batch(i)[0]).sum().backward()
    assert len(told) == 2  # as usual, and captured
    model.eval()
    with minitorch.no_grad():
        outs = [run(batch(i)[0]).cpu().numpy() for i in range(4)]
        assert len(told) == 4
        for i, out in enumerate(outs):
            np.testing.assert_array_equal(out, model(batch(i)[0]).cpu().numpy())


def gradients(compiled: Callable, program: Callable) -> list[np.ndarray]:
    model = made()
    run, found = compiled(model), []
    for i in range(5):
        model.zero_grad()
        program(run, i)
        found += [p.grad.cpu().numpy().copy() for p in model.parameters()]
    return found


@pytest.mark.parametrize(
    "program",
    [
        lambda run, i: (run(*batch(i))[1] * run(*batch(i + 9))[1]).backward(),
        lambda run, i: (run(batch(i)[0]) ** 2).sum().backward(),
        lambda run, i: [run(batch(i)[0]), run(batch(i)[0]).exp().sum().backward()],
        lambda run, i: run(x=batch(i)[0], y=batch(i)[1])[1].backward(),
        lambda run, i: run(batch(i)[0][::2]).sum().backward(),
    ],
)
def test_programs_of_all_kinds(program: Callable) -> None:
    """Two calls before a backward pass, outputs that an operation saves, or that are
    given up."""
    for a, b in zip(*(gradients(c, program) for c in (minitorch.compile, reduced))):
        np.testing.assert_array_equal(a, b)


def test_results_are_kept() -> None:
    """A replay does not overwrite what somebody has, nor views of it."""
    model = made().eval()
    run, seen = reduced(model), []
    with minitorch.no_grad():
        for i in range(6):
            scores = run(batch(i)[0])
            seen.append((scores, scores[2:4].T))
        for i, (scores, part) in enumerate(seen):
            right = model(batch(i)[0]).cpu().numpy()
            np.testing.assert_array_equal(scores.cpu().numpy(), right)
            np.testing.assert_array_equal(part.cpu().numpy(), right[2:4].T)


def test_a_function_finds_what_learns() -> None:
    """Parameters that it did not get as arguments have their gradients, too."""
    w, grads = minitorch.ones(5, 2, device="cuda").requires_grad_(), []
    for mode in ("default", "reduce-overhead"):
        w.grad = None

        @minitorch.compile(mode=mode)
        def program(x: Tensor, scale: float, more: list[Tensor]) -> dict[str, Tensor]:
            return {"y": (x @ w * scale + more[0]).tanh()}

        for i in range(5):
            x, scale = batch(i)[0], 0.5 + (i == 4)
            program(x, scale, [x[:, :2]])["y"].sum().backward()
        grads.append(w.grad.cpu().numpy())
    np.testing.assert_array_equal(*grads)


def test_an_input_that_the_callable_changes() -> None:
    run = minitorch.compile(lambda x: x.add_(1.0) * 2.0, mode="reduce-overhead")
    x = minitorch.zeros(4, device="cuda")
    with pytest.warns(UserWarning, match="changes an input"):
        for _ in range(4):
            run(x)
    assert x.tolist() == [4.0] * 4


def test_gradients_of_gradients_are_refused() -> None:
    run = reduced(made())
    for i in range(3):
        run(batch(i)[0]).sum().backward()
    x = batch(3)[0]
    y = run(x).sum()
    with pytest.raises(RuntimeError, match="a CUDA graph: its backward"):
        autograd.grad(y, run._orig_mod.last.weight, create_graph=True)


def test_an_output_that_was_changed() -> None:
    """An error where the backward pass needs it, as without a graph; else none."""
    run = minitorch.compile(lambda x: (x.exp(), x * 2.0), mode="reduce-overhead")
    for i in range(5):
        x = batch(i)[0].requires_grad_()
        y, z = run(x)
        total = y.sum() + z.sum()
        z.detach().zero_()
        total.backward()
        np.testing.assert_allclose(
            x.grad.cpu().numpy(), x.detach().cpu().exp().numpy() + 2.0, rtol=1e-6
        )
    total = run(x)[0]
    loss = total.sum()
    total.detach().zero_()
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()


def test_other_outputs_later() -> None:
    """Each set of outputs that gradients come to has its own backward graph."""
    runs = []
    for compiled in (minitorch.compile, reduced):
        model = made()
        run, found = compiled(model), []
        for i in range(8):
            scores, loss = run(*batch(i))
            total = (loss, scores.sum(), loss + scores.mean())[i % 3]
            found.append(autograd.grad(total, list(model.parameters())))
        runs.append(found)
    for a, b in zip(*runs):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x.cpu().numpy(), y.cpu().numpy())


def test_what_cannot_be_captured_runs() -> None:
    model = made()
    plain = model.forward
    model.forward = lambda x: plain(x) * plain(x).sum().item()
    run = reduced(model)
    with pytest.warns(UserWarning, match="without a CUDA graph.*item"):
        for i in range(3):
            run(batch(i)[0]).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(batch(4)[0])


def test_parameters_that_move() -> None:
    model = made()
    run = reduced(model)
    for i in range(3):
        run(batch(i)[0]).sum().backward()
    model.eval()
    model.load_state_dict(made(1).state_dict())
    other = copy.deepcopy(run)
    for i in range(3):
        y = model(batch(i)[0])
        for each in (run, other):
            np.testing.assert_array_equal(
                each(batch(i)[0]).detach().cpu().numpy(), y.detach().cpu().numpy()
            )


def test_make_graphed_callables() -> None:
    """Two modules and a function; gradients of their inputs, too."""
    found = []
    for graphed in (False, True):
        minitorch.manual_seed(0)
        one, two = nn.Linear(5, 6).to("cuda"), nn.Linear(6, 3).to("cuda")
        tail: Any = lambda x: (x.tanh(), x.argmax(-1))
        if graphed:
            x, h = batch(0)[0].requires_grad_(), one(batch(0)[0]).detach()
            z = two(h).detach()
            one, two, tail = minitorch.cuda.make_graphed_callables(
                (one, two, tail),
                ((x,), (h.requires_grad_(),), (z.requires_grad_(),)),
            )
        results = []
        for i in range(4):
            x = batch(i)[0].requires_grad_()
            y, best = tail(two(one(x)))
            y.sum().backward()
            results += [r.detach().cpu().numpy() for r in (y, best, x.grad)]
        grads = [p.grad for m in (one, two) for p in m.parameters()]
        found.append(results + [g.cpu().numpy() for g in grads])
    # Linear layers of other sizes may be read in another order after a warm-up.
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
