"""Adapters: they begin as nothing, learn alone, and can be added to the weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minitorch
from minitorch import bfloat16, nn, optim
from minitorch.lora import LoRALinear, add_lora_, lora_state_dict, merge_
from minitorch.models import GPT, GPTConfig, save_weights
from minitorch.quantization import quantize_

SIZES = {"vocab_size": 11, "block_size": 12, "n_layer": 2, "n_head": 2, "n_embd": 8}


def gpt() -> GPT:
    minitorch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES))
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, 0.0, 0.3)
    return model


def filled(model: nn.Module) -> nn.Module:
    """With adapters that are not 0."""
    for name, p in model.named_parameters():
        if name.endswith("lora_B"):
            nn.init.normal_(p)
    return model


IDS = [[1, 2, 3, 4], [5, 6, 7, 8]]


def ids() -> minitorch.Tensor:
    return minitorch.tensor(IDS)


def test_a_layer_is_its_formula(device):
    base = nn.Linear(6, 4, device=device)
    layer = filled(LoRALinear(base, 2, 3.0))
    x = minitorch.rand(2, 5, 6, device=device)
    w, a, b = (t.detach().numpy() for t in (base.weight, layer.lora_A, layer.lora_B))
    right = x.numpy() @ (w + 1.5 * b @ a).T + base.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy(), right, 1e-4, 1e-5)
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), w + 1.5 * b @ a, 1e-4, 1e-5
    )
    assert (layer.lora_A.shape, layer.lora_B.shape) == ((2, 6), (4, 2))
    assert layer.bias is base.bias and "rank=2, alpha=3.0" in repr(layer)


def test_a_model_begins_as_what_it_was():
    model = gpt()
    before = model(ids())
    assert add_lora_(model, 2) is model and model(ids()).equal(before)
    learns = {n for n, p in model.named_parameters() if p.requires_grad}
    assert len(learns) == 2 * 4 * 2 and all(".lora_" in name for name in learns)
    model.loss(ids(), ids()).backward()
    grads = {n for n, p in model.named_parameters() if p.grad is not None}
    assert grads == learns


def test_only_adapters_learn():
    model = add_lora_(gpt(), 2, alpha=8)
    kept = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(12):
        loss = model.loss(ids(), ids())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    for name, p in model.named_parameters():
        assert p.equal(kept[name]) == (".lora_" not in name), name


def test_merged_weights_do_the_same():
    model = filled(add_lora_(gpt(), 2, alpha=5))
    before = model(ids())
    assert merge_(model) is model
    np.testing.assert_allclose(
        model(ids()).numpy(), before.detach().numpy(), 1e-4, 1e-5
    )
    assert not any(isinstance(part, LoRALinear) for part in model.modules())
    assert set(model.state_dict()) == set(gpt().state_dict())
    assert not any(p.requires_grad for p in model.parameters())
    add_lora_(model.requires_grad_(), 2)  # and can have others


def test_a_head_that_shares_its_weight():
    """The loss takes the head's weight, not its forward; the embedding stays."""
    model = filled(add_lora_(gpt(), 2, targets=["lm_head"]))
    table = model.wte.weight.detach().clone()
    scores = model(ids())
    right = nn.functional.cross_entropy(scores.flatten(0, 1), ids().flatten())
    assert model.loss(ids(), ids()).item() == pytest.approx(right.item(), rel=1e-5)
    merge_(model)
    np.testing.assert_allclose(
        model(ids()).numpy(), scores.detach().numpy(), 1e-4, 1e-5
    )
    assert model.wte.weight.equal(table) and not model.lm_head.weight.equal(table)


def test_adapters_have_a_file_of_their_own(tmp_path):
    model = filled(add_lora_(gpt(), 2))
    adapters = lora_state_dict(model)
    assert set(adapters) == {n for n in model.state_dict() if "lora" in n}
    minitorch.save(adapters, tmp_path / "adapters.mt")
    other = add_lora_(gpt(), 2)
    other.load_state_dict(minitorch.load(tmp_path / "adapters.mt"), strict=False)
    assert other(ids()).equal(model(ids()))
    with pytest.raises(ValueError, match="merge_"):
        save_weights(model, tmp_path)


def test_adapters_beside_bytes():
    """quantize_ finds the layers within: QLoRA."""
    model = quantize_(filled(add_lora_(gpt(), 2)))
    before = model(ids())
    model.loss(ids(), ids()).backward()
    learns = [p for p in model.parameters() if p.requires_grad]
    assert len(learns) == 16 and all(p.grad is not None for p in learns)
    layer = model.h[0].mlp.c_fc
    x = minitorch.rand(3, 8)
    right = nn.functional.linear(x, layer.weight, layer.bias)
    np.testing.assert_allclose(layer(x).detach(), right.detach(), 1e-4, 1e-5)
    with pytest.raises(ValueError, match="merge_ before quantize_"):
        merge_(model)
    assert model(ids()).equal(before)


def test_types_modes_and_layers_in_two_places():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer).to(bfloat16).eval()
    add_lora_(model, 1, targets="0")
    assert model[0] is model[2] and not model[0].training
    assert model[0].lora_A.dtype is model[0].lora_B.dtype is bfloat16
    assert model(minitorch.ones(1, 4, dtype=bfloat16)).dtype is bfloat16
    copied = copy.deepcopy(model)
    assert copied[0].lora_A is not model[0].lora_A


def test_the_model_writes_with_adapters():
    model = filled(add_lora_(gpt(), 2))
    once = model.generate(IDS, 4, temperature=0)
    assert once == model.generate(IDS, 4, temperature=0, use_cache=False)
    assert once == merge_(model).generate(IDS, 4, temperature=0)


def test_what_is_refused():
    model = gpt()
    for rank in (0, 9, 2.0, True):
        with pytest.raises(ValueError, match=r"add_lora_: rank is .*from 1 to 8"):
            add_lora_(model, rank)
    with pytest.raises(ValueError, match="alpha is 0"):
        add_lora_(model, 2, alpha=0)
    with pytest.raises(
        ValueError, match=r"no nn\.Linear is called 'attn'; there are h\.0"
    ):
        add_lora_(model, 2, targets=["c_fc", "attn"])
    with pytest.raises(ValueError, match=r"no nn\.Linear is called ''"):
        add_lora_(model, 2, targets=[])
    with pytest.raises(ValueError, match="has no adapters"):
        merge_(model)
    hook = model.h[1].mlp.c_fc.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"h.1.mlp.c_fc has hooks"):
        add_lora_(model, 2)
    hook.remove()
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(ValueError, match="has adapters already"):
        add_lora_(add_lora_(model, 2), 2)
    with pytest.raises(ValueError, match="which nothing can replace in place"):
        add_lora_(nn.Linear(2, 2), 1, targets=[""])
    with pytest.raises(ValueError, match="LoRALinear: rank is 3"):
        LoRALinear(nn.Linear(2, 5), 3, 1.0)
