"""llm.c's test: scores, losses and gradients of a GPT-2 are PyTorch's, and go on so.

Source: karpathy/llm.c, test_gpt2.c, whose state is made by a PyTorch program as here.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_gpt import GPT2

import minitorch
from helpers import DEVICES, SIMULATED
from minitorch import optim
from minitorch.models import GPT, GPTConfig, load_weights
from minitorch.models.weights import _parts
from minitorch.serialization import save_file

VOCAB, LAYERS, HEADS, WIDTH, B, T, STEPS = 96, 3, 4, 32, 4, 64, 10
CONFIG = GPTConfig(VOCAB, T, LAYERS, HEADS, WIDTH)
OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


# Plain Python and the simulator are too slow.
ON = [d for d in DEVICES if d == "cpu" or (d == "cuda" and not SIMULATED)]


def batch() -> tuple[np.ndarray, np.ndarray]:
    text = np.random.default_rng(0).integers(0, VOCAB, (B, T + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """A file of weights; scores, losses and gradients that PyTorch finds with them."""
    torch.manual_seed(0)
    model = GPT2(VOCAB, T, LAYERS, HEADS, WIDTH)
    path = tmp_path_factory.mktemp("llmc") / "gpt2.safetensors"
    tensors = {
        k: minitorch.tensor(v.detach().numpy().copy())
        for k, v in model.named_parameters()
    }
    save_file(tensors, path)
    ids, targets = map(torch.tensor, batch())
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    found: dict[str, Any] = {"losses": []}
    for step in range(STEPS):
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            found["logits"] = logits.detach().numpy()
            found["grads"] = {
                name: p.grad.numpy().copy() for name, p in model.named_parameters()
            }
        optimizer.step()
        found["losses"].append(loss.item())
    return path, found


def train(model: GPT, optimizer: Any, steps: int) -> list[float]:
    ids, targets = (minitorch.tensor(x, device=model.device) for x in batch())
    losses = []
    for _ in range(steps):
        loss = model.loss(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def gradients(model: GPT) -> dict[str, np.ndarray]:
    """Those of the first step, under the names and in the layout of GPT-2's files."""
    model.loss(*(minitorch.tensor(x, device=model.device) for x in batch())).backward()
    holder = GPT(model.config)
    with minitorch.no_grad():
        for p, q in zip(holder.parameters(), model.parameters()):
            p.copy_(q.grad.cpu())
    return {name: view.numpy() for name, view in _parts(holder)}


@pytest.mark.parametrize("device", ON)
def test_ten_steps_are_those_of_pytorch(state, device, tmp_path):
    path, expected = state
    model = load_weights(GPT(CONFIG), path).to(device)
    with minitorch.no_grad():
        logits = model(minitorch.tensor(batch()[0], device=device)).cpu().numpy()
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
    compare_gradients(gradients(model), expected["grads"])
    model.zero_grad()
    optimizer = optim.AdamW(model.parameters(), **OPTIONS)
    losses = train(model, optimizer, STEPS)
    np.testing.assert_allclose(losses, expected["losses"], rtol=0, atol=1e-5)
    assert losses[-1] < losses[0] - 0.5
    goes_on_from_a_file(model, optimizer, tmp_path / "state.safetensors")


def goes_on_from_a_file(model: GPT, optimizer: Any, path: Path) -> None:
    """Ten more steps are the same to the bit, in another model that read the state."""
    parts = {"model": model, "optimizer": optimizer}
    minitorch.save({name: part.state_dict() for name, part in parts.items()}, path)
    losses = train(model, optimizer, STEPS)
    again = GPT(CONFIG).to(model.device)
    other = optim.AdamW(again.parameters(), lr=1.0)
    saved = minitorch.load(path)
    again.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    assert train(again, other, STEPS) == losses
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert p.equal(q)


def compare_gradients(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """16 tensors, as llm.c has them: those of all layers in one."""
    groups = defaultdict(list)
    for name in theirs:
        kind = name.split(".", 2)[2] if name.startswith("h.") else name
        groups[kind].append(name)
    assert len(groups) == 16
    for kind, names in groups.items():
        ours, expected = (np.stack([g[n] for n in names]) for g in (mine, theirs))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            ours / scale, expected / scale, atol=1e-4, err_msg=kind
        )
