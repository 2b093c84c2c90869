"""Recurrent layers against PyTorch: outputs, last states and all gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn_oracle import copy_weights, ours, pair, same, state_of

import minitorch
from minitorch import nn

NAMES = ("RNN", "LSTM", "GRU")


def parts(out, last):
    """The output, and one or two states."""
    return [out, *(last if isinstance(last, tuple) else [last])]


def weighted(tensors):
    """A number that depends on all of them, on each in its own way."""
    return sum((t * t).sum() * (i + 1) + t.sum() for i, t in enumerate(tensors))


@given(
    kind=st.sampled_from([*NAMES, "relu"]),
    sizes=st.tuples(*[st.integers(1, 3)] * 3, st.integers(0, 2)),
    layers=st.integers(1, 3),
    flags=st.tuples(*[st.booleans()] * 5),
)
def test_recurrent(kind, sizes, layers, flags, device):
    """The numbers and gradients are PyTorch's in float64, also those of states."""
    width, hidden, times, batch = sizes
    bias, batch_first, both, single, begun = flags
    name, extra = ("RNN", {"nonlinearity": kind}) if kind == "relu" else (kind, {})
    options = {"bias": bias, "batch_first": batch_first, "bidirectional": both, **extra}
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(width, hidden, layers, **options).double()
    mine = getattr(nn, name)(width, hidden, layers, dtype=minitorch.float64, **options)
    mine.to(device).load_state_dict(state_of(theirs))
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    shape = (batch, times) if batch_first else (times, batch)
    shape = (times, width) if single else (*shape, width)
    middle = () if single else (batch,)
    begin = torch.randn(2, layers * (1 + both), *middle, hidden).double()
    given = [torch.randn(shape).double(), *begin[: begun * (1 + (name == "LSTM"))]]
    given = [t.requires_grad_() for t in given]
    own = [ours(t, device) for t in given]
    found = []
    for module, (x, *first) in ((mine, own), (theirs, given)):
        hx = (tuple(first) if name == "LSTM" else first[0]) if begun else None
        found.append(parts(*module(x, hx)))
        weighted(found[-1]).backward()
    leaves = [(a.grad, b.grad) for a, b in zip(own, given)]
    leaves += [(p.grad, q.grad) for p, q in zip(mine.parameters(), theirs.parameters())]
    for a, b in [*zip(*found), *leaves]:
        same(a, b, 1e-9, 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_sequences_in_any_layout_and_in_parts(name, device):
    """What a part ends with, the next one begins with; lines of a view are read."""
    mine, theirs = (getattr(lib.nn, name)(2, 3) for lib in (minitorch, torch))
    copy_weights(mine, theirs).to(device)
    x, tx = pair(6, 4, 4, device=device)
    first, state = mine(x[:4:2, :, ::2].detach())
    then, state = mine(x[4:, :, ::2].detach()[:1], state)
    expected, last = theirs(tx[::2, :, ::2])
    same(minitorch.cat([first, then]), expected)
    for a, b in zip(parts(first, state)[1:], parts(first, last)[1:]):
        same(a, b)


def test_beginnings_dropout_and_halves(device):
    made = nn.LSTM(5, 16, 2, dropout=0.5, device=device)
    for p in made.parameters():
        assert 0.5 / 4 < p.abs().max().item() <= 1 / 4
    x = minitorch.randn(3, 2, 5, device=device)
    assert not np.allclose(made(x)[0].tolist(), made(x)[0].tolist())
    made.eval()
    made.flatten_parameters()
    quiet = made(x)[0]
    np.testing.assert_array_equal(quiet.tolist(), made(x)[0].tolist())
    half = made.to(minitorch.bfloat16)(x.bfloat16())[0]
    assert half.dtype is minitorch.bfloat16
    np.testing.assert_allclose(half.tolist(), quiet.tolist(), atol=0.02)
    with minitorch.autocast("cpu", dtype=minitorch.bfloat16):
        nn.GRU(5, 4)(x.cpu())[0].sum().backward()


def test_a_state_of_pytorch_loads_by_its_names():
    theirs = torch.nn.GRU(2, 3, 2, bidirectional=True)
    state = state_of(theirs)
    assert "weight_hh_l1_reverse" in state
    check = nn.ModuleDict({"rnn": nn.GRU(2, 3, 2, bidirectional=True)})
    check.load_state_dict({f"rnn.{key}": value for key, value in state.items()})
    assert check["rnn"].bias_ih_l0.tolist() == theirs.bias_ih_l0.tolist()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell", "relu"])
def test_cells(kind, bias, device):
    """Two steps, the first from no state, with a batch and without."""
    name, extra = ("RNNCell", {"nonlinearity": kind}) if kind == "relu" else (kind, {})
    theirs = getattr(torch.nn, name)(2, 3, bias=bias, **extra)
    mine = getattr(nn, name)(2, 3, bias, **extra)
    copy_weights(mine, theirs).to(device)
    assert repr(mine) == repr(theirs)
    for shape in ((4, 2), (2,)):
        x, tx = pair(*shape, device=device)
        found = []
        for cell, now in ((mine, x), (theirs, tx)):
            last = cell(now, cell(now))
            found.append(list(last) if name == "LSTMCell" else [last])
            weighted(found[-1]).backward()
        for a, b in zip(*found):
            same(a, b)
        same(x.grad, tx.grad)
    for p, q in zip(mine.parameters(), theirs.parameters()):
        same(p.grad, q.grad)


def test_cells_say_what_they_want():
    x, cell = minitorch.ones(4, 3), nn.LSTMCell(3, 5)
    h = minitorch.ones(4, 5)
    for state in ((h, h[:1]), (h,), (h, h, h)):
        with pytest.raises(ValueError, match=r"LSTMCell: .* 2 of \(4, 5\)"):
            cell(x, state)
    with pytest.raises(ValueError, match="RNNCell: nonlinearity"):
        nn.RNNCell(3, 5, nonlinearity="sin")
    assert nn.GRU(2, 3)._flat_weights_names[0] == "weight_ih_l0"


def test_errors():
    x, rnn = minitorch.ones(4, 2, 3), nn.LSTM(3, 5)
    h = minitorch.ones(1, 2, 5)
    for wrong in (
        lambda: nn.RNN(3, 5, nonlinearity="sigmoid"),
        lambda: nn.LSTM(3, 0),
        lambda: nn.GRU(3, 5, 0),
        lambda: nn.GRU(3, 5, dropout=1.5),
        lambda: nn.GRU(3.0, 5),
        lambda: rnn(minitorch.ones(4, 2, 4)),
        lambda: rnn(minitorch.ones(3)),
        lambda: rnn(x[:0]),
        lambda: rnn(x, (h, h[:, :1])),
        lambda: rnn(x, (h,)),
    ):
        with pytest.raises(ValueError, match=r"(RNN|LSTM|GRU): "):
            wrong()
    with pytest.raises(TypeError):
        nn.LSTM(3, 5, proj_size=2)
