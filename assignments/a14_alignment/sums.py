"""A GPT that learns to add: first from answers, then from being told right or wrong.

With this file one can train a small model on sums that are written out (`supervised`),
and then by GRPO on its own answers, of which a rule says whether they are right
(`align`). `step` is one step of that. Run it: `python sums.py` (two minutes).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
import minitorch
from minitorch import Tensor, nn, optim
from minitorch.alignment import (
    Rollouts,
    group_advantages,
    policy_loss,
    rollouts,
    sft_loss,
    side_by_side,
    token_log_probs,
)
from minitorch.models import GPT, GPTConfig

SIGNS = "0123456789+=."
STOP = SIGNS.index(".")
LONGEST = 4  # tokens of an answer, with the one that ends it
Reward = Callable[[Sequence[int], list[int]], float]


def encode(text: str) -> list[int]:
    """The tokens of a text: each sign is one."""
    return [SIGNS.index(sign) for sign in text]


def decode(tokens: Sequence[int]) -> str:
    """And the text of tokens."""
    return "".join(SIGNS[token] for token in tokens)


def problems(count: int, seed: int, below: int = 100) -> list[list[int]]:
    """Prompts, "37+48=" in tokens; no two of them are the same.

    Errors: ValueError if there are not so many.
    """
    pairs = random.Random(seed).sample(range(below * below), count)
    return [encode(f"{pair // below}+{pair % below}=") for pair in pairs]


def right_answer(prompt: Sequence[int]) -> list[int]:
    """The tokens of the sum, with the one that ends it."""
    a, _, b = decode(prompt).rstrip("=").partition("+")
    return encode(f"{int(a) + int(b)}.")


def reward(prompt: Sequence[int], answer: list[int]) -> float:
    """1 for the right sum, 0 for all else: a rule, which nobody has to learn."""
    return float([*answer, STOP] == right_answer(prompt))


def accuracy(model: GPT, prompts: Sequence[Sequence[int]]) -> float:
    """The share of right answers, of the most probable token each time."""
    given = [list(prompt) for prompt in prompts]
    answers = model.generate(given, LONGEST, temperature=0, stop=STOP)
    return sum(map(reward, prompts, answers)) / len(given)


def supervised(
    model: GPT, prompts: list[list[int]], steps: int, lr: float = 3e-3, batch: int = 64
) -> list[float]:
    """Train on right answers, always the same ones; the losses."""
    optimizer = optim.AdamW(model.parameters(), lr=lr)
    rng, losses = random.Random(0), []
    for _ in range(steps):
        some = rng.sample(prompts, batch)
        ids, mask = side_by_side(some, [right_answer(p) for p in some], model.device)
        loss = sft_loss(model, ids, mask)
        learn(model, optimizer, loss)
        losses.append(loss.item())
    return losses


def learn(model: GPT, optimizer: optim.Optimizer, loss: Tensor) -> None:
    """One step down, by gradients whose norm, all together, is at most 1."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def step(
    model: GPT,
    optimizer: optim.Optimizer,
    prompts: Sequence[Sequence[int]],
    reward: Reward,
    group: int,
    epochs: int = 1,
    reference: GPT | None = None,
    beta: float = 0.0,
) -> float:
    """One step of GRPO: `group` answers to each prompt, and what follows from them.

    Args:
        epochs: steps of the optimizer with these answers.
        reference: the model that it shall stay near to, by beta; None: there is none.

    Returns: the mean reward of the answers, which the model wrote before it learnt.
    """
    wrote: Rollouts = rollouts(model, prompts, group, reward, LONGEST, STOP)
    # BEGIN SOLUTION a14.6
    advantages = group_advantages(wrote.rewards).flatten()
    kept = None
    if reference is not None:
        with minitorch.no_grad():
            kept = token_log_probs(reference, wrote.ids, wrote.mask)
    for _ in range(epochs):
        log_probs = token_log_probs(model, wrote.ids, wrote.mask)
        loss = policy_loss(
            log_probs,
            wrote.log_probs,
            advantages,
            wrote.mask,
            reference_log_probs=kept,
            beta=beta,
        )
        learn(model, optimizer, loss)
    return wrote.rewards.mean().item()
    # END SOLUTION a14.6


def align(
    model: GPT,
    prompts: list[list[int]],
    steps: int,
    lr: float = 5e-4,
    batch: int = 32,
    group: int = 16,
    said: Callable[[int, float], None] = lambda step, reward: None,
) -> list[float]:
    """GRPO on prompts; the mean rewards of the steps. `said` hears of each."""
    optimizer = optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    rng, rewards = random.Random(0), []
    for number in range(steps):
        some = rng.sample(prompts, batch)
        rewards.append(step(model, optimizer, some, reward, group))
        said(number, rewards[-1])
    return rewards


def main() -> None:
    """Both ways in turn, and what the model makes of a few sums."""
    minitorch.manual_seed(0)
    known = problems(10_000, 0)
    known, unseen = known[:9_000], known[9_000:]
    model = GPT(GPTConfig(len(SIGNS), 12, n_layer=2, n_head=4, n_embd=64))
    supervised(model, known, 400)
    print(f"right answers: {accuracy(model, unseen):.3f} of unseen sums are right")

    def said(number: int, mean: float) -> None:
        if number % 50 == 49:
            right = accuracy(model, unseen)
            print(f"GRPO, step {number + 1:3}: reward {mean:.3f}, right {right:.3f}")

    align(model, known, 400, said=said)


if __name__ == "__main__":
    main()
