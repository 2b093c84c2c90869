"""Encoders, decoders and both together, beside PyTorch's with the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn_oracle import copy_weights, ours, same

import minitorch
from minitorch import nn

# What PyTorch says when it cannot take its own short cuts.
pytestmark = pytest.mark.filterwarnings("ignore:.*(mismatched|enable_nested)")
BATCH, SOURCE, TARGET, WIDTH = 3, 5, 4, 4
SIZES = {"tgt": (TARGET, TARGET), "memory": (TARGET, SOURCE), "src": (SOURCE, SOURCE)}


def text(length, batch_first, seed):
    rng = np.random.default_rng(seed)
    shape = (BATCH, length, WIDTH) if batch_first else (length, BATCH, WIDTH)
    return torch.tensor(rng.standard_normal(shape), requires_grad=True)


def mask(shape, kind, batch=1):
    """Which keys not to see, never all of them: None, bool or numbers."""
    if kind is None:
        return None
    hidden = torch.tensor(np.random.default_rng(len(kind)).random(shape) < 0.5)
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    return torch.zeros(shape).double().masked_fill(hidden, -math.inf) + 0.5


def compare(mine, theirs, tensors, masks, device):
    """Outputs, and gradients of all inputs and parameters."""
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in mine.named_parameters()] == names
    copy_weights(mine, theirs).to(device)
    own = [ours(x, device) for x in tensors]
    given = {key: ours(m, device) for key, m in masks.items() if m is not None}
    found, wanted = mine(*own, **given), theirs(*tensors, **masks)
    same(found, wanted, 1e-9, 1e-9)
    (found * found).sum().backward()
    (wanted * wanted).sum().backward()
    pairs = [*zip(own, tensors), *zip(mine.parameters(), theirs.parameters())]
    for a, b in pairs:
        same(a.grad, b.grad, 1e-8, 1e-8)


kinds = st.sampled_from([None, "bool", "numbers"])


@settings(max_examples=20, deadline=None)
@given(
    flags=st.tuples(*[st.booleans()] * 3),
    activation=st.sampled_from(["relu", "gelu"]),
    attention=st.tuples(kinds, kinds),
    padding=st.tuples(kinds, kinds),
    stacked=st.booleans(),
)
def test_decoders(flags, activation, attention, padding, stacked, device):
    """One layer, or two and a norm; all kinds of masks."""
    batch_first, norm_first, bias = flags
    options = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias}
    made = []
    for lib, double in ((nn, minitorch.float64), (torch.nn, torch.float64)):
        layer = lib.TransformerDecoderLayer(
            WIDTH, 2, 6, 0.0, activation, dtype=double, **options
        )
        norm = lib.LayerNorm(WIDTH, dtype=double)
        made.append(lib.TransformerDecoder(layer, 2, norm) if stacked else layer)
    lengths = {"tgt": TARGET, "memory": SOURCE}
    masks = {f"{k}_mask": mask(SIZES[k], kind) for k, kind in zip(lengths, attention)}
    for key, kind in zip(lengths, padding):
        masks[f"{key}_key_padding_mask"] = mask((BATCH, lengths[key]), kind)
    tensors = [text(n, batch_first, n) for n in lengths.values()]
    compare(*made, tensors, masks, device)


@settings(max_examples=15, deadline=None)
@given(
    flags=st.tuples(*[st.booleans()] * 3),
    attention=st.tuples(kinds, kinds, kinds),
    padding=kinds,
)
def test_transformers(flags, attention, padding):
    batch_first, norm_first, bias = flags
    options = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias}
    mine, theirs = (
        lib.Transformer(WIDTH, 2, 1, 2, 6, 0.0, "gelu", dtype=double, **options)
        for lib, double in ((nn, minitorch.float64), (torch.nn, torch.float64))
    )
    masks = {f"{k}_mask": mask(SIZES[k], kind) for k, kind in zip(SIZES, attention)}
    hidden = mask((BATCH, SOURCE), padding)
    masks |= {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    tensors = [text(n, batch_first, n) for n in (SOURCE, TARGET)]
    compare(mine, theirs, tensors, masks, "cpu")


def test_a_causal_mask():
    """It is PyTorch's, and `tgt_is_causal` alone says the same."""
    make = nn.Transformer.generate_square_subsequent_mask
    ahead = make(TARGET, dtype=minitorch.float64)
    theirs = torch.nn.Transformer.generate_square_subsequent_mask
    assert ahead.tolist() == theirs(TARGET).tolist() and make(0).shape == (0, 0)
    net = nn.Transformer(WIDTH, 2, 1, 1, 6, 0.0, dtype=minitorch.float64).eval()
    src, tgt = (ours(text(n, False, n).detach()) for n in (SOURCE, TARGET))
    found = net(src, tgt, tgt_mask=ahead)
    np.testing.assert_allclose(
        net(src, tgt, tgt_is_causal=True).tolist(), found.tolist(), atol=1e-12
    )
    tgt[-1] = 9.0
    np.testing.assert_array_equal(
        net(src, tgt, tgt_mask=ahead)[:-1].tolist(), found[:-1].tolist()
    )


def test_parts_of_ones_own_first_weights_and_sequences_alone():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 6)
    own = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    net = nn.Transformer(WIDTH, 2, 6, 1, 6, activation=nn.ReLU(), custom_encoder=own)
    assert net.encoder is own and net.encoder.norm is None
    assert net.decoder.norm is not None
    assert (net.d_model, net.nhead, net.batch_first) == (WIDTH, 2, False)
    bound = math.sqrt(6 / (WIDTH + 6))
    assert 0 < own.layers[0].linear1.weight.abs().max().item() <= bound
    src, tgt = minitorch.randn(SOURCE, WIDTH), minitorch.randn(TARGET, WIDTH)
    net.eval()
    alone, both = net(src, tgt), net(src.unsqueeze(1), tgt.unsqueeze(1))
    assert alone.shape == (TARGET, WIDTH)
    np.testing.assert_allclose(alone.tolist(), both.squeeze(1).tolist(), atol=1e-6)
    net.train()
    assert net(src, tgt).tolist() != net(src, tgt).tolist()


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_part_may_be_another_module(norm_first):
    args = (8, 2, 16, 0.0, "relu", 1e-5, False, norm_first)
    mine, theirs = (lib.nn.TransformerEncoderLayer(*args) for lib in (minitorch, torch))
    copy_weights(mine, theirs)
    for lib, layer in ((minitorch, mine), (torch, theirs)):
        layer.norm1, layer.dropout2 = lib.nn.Identity(), lib.nn.Identity()
    x = torch.randn(3, 2, 8)
    same(mine(ours(x)), theirs(x))


def test_errors():
    layer = nn.TransformerDecoderLayer(WIDTH, 2, 6)
    x = minitorch.ones(TARGET, 1, WIDTH)
    for make, words in (
        (lambda: nn.TransformerDecoderLayer(4, 2, activation="elu"), "Decoder.*'elu'"),
        (lambda: nn.Transformer(5, 2), "embed_dim is 5 and num_heads 2"),
        (lambda: layer(x, minitorch.ones(SOURCE, 2, WIDTH)), r"query is \(4, 1, 4\)"),
        (lambda: layer(x, x, minitorch.ones(2, 2)), r"attn_mask is float32 \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
