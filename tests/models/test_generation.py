"""Generation: what is drawn, that a cache changes nothing, batches, streams."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import minitorch
from helpers import SIMULATED, lively_gpt, nothing_for_the_collector
from minitorch.models import GPT, Sampling, generate, stream

SIZES = {"vocab_size": 11, "block_size": 12, "n_layer": 2, "n_head": 2, "n_embd": 8,
         "tied": False}  # fmt: skip
LLAMA = {
    "norm": "rms", "positions": "rotary", "mlp": "swiglu", "bias": False,
    "n_kv_head": 1, "n_hidden": 6,
}  # fmt: skip
SHAPES = {"gpt2": SIZES, "llama": {**SIZES, **LLAMA}}
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
WAYS = {"greedy": {"temperature": 0}, "drawn": {"top_k": 8, "top_p": 0.95}}


def gpt(shape: str = "gpt2", device: str = "cpu") -> GPT:
    return lively_gpt(**SHAPES[shape]).to(device)


def seeds(way: str, *numbers: int):
    """Options for a generator of its own for each prompt."""
    if way == "greedy":
        return {}
    return {"generator": [minitorch.Generator(n) for n in numbers]}


each_way = pytest.mark.parametrize("way", WAYS)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@each_way
@each_shape
def test_a_batch_a_cache_and_no_cache_write_the_same(way, shape, device):
    """10 tokens more: the longest text grows beyond what the model can see."""
    model, options = gpt(shape, device), WAYS[way]
    count = 4 if device == "cuda" and SIMULATED else 10
    written = generate(model, PROMPTS, count, **options, **seeds(way, 0, 1, 2))
    assert len({tuple(row) for row in written}) == 3
    assert any(len(set(row)) > 2 for row in written)
    again = generate(
        model, PROMPTS, count, **options, **seeds(way, 0, 1, 2), use_cache=False
    )
    assert again == written
    for i, prompt in enumerate(PROMPTS):
        alone = generate(model, prompt, count, **options, **seeds(way, i))
        assert alone == written[i]
        assert list(stream(model, prompt, count, **options, **seeds(way, i))) == alone


def test_greedy_is_the_argmax_of_the_last_tokens_that_are_seen():
    model, text = gpt().eval(), [1, 2, 3]
    written = model.generate(minitorch.tensor(text), 14, temperature=0)
    with minitorch.no_grad():
        for token in written:
            scores = model(minitorch.tensor([text[-12:]]))[0, -1]
            assert token == int(scores.argmax())
            text.append(token)


def test_a_prompt_that_is_longer_than_the_model_sees():
    model = gpt()
    long = list(np.random.default_rng(0).integers(0, 11, 30))
    written = generate(model, [long, [1]], 3, temperature=0)
    assert written == [
        generate(model, long[-12:], 3, temperature=0),
        generate(model, [1], 3, temperature=0),
    ]


def test_the_model_is_left_as_it_was():
    model = gpt()
    first = generate(model, [1], 4, temperature=0)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert generate(model.eval(), [1], 4, temperature=0) == first
    assert not model.training


def test_texts_end_at_a_stop_token():
    model = gpt()
    whole = generate(model, PROMPTS, 6, temperature=0)
    stop = whole[0][3]
    expected = [r[: r.index(stop)] if stop in r else r for r in whole]
    assert generate(model, PROMPTS, 6, temperature=0, stop=stop) == expected
    steps = list(stream(model, PROMPTS, 6, temperature=0, stop=[stop]))
    assert steps[3][0] is None and len(steps) == max(map(len, expected))
    assert generate(model, [1], 6, temperature=0, stop=range(11)) == []
    assert generate(model, [1], 0) == []
    for wrong in ("a", ["a"], 1.5):
        with pytest.raises(TypeError, match="generate: stop: expected ints"):
            generate(model, [1], 6, stop=wrong)


def test_a_seed_repeats_a_text():
    model = gpt()
    drawn = [generate(model, [1], 8, generator=minitorch.Generator(s)) for s in (3, 3)]
    minitorch.manual_seed(3)
    assert drawn[0] == drawn[1] == generate(model, [1], 8)
    two = generate(model, [[1], [1]], 8, generator=minitorch.Generator(3))
    assert two[0] != two[1]


def by_torch(scores: torch.Tensor, t: float, k: int | None, p: float | None):
    """Probabilities, one text and one token at a time."""
    out = torch.zeros_like(scores)
    for row, made in zip(scores / t, out):
        order = row.argsort(descending=True)[: k or len(row)]
        shares = row[order].softmax(0)
        total = 0.0
        for token, share in zip(order, shares):
            if total >= (p or 1.0) and p is not None:
                break
            made[token] = share
            total += float(share)
        made /= made.sum()
    return out


@pytest.mark.parametrize("t", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("k", [None, 1, 4, 100])
@pytest.mark.parametrize("p", [None, 0.01, 0.7, 1.0])
def test_probabilities_are_those_of_the_definition(t, k, p):
    torch.manual_seed(0)
    scores = torch.randn(3, 9) * 2
    ours = Sampling(t, k, p).probabilities(minitorch.tensor(scores.numpy()))
    expected = by_torch(scores, t, k, p)
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("how", [{"top_k": 1}, {"top_p": 1e-50}, {"top_p": 1e-20}])
def test_of_the_least_share_the_best_is_left(how):
    best = generate(gpt(), [1, 2, 3], 6, temperature=0)
    assert generate(gpt(), [1, 2, 3], 6, **how) == best


def test_tokens_are_drawn_as_often_as_they_are_likely():
    scores = minitorch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    sampling, n = Sampling(0.8, top_p=0.95), 3_000
    uniform = minitorch.rand(n, 5, generator=minitorch.Generator(0))
    drawn = sampling.choose(scores.expand(n, 5), uniform).numpy()
    counts = np.bincount(drawn, minlength=5) / n
    expected = sampling.probabilities(scores).numpy()[0]
    assert counts[3] == expected[3] == 0
    np.testing.assert_allclose(counts, expected, atol=4 * 0.5 / np.sqrt(n))


@pytest.mark.parametrize(
    ("prompt", "options", "text"),
    [
        ([], {}, "a prompt is empty"),
        ([[1], []], {}, "a prompt is empty"),
        ([11], {}, "11 in a prompt is no token; expected ints from 0 to 10"),
        (["a"], {}, "'a' in a prompt is no token"),
        ([False], {}, "False in a prompt is no token"),
        (3, {}, "a prompt is 3; expected token ids"),
        ([[1], 2], {}, "a prompt is 2; expected token ids"),
        ([1], {"temperature": -1}, "temperature is -1"),
        ([1], {"temperature": "hot"}, "temperature is 'hot'; expected 0 or more"),
        ([1], {"temperature": 10**400}, "temperature is 10{59}; expected 0 or more"),
        ([1], {"top_k": 0}, "top_k is 0"),
        ([1], {"top_p": 0}, "top_p is 0"),
        ([1], {"top_p": "all"}, "top_p is 'all'; expected above 0"),
        ([1], {"generator": 3}, "generator is 3; expected a minitorch.Generator"),
        ([1], {"generator": [3]}, r"generator is \[3\]; expected"),
        ([1], {"generator": []}, "0 generators for 1 prompts"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(prompt, options, text):
    with pytest.raises(ValueError, match=text):
        stream(gpt(), prompt, 3, **options)
    with pytest.raises(ValueError, match="max_new_tokens is -1"):
        gpt().generate([1], -1)


def test_generation_within_autocast():
    """Keys and values are kept in the type of the weights."""
    model = gpt()
    with minitorch.autocast("cpu", dtype=minitorch.bfloat16):
        written = generate(model, PROMPTS, 5, temperature=0)
        again = generate(model, PROMPTS, 5, temperature=0, use_cache=False)
    assert written == again


def test_tiny_temperatures_are_greedy():
    """Scores over them would be infinite."""
    best = generate(gpt(), PROMPTS, 5, temperature=0)
    for temperature in (1e-38, 1e-320):
        assert generate(gpt(), PROMPTS, 5, temperature=temperature) == best


def test_the_cache_is_gone_with_the_text(device):
    """Also of a text that nobody reads to its end."""
    model = gpt(device=device)
    generate(model, [1, 2, 3], 2, temperature=0)
    with nothing_for_the_collector():
        generate(model, [1, 2, 3], 2, temperature=0)
        next(stream(model, [1, 2, 3], 3, temperature=0))
