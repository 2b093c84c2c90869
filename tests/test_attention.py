"""Attention, the layers around it, einsum and sampling, against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, settings
from hypothesis import strategies as st
from nn_oracle import backward, check_module, copy_weights, ours, pair, same

import minitorch
import minitorch.nn.functional as F
from minitorch import nn

tnn = torch.nn
small = st.integers(1, 5)


def attend(*shapes: tuple[int, ...], device: str = "cpu", **options: Any) -> None:
    """Outputs and gradients are PyTorch's, for query, key and value of these shapes."""
    operands = [pair(*s, seed=i, device=device) for i, s in enumerate(shapes)]
    mine, theirs = zip(*operands)
    mask = options.pop("mask", None)
    our_mask = None if mask is None else ours(mask, device)
    out = F.scaled_dot_product_attention(*mine, attn_mask=our_mask, **options)
    expected = TF.scaled_dot_product_attention(*theirs, attn_mask=mask, **options)
    same(out, expected)
    backward(out, expected)
    for x, y in operands:
        same(x.grad, y.grad)


@given(
    batch=st.lists(st.integers(1, 2), max_size=2),
    sizes=st.tuples(small, small, small, small),
    is_causal=st.booleans(),
    scale=st.sampled_from([None, 0.3, 2.0]),
)
@settings(max_examples=40)
def test_any_shape(batch, sizes, is_causal, scale):
    queries, keys, width, values = sizes
    shapes = (queries, width), (keys, width), (keys, values)
    attend(*[(*batch, *s) for s in shapes], is_causal=is_causal, scale=scale)


def test_on_each_device(device):
    attend((2, 3, 4), (2, 5, 4), (2, 5, 2), device=device)
    attend((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4), device=device, is_causal=True)
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    attend((2, 3, 4), (2, 2, 4), (2, 2, 4), device=device, mask=mask)


@pytest.mark.parametrize("kind", ["bool", "numbers"])
@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (2, 1, 3, 5)])
def test_masks(kind, shape):
    """A query that sees nothing gets zeros and gives no gradient."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.4
    mask[..., 0, :] = False
    if kind == "numbers":
        mask = torch.where(mask, 0.3, -math.inf)
    attend((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6), mask=mask)


def test_heads_in_groups():
    attend((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3), enable_gqa=True)
    attend((2, 4, 3, 2), (2, 1, 5, 2), (2, 1, 5, 3))
    attend((2, 4, 3, 2), (2, 2, 5, 2), (2, 4, 5, 3), enable_gqa=True)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 2, 3), (4, 2, 3), (1, 2, 3)),
        ((2, 1, 2, 3), (4, 2, 3), (1, 1, 2, 5)),
        ((2, 3), (4, 2, 3), (2, 3)),
        ((4, 2, 3), (2, 3), (2, 3)),
        ((3, 0, 2, 3), (3, 1, 2, 3), (3, 0, 2, 3)),
    ],
)
def test_batches_and_heads_that_broadcast(shapes):
    attend(*shapes)


def test_heads_of_features_go_back_without_a_copy(device):
    """As models make them: [B, T, H * E] -> [B, H, T, E], and back again."""
    x = minitorch.rand(2, 3, 8, device=device).unflatten(2, (2, 4)).transpose(1, 2)
    keys, x = x.detach(), x.detach().requires_grad_()
    out = F.scaled_dot_product_attention(x, keys, keys, is_causal=True)
    assert out.transpose(1, 2).is_contiguous()
    (grad,) = minitorch.autograd.grad(out.sum(), [x])
    assert grad.transpose(1, 2).is_contiguous()


def test_gradients_of_heads_of_one_product_are_parts_of_its_gradient(device):
    x = minitorch.rand(2, 3, 24, device=device, requires_grad=True)
    heads = [a.unflatten(2, (2, 4)).transpose(1, 2) for a in x.split(8, 2)]
    out = F.scaled_dot_product_attention(*heads, is_causal=True)
    grads = minitorch.autograd.grad(out.exp().sum(), [x, *heads], retain_graph=True)
    assert grads[1].raw.storage is grads[2].raw.storage is grads[3].raw.storage
    assert grads[0].raw.storage is grads[1].raw.storage
    y = torch.tensor(x.detach().numpy(), requires_grad=True)
    heads = [a.unflatten(2, (2, 4)).transpose(1, 2) for a in y.split(8, 2)]
    TF.scaled_dot_product_attention(*heads, is_causal=True).exp().sum().backward()
    np.testing.assert_allclose(grads[0].numpy(), y.grad, 1e-4, 1e-5)


def test_no_queries_and_no_keys():
    attend((2, 0, 4), (2, 3, 4), (2, 3, 4))
    attend((2, 3, 4), (2, 0, 4), (2, 0, 4))


def kept_of(q: Any, k: Any, p: float, **options: Any) -> Any:
    """Which weights a call with the generator's present state keeps.

    With the unit matrix for values the output is the weights.
    """
    values = minitorch.eye(k.shape[-2], dtype=q.dtype, device=q.device)
    values = values.expand(*k.shape[:-1], k.shape[-2])
    before = minitorch.default_generator.get_state()
    out = F.scaled_dot_product_attention(q, k, values, dropout_p=p, **options)
    minitorch.default_generator.set_state(before)
    return (out != 0).detach()


@pytest.mark.parametrize("causal", [True, False])
def test_dropout_of_the_weights(causal, device):
    """Output and gradients are those of the steps one by one, with the same zeros."""
    (q, tq), (k, tk), (v, tv) = (
        pair(2, 4, n, 4, seed=i, device=device) for i, n in enumerate((3, 5, 5))
    )
    minitorch.manual_seed(3)
    kept = torch.tensor(kept_of(q, k, 0.4, is_causal=causal).numpy())
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, is_causal=causal)
    scores = tq @ tk.mT / 2
    if causal:
        scores = scores.masked_fill(torch.ones(3, 5).triu(1) > 0, -math.inf)
    expected = (scores.softmax(-1) * kept / 0.6) @ tv
    same(out, expected)
    backward(out, expected)
    for x, y in ((q, tq), (k, tk), (v, tv)):
        same(x.grad, y.grad)


def test_dropout_keeps_the_mean_and_draws_for_each_weight():
    """Of 74,000 weights a share is off by 0.01 once in 10^8 times."""
    q = minitorch.zeros(2, 4, 96, 4)
    minitorch.manual_seed(0)
    first = kept_of(q, q, 0.3).numpy().reshape(-1, 96)
    assert abs(first.mean() - 0.7) < 0.01
    assert (
        abs(first.mean(0) - 0.7).max() < 0.09 and abs(first.mean(1) - 0.7).max() < 0.3
    )
    for other in (np.roll(first, 1, 0), np.roll(first, 1, 1), np.roll(first, 96, 0)):
        assert abs((first & other).mean() - 0.49) < 0.012
    out = F.scaled_dot_product_attention(q, q, minitorch.ones_like(q), dropout_p=0.3)
    assert abs(out.mean().item() - 1) < 0.02
    again = kept_of(q, q, 0.3).numpy().reshape(-1, 96)
    assert abs((first & again).mean() - 0.49) < 0.012
    gone = F.scaled_dot_product_attention(q, q, minitorch.ones_like(q), dropout_p=1.0)
    assert not gone.numpy().any()


@pytest.mark.parametrize("kind", ["", "bool", "numbers"])
def test_gradients_of_gradients_with_dropout_and_masks(kind):
    """By differences of the first gradients, in float64; the generator goes back."""
    rng = np.random.default_rng(0)
    q, k, v = (
        minitorch.tensor(rng.standard_normal(shape), requires_grad=True)
        for shape in ((1, 4, 2, 3), (1, 2, 3, 3), (1, 2, 3, 2))
    )
    seen = minitorch.tensor([[True, False, True], [True, True, True]])
    numbers = minitorch.tensor([[0.5, -1.0, 0.0]], dtype=minitorch.float64)
    mask = {"": None, "bool": seen, "numbers": numbers}[kind]

    def first(q: Any, k: Any, v: Any) -> Any:
        minitorch.manual_seed(5)
        out = F.scaled_dot_product_attention(q, k, v, mask, 0.3, enable_gqa=True)
        grads = minitorch.autograd.grad((out * out).sum(), (q, k, v), create_graph=True)
        return sum((g * g * (i + 1)).sum() for i, g in enumerate(grads))

    grads = minitorch.autograd.grad(first(q, k, v), (q, k, v))
    for i, (x, grad) in enumerate(zip((q, k, v), grads)):
        step = minitorch.tensor(rng.standard_normal(x.shape))
        ends = []
        for e in (1e-5, -1e-5):
            inputs = [y.detach().requires_grad_() for y in (q, k, v)]
            inputs[i] = (x.detach() + step * e).requires_grad_()
            ends.append(first(*inputs).item())
        slope = (ends[0] - ends[1]) / 2e-5
        assert (grad * step).sum().item() == pytest.approx(slope, rel=1e-5)


def test_a_mask_with_a_gradient():
    """As a bias that is learned: one by one, as `Attention` has no gradient for it."""
    mask = pair(1, 2, 3, 5)
    attended = [
        lib(x, y, y, m)
        for lib, m, (x, y) in zip(
            (F.scaled_dot_product_attention, TF.scaled_dot_product_attention),
            mask,
            zip(pair(2, 2, 3, 4), pair(2, 2, 5, 4, seed=1)),
        )
    ]
    same(*attended)
    backward(*attended)
    same(mask[0].grad, mask[1].grad)


@pytest.mark.parametrize(
    "shapes, options, text",
    [
        (((2, 3), (2, 4), (2, 4)), {}, r"query is \(2, 3\), key \(2, 4\)"),
        (((2, 3), (4, 3), (5, 3)), {}, r"value \(5, 3\); expected \(\*, L, E\)"),
        (((3,), (2, 3), (2, 3)), {}, "expected"),
        (((2, 2, 3), (3, 2, 3), (3, 2, 3)), {}, "batch"),
        (((4, 2, 3), (3, 2, 3), (3, 2, 3)), {"enable_gqa": True}, "4 heads"),
        (((2, 3), (2, 3), (2, 3)), {"dropout_p": 1.5}, "p is 1.5"),
        (
            ((2, 3), (2, 3), (2, 3)),
            {"attn_mask": minitorch.ones(4, 2, 2)},
            r"mask: it is \(4, 2, 2\), which does not expand to the scores, \(2, 2\)",
        ),
    ],
)
def test_errors(shapes, options, text):
    with pytest.raises(ValueError, match=text):
        F.scaled_dot_product_attention(*[minitorch.ones(*s) for s in shapes], **options)


def test_errors_of_masks():
    x = minitorch.ones(2, 3)
    with pytest.raises(ValueError, match="not both"):
        F.scaled_dot_product_attention(
            x, x, x, attn_mask=minitorch.ones(2, 2), is_causal=True
        )
    with pytest.raises(TypeError, match="the mask is int64"):
        F.scaled_dot_product_attention(
            x, x, x, attn_mask=minitorch.ones(2, 2, dtype=minitorch.int64)
        )
    with pytest.raises(ValueError, match="mask"):
        F.scaled_dot_product_attention(x, x, x, attn_mask=minitorch.ones(3, 2))
    with pytest.raises(TypeError, match="floating point"):
        F.scaled_dot_product_attention(*[x.long()] * 3)


# ------------------------------------------------------------------- modules


def both(*arguments: Any, **options: Any) -> tuple[Any, Any]:
    """Our layer of attention and PyTorch's, with the same weights, biases too."""
    theirs = tnn.MultiheadAttention(*arguments, **options)
    for parameter in theirs.parameters():
        tnn.init.normal_(parameter, std=0.3)
    mine = copy_weights(nn.MultiheadAttention(*arguments, **options), theirs)
    return mine, theirs


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_multihead_attention(bias, batch_first):
    mine, theirs = both(6, 3, bias=bias, batch_first=batch_first)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in mine.named_parameters()] == names
    shapes = ((2, 4, 6), (2, 5, 6)) if batch_first else ((4, 2, 6), (5, 2, 6))
    (q, tq), (k, tk) = pair(*shapes[0]), pair(*shapes[1], seed=1)
    for average in (True, False):
        out, weights = mine(q, k, k, average_attn_weights=average)
        expected, theirs_w = theirs(tq, tk, tk, average_attn_weights=average)
        same(out, expected)
        same(weights, theirs_w)
    out, weights = mine(q, q, q, need_weights=False)
    assert weights is None
    expected = theirs(tq, tq, tq)[0]
    same(out, expected)
    backward(out, expected)
    same(q.grad, tq.grad)
    for (name, p), tp in zip(mine.named_parameters(), theirs.parameters()):
        assert p.grad is not None, name
        same(p.grad, tp.grad)


@pytest.mark.parametrize("need_weights", [True, False])
def test_what_attention_may_not_see(need_weights):
    mine, theirs = both(4, 2, batch_first=True)
    x, tx = pair(3, 5, 4)
    padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]]).bool()
    ahead = torch.ones(5, 5).triu(1).bool()
    each = torch.stack([ahead, ahead * 0 > 0] * 3)
    numbers = torch.zeros(5, 5).masked_fill(ahead, -math.inf)
    for pad, mask in (
        (padding, None), (None, ahead), (padding, ahead), (None, each),
        (padding.float(), numbers),
    ):  # fmt: skip
        to_ours = [None if m is None else ours(m) for m in (pad, mask)]
        out, weights = mine(x, x, x, to_ours[0], need_weights, to_ours[1])
        expected, theirs_w = theirs(tx, tx, tx, pad, need_weights, mask)
        same(out, expected)
        assert (weights is None) == (theirs_w is None)
    causal, _ = mine(x, x, x, need_weights=need_weights, is_causal=True)
    same(causal, theirs(tx, tx, tx, attn_mask=ahead)[0])
    padded, _ = mine(x, x, x, ours(padding), need_weights, is_causal=True)
    same(padded, theirs(tx, tx, tx, padding, attn_mask=ahead)[0])


@pytest.mark.parametrize(
    "name, shape, dtype, text",
    [
        ("key_padding_mask", (5, 3), bool, r"bool \(5, 3\); expected .* \(3, 5\)"),
        ("key_padding_mask", (3, 5), int, "key_padding_mask is int64"),
        ("attn_mask", (5, 5), int, "attn_mask is int64"),
        ("attn_mask", (5, 5, 6), float, r"expected .* \(5, 5\) or \(6, 5, 5\)"),
    ],
)
def test_masks_that_multihead_attention_cannot_take(name, shape, dtype, text):
    layer, x = nn.MultiheadAttention(4, 2), minitorch.ones(5, 3, 4)
    mask = minitorch.tensor(np.ones(shape, dtype))
    with pytest.raises(ValueError, match=text):
        layer(x, x, x, **{name: mask})
    with pytest.raises((RuntimeError, AssertionError)):
        theirs, tx = tnn.MultiheadAttention(4, 2), torch.ones(5, 3, 4)
        theirs(tx, tx, tx, **{name: torch.from_numpy(np.ones(shape, dtype))})


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kdim, vdim", [(5, 7), (6, 7), (5, None)])
def test_keys_and_values_of_other_widths(kdim, vdim, batch_first):
    mine, theirs = both(6, 3, kdim=kdim, vdim=vdim, batch_first=batch_first)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in mine.named_parameters()] == names
    (q, tq), (k, tk), (v, tv) = (
        pair(*((2, n) if batch_first else (n, 2)), width or 6, seed=n)
        for n, width in ((4, 6), (5, kdim), (5, vdim))
    )
    out, weights = mine(q, k, v)
    expected, theirs_w = theirs(tq, tk, tv)
    same(out, expected)
    same(weights, theirs_w)
    backward(out, expected)
    for x, tx in ((q, tq), (k, tk), (v, tv)):
        same(x.grad, tx.grad)
    for p, tp in zip(mine.parameters(), theirs.parameters()):
        same(p.grad, tp.grad)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "query, key, value",
    [
        ((5, 2, 3), (5, 2, 4), (5, 2, 4)),  # a width that is none of the layer's
        ((5, 2, 4), (5, 2, 4), (5, 2, 3)),
        ((5, 2, 4), (6, 2, 4), (5, 2, 4)),  # other numbers of keys and values
        ((5, 1, 4), (5, 3, 4), (5, 3, 4)),  # other batches
        ((5, 4), (5, 2, 4), (5, 2, 4)),
        ((1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4)),
        ((4,), (4,), (4,)),
    ],
)
def test_shapes_that_multihead_attention_cannot_take(query, key, value, batch_first):
    layer = nn.MultiheadAttention(4, 2, batch_first=batch_first)
    x = [minitorch.ones(shape) for shape in (query, key, value)]
    if batch_first:
        x = [a.transpose(0, 1) if a.dim() == 3 else a for a in x]
    text = r"MultiheadAttention: query is \(.*\); expected \(., ., 4\)"
    with pytest.raises(ValueError, match=text):
        layer(*x)


def test_attention_without_a_batch():
    mine, theirs = both(4, 2)
    x, tx = pair(5, 4)
    padding = torch.tensor([False, True, False, False, True])
    out, weights = mine(x, x, x, ours(padding))
    expected, theirs_w = theirs(tx, tx, tx, padding)
    same(out, expected)
    same(weights, theirs_w)


def test_first_weights_of_attention():
    layer = nn.MultiheadAttention(64, 4)
    bound = math.sqrt(6 / (64 + 3 * 64))
    weight = layer.in_proj_weight.detach().numpy()
    assert abs(weight).max() <= bound and abs(weight).max() > 0.95 * bound
    assert not layer.in_proj_bias.detach().numpy().any()
    assert not layer.out_proj.bias.detach().numpy().any()
    with pytest.raises(ValueError, match="embed_dim is 5 and num_heads 2"):
        nn.MultiheadAttention(5, 2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(norm_first, activation):
    arguments = 4, 2, 8, 0.0, activation
    options = {"norm_first": norm_first, "batch_first": True}
    mine = nn.TransformerEncoderLayer(*arguments, **options)
    theirs = tnn.TransformerEncoderLayer(*arguments, **options)
    check_module(mine, theirs, 2, 5, 4, atol=1e-4)


def test_encoder():
    options = {"dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
    mine = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, **options), 2, nn.LayerNorm(4)
    )
    theirs = tnn.TransformerEncoder(
        tnn.TransformerEncoderLayer(4, 2, **options), 2, tnn.LayerNorm(4)
    )
    check_module(mine, theirs, 2, 5, 4, atol=1e-4)
    ahead = torch.ones(5, 5).triu(1).bool()
    x, tx = pair(2, 5, 4)
    same(mine(x, ours(ahead)), theirs(tx, ahead), atol=1e-4)
    with pytest.raises(ValueError, match="activation is 'tanh'"):
        nn.TransformerEncoderLayer(4, 2, activation="tanh")


@pytest.mark.parametrize("shape", [4, (3, 4)])
def test_rms_norm(shape, device):
    check_module(nn.RMSNorm(shape), tnn.RMSNorm(shape), 2, 3, 4, device=device)
    mine, theirs = (lib.RMSNorm(shape, 0.1, False) for lib in (nn, tnn))
    check_module(mine, theirs, 2, 3, 4, device=device)
    with pytest.raises(ValueError, match="rms_norm: x is"):
        nn.RMSNorm(5)(minitorch.ones(2, 4))


# -------------------------------------------------------------------- einsum


@given(data=st.data())
@settings(max_examples=60)
def test_einsum_of_any_equation(data):
    """Letters with sizes, any of them in each operand, any order of those that stay."""
    sizes = dict(zip("ijkl", data.draw(st.lists(st.integers(0, 3), min_size=4))))
    word = st.lists(st.sampled_from("ijkl"), max_size=3).map("".join)
    terms = data.draw(st.lists(word, min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    kept = data.draw(st.permutations(used)) if used else []
    kept = kept[: data.draw(st.integers(0, len(kept)))]
    equation = ",".join(terms) + data.draw(st.sampled_from(["", "->" + "".join(kept)]))
    shapes = [tuple(sizes[letter] for letter in term) for term in terms]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    expected = torch.einsum(equation, *[torch.tensor(a) for a in arrays])
    out = minitorch.einsum(equation, [minitorch.tensor(a) for a in arrays])
    assert tuple(out.shape) == tuple(expected.shape)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    "equation, shapes, text",
    [
        ("ij,jk->ik", [(2, 3), (4, 4)], "j is 3 and 4; the equation is 'ij,jk->ik'"),
        ("...i,...i", [(2, 3), (4, 3)], "... is 2 and 4"),
        ("ij->iz", [(2, 3)], "behind the arrow"),
        ("ij->ii", [(2, 3)], "behind the arrow"),
        ("ij", [(2, 3, 4)], r"does not name the dimensions of \(2, 3, 4\)"),
        ("ij,jk", [(2, 3)], "names 2 operand"),
        ("i1->i", [(2, 3)], "are allowed"),
        ("ii", [(2, 3)], "i is 2 and 3"),
        ("ij->i->", [(2, 3)], "are allowed"),
        ("i..j", [(2, 3)], "are allowed"),
        ("......", [(2, 3)], "are allowed"),
    ],
)
def test_equations_that_do_not_fit(equation, shapes, text):
    tensors = [minitorch.ones(*shape) for shape in shapes]
    with pytest.raises(ValueError, match=text):
        minitorch.einsum(equation, *tensors)
    with pytest.raises(RuntimeError):
        torch.einsum(equation, *[torch.ones(*shape) for shape in shapes])


# ------------------------------------------------------------------ sampling


@pytest.mark.parametrize("replacement", [False, True])
def test_samples_have_the_probabilities(replacement, device):
    """With 4,000 draws a share is off by 0.04 once in 10^6 times."""
    weights = minitorch.tensor([0.0, 2.0, 3.0, 5.0], device=device)
    minitorch.manual_seed(0)
    rows = weights.expand(4000, 4)
    drawn = minitorch.multinomial(rows, 1, replacement).numpy()[:, 0]
    shares = np.bincount(drawn, minlength=4) / 4000
    assert shares[0] == 0
    np.testing.assert_allclose(shares, [0, 0.2, 0.3, 0.5], atol=0.04)


def test_samples_without_replacement_differ():
    minitorch.manual_seed(1)
    drawn = minitorch.multinomial(minitorch.rand(500, 6) + 0.01, 6).numpy()
    assert (np.sort(drawn) == np.arange(6)).all()
    assert drawn.dtype == np.int64
    few = minitorch.tensor([1.0, 0.0, 3.0]).multinomial(num_samples=2)
    assert sorted(few.tolist()) == [0, 2]


def test_the_second_sample_has_the_probabilities_of_the_rest():
    weights = minitorch.tensor([1.0, 2.0, 7.0]).expand(5000, 3)
    minitorch.manual_seed(2)
    drawn = minitorch.multinomial(weights, 2).numpy()
    after_the_last = drawn[drawn[:, 0] == 2][:, 1]
    assert abs((after_the_last == 1).mean() - 2 / 3) < 0.04


def test_samples_of_one_seed_are_equal(device):
    weights = minitorch.tensor([1.0, 2.0, 3.0], device=device)
    drawn = []
    for generator in (minitorch.Generator(7), minitorch.Generator(7)):
        draw = minitorch.multinomial(weights, 8, True, generator=generator)
        assert tuple(draw.shape) == (8,)
        drawn.append(draw.tolist())
    assert drawn[0] == drawn[1]
    for rows in (0, 2):
        for more in (False, True):
            drawn = minitorch.multinomial(weights.expand(rows, 3), 3, more)
            assert tuple(drawn.shape) == (rows, 3) and drawn.dtype is minitorch.int64


@pytest.mark.parametrize(
    "weights, count, text",
    [
        ([0.0, 0.0], 1, "0 weight.s. above 0; expected 1"),
        ([1.0, -1.0], 1, "negative, infinite or NaN"),
        ([1.0, math.nan], 1, "negative, infinite or NaN"),
        ([1.0, math.inf], 1, "negative, infinite or NaN"),
        ([1.0, 0.0], 2, "1 weight.s. above 0; expected 2"),
        ([[[1.0]]], 1, r"expected \[C\] or \[N, C\]"),
        ([1.0], 0, "num_samples is 0"),
    ],
)
def test_weights_that_cannot_be_drawn_from(weights, count, text):
    with pytest.raises(ValueError, match=text):
        minitorch.multinomial(minitorch.tensor(weights), count)


def test_bernoulli_has_the_probabilities(device):
    """A share of 4,000 is off by 0.04 once in 10^6 times; 0 and 1 are sure."""
    minitorch.manual_seed(3)
    for dtype in (minitorch.float32, minitorch.float16, minitorch.float64):
        p = minitorch.tensor([0.0, 0.3, 1.0], device=device, dtype=dtype)
        drawn = minitorch.bernoulli(p.expand(4000, 3))
        assert drawn.dtype is dtype and set(drawn.unique().tolist()) == {0.0, 1.0}
        same = minitorch.zeros(4000, 3, device=device, dtype=minitorch.int64)
        for found in (drawn, same.bernoulli_(p), p.expand(4000, 3).bernoulli()):
            shares = found.double().mean(0).tolist()
            np.testing.assert_allclose(shares, [0, 0.3, 1], atol=0.04)
            assert shares[0] == 0 and shares[2] == 1
    some = minitorch.empty(4000, device=device).bernoulli_(0.25).mean().item()
    assert abs(some - 0.25) < 0.04 and not minitorch.ones(9).bernoulli_(0).any()
    again = [p.bernoulli(generator=minitorch.Generator(7)).tolist() for _ in "ab"]
    assert again[0] == again[1]
    assert minitorch.bernoulli(minitorch.ones(0)).shape == (0,)


@pytest.mark.parametrize("p", [-0.1, 1.5, math.nan])
def test_what_is_no_probability(p):
    with pytest.raises(ValueError, match=r"bernoulli: .* no probability"):
        minitorch.bernoulli(minitorch.tensor([0.5, p]))
    with pytest.raises(ValueError, match=r"bernoulli_: p is .* from 0 to 1"):
        minitorch.ones(2).bernoulli_(p)


# ------------------------------------------------------------- other small ones


def test_inference_mode_records_nothing():
    x = minitorch.ones(2, requires_grad=True)
    with minitorch.inference_mode():
        assert not (x * 2).requires_grad
        with minitorch.inference_mode(False):
            assert (x * 2).requires_grad

    @minitorch.inference_mode()
    def predict() -> minitorch.Tensor:
        return x * 2

    assert not predict().requires_grad and (x * 2).requires_grad


@pytest.mark.parametrize("lib", [minitorch, torch])
def test_whether_inference_mode_is_on(lib):
    asked, modes = lib.is_inference_mode_enabled, [lib.inference_mode, lib.no_grad]
    assert lib.inference_mode()(asked)() is True and asked() is False
    for outer in modes:
        for inner in modes:
            with outer():
                with inner():
                    assert asked() is (lib.inference_mode in (outer, inner))
                    assert not lib.is_grad_enabled()
                assert asked() is (outer is lib.inference_mode)
    with lib.inference_mode(), lib.inference_mode(False):
        assert not asked() and lib.is_grad_enabled()
    with lib.no_grad(), lib.enable_grad():
        assert not asked() and lib.is_grad_enabled()


@pytest.mark.parametrize("repeats", [-1, 1.5, True])
def test_repeats_that_make_no_sense(repeats):
    with pytest.raises(ValueError, match="repeats is"):
        minitorch.ones(3).repeat_interleave(repeats)


def test_counts_that_do_not_fit():
    with pytest.raises(ValueError, match="2 counts for a dimension of 3"):
        minitorch.ones(3).repeat_interleave(minitorch.tensor([1, 2]), 0)
    with pytest.raises(ValueError, match="vector of ints"):
        minitorch.ones(3).repeat_interleave(minitorch.tensor([1.0, 2.0, 1.0]), 0)
    for repeats in (2, minitorch.tensor([2]), minitorch.tensor([1, 2, 3])):
        with pytest.raises(ValueError, match=r"output_size is 5; .* make it 6"):
            minitorch.ones(3).repeat_interleave(repeats, output_size=5)
