"""L-BFGS against PyTorch: the same points, on losses that are known to be awkward."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn_oracle import ours, same

import minitorch
from helpers import SIMULATED
from minitorch import nn, optim
from minitorch.executor import Executor, executing
from minitorch.optim.lbfgs import Point, cubic, strong_wolfe

LIBS = minitorch, torch
searches = pytest.mark.parametrize("search", [None, "strong_wolfe"])


def leaf(lib, array, device="cpu"):
    made = lib.tensor(array, device=device) if lib is minitorch else lib.tensor(array)
    return made.requires_grad_(True)


def minimize(opt, loss, steps):
    """The losses that a closure saw, in order."""
    seen = []

    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        seen.append(value.item())
        return value

    for _ in range(steps):
        before = len(seen)
        assert opt.step(closure).item() == seen[before]
    return seen


def rosenbrock(lib, dtype=np.float64, device="cpu"):
    """A curved valley: (1 - a)^2 + 100 (b - a^2)^2, in two tensors."""
    a, b = (leaf(lib, np.array([v], dtype), device) for v in (-1.2, 1.0))
    return [a, b], lambda: ((1 - a) ** 2 + 100 * (b - a * a) ** 2).sum()


def logistic(lib):
    """Points and labels, with a little decay."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 5)), rng.integers(0, 2, (40, 1)).astype(float)
    w, b = leaf(lib, np.zeros((5, 1))), leaf(lib, np.zeros(1))
    x, y = (lib.tensor(v) for v in (x, y))
    loss = lib.nn.functional.binary_cross_entropy_with_logits
    return [w, b], lambda: loss(x @ w + b, y) + 0.01 * (w * w).sum()


def mlp(lib):
    """Two layers, one of which is transposed; a parameter that the loss ignores."""
    rng = np.random.default_rng(1)
    x, y = (lib.tensor(rng.standard_normal(s)) for s in ((16, 3), (16, 2)))
    u, v = (leaf(lib, rng.standard_normal(s) * 0.5) for s in ((7, 3), (7, 2)))
    c, idle = leaf(lib, np.zeros(7)), leaf(lib, np.ones(3))
    return [u, c, v, idle], lambda: (((x @ u.t() + c).tanh() @ v - y) ** 2).mean()


@searches
@pytest.mark.parametrize(
    "options",
    [{}, {"history_size": 3, "max_iter": 7}, {"lr": 0.5, "max_eval": 9}],
    ids=str,
)
@pytest.mark.parametrize("problem", [rosenbrock, logistic, mlp])
def test_the_same_points_as_in_pytorch(problem, options, search):
    if problem is rosenbrock and search is None:
        options = {**options, "lr": 0.002}  # longer steps leave the valley for good
    found = []
    for lib in LIBS:
        params, loss = problem(lib)
        opt = lib.optim.LBFGS(params, **options, line_search_fn=search)
        seen = minimize(opt, loss, 3)
        state = opt.state_dict()["state"][0]
        found.append((params, seen, state))
    (mine, seen, state), (theirs, wanted, their_state) = found
    np.testing.assert_allclose(seen, wanted, rtol=1e-8, atol=1e-8)
    for p, q in zip(mine, theirs):
        same(p, q, rtol=1e-8, atol=1e-8)
    assert set(state) == set(their_state) - {"al"}
    for key in ("func_evals", "n_iter"):
        assert state[key] == their_state[key]
    for key in ("old_dirs", "old_stps", "ro"):
        assert len(state[key]) == len(their_state[key])


def test_rosenbrocks_valley_is_followed_to_its_end(device):
    few = SIMULATED and device == "cuda"
    params, loss = rosenbrock(minitorch, np.float64, device)
    options = {"max_iter": 5 if few else 100, "tolerance_change": 1e-14}
    opt = optim.LBFGS(params, line_search_fn="strong_wolfe", **options)
    seen = minimize(opt, loss, 1)
    assert seen[-1] < (seen[0] / 2 if few else 1e-12)
    assert few or [p.item() for p in params] == pytest.approx([1, 1], abs=1e-6)


@searches
def test_a_saved_state_goes_on_to_the_bit(search):
    def begin():
        params, loss = mlp(minitorch)
        options = {"max_iter": 4, "history_size": 3, "line_search_fn": search}
        return params, loss, optim.LBFGS(params, **options)

    params, loss, opt = begin()
    minimize(opt, loss, 2)
    file = io.BytesIO()
    minitorch.save([opt.state_dict(), [p.detach() for p in params]], file)
    kept = opt.state_dict()
    wanted = minimize(opt, loss, 2)
    file.seek(0)
    state, numbers = minitorch.load(file)
    for given_state in (state, kept):  # what was handed out does not change
        again, loss, other = begin()
        with minitorch.no_grad():
            for p, value in zip(again, numbers):
                p.copy_(value)
        other.load_state_dict(given_state)
        assert minimize(other, loss, 2) == wanted
        for p, q in zip(again, params):
            assert p.tolist() == q.tolist()


@searches
def test_a_state_from_pytorch_is_understood(search):
    options = {"max_iter": 3, "line_search_fn": search}
    theirs, their_loss = mlp(torch)
    topt = torch.optim.LBFGS(theirs, **options)
    minimize(topt, their_loss, 2)
    state = topt.state_dict()

    def convert(value):
        if isinstance(value, list):
            return [convert(one) for one in value]
        return ours(value) if torch.is_tensor(value) else value

    values = {key: convert(value) for key, value in state["state"][0].items()}
    mine, loss = mlp(minitorch)
    with minitorch.no_grad():
        for p, q in zip(mine, theirs):
            p.copy_(ours(q.detach()))
    opt = optim.LBFGS(mine)
    opt.load_state_dict({**state, "state": {0: values}})
    wanted = minimize(topt, their_loss, 2)
    np.testing.assert_allclose(minimize(opt, loss, 2), wanted, rtol=1e-9)


def test_one_number_a_flat_loss_and_no_gradient():
    w = leaf(minitorch, np.array(3.0))
    opt = optim.LBFGS([w])
    seen = minimize(opt, lambda: (w - 1) ** 2, 1)
    assert w.item() == pytest.approx(1) and len(seen) < 5
    minimize(opt, lambda: w * 0, 1)
    assert w.item() == pytest.approx(1)
    idle = leaf(minitorch, np.ones(2))
    assert optim.LBFGS([idle]).step(lambda: 5.0) == 5.0
    assert idle.tolist() == [1, 1]


def test_a_step_over_a_cliff_is_taken_back():
    """Where the loss is infinite or NaN, the search looks nearer."""
    w = leaf(minitorch, np.array(4.0))
    opt = optim.LBFGS([w], lr=10, line_search_fn="strong_wolfe")
    seen = minimize(opt, lambda: w - w.log(), 1)
    assert not all(map(math.isfinite, seen))
    assert w.item() == pytest.approx(1, abs=1e-6)


def test_a_schedule_changes_its_rate():
    params, loss = logistic(minitorch)
    opt = optim.LBFGS(params, lr=0.8, max_iter=2)
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    for _ in range(2):
        minimize(opt, loss, 1)
        schedule.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(0.2)
    assert opt.state_dict()["state"][0]["t"] == pytest.approx(0.4)


@pytest.mark.parametrize("search", ["strong_wolfe"])
def test_a_compiled_loss_is_minimized_as_well(search):
    found = []
    for wrap in (minitorch.compile, lambda f: f):
        params, loss = mlp(minitorch)
        opt = optim.LBFGS(params, max_iter=5, line_search_fn=search)
        found.append(minimize(opt, wrap(loss), 2))
    assert found[0] == found[1]


def test_all_of_a_step_passes_the_seam():
    class Names(Executor):
        read_for, steps = 0, 0

        def read(self, name, fn, a):
            self.read_for += 1
            return fn(a)

        def advance(self, name, run, args):
            self.steps += name == "LBFGS.step"
            return run(*args)

    params, loss = logistic(minitorch)
    with executing(Names()) as names:
        minimize(optim.LBFGS(params, max_iter=3), loss, 2)
    assert names.steps == 2 and names.read_for > 6


def test_errors():
    w, v = (nn.Parameter(minitorch.ones(2)) for _ in range(2))
    for make, error, words in (
        (lambda: optim.LBFGS([{"params": [w]}, {"params": [v]}]), ValueError, "in one"),
        (lambda: optim.LBFGS([w], history_size=0), ValueError, "history_size is 0"),
        (lambda: optim.LBFGS([w], lr=-1), ValueError, "lr is -1"),
        (lambda: optim.LBFGS([w], tolerance_grad="a"), TypeError, "is a str"),
        (lambda: optim.LBFGS([w], line_search_fn="armijo"), ValueError, "'armijo'"),
        (lambda: optim.LBFGS([w]).step(), TypeError, "no closure"),
    ):
        with pytest.raises(error, match=words):
            make()
    with pytest.raises(ValueError, match="in one group"):
        optim.LBFGS([w]).add_param_group({"params": [v]})
    opt = optim.LBFGS([w])
    minimize(opt, lambda: (w**4).sum(), 1)
    with pytest.raises(ValueError, match=r"\(2,\); the parameters have 3 numbers"):
        optim.LBFGS([nn.Parameter(minitorch.ones(3))]).load_state_dict(opt.state_dict())


# ----------------------------------------------------------------------- the search

lines = st.tuples(
    st.floats(-3, -0.1), st.floats(0, 2), st.floats(-1, 1), st.floats(0.5, 9)
)


@settings(deadline=None)
@given(lines, st.floats(1e-3, 1e3))
def test_wolfes_conditions_hold(line, first):
    """On a quartic with a wave, which falls at 0 and has a bottom."""
    slope, quartic, wave, often = line

    def at(t):
        loss = slope * t + (quartic + 0.1) * t**4 + wave * math.sin(often * t) ** 2
        bend = wave * often * math.sin(2 * often * t)
        return Point(t, loss, slope + 4 * (quartic + 0.1) * t**3 + bend, None)

    start, found = at(0.0), strong_wolfe(at, at(0.0), first, 1e-12)
    assert found.t > 0
    assert found.loss <= start.loss + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)


@given(st.floats(-2, 2), st.floats(-5, 5), st.floats(0.1, 3))
def test_the_minimum_of_a_cubic(bottom, left, width):
    """(t - b)^2 (t - b + 3) has its minimum at b."""

    def at(t):
        u = t - bottom
        return Point(t, u * u * (u + 3), 3 * u * u + 6 * u, None)

    a, b = at(left), at(left + width)
    found = cubic(a, b, math.nan)
    assert found == cubic(b, a, math.nan) == pytest.approx(bottom, abs=1e-6)


def test_a_cubic_without_a_minimum_is_told_apart():
    steep = Point(0.0, 0.0, -1.0, None), Point(1.0, math.inf, 1.0, None)
    assert cubic(*steep, 0.5) == 0.5
    down = [Point(float(t), -t, -1.0, None) for t in (0, 1)]
    assert cubic(*down, 0.5) == math.inf
    up = [Point(float(t), t, 1.0, None) for t in (0, 1)]
    assert cubic(*up, 0.5) == -math.inf


def test_an_interval_may_become_empty():
    p = minitorch.tensor([1.0, 2.0], dtype=minitorch.float64, requires_grad=True)
    more = {"tolerance_grad": 0, "tolerance_change": 0, "max_iter": 9}
    opt = optim.LBFGS([p], line_search_fn="strong_wolfe", **more)
    minimize(opt, lambda: (p * p).sum(), 4)
    assert p.tolist() == [0, 0]


@pytest.mark.parametrize("more", [{}, {"max_eval": 3}, {"max_eval": 1}])
@pytest.mark.parametrize("start", [[-20.0, 7.0], [0.01, 30.0]])
def test_far_from_a_valley_steps_grow_as_in_pytorch(start, more):
    """Where the loss bends downwards, no cubic has a minimum farther on."""

    def run(lib):
        p = lib.tensor(start, dtype=lib.float64, requires_grad=True)
        opt = lib.optim.LBFGS([p], line_search_fn="strong_wolfe", **more)
        losses = []

        def closure():
            opt.zero_grad()
            loss = ((p - 1) ** 2 / ((p - 1) ** 2 + 9)).sum()
            loss.backward()
            losses.append(loss.item())
            return loss

        for _ in range(3):
            opt.step(closure)
        return losses

    ours, theirs = run(minitorch), run(torch)
    assert len(ours) == len(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)
