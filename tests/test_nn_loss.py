"""Losses against PyTorch: values and gradients, for all reductions and options."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn_oracle import agree, backward, numbers, ours, pair, same
from strategies import layouts

import minitorch
import minitorch.nn.functional as F
from minitorch import nn

tnn = torch.nn


reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def compare(mine, theirs, x, tx, y, ty) -> None:
    """Values, and gradients of the input and of a target that wants one."""
    out, expected = mine(x, y), theirs(tx, ty)
    same(out, expected)
    backward(out, expected)
    same(x.grad, tx.grad)
    if ty.requires_grad:
        same(y.grad, ty.grad)


@reductions
@pytest.mark.parametrize(
    "name, options",
    [
        ("MSELoss", {}),
        ("L1Loss", {}),
        ("SmoothL1Loss", {}),
        ("SmoothL1Loss", {"beta": 0.3}),
        ("SmoothL1Loss", {"beta": 0.0}),
        ("HuberLoss", {"delta": 0.7}),
    ],
    ids=str,
)
def test_regression(name, options, reduction, device):
    makers = {
        "MSELoss": (nn.MSELoss, tnn.MSELoss),
        "L1Loss": (nn.L1Loss, tnn.L1Loss),
        "SmoothL1Loss": (nn.SmoothL1Loss, tnn.SmoothL1Loss),
        "HuberLoss": (nn.HuberLoss, tnn.HuberLoss),
    }
    mine, theirs = makers[name]
    x, tx = pair(4, 3, device=device)
    y, ty = pair(4, 3, seed=1, device=device)
    options = {**options, "reduction": reduction}
    compare(mine(**options), theirs(**options), x, tx, y, ty)


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    reduction=st.sampled_from(["none", "mean", "sum", "batchmean"]),
    logs=st.booleans(),
    layout=layouts,
)
def test_kl_div(shape, reduction, logs, layout, device):
    options = {"reduction": reduction, "log_target": logs}
    call = lambda m, x, y: m.nn.KLDivLoss(**options)(x, y)
    agree(call, [tuple(shape)] * 2, device, layout, low=0.1)


def test_kl_div_of_nothing_and_of_unlike_shapes():
    """Where the target is 0 the loss is 0, and its slope is -input, not NaN."""
    x, tx = pair(3, 2)
    y, ty = ours(torch.tensor([0.0, 0.7]).requires_grad_()), torch.tensor([0.0, 0.7])
    out = F.kl_div(x, y, reduction="sum")
    same(out, tnn.functional.kl_div(tx, ty, reduction="sum"))
    out.backward()
    same(x.grad, torch.stack([-ty] * 3))
    assert y.grad[0].item() == pytest.approx(-tx[:, 0].sum().item(), rel=1e-5)
    alone = F.kl_div(x[0, 0], x[0, 1].exp(), reduction="batchmean")
    same(alone, tnn.KLDivLoss(reduction="batchmean")(tx[0, 0], tx[0, 1].exp()))
    with pytest.raises(ValueError, match="KLDivLoss: reduction"):
        nn.KLDivLoss(reduction="average")
    with pytest.raises(ValueError, match="kl_div: "):
        F.kl_div(x, minitorch.ones(5))


def test_shapes_that_broadcast_warn():
    x, tx = pair(4, 1)
    y, ty = pair(4, seed=1)
    with pytest.warns(UserWarning, match=r"\(4, 1\) and the target \(4,\)"):
        out = F.mse_loss(x, y)
    with pytest.warns(UserWarning):
        same(out, torch.nn.functional.mse_loss(tx, ty))
    with pytest.raises(ValueError, match="l1_loss"):
        F.l1_loss(minitorch.ones(3), minitorch.ones(2))


def test_wrong_options():
    for wrong in (
        lambda: nn.MSELoss("average"),
        lambda: F.l1_loss(minitorch.ones(1), minitorch.ones(1), "x"),
        lambda: F.smooth_l1_loss(minitorch.ones(1), minitorch.ones(1), beta=-1),
        lambda: F.huber_loss(minitorch.ones(1), minitorch.ones(1), delta=0),
        lambda: F.cross_entropy(
            minitorch.ones(1, 2), minitorch.tensor([0]), label_smoothing=2.0
        ),
    ):
        with pytest.raises(ValueError):
            wrong()


SHAPES = [((5, 3), (5,)), ((3,), ()), ((2, 3, 4), (2, 4)), ((2, 3, 2, 2), (2, 2, 2))]
# A single target that is ignored would leave nothing to take a mean of.
WITH_IGNORED = [
    (shape, target_shape, ignore)
    for shape, target_shape in SHAPES
    for ignore in (None, -100, 1)
    if target_shape or ignore is None
]


def classes(shape, target_shape, device="cpu", ignore=None):
    x, tx = pair(*shape, device=device)
    y, ty = numbers(3, *target_shape, device=device)
    if ignore is not None and ty.ndim:
        ty.view(-1)[0] = ignore
        y = ours(ty, device)
    return x, tx, y, ty


@reductions
@pytest.mark.parametrize("shape, target_shape, ignore", WITH_IGNORED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": [0.2, 1.0, 3.0]},
        {"label_smoothing": 0.2},
        {"weight": [0.2, 1.0, 3.0], "label_smoothing": 0.3},
    ],
    ids=str,
)
def test_cross_entropy(shape, target_shape, options, ignore, reduction):
    x, tx, y, ty = classes(shape, target_shape, ignore=ignore)
    if ignore is not None:
        options = {**options, "ignore_index": ignore}
    mine, theirs = dict(options), dict(options)
    if "weight" in options:
        mine["weight"] = minitorch.tensor(options["weight"])
        theirs["weight"] = torch.tensor(options["weight"])
    compare(
        nn.CrossEntropyLoss(reduction=reduction, **mine),
        tnn.CrossEntropyLoss(reduction=reduction, **theirs),
        x, tx, y, ty,
    )  # fmt: skip


def test_cross_entropy_on_every_device(device):
    x, tx, y, ty = classes((5, 3), (5,), device, ignore=-100)
    compare(nn.CrossEntropyLoss(), tnn.CrossEntropyLoss(), x, tx, y, ty)


@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    rows=st.integers(1, 10),
    ignored=st.sampled_from([-100, 0]),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_scores_of_some_rows_at_a_time(sizes, rows, ignored, reduction):
    size, features, count = sizes
    x, tx = pair(size, features)
    w, tw = pair(count, features, seed=1)
    ty = torch.arange(size) % count
    told = {"ignore_index": ignored, "reduction": reduction}
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=rows)
    out = F.linear_cross_entropy(x, w, ours(ty), options=options, **told)
    expected = torch.nn.functional.cross_entropy(tx @ tw.T, ty, **told)
    same(out, expected)
    (out * 3.0).backward()
    (expected * 3.0).backward()
    same(x.grad, tx.grad)
    same(w.grad, tw.grad)


def test_scores_of_some_rows_on_every_device(device):
    """Under autocast, too, where the sums of gradients are float32."""
    x, tx = pair(5, 8, device=device)
    w, tw = pair(11, 8, seed=1, device=device)
    y, ty = numbers(11, 5, device=device)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    out = F.linear_cross_entropy(x, w, y, options=options)
    expected = torch.nn.functional.cross_entropy(tx @ tw.T, ty)
    same(out, expected)
    backward(out, expected)
    same(x.grad, tx.grad)
    same(w.grad, tw.grad)
    with minitorch.autocast(device, dtype=minitorch.bfloat16):
        out = F.linear_cross_entropy(x, w, y, options=options)
    assert out.dtype is minitorch.float32
    x.grad = w.grad = tw.grad = None
    out.backward()
    torch.nn.functional.cross_entropy(tx @ tw.T, ty).backward()
    assert x.grad.dtype is w.grad.dtype is minitorch.float32
    assert np.allclose(w.grad.numpy(), tw.grad, atol=0.02)


def test_a_cpu_copies_no_weight_for_tensor_cores(monkeypatch) -> None:
    monkeypatch.setattr("minitorch.precision.state.allow_tf32", True)
    x, w = minitorch.ones(3, 4, device="cpu"), minitorch.ones(7, 4, device="cpu")
    y = minitorch.zeros(3, dtype=minitorch.int64, device="cpu")
    seen, matmul = [], x.backend.matmul
    monkeypatch.setattr(
        x.backend, "matmul", lambda a, b: (seen.append(b.shape), matmul(a, b))[1]
    )
    F.linear_cross_entropy(x, w, y, options=nn.LinearCrossEntropyOptions(2))
    assert seen == [(4, 7)] * 2


def test_few_scores_are_kept(monkeypatch):
    """What is in memory at a time does not grow with the rows."""
    seen = []
    kind = type(minitorch.ones(1, device="cpu").backend)
    whole = kind.cross_entropy

    def watched(self, scores, *rest):
        seen.append(scores.shape)
        return whole(self, scores, *rest)

    monkeypatch.setattr(kind, "cross_entropy", watched)
    monkeypatch.setattr("minitorch.functions.linear_cross_entropy.SCORES", 3 * 7 * 4)
    x, w = minitorch.randn(10, 2, device="cpu"), minitorch.randn(7, 2, device="cpu")
    y = minitorch.zeros(10, dtype=minitorch.int64, device="cpu")
    told = {"options": nn.LinearCrossEntropyOptions()}
    F.linear_cross_entropy(x, w, y, **told)
    assert seen == [(3, 7), (3, 7), (3, 7), (1, 7)]
    rows = told["options"].rows  # of parts that are alike, and whole tiles
    monkeypatch.setattr("minitorch.functions.linear_cross_entropy.SCORES", 576 * 2**20)
    assert rows(16384, 50257, minitorch.bfloat16) == 22 * 256
    assert rows(601, 10**6, minitorch.float32) == 121
    assert rows(4096, 50257, minitorch.bfloat16) == 2048
    assert rows(100, 50257, minitorch.float32) >= 100
    with pytest.raises(ValueError, match=r"target \(9,\)"):
        F.linear_cross_entropy(x, w, y[1:], **told)
    with pytest.raises(IndexError, match="7 classes"):
        F.linear_cross_entropy(x, w, y + 7, **told)
    with pytest.warns(UserWarning, match="all scores"):
        F.linear_cross_entropy(x, w, y, label_smoothing=0.1, **told)
    for size in (0, 1.5, "2"):
        with pytest.raises(ValueError, match=f"batch_chunk_size is {size!r}"):
            nn.LinearCrossEntropyOptions(size)
    with pytest.raises(IndexError, match="0 classes"):
        F.linear_cross_entropy(x, w[:0], y, **told)
    square = minitorch.zeros(2, 7, dtype=minitorch.int64)  # as many rows as classes
    with pytest.raises(ValueError, match=r"input is \(2, 7, 2\); expected \[K\] or"):
        F.linear_cross_entropy(minitorch.randn(2, 7, 2), w, square)


@reductions
@pytest.mark.parametrize("shape", [(5, 3), (3,), (2, 3, 4)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_probabilities(shape, weighted, smoothing, reduction):
    x, tx = pair(*shape)
    ty = torch.rand(shape).softmax(min(1, len(shape) - 1)).requires_grad_()
    y = ours(ty)
    weight = [0.2, 1.0, 3.0] if weighted else None
    compare(
        nn.CrossEntropyLoss(
            None if weight is None else minitorch.tensor(weight),
            reduction=reduction,
            label_smoothing=smoothing,
        ),
        tnn.CrossEntropyLoss(
            None if weight is None else torch.tensor(weight),
            reduction=reduction,
            label_smoothing=smoothing,
        ),
        x, tx, y, ty,
    )  # fmt: skip


@reductions
@pytest.mark.parametrize("shape, target_shape, ignore", WITH_IGNORED)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(shape, target_shape, weighted, ignore, reduction):
    x, tx, y, ty = classes(shape, target_shape, ignore=ignore)
    weight = [0.2, 1.0, 3.0]
    mine = nn.NLLLoss(
        minitorch.tensor(weight) if weighted else None,
        ignore_index=-100 if ignore is None else ignore,
        reduction=reduction,
    )
    theirs = tnn.NLLLoss(
        torch.tensor(weight) if weighted else None,
        ignore_index=-100 if ignore is None else ignore,
        reduction=reduction,
    )
    compare(mine, theirs, x, tx, y, ty)


def test_all_targets_ignored_have_no_mean():
    x, y = minitorch.ones(2, 3), minitorch.tensor([-100, -100])
    assert math.isnan(F.cross_entropy(x, y)) and math.isnan(F.nll_loss(x, y))
    assert F.cross_entropy(x, y, reduction="sum") == 0


def test_class_errors():
    x = minitorch.ones(2, 3)
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(IndexError):
            loss(x, minitorch.tensor([0, 3]))
        with pytest.raises(ValueError, match=r"\(2, 3\).*\(4,\)"):
            loss(x, minitorch.tensor([0, 1, 2, 0]))
        with pytest.raises(ValueError, match=r"expected \(3,\)"):
            loss(x, minitorch.tensor([0, 1]), minitorch.ones(2))
        with pytest.raises(TypeError, match="bool"):
            loss(x, minitorch.tensor([True, False]))
    with pytest.raises(ValueError, match="probabilities"):
        F.cross_entropy(x, minitorch.ones(2, 3), ignore_index=1)
    with pytest.raises(ValueError, match="one shape"):
        F.cross_entropy(x, minitorch.ones(2, 2))


@given(st.integers(1, 6), st.integers(1, 70), st.floats(0.1, 50), st.integers(0, 2**31))
def test_cross_entropy_of_any_size(n, c, scale, seed):
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((n, c)) * scale).astype(np.float32)
    target = rng.integers(0, c, n)
    tx = torch.tensor(logits, requires_grad=True)
    compare(
        nn.CrossEntropyLoss(), tnn.CrossEntropyLoss(),
        ours(tx), tx, minitorch.tensor(target), torch.tensor(target),
    )  # fmt: skip


@reductions
@pytest.mark.parametrize("weighted", [False, True])
def test_bce(weighted, reduction, device):
    x, tx = pair(4, 3, low=0.05, device=device)
    y, ty = pair(4, 3, seed=1, low=0.01, device=device)
    w, tw = pair(4, 3, seed=2, grad=False, device=device)
    mine = nn.BCELoss(w if weighted else None, reduction=reduction)
    theirs = tnn.BCELoss(tw if weighted else None, reduction=reduction)
    compare(mine, theirs, x, tx, y, ty)


def test_bce_at_the_ends():
    tx = torch.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    ty = torch.tensor([0.0, 1.0, 1.0, 0.0])
    compare(nn.BCELoss(), tnn.BCELoss(), ours(tx), tx, ours(ty), ty)
    with pytest.raises(ValueError, match="with_logits"):
        F.binary_cross_entropy(minitorch.tensor([1.5]), minitorch.ones(1))
    with pytest.raises(ValueError, match="one shape"):
        F.binary_cross_entropy(minitorch.ones(2), minitorch.ones(1))


@reductions
@pytest.mark.parametrize("positive", [None, [0.5, 2.0, 3.0]])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_bce_with_logits(positive, scale, reduction, device):
    tx = (torch.randn(4, 3) * scale).requires_grad_()
    y, ty = pair(4, 3, seed=1, low=0.01, device=device)
    x = ours(tx, device)
    kwargs, tkwargs = {}, {}
    if positive is not None:
        kwargs["pos_weight"] = minitorch.tensor(positive, device=device)
        tkwargs["pos_weight"] = torch.tensor(positive)
    mine = nn.BCEWithLogitsLoss(reduction=reduction, **kwargs)
    theirs = tnn.BCEWithLogitsLoss(reduction=reduction, **tkwargs)
    compare(mine, theirs, x, tx, y, ty)


def test_gradients_of_gradients_of_losses():
    x, tx = pair(3, 2)
    y, ty = pair(3, 2, seed=1)
    (g,) = minitorch.grad(F.mse_loss(x, y), x, create_graph=True)
    (tg,) = torch.autograd.grad(
        torch.nn.functional.mse_loss(tx, ty), tx, create_graph=True
    )
    (g**2).sum().backward()
    (tg**2).sum().backward()
    same(x.grad, tx.grad)


@pytest.mark.parametrize("loss", [F.mse_loss, nn.MSELoss()], ids=["function", "module"])
def test_a_warning_names_the_line_that_led_to_it(loss):
    x, y = minitorch.ones(3), minitorch.ones(3, 1)
    with pytest.warns(UserWarning, match="likely to give a wrong loss") as told:
        loss(x, y)
    assert told[0].filename == __file__
