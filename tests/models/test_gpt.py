"""GPTs: their sizes, their first weights, their positions, and what a token sees."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minitorch
from minitorch import nn
from minitorch.models import GPT, PRESETS, GPTConfig, KVCache
from minitorch.nn import functional as F

SMALL = {"vocab_size": 11, "block_size": 10, "n_layer": 2, "n_head": 4, "n_embd": 8}
LLAMA = {**PRESETS["llama-15m"], **SMALL, "n_kv_head": 2, "n_hidden": 6}
SHAPES = {"gpt2": SMALL, "llama": LLAMA, "untied": {**LLAMA, "tied": False}}


def gpt(shape: str = "gpt2", **changes) -> GPT:
    """A small model whose weights are far from zero."""
    minitorch.manual_seed(0)
    model = GPT(GPTConfig(**{**SHAPES[shape], **changes}))
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.2)
    return model


def ids(*shape: int) -> minitorch.Tensor:
    return minitorch.tensor(np.random.default_rng(1).integers(0, 11, shape))


def test_presets_have_the_published_numbers_of_parameters():
    """As known for the published files of GPT-2 and TinyLlama."""
    counted = {name: GPTConfig.preset(name).num_parameters() for name in PRESETS}
    assert list(counted) == sorted(counted, key=counted.__getitem__)
    assert 8_000 < counted["tiny"] < 12_000
    assert counted["gpt2"] == 124_439_808
    assert counted["gpt2-medium"] == 354_823_168
    assert counted["gpt2-large"] == 774_030_080
    assert counted["gpt2-xl"] == 1_557_611_200
    assert counted["llama-1.1b"] == 1_100_048_384


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_counted_as_they_are(shape, bias):
    model = GPT(GPTConfig(**{**SHAPES[shape], "bias": bias}))
    assert model.num_parameters() == sum(p.numel() for p in model.parameters())
    looked_up = model.wpe.weight.numel() if model.wpe is not None else 0
    looked_up += 0 if model.config.tied else model.wte.weight.numel()
    assert model.num_parameters(embeddings=False) == model.num_parameters() - looked_up


def test_the_work_for_a_token_is_what_palm_counts():
    model = gpt()
    n = model.num_parameters(embeddings=False)
    assert model.flops_per_token() == 6 * n + 12 * 2 * 4 * 2 * 10
    assert model.flops_per_token(3) == 6 * n + 12 * 2 * 4 * 2 * 3


def test_the_first_weights_are_gpt2s():
    minitorch.manual_seed(0)
    model = GPT.preset("char-small")
    assert model.lm_head.weight is model.wte.weight
    for name, p in model.named_parameters():
        values = p.detach().numpy()
        if p.dim() == 1:
            assert (values == 1).all()
            continue
        std = 0.02 / math.sqrt(8) if name.endswith("c_proj.weight") else 0.02
        assert abs(values.std() / std - 1) < 0.05, name
        assert abs(values.mean()) < 0.001, name
    assert all((p == 0).all() for n, p in gpt0().named_parameters() if "bias" in n)
    fresh = model.loss(minitorch.randint(65, (2, 64)), minitorch.randint(65, (2, 64)))
    assert abs(fresh.item() - math.log(65)) < 0.1


def gpt0() -> GPT:
    return GPT.preset("tiny")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_sees_those_before_it_alone(shape):
    model, text = gpt(shape), ids(1, 10)
    with minitorch.no_grad():
        whole = model(text)
        for length in (1, 4, 9):
            part = model(text[:, :length])
            assert minitorch.allclose(part, whole[:, :length], atol=1e-6)
        changed = text.clone()
        changed[0, 4] = (text[0, 4] + 1) % 11
        differs = (model(changed) - whole).abs().amax(-1)[0] > 1e-4
    assert differs.tolist() == [False] * 4 + [True] * 6


@pytest.mark.parametrize("shape", ["gpt2", "llama"])
def test_a_cache_and_padding_change_nothing(shape, device):
    """Any split of a text into pieces, and any filling at its left, give its scores."""
    model, text = gpt(shape).to(device), ids(2, 10).to(device)
    padding = minitorch.tensor([0, 3], device=device)
    filled = minitorch.stack([text[0], minitorch.cat([text[1, :3], text[1, :7]])])
    with minitorch.inference_mode():
        expected = model(text)
        cache = KVCache(model.config, 2, device=device)
        memory = cache.memory.raw.storage
        pieces = [model(p, cache) for p in text.split([4, 1, 1, 4], 1)]
        assert minitorch.allclose(minitorch.cat(pieces, 1), expected, atol=2e-6)
        assert cache.memory.raw.storage is memory
        assert cache.memory.shape == (2, 2, 2 * model.config.kv_heads, 10, 2)
        cache = KVCache(model.config, 2, padding=padding, device=device)
        pieces = [model(p, cache) for p in filled.split([4, 1, 5], 1)]
        for out in (model(filled, padding=padding), minitorch.cat(pieces, 1)):
            assert minitorch.allclose(out[0], expected[0], atol=2e-6)
            assert minitorch.allclose(out[1, 3:], expected[1, :7], atol=2e-6)


def test_tokens_of_a_cache_can_be_forgotten():
    """What a counter of slots does not count is overwritten, and seen by nobody."""
    model, text = gpt("llama"), ids(1, 10)
    with minitorch.no_grad():
        cache = KVCache(model.config)
        model(text[:, :5], cache)
        model(ids(1, 4), cache)
        cache.advance(-4)
        rest = model(text[:, 5:], cache)
        assert minitorch.allclose(rest, model(text)[:, 5:], atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_recomputation_gives_the_same_gradients(shape):
    model, text = gpt(shape, dropout=0.1), ids(2, 6)
    grads = []
    for recompute in (False, True):
        model.recompute = recompute
        model.zero_grad()
        minitorch.manual_seed(5)
        model.loss(text, text).backward()
        grads.append([p.grad.numpy() for p in model.parameters()])
    for one, other in zip(*grads):
        assert np.array_equal(one, other)


def test_targets_of_minus_one_do_not_count():
    model, text = gpt(), ids(1, 6)
    targets = text.clone()
    targets[0, 3:] = -1
    with minitorch.no_grad():
        few = model.loss(text[:, :3], text[:, :3])
        assert minitorch.allclose(model.loss(text, targets), few, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"n_head": 3}, "n_embd is 8, n_head 3"),
        ({"n_kv_head": 3}, "n_kv_head 3; each must be a multiple"),
        ({"n_layer": 0}, "n_layer is 0; expected an int, 1 or more"),
        ({"mlp": "relu"}, "mlp is 'relu'; expected one of gelu, gelu_tanh, swiglu"),
        ({"positions": "rotary", "n_head": 8}, "even number"),
        ({"dropout": 2}, "dropout is 2"),
    ],
)
def test_sizes_that_make_no_sense(change, text):
    with pytest.raises(ValueError, match=text):
        GPTConfig(**{**SMALL, **change})


def test_calls_that_make_no_sense():
    with pytest.raises(ValueError, match="there is no 'gpt3'; expected one of tiny"):
        GPT.preset("gpt3")
    with pytest.raises(ValueError, match=r"ids are \(11,\); expected \(batch"):
        gpt()(ids(11))
    with pytest.raises(ValueError, match="block_size, 10"):
        gpt()(ids(1, 11))
    with pytest.raises(ValueError, match="max_length is 11; the model has 10"):
        KVCache(gpt().config, max_length=11)


# ---------------------------------------------------------------------- rotary


def test_products_of_turned_vectors_depend_on_distances_alone():
    turn = nn.RotaryEmbedding(8, 40)
    x = minitorch.randn(2, 1, 8)
    q, k = x[0], x[1]
    near = [(turn(q, p) * turn(k, p + 3)).sum().item() for p in (0, 1, 17, 36)]
    np.testing.assert_allclose(near, near[0], rtol=2e-5)
    far = (turn(q, 0) * turn(k, 9)).sum().item()
    assert abs(far - near[0]) > 1e-3
    whole = turn(x.expand(2, 5, 8))
    assert minitorch.allclose(whole[:, 2:], turn(x.expand(2, 3, 8), offset=2))
    assert list(turn.state_dict()) == []
    assert repr(turn) == "RotaryEmbedding(dim=8, max_positions=40, base=10000.0)"


def test_rotary_calls_that_make_no_sense():
    with pytest.raises(ValueError, match="dim is 7; it must be even"):
        nn.RotaryEmbedding(7)
    with pytest.raises(ValueError, match="positions must be from 0 to 3"):
        nn.RotaryEmbedding(4, 4)(minitorch.zeros(2, 4), offset=3)
    x = minitorch.zeros(2, 4)
    with pytest.raises(ValueError, match="theirs half of it"):
        F.rotary(x[:, :3], x[:, :2], x[:, :2])
    with pytest.raises(TypeError, match="int64"):
        F.rotary(x.long(), x[:, :2], x[:, :2])
