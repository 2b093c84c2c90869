"""Masks over parameters, as PyTorch's; two of four, and what packs it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.utils.prune as theirs
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch import nn
from minitorch.nn.utils import prune as ours


def different(n: int, k: int, seed: int = 0, kind: int = 0) -> np.ndarray:
    """Numbers of which no two are equally far from 0, nor from those of other kinds."""
    rng = np.random.default_rng([n, k, seed, kind])
    size = (1 + rng.permutation(n * k)) / 8 + kind / 128
    return (rng.choice((-1, 1), n * k) * size).reshape(n, k).astype(np.float32)


def both(*sizes: int, seed: int = 0):
    """The same linear layers, ours and PyTorch's, with ReLU between."""
    models = []
    for lib, make in ((nn, minitorch.tensor), (torch.nn, torch.tensor)):
        layers = []
        for i, (k, n) in enumerate(pairwise(sizes)):
            layers += [lib.Linear(k, n), lib.ReLU()]
            layers[-2].weight = lib.Parameter(make(different(n, k, seed, 2 * i)))
            layers[-2].bias = lib.Parameter(make(different(1, n, seed, 2 * i + 1)[0]))
        models.append(lib.Sequential(*layers[:-1]))
    return models


def same_state(a, b) -> None:
    mine, other = a.state_dict(), b.state_dict()
    assert list(mine) == list(other)
    for name, tensor in other.items():
        np.testing.assert_array_equal(mine[name].numpy(), tensor.numpy())


AMOUNTS = (0, 3, 0.0, 0.25, 0.5, 0.7, 1.0)
ONE = {
    "l1": lambda p, m, a: p.l1_unstructured(m, "weight", a),
    "l1 of a bias": lambda p, m, a: p.l1_unstructured(m, "bias", min(a, 2)),
    "rows": lambda p, m, a: p.ln_structured(m, "weight", a, n=2, dim=0),
    "columns by 1": lambda p, m, a: p.ln_structured(m, "weight", a, n=1, dim=-1),
    "rows by inf": lambda p, m, a: p.ln_structured(m, "weight", a, float("inf"), 0),
}


@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(ONE)), st.sampled_from(AMOUNTS))),
    seed=st.integers(0, 9),
)
def test_masks_are_pytorchs_whatever_came_before(steps, seed):
    a, b = both(5, 4, seed=seed)
    for name, amount in steps:
        errors = []
        for library, model in ((ours, a), (theirs, b)):
            try:
                ONE[name](library, model[0], amount)
                errors.append(False)
            except (ValueError, RuntimeError, IndexError):  # more than there are
                errors.append(True)
        if any(errors):
            return
        same_state(a, b)
    assert ours.is_pruned(a) == theirs.is_pruned(b) == bool(steps)


def test_what_is_left_learns_and_the_rest_stays():
    a, b = both(6, 5, 3)
    optimizers = minitorch.optim.SGD(a.parameters(), 0.01, momentum=0.9), None
    optimizers = optimizers[0], torch.optim.SGD(b.parameters(), 0.01, momentum=0.9)
    x = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
    for p, model in ((ours, a), (theirs, b)):
        p.l1_unstructured(model[0], "weight", 0.5)
        p.ln_structured(model[2], "weight", 1, n=2, dim=1)
        pairs = [(model[0], "weight"), (model[2], "weight"), (model[2], "bias")]
        p.global_unstructured(pairs, p.L1Unstructured, amount=0.3)
    same_state(a, b)
    for _ in range(3):
        for model, make, optimizer in zip((a, b), (minitorch, torch), optimizers):
            optimizer.zero_grad()
            (model(make.tensor(x)) ** 2).mean().backward()
            optimizer.step()
        for name, tensor in b.state_dict().items():
            mine = a.state_dict()[name].numpy()
            np.testing.assert_allclose(mine, tensor.numpy(), 1e-4, 1e-4)
    mask = a[0].weight_mask
    assert (a[0].weight_orig.grad[mask == 0] == 0).all() and 0 < mask.sum() < 30
    for p, model in ((ours, a), (theirs, b)):
        p.remove(p.remove(model[2], "weight"), "bias")
        assert p.is_pruned(model)
        p.remove(model[0], "weight")
        assert not p.is_pruned(model)
    assert list(a.state_dict()) == list(b.state_dict())
    assert isinstance(a[0].weight, nn.Parameter)
    assert (a[0].weight[mask == 0] == 0).all()


@pytest.mark.parametrize("amount", [0.4, 5])
def test_chance_is_pytorchs_for_the_same_seed(amount):
    a, b = both(6, 5, 4)
    minitorch.manual_seed(3, sequence="pytorch")
    torch.manual_seed(3)
    for p, model in ((ours, a), (theirs, b)):
        p.random_unstructured(model[0], "weight", amount)
        p.random_unstructured(model[0], "weight", amount)
        pairs = [(model[0], "weight"), (model[2], "weight")]
        p.global_unstructured(pairs, p.RandomUnstructured, amount=amount)
    minitorch.manual_seed(0, sequence="philox")
    same_state(a, b)


def test_scores_decide_where_they_are_given():
    a, b = both(4, 3, 2)
    for p, model, make in ((ours, a, minitorch), (theirs, b, torch)):
        scores = make.tensor(different(3, 4, kind=9))
        p.l1_unstructured(model[0], "weight", 0.5, importance_scores=scores)
        p.ln_structured(model[0], "weight", 1, 2, 0, importance_scores=scores)
        pairs = [(model[0], "weight"), (model[2], "weight")]
        p.global_unstructured(
            pairs, p.L1Unstructured, {pairs[1]: scores[:2, :3] + 1 / 16}, amount=0.4
        )
    same_state(a, b)


def test_a_mask_of_ones_own_and_a_method():
    class EveryOther(ours.BasePruningMethod):
        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    layer = nn.Linear(4, 2)
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 1, 0, 1]] * 2
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 0, 0, 1]] * 2
    ours.custom_from_mask(layer, "weight", minitorch.tensor([[True] * 4, [False] * 4]))
    assert layer.weight_mask.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert len(layer._forward_pre_hooks) == 1
    with pytest.raises(TypeError, match="expected a method that is unstructured"):
        ours.global_unstructured([(layer, "weight")], ours.LnStructured, amount=1, n=2)


def test_states_are_loaded_and_moved():
    layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
    for part in (layer, other):
        ours.l1_unstructured(part, "weight", 0.5)
    other.load_state_dict(layer.state_dict())
    x = minitorch.rand(4, 3)
    assert other(x).equal(layer(x))
    assert layer.double()(x.double()).dtype == minitorch.float64
    assert layer.weight_mask.dtype == minitorch.float64


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda m: ours.l1_unstructured(m, "weight", -1), ValueError, "amount is -1"),
        (lambda m: ours.l1_unstructured(m, "weight", 1.5), ValueError, "share as a"),
        (lambda m: ours.l1_unstructured(m, "weight", 7), ValueError, "there are 6"),
        (lambda m: ours.ln_structured(m, "bias", 1, 2, 0), ValueError, "two dims"),
        (lambda m: ours.ln_structured(m, "weight", 1, 3, 0), ValueError, "norm"),
        (lambda m: ours.l1_unstructured(m, "wieght", 1), AttributeError, "wieght"),
        (lambda m: ours.l1_unstructured(m, "out_features", 1), TypeError, "Parameter"),
        (lambda m: ours.remove(m, "weight"), ValueError, "weight is not pruned"),
        (
            lambda m: ours.custom_from_mask(m, "weight", minitorch.ones(3, 2)),
            *(ValueError, r"mask is \(3, 2\); expected \(2, 3\)"),
        ),
        (
            lambda m: ours.l1_unstructured(m, "weight", 1, minitorch.ones(3)),
            *(ValueError, r"importance_scores are \(3,\)"),
        ),
    ],
)
def test_what_is_refused_changes_nothing(act, error, said):
    layer = nn.Linear(3, 2)
    before = {name: t.tolist() for name, t in layer.state_dict().items()}
    with pytest.raises(error, match=said):
        act(layer)
    assert {name: t.tolist() for name, t in layer.state_dict().items()} == before
    assert not ours.is_pruned(layer) and isinstance(layer.weight, nn.Parameter)


# ------------------------------------------------------------------------- two of four


@given(
    n=st.integers(0, 4),
    fours=st.integers(0, 5),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "float64", "int64"]),
)
def test_two_of_each_four_come_back(n, fours, seed, dtype):
    """Small whole numbers, of which many are equal."""
    w = np.random.default_rng(seed).integers(-3, 4, (n, 4 * fours)).astype(dtype)
    mask = nn.two_of_four(minitorch.tensor(w)).numpy()
    assert mask.dtype == bool and (mask.reshape(n, fours, 4).sum(2) == 2).all()
    size = np.abs(w).reshape(n * fours, 4)
    for four, kept in zip(size, mask.reshape(n * fours, 4)):
        order = sorted(range(4), key=lambda i: (-four[i], i))
        assert set(np.flatnonzero(kept)) == set(order[:2])
    values, places = nn.pack_two_of_four(minitorch.tensor(w), minitorch.tensor(mask))
    assert places.dtype == minitorch.int8
    assert (values.shape, places.shape) == ((n, 2 * fours), (n, -(-fours // 2)))
    back = nn.unpack_two_of_four(values, places)
    assert back.dtype == values.dtype and (back.numpy() == w * mask).all()


def test_the_bits_of_a_byte():
    w = minitorch.tensor([[3.0, 0, 0, 5, 0, 0, 7, 4]])
    _, places = nn.pack_two_of_four(w, nn.two_of_four(w))
    assert places.item() % 256 == 0b11_10_11_00


def test_packed_values_learn_through_their_matrix():
    w = minitorch.tensor(different(2, 8))
    values, places = nn.pack_two_of_four(w, nn.two_of_four(w))
    values.requires_grad_()
    (nn.unpack_two_of_four(values, places) * w).sum().backward()
    assert values.grad.equal(values.detach())


def test_two_of_four_on_devices(device):
    w = minitorch.tensor(different(3, 12), device=device)
    mask = nn.two_of_four(w)
    values, places = nn.pack_two_of_four(w, mask)
    assert places.device == device
    assert nn.unpack_two_of_four(values, places).equal(w * mask.to(w.dtype))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ones: nn.two_of_four(ones(2, 6)), "K a multiple of 4"),
        (lambda ones: nn.two_of_four(ones(4)), "K a multiple of 4"),
        (lambda ones: nn.pack_two_of_four(ones(1, 4), ones(1, 4)), "two of each four"),
        (lambda ones: nn.pack_two_of_four(ones(1, 4), ones(2, 4)), "two of each four"),
        (lambda ones: nn.unpack_two_of_four(ones(1, 4), ones(1, 2)), "ceil"),
        (lambda ones: nn.unpack_two_of_four(ones(1, 3), ones(1, 1)), "ceil"),
    ],
)
def test_fours_that_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call(minitorch.ones)


def test_pruned_layers_as_sparse_ones_or_bytes():
    """What other ways to be smaller make of a layer under a mask."""
    model = nn.Sequential(nn.Linear(4, 3))
    ours.l1_unstructured(model[0], "weight", 0.5)
    with pytest.raises(ValueError, match="has hooks; remove them first"):
        minitorch.quantization.quantize_(model)
    wanted = model(minitorch.ones(1, 4))
    sparse = nn.prune_linears(model, 0.5)
    assert sparse[0].values.numel() == 6
    torch.testing.assert_close(
        *(torch.tensor(y.tolist()) for y in (wanted, sparse(minitorch.ones(1, 4))))
    )


@pytest.mark.parametrize("kind", ["LSTM", "GRUCell", "Conv2d", "Embedding"])
def test_layers_of_other_kinds_compute_with_what_is_left(kind):
    sizes = (3, 4, 1) if kind == "Conv2d" else (3, 4)
    mine, other = getattr(nn, kind)(*sizes), getattr(torch.nn, kind)(*sizes)
    states = {k: torch.tensor(v.numpy()) for k, v in mine.state_dict().items()}
    other.load_state_dict(states)
    name = next(name for name in states if "weight" in name)
    x = np.random.default_rng(0).standard_normal((3, 3, 3)).astype(np.float32)
    x = {"GRUCell": x[0], "Embedding": np.array([2, 0])}.get(kind, x)
    outs = []
    for p, layer, make in ((ours, mine, minitorch), (theirs, other, torch)):
        p.l1_unstructured(layer, name, 0.5)
        out = layer(make.tensor(x))
        out = out[0] if kind == "LSTM" else out
        out.sum().backward()
        outs += [out.detach().numpy(), getattr(layer, f"{name}_orig").grad.numpy()]
    for a, b in zip(outs[:2], outs[2:]):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
