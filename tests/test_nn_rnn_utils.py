"""Padded and packed sequences, and recurrent layers that read them, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn_oracle import copy_weights, ours, same

import minitorch
from minitorch import nn
from minitorch.nn.utils import rnn

theirs_of = torch.nn.utils.rnn
some_lengths = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def sequences(lengths, *rest):
    rng = np.random.default_rng(0)
    return [torch.tensor(rng.standard_normal((n, *rest))) for n in lengths]


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    rest=st.sampled_from([(), (2,), (2, 3)]),
    batch_first=st.booleans(),
    side=st.sampled_from(["left", "right"]),
)
def test_pad_sequence(lengths, rest, batch_first, side, device):
    """Empty sequences as well, and gradients of each."""
    given = [x.requires_grad_() for x in sequences(lengths, *rest)]
    own = [ours(x, device) for x in given]
    found = rnn.pad_sequence(own, batch_first, -1.5, padding_side=side)
    wanted = theirs_of.pad_sequence(given, batch_first, -1.5, padding_side=side)
    same(found, wanted)
    (found * found).sum().backward()
    (wanted * wanted).sum().backward()
    for a, b in zip(own, given):
        same(a.grad, b.grad)


def test_pad_sequence_of_tokens():
    texts = [minitorch.tensor([5, 6, 7]), minitorch.tensor([8])]
    padded = rnn.pad_sequence(texts, batch_first=True, padding_value=2)
    assert padded.dtype is minitorch.int64
    assert padded.tolist() == [[5, 6, 7], [8, 2, 2]]


@given(
    lengths=some_lengths,
    rest=st.sampled_from([(), (2,)]),
    batch_first=st.booleans(),
    more=st.integers(0, 2),
)
def test_packing_and_back(lengths, rest, batch_first, more, device):
    """Any order, padding that is longer than all, and what packing makes itself."""
    many = sequences(lengths, *rest)
    padded = theirs_of.pad_sequence([*many, torch.ones(max(lengths) + more, *rest)])
    padded = padded[:, :-1]
    padded = (padded.transpose(0, 1) if batch_first else padded).requires_grad_()
    own = ours(padded, device)
    found = rnn.pack_padded_sequence(own, lengths, batch_first, enforce_sorted=False)
    wanted = theirs_of.pack_padded_sequence(
        padded, torch.tensor(lengths), batch_first, enforce_sorted=False
    )
    for a, b in zip(found[:2], wanted[:2]):
        same(a, b)
    assert found.batch_sizes.device == "cpu"
    total = max(lengths) + 1
    back, own_lengths = rnn.pad_packed_sequence(found, batch_first, 7.0, total)
    there, their_lengths = theirs_of.pad_packed_sequence(
        wanted, batch_first, 7.0, total
    )
    same(back, there)
    assert own_lengths.tolist() == their_lengths.tolist() == lengths
    (back * back).sum().backward()
    (there * there).sum().backward()
    same(own.grad, padded.grad)
    for a, b in zip(rnn.unpack_sequence(found), many):
        same(a, b)


def test_packing_what_is_sorted():
    many = sequences([4, 2, 2, 1], 3)
    for sort in (True, False):
        found = rnn.pack_sequence([ours(x) for x in many], enforce_sorted=sort)
        wanted = theirs_of.pack_sequence(many, enforce_sorted=sort)
        same(found.data, wanted.data)
        assert found.batch_sizes.tolist() == [4, 3, 1, 1]
        assert (found.sorted_indices is None) == sort
    half = found.to(minitorch.float32)
    assert half.data.dtype is minitorch.float32
    assert half.sorted_indices.dtype is minitorch.int64


@given(
    lengths=some_lengths,
    kind=st.sampled_from(["RNN", "LSTM", "GRU"]),
    layers=st.integers(1, 2),
    flags=st.tuples(*[st.booleans()] * 3),
)
def test_recurrent_layers_read_no_padding(lengths, kind, layers, flags, device):
    """Outputs, last states in the order of the sequences, and all gradients."""
    both, begun, bias = flags
    options = {"bias": bias, "bidirectional": both}
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(2, 3, layers, **options).double()
    mine = getattr(nn, kind)(2, 3, layers, dtype=minitorch.float64, **options)
    copy_weights(mine, theirs).to(device)
    begin = torch.randn(2, layers * (1 + both), len(lengths), 3).double()
    given = [*sequences(lengths, 2), *begin[: begun * (1 + (kind == "LSTM"))]]
    given = [t.requires_grad_() for t in given]
    own, found = [ours(t, device) for t in given], []
    for module, lib, tensors in ((mine, rnn, own), (theirs, theirs_of, given)):
        texts, first = tensors[: len(lengths)], tensors[len(lengths) :]
        hx = (tuple(first) if kind == "LSTM" else first[0]) if begun else None
        out, last = module(lib.pack_sequence(texts, enforce_sorted=False), hx)
        assert type(out) is lib.PackedSequence
        states = last if kind == "LSTM" else [last]
        found.append([lib.pad_packed_sequence(out)[0], *states])
        sum((t * t).sum() * i for i, t in enumerate(found[-1], 1)).backward()
    leaves = [(a.grad, b.grad) for a, b in zip(own, given)]
    leaves += [(p.grad, q.grad) for p, q in zip(mine.parameters(), theirs.parameters())]
    for a, b in [*zip(*found), *leaves]:
        same(a, b, 1e-9, 1e-10)


def test_errors():
    x = minitorch.ones(3, 2, 4)
    packed = rnn.pack_padded_sequence(x, [3, 1])
    for make, words in (
        (lambda: rnn.pad_sequence([]), r"are \[\]; expected some"),
        (lambda: rnn.pad_sequence([x, x[0]]), "differ in the first size alone"),
        (lambda: rnn.pad_sequence([x], padding_side="top"), "'top', no side"),
        (lambda: rnn.pack_padded_sequence(x, [1, 3]), "rise; sort .*enforce_sorted"),
        (lambda: rnn.pack_padded_sequence(x, [3]), "each of 2 sequences, from 1 to 3"),
        (lambda: rnn.pack_padded_sequence(x, [3, 0]), "from 1 to 3"),
        (lambda: rnn.pack_padded_sequence(x, [3, 2], True), "each of 3 sequences"),
        (lambda: rnn.unpad_sequence(x, [4, 2]), "from 1 to 3"),
        (lambda: rnn.pad_packed_sequence(packed, total_length=2), "has 3 steps"),
        (lambda: nn.LSTM(5, 2)(packed), r"\(4, 4\); expected \(steps of all .*, 5\)"),
        (lambda: nn.GRU(4, 2)(packed, x), r"\(3, 2, 4\).*; expected .*\(1, 2, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
