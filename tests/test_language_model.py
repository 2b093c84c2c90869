"""A small GPT, written once, runs here and in PyTorch with the same numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import minitorch

LAYERS, HEADS, WIDTH, LETTERS, LENGTH = 2, 2, 16, 11, 8
TEXT = np.random.default_rng(0).integers(0, LETTERS, 400)


def gpt(lib: Any) -> Any:
    """The model, as a program that knows either library by the name `lib`."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.out = nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(
                nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
            )

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            parts = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
            q, k, v = (p.view(b, t, HEADS, c // HEADS).transpose(1, 2) for p in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(LETTERS, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, LETTERS, bias=False)
            self.letters.weight = self.head.weight  # one table for both ends

        def forward(self, ids: Any) -> Any:
            places = lib.arange(0, ids.size(1), dtype=lib.long, device=ids.device)
            x = self.letters(ids) + self.places(places)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def batch(lib: Any, step: int, device: str) -> tuple[Any, Any]:
    """Four pieces of the text, and the same one letter on."""
    starts = np.random.default_rng(step).integers(0, len(TEXT) - LENGTH - 1, 4)
    pieces = [np.stack([TEXT[s + i : s + i + LENGTH] for s in starts]) for i in (0, 1)]
    x, y = (lib.tensor(p, device=device) for p in pieces)
    return x, y


def train(lib: Any, model: Any, device: str, steps: int = 6) -> list[float]:
    """The losses of some steps, as GPTs are trained: AdamW, decay of matrices alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": rest, "weight_decay": 0.0},
    ]
    optimizer = lib.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    losses = []
    for step in range(steps):
        ids, targets = batch(lib, step, device)
        logits = model(ids)
        loss = lib.nn.functional.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def theirs() -> Any:
    torch.manual_seed(0)
    return gpt(torch)


def ours(theirs: Any, device: str) -> Any:
    """Our model with PyTorch's weights; the table is one parameter still."""
    model = gpt(minitorch)
    state = {
        n: minitorch.tensor(v.numpy().copy()) for n, v in theirs.state_dict().items()
    }
    model.load_state_dict(state)
    assert model.letters.weight is model.head.weight
    assert len(list(model.parameters())) == len(list(theirs.parameters()))
    return model.to(device)


def test_losses_are_pytorchs(theirs, device):
    steps = 2 if device in ("simple", "cuda") else 6
    model = ours(theirs, device)
    expected = train(torch, theirs, "cpu", steps)
    np.testing.assert_allclose(train(minitorch, model, device, steps), expected, 2e-4)


def test_letters_are_drawn_from_the_model(theirs):
    """The most likely letter is the same; drawn ones are letters, and repeat."""
    model = ours(theirs, "cpu")
    prompt = [[1, 2, 3]]
    with minitorch.no_grad(), torch.no_grad():
        mine = model(minitorch.tensor(prompt))[:, -1]
        same = theirs(torch.tensor(prompt))[:, -1]
        np.testing.assert_allclose(mine.numpy(), same.numpy(), atol=1e-5)
        best, _ = minitorch.topk(mine, 3)
        few = mine.masked_fill(mine < best[:, [-1]], -math.inf)
        drawn = []
        for _ in range(2):
            minitorch.manual_seed(3)
            draws = minitorch.multinomial(few.softmax(-1), 20, replacement=True)
            drawn.append(draws.tolist()[0])
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) <= set(same.topk(3).indices.tolist()[0])
