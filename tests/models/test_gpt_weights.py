"""Files of GPT-2 and Llama: what they hold is what the models compute with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_gpt import GPT2, Llama

import minitorch
from minitorch.models import GPT, GPTConfig, from_pretrained, load_weights, save_weights
from minitorch.models.weights import read_config

VOCAB, LENGTH = 13, 9
GPT2_CONFIG = {
    "model_type": "gpt2", "vocab_size": VOCAB, "n_positions": LENGTH, "n_layer": 2,
    "n_head": 2, "n_embd": 8, "activation_function": "gelu_new", "n_inner": None,
}  # fmt: skip
LLAMA_CONFIG = {
    "model_type": "llama", "vocab_size": VOCAB, "max_position_embeddings": LENGTH,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "hidden_size": 16, "intermediate_size": 12, "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0, "hidden_act": "silu", "rope_scaling": None,
}  # fmt: skip


def published(kind: str, folder: Path) -> Any:
    """A model of PyTorch's, written as it would be published."""
    torch.manual_seed(0)
    if kind == "gpt2":
        model, config = GPT2(VOCAB, LENGTH, 2, 2, 8), GPT2_CONFIG
    else:
        model, config = Llama(VOCAB, 2, 4, 2, 16, 12), LLAMA_CONFIG
    (folder / "config.json").write_text(json.dumps(config))
    save_file(model.state_dict(), folder / "model.safetensors")
    return model


both = pytest.mark.parametrize("kind", ["gpt2", "llama"])


@both
def test_scores_are_those_of_pytorch(kind, tmp_path, device):
    theirs = published(kind, tmp_path)
    model = from_pretrained(tmp_path).to(device)
    ids = np.random.default_rng(0).integers(0, VOCAB, (2, LENGTH))
    with torch.no_grad(), minitorch.no_grad():
        expected = theirs(torch.tensor(ids)).numpy()
        out = model(minitorch.tensor(ids, device=device)).cpu().numpy()
    assert out.std() > 0.1
    np.testing.assert_allclose(out, expected, atol=1e-5)


@both
def test_what_is_saved_is_what_was_loaded(kind, tmp_path):
    published(kind, tmp_path)
    save_weights(from_pretrained(tmp_path), tmp_path / "again")
    before = load_file(tmp_path / "model.safetensors")
    after = load_file(tmp_path / "again")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def test_prefixes_masks_tied_heads_and_several_files(tmp_path):
    """What files of GPT-2 have besides, depending on who wrote them."""
    published("gpt2", tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    written = {f"transformer.{name}": tensor for name, tensor in state.items()}
    written["transformer.h.0.attn.bias"] = torch.ones(1, 1, LENGTH, LENGTH)
    written["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    written["lm_head.weight"] = state["wte.weight"].clone()
    expected = from_pretrained(tmp_path).state_dict()
    names = sorted(written)
    path.unlink()
    for i, part in enumerate((names[:9], names[9:])):
        save_file({n: written[n] for n in part}, tmp_path / f"{i}.safetensors")
    for name, tensor in from_pretrained(tmp_path).state_dict().items():
        assert minitorch.equal(tensor, expected[name]), name
    written["lm_head.weight"] += 1
    save_file(written, path)
    with pytest.raises(ValueError, match=r"'lm_head.weight' differs from 'wte.weight'"):
        from_pretrained(path)


@both
def test_all_that_does_not_fit_is_named_and_nothing_changes(kind, tmp_path):
    published(kind, tmp_path)
    path = tmp_path / "model.safetensors"
    model = from_pretrained(tmp_path)
    state = load_file(path)
    first, second, *_, last = sorted(state)
    state[first] = torch.zeros(3, 3)
    del state[second], state[last]
    state["more"] = torch.zeros(2)
    save_file(state, path)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match="nothing was changed") as told:
        load_weights(model, path)
    for text in (
        f"wrong shape: {first!r} is (3, 3); expected (", f"missing: {second!r} (",
        f"missing: {last!r} (", "unexpected: 'more'",
    ):  # fmt: skip
        assert text in str(told.value)
    for name, tensor in model.state_dict().items():
        assert minitorch.equal(tensor, before[name])


def test_models_of_neither_kind_and_other_configs_are_refused(tmp_path):
    mixed = GPT.preset("tiny", positions="rotary")
    with pytest.raises(ValueError, match="neither a GPT-2 nor a Llama"):
        save_weights(mixed, tmp_path / "x.safetensors")
    with pytest.raises(FileNotFoundError, match="has no"):
        load_weights(mixed, tmp_path)
    path = tmp_path / "config.json"
    for change, text in (
        ({"model_type": "bert"}, "is of a 'bert'"),
        ({"rope_scaling": {"factor": 8}}, "rope_type is None"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_type is 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "has no 'factor'"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"head_dim": 5}, "head_dim is 5; models here have 4"),
    ):
        path.write_text(json.dumps({**LLAMA_CONFIG, **change}))
        with pytest.raises(ValueError, match=text):
            from_pretrained(tmp_path / "model.safetensors")
    for text, told in (("", "config.json is no JSON file"), ("[]", "has a JSON list")):
        path.write_text(text)
        with pytest.raises(ValueError, match=told):
            from_pretrained(tmp_path)
    path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 3}))
    with pytest.raises(ValueError, match="has no 'vocab_size'"):
        from_pretrained(tmp_path)


def test_the_base_of_rotary_positions_in_both_spellings(tmp_path):
    """`transformers` moved it into a dict of its own."""
    path = tmp_path / "config.json"
    newer = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    for change in ({"rope_theta": 5e5}, {"rope_theta": None, **newer}):
        path.write_text(json.dumps({**LLAMA_CONFIG, **change}))
        assert read_config(path).rotary_base == 5e5


def test_positions_of_llama_3_are_scaled(tmp_path):
    """The numbers of Llama 3.2 1B, by the wavelengths of its points one by one."""
    rope = {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    speeds = 5e5 ** (-np.arange(32) / 32)
    for i, length in enumerate(2 * np.pi / speeds):
        if length > 8192:
            speeds[i] /= 32
        elif length >= 8192 / 4:
            smooth = (8192 / length - 1) / (4 - 1)
            speeds[i] = (1 - smooth) * speeds[i] / 32 + smooth * speeds[i]
    sizes = {"hidden_size": 256, "max_position_embeddings": 100}
    for change in (
        {"rope_theta": 5e5, "rope_scaling": rope},
        {"rope_theta": None, "rope_parameters": {**rope, "rope_theta": 5e5}},
    ):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**LLAMA_CONFIG, **sizes, **change}))
        rotary = GPT(read_config(path)).rotary
        angles = np.arange(100)[:, None] * speeds
        np.testing.assert_allclose(rotary.cos.numpy(), np.cos(angles), atol=1e-7)
        np.testing.assert_allclose(rotary.sin.numpy(), np.sin(angles), atol=1e-7)


def test_a_file_without_biases_loads_into_a_model_without(tmp_path):
    config = GPTConfig.preset("tiny", bias=False)
    model, path = GPT(config), tmp_path / "w.safetensors"
    save_weights(model, path)
    other = from_pretrained(path, config)
    assert minitorch.equal(other.h[1].attn.c_attn.weight, model.h[1].attn.c_attn.weight)
    with pytest.raises(ValueError, match=r"missing: 'h.0.attn.c_attn.bias' \(48,\)"):
        from_pretrained(path, GPTConfig.preset("tiny"))
