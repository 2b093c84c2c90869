"""Speculative decoding: a small model guesses, and a large one judges many at once.

Run it: `python docs/speculative.py`. It trains two models on the text that ships with
the library, lets the large one write, and prints how many tokens it wrote for each time
that its weights were read.

A step of a large model takes as long as reading its weights, whether it looks at one
token or at five. So a small model writes a few tokens ahead, which the large one then
judges in one step. What is kept is drawn as the large model alone would draw it.

Source: Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
decoding", 2023; Chen et al., "Accelerating large language model decoding with
speculative sampling", 2023.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from minitorch import manual_seed, no_grad, optim, tensor
from minitorch.data import CharTokenizer, TokenWindows, load_text
from minitorch.models import GPT, KVCache, Sampling


class Reader:
    """A model that reads a text, and remembers what it has read."""

    def __init__(self, model: GPT, sampling: Sampling) -> None:
        self.model, self.sampling = model.eval(), sampling
        self.cache, self.seen, self.steps = KVCache(model.config), [], 0

    @no_grad()
    def expects(self, text: list[int]) -> np.ndarray:
        """What follows each token that is new: probabilities [new tokens, vocab]."""
        same = 0
        for old, given in zip(self.seen, text[:-1]):
            if old != given:
                break
            same += 1
        self.cache.advance(same - len(self.seen))  # forget what has turned out wrong
        self.seen, new = list(text), tensor([text[same:]])
        self.steps += 1
        scores = self.model(new, self.cache)[0]
        return self.sampling.probabilities(scores).numpy().astype(np.float64)


def draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """A token, with probabilities in proportion to the weights."""
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def judge(
    guesses: list[int], small: np.ndarray, large: np.ndarray, rng: np.random.Generator
) -> list[int]:
    """The guesses that stay, and one token more.

    A guess that the small model makes with probability q and the large one with p stays
    with probability min(1, p / q). At the first that goes, a token is drawn from what
    the small model makes too seldom, max(0, p - q). Both ways together make each token
    with probability min(p, q) + max(0, p - q) = p.

    small [n, vocab], large [n + 1, vocab] for n guesses.
    """
    for i, token in enumerate(guesses):
        if rng.random() * small[i, token] >= large[i, token]:
            return [*guesses[:i], draw(np.maximum(large[i] - small[i], 0.0), rng)]
    return [*guesses, draw(large[-1], rng)]


def speculate(
    large: Reader, small: Reader, text: list[int], count: int, ahead: int, seed: int = 0
) -> list[int]:
    """At least `count` tokens behind `text`, as the large model would draw them."""
    rng, start = np.random.default_rng(seed), len(text)
    while len(text) < start + count:
        guesses: list[int] = []
        rows = []
        for _ in range(ahead):
            rows.append(small.expects(text + guesses)[-1])
            guesses.append(draw(rows[-1], rng))
        judged = large.expects(text + guesses)[-ahead - 1 :]
        text = text + judge(guesses, np.stack(rows), judged, rng)
    return text[start:]


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
