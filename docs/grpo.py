"""Teach a GPT to add by telling it right or wrong, and print how many sums are right.

Run it: `python docs/grpo.py` (two minutes). A small GPT by characters first reads sums
with their answers, until it has about half of those right that it has not seen. Then it
answers others, sixteen times each, and hears of each answer whether it is right (GRPO).
At the end another copy goes on with right answers for as many steps, which is what GRPO
has to do without.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from typing import Any

from assignments.a14_alignment.sums import (
    SIGNS,
    accuracy,
    align,
    problems,
    supervised,
)
from minitorch import manual_seed
from minitorch.models import GPT, GPTConfig


def main(
    first: int = 400, steps: int = 600, every: int = 50, seed: int = 0, **sizes: Any
) -> dict[str, float]:
    """Train both ways, print a table, and return the accuracies."""
    manual_seed(seed)
    known = problems(10_000, seed)
    known, unseen = known[:9_000], known[9_000:]
    config = {"n_layer": 2, "n_head": 4, "n_embd": 64, **sizes}
    model = GPT(GPTConfig(len(SIGNS), 12, **config))
    start = time.perf_counter()
    supervised(model, known, first)
    found = {"first": accuracy(model, unseen)}
    print(f"{time.perf_counter() - start:.0f} s: {first} steps with right answers")
    print("| step | reward | right, of unseen sums |\n| ---: | ---: | ---: |")
    print(f"| 0 | | {found['first']:.3f} |", flush=True)
    more, seen = copy.deepcopy(model), []

    def said(step: int, reward: float) -> None:
        seen.append(reward)
        if len(seen) % every == 0:
            mean, right = sum(seen[-every:]) / every, accuracy(model, unseen)
            print(f"| {len(seen)} | {mean:.3f} | {right:.3f} |", flush=True)

    align(model, known, steps, said=said)
    found["grpo"] = accuracy(model, unseen)
    print(f"{time.perf_counter() - start:.0f} s: {steps} steps of GRPO")
    supervised(more, known, steps)
    found["more"] = accuracy(more, unseen)
    print(f"with right answers for as many steps: {found['more']:.3f}")
    for name, kind in (("GRPO", model), ("answers", more)):
        some = random.Random(seed).sample(unseen, 5)
        written = kind.generate(some, 4, temperature=0, stop=SIGNS.index("."))
        pairs = zip(some, written)
        print(name, *("".join(SIGNS[t] for t in [*p, *a]) for p, a in pairs))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=400, help="steps with answers")
    parser.add_argument("--steps", type=int, default=600, help="of GRPO")
    parser.add_argument("--every", type=int, default=50, help="steps between two rows")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
