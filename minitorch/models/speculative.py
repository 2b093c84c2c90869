"""Speculative decoding: a small model guesses, and a large one judges many at once.

With this file one can let a large model write as if alone, in fewer of its steps
(`speculate`): a step takes as long as reading its weights, whether it looks at one
token or at five. So a small model writes a few tokens ahead (`draw`), which the large
one then judges in one step (`judge`). What is kept is drawn as the large model alone
would draw it. `Reader` lets a GPT take part.

Source: Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
decoding", 2023; Chen et al., "Accelerating large language model decoding with
speculative sampling", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from minitorch.autodiff import no_grad
from minitorch.creation import tensor
from minitorch.models.cache import KVCache
from minitorch.models.generation import Sampling
from minitorch.models.gpt import GPT


class Expects(Protocol):
    """What can take part: it knows what follows each token of a text."""

    def expects(self, text: list[int]) -> np.ndarray:
        """Probabilities [n, vocab] of what follows each of the last n tokens, which are
        at least those that were not in the text of the call before."""


class Reader:
    """A model that reads a text, and remembers what it has read."""

    def __init__(self, model: GPT, sampling: Sampling) -> None:
        self.model, self.sampling = model.eval(), sampling
        self.cache, self.steps = KVCache(model.config), 0
        self.seen: list[int] = []

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
        shares: Any = self.sampling.probabilities(scores).numpy()
        return shares.astype(np.float64)


def draw(weights: np.ndarray, uniform: Callable[[], float]) -> int:
    """A token, with probabilities in proportion to the weights [vocab].

    Args:
        uniform: gives a new number in [0, 1) each time.
    """
    # BEGIN SOLUTION a18.5
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, uniform() * ends[-1], side="right"))
    # END SOLUTION a18.5


def judge(
    guesses: Sequence[int],
    small: np.ndarray,
    large: np.ndarray,
    uniform: Callable[[], float],
) -> list[int]:
    """The guesses that stay, and one token more: distributed as the large model's own.

    A guess that the small model makes with probability q and the large one with p stays
    with probability min(1, p / q). At the first that goes, a token takes its place
    which is drawn from what the small model makes too seldom, and nothing follows.

    small [n, vocab], large [n + 1, vocab] for n guesses.
    """
    # BEGIN SOLUTION a18.5
    for i, token in enumerate(guesses):
        if uniform() * small[i, token] >= large[i, token]:
            # Both ways together make each token with min(p, q) + max(0, p - q) = p.
            return [*guesses[:i], draw(np.maximum(large[i] - small[i], 0.0), uniform)]
    return [*guesses, draw(large[-1], uniform)]
    # END SOLUTION a18.5


def speculate(
    large: Expects, small: Expects, text: list[int], count: int, ahead: int,
    seed: int = 0, uniform: Callable[[], float] | None = None,
) -> list[int]:  # fmt: skip
    """At least `count` tokens behind `text`, as the large model would draw them.

    Each step of the large model judges `ahead` guesses of the small one.

    Args:
        uniform: gives a new number in [0, 1) each time; None: from the seed.
    """
    uniform = uniform or np.random.default_rng(seed).random
    # BEGIN SOLUTION a18.5
    start = len(text)
    while len(text) < start + count:
        guesses: list[int] = []
        rows = []
        for _ in range(ahead):
            rows.append(small.expects(text + guesses)[-1])
            guesses.append(draw(rows[-1], uniform))
        judged = large.expects(text + guesses)[-ahead - 1 :]
        text = text + judge(guesses, np.stack(rows), judged, uniform)
    return text[start:]
    # END SOLUTION a18.5
