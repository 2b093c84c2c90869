"""A GPT that learns to spell: from one character to the next.

With this file one can train a small model on a text: `step` makes the loss of a batch
smaller, `validation_loss` measures it on windows that the model does not learn from.
Run it: `python characters.py`, or `python characters.py FILE`. It learns
tinyshakespeare where that can be had, and else Alice, which the library has.
"""

from __future__ import annotations

import math
import sys

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
import minitorch
from minitorch import Tensor, nn, no_grad, optim
from minitorch.data import CharTokenizer, TokenWindows, load_text
from minitorch.models import GPT, GPTConfig

LONGEST = 1.0  # norm of all gradients together


def learning_rate(
    number: int, steps: int, most: float = 0.02, warmup: int = 10
) -> float:
    """The learning rate of step `number`, from 0, of `steps`.

    It rises in equal parts to `most`, which step `warmup - 1` has, and falls from step
    `warmup` on along half a wave of the cosine, to a tenth of `most` at step `steps`.
    """
    # BEGIN SOLUTION a10.4
    if number < warmup:
        return most * (number + 1) / warmup
    share = (number - warmup) / max(1, steps - warmup)
    least = most / 10
    return least + (most - least) * (1 + math.cos(math.pi * share)) / 2
    # END SOLUTION a10.4


def step(model: GPT, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> float:
    """One step of training, with dropout; returns the loss before it.

    x, y int64 [B, T]. Gradients whose norm is more than LONGEST are shortened to it.
    """
    # BEGIN SOLUTION a10.4
    model.train()
    optimizer.zero_grad()
    loss = model.loss(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
    optimizer.step()
    return loss.item()
    # END SOLUTION a10.4


def validation_loss(model: GPT, x: Tensor, y: Tensor) -> float:
    """The mean loss of windows x, y int64 [B, T], without dropout.

    The model is in training mode afterwards if it was before.
    """
    # BEGIN SOLUTION a10.4
    before = model.training
    model.eval()
    with no_grad():
        loss = model.loss(x, y)
    model.train(before)
    return loss.item()
    # END SOLUTION a10.4


def train(
    model: GPT, windows: TokenWindows, steps: int, batch: int = 32, seed: int = 0
) -> list[float]:
    """Train on windows at random places, always the same ones; the losses."""
    optimizer = optim.AdamW(model.parameters(), weight_decay=0.1)
    losses = []
    for number in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, steps)
        x, y = windows.draw((batch,), seed, number)
        losses.append(step(model, optimizer, x, y))
        if __name__ == "__main__" and number % 50 == 0:
            print(f"step {number:4}  loss {losses[-1]:.4f}")
    return losses


def main(source: str | None = None) -> None:
    """Learn a text for some minutes, and write a little."""
    data = load_text(source)
    print(data.notice or data.source)
    tokenizer = CharTokenizer.train(data.text)
    learn, unseen = (tokenizer.encode(part) for part in data.split())
    minitorch.manual_seed(0)
    size = 64
    config = GPTConfig(tokenizer.vocab_size, size, n_layer=3, n_head=4, n_embd=64)
    model = GPT(config)
    train(model, TokenWindows(minitorch.tensor(learn).numpy(), size), 1000)
    windows = TokenWindows(minitorch.tensor(unseen).numpy(), size)
    print(f"unseen text: {validation_loss(model, *windows.draw((64,), 0)):.4f}")
    print(tokenizer.decode(model.generate(tokenizer.encode("\n"), 400, top_p=0.9)))


if __name__ == "__main__":
    main(*sys.argv[1:])
