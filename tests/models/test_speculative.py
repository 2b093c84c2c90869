"""docs/speculative.py writes what the large model alone would write, in fewer steps."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import minitorch
from minitorch.models import GPT, Sampling
from minitorch.models.speculative import Reader, draw, judge, speculate

DOCS = Path(minitorch.__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def program() -> dict:
    return runpy.run_path(str(DOCS / "speculative.py"))


def gpt(seed: int, layers: int = 1) -> GPT:
    """A model with opinions; those of different seeds differ."""
    minitorch.manual_seed(seed)
    model = GPT.preset("tiny", vocab_size=7, n_layer=layers, tied=False)
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.3)
    return model


@pytest.mark.parametrize("small", [3, 6])
def test_greedy_texts_are_those_of_the_large_model(small):
    """Both where the small model is another one, and where it is always right."""
    large, sampling = gpt(6, 2), Sampling(top_k=1)
    readers = [Reader(m, sampling) for m in (large, gpt(small, 2))]
    new = speculate(*readers, [1, 2], 20, ahead=3)
    assert new[:20] == large.generate([1, 2], 20, temperature=0)
    steps = readers[0].steps
    assert steps == 5 if small == 6 else 5 < steps <= 20


def test_what_is_kept_is_drawn_as_the_large_model_would():
    rng = np.random.default_rng(0)
    small, large = (rng.dirichlet(np.ones(4), n) for n in (2, 3))
    pairs, n = np.zeros((4, 4)), 20_000
    for _ in range(n):
        guesses = [draw(row, rng.random) for row in small]
        new = judge(guesses, small, large, rng.random)
        # Whoever keeps one token only has the next from the large model's next step.
        second = new[1] if len(new) > 1 else draw(large[1], rng.random)
        pairs[new[0], second] += 1
    expected = np.outer(large[0], large[1])
    assert np.abs(pairs / n - expected).max() < 4 * 0.5 / np.sqrt(n)


def test_the_program_runs(program, capsys):
    large, small = program["main"](steps=2, count=6, ahead=2)
    assert 2 <= large.steps <= 6 and small.steps == 2 * large.steps
    printed = capsys.readouterr().out
    assert "steps of the large model:\nAlice " in printed
