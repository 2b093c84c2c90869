"""Speculative decoding: a small model guesses, and a large one judges many at once.

Run it: `python docs/speculative.py`. It trains two models on the text that ships with
the library, lets the large one write, and prints how many tokens it wrote for each time
that its weights were read.

A step of a large model takes as long as reading its weights, whether it looks at one
token or at five. So a small model writes a few tokens ahead, which the large one then
judges in one step (`minitorch/models/speculative.py`). What is kept is drawn as the
large model alone would draw it.

Source: Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
decoding", 2023; Chen et al., "Accelerating large language model decoding with
speculative sampling", 2023.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from minitorch import manual_seed, optim
from minitorch.data import CharTokenizer, TokenWindows, load_text
from minitorch.models import GPT, Sampling
from minitorch.models.speculative import Reader, speculate


def trained(words: CharTokenizer, text: str, steps: int, **sizes: Any) -> GPT:
    """A model that has read the text for a few steps."""
    model = GPT.preset("tiny", vocab_size=words.vocab_size, block_size=128, **sizes)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    windows = TokenWindows(np.array(words.encode(text)), 32)
    for step in range(steps):
        loss = model.loss(*windows.draw((16,), 0, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{model.num_parameters():,} parameters, loss {loss.item():.2f}")
    return model


def main(steps: int = 300, count: int = 100, ahead: int = 4) -> tuple[Reader, Reader]:
    """Train both, write, and return the two readers."""
    manual_seed(0)
    text = load_text("alice").text
    words = CharTokenizer.train(text)
    sampling = Sampling(0.8)
    large = Reader(trained(words, text, steps, n_layer=3, n_embd=48), sampling)
    small = Reader(trained(words, text, steps, n_layer=1, n_embd=32), sampling)
    prompt = "Alice "
    new = speculate(large, small, words.encode(prompt), count, ahead)
    print(f"{len(new)} tokens in {large.steps} steps of the large model:")
    print(prompt + words.decode(new))
    return large, small


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="of training")
    parser.add_argument("--count", type=int, default=100, help="tokens to write")
    parser.add_argument("--ahead", type=int, default=4, help="tokens to guess")
    main(**vars(parser.parse_args()))
