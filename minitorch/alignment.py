"""Losses that make a language model answer as one wants, after it has learnt to write.

With this file one can train a GPT on answers that are given (`sft_loss`), on pairs of
which one is better (`dpo_loss`), and on its own answers, of which a number says how
good they are (`rollouts`, `group_advantages`, `policy_loss`: GRPO). All of it begins
with how probable a model thinks each token of an answer is (`token_log_probs`).

    ids    [N, T]       prompt and answer, filled up behind (`side_by_side`)
    mask   [N, T - 1]   True where the next token, ids[:, t + 1], is one of the answer

Source: Ouyang et al., "Training language models to follow instructions with human
feedback", 2022; Rafailov et al., "Direct preference optimization", 2023; Schulman et
al., "Proximal policy optimization algorithms", 2017; Shao et al., "DeepSeekMath", 2024
(GRPO); Liu et al., "Understanding R1-Zero-like training", 2025 (Dr. GRPO).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import tensor
from minitorch.functions.choice import minimum
from minitorch.models.gpt import GPT
from minitorch.tensor import Tensor

Ids = Sequence[Sequence[int]]


def side_by_side(
    prompts: Ids, answers: Ids, device: str | None = None
) -> tuple[Tensor, Tensor]:
    """N prompts with their answers: ids int64 [N, T], mask bool [N, T - 1].

    T is the longest pair; shorter ones have tokens 0 behind them, which do not count
    and which nothing before them sees.

    Errors: ValueError if there are none, as many prompts as answers are not there, or a
    prompt is empty.
    """
    if not prompts or len(prompts) != len(answers) or not all(map(len, prompts)):
        raise ValueError(
            f"side_by_side: {len(prompts)} prompts and {len(answers)} answers; "
            f"expected as many, at least one, and a token in each prompt"
        )
    # BEGIN SOLUTION a14.1
    rows = [[*prompt, *answer] for prompt, answer in zip(prompts, answers)]
    longest = max(map(len, rows))
    ids = [row + [0] * (longest - len(row)) for row in rows]
    mask = [
        [len(prompt) <= t < len(row) for t in range(1, longest)]
        for prompt, row in zip(prompts, rows)
    ]
    return tensor(ids, device=device), tensor(mask, device=device)
    # END SOLUTION a14.1


def token_log_probs(model: GPT, ids: Tensor, mask: Tensor) -> Tensor:
    """log p(ids[n, t + 1] | ids[n, : t + 1]) where the mask holds, else 0: [N, T - 1]

    Scores are made for these places alone, not for prompts and what fills up. With
    dropout in training, each call drops others: compare numbers in evaluation mode.

    Errors: ValueError for shapes that do not fit, or a mask that is not bool.
    """
    _check_answers("token_log_probs", ids, mask)
    # BEGIN SOLUTION a14.1
    places = mask.flatten().nonzero().squeeze(1)
    features = model.features(ids[:, :-1]).flatten(0, 1).index_select(0, places)
    targets = ids[:, 1:].flatten().index_select(0, places)
    found = -F.cross_entropy(model.lm_head(features), targets, reduction="none")
    every = found.new_zeros(mask.numel()).index_add_(0, places, found)
    return every.reshape(mask.shape)
    # END SOLUTION a14.1


def sft_loss(model: GPT, ids: Tensor, mask: Tensor) -> Tensor:
    """Supervised fine-tuning: the mean of -log p of all tokens of answers -> []

    Each token has the same share, whichever answer it is of; prompts have none. NaN if
    there is no such token.

    Errors: as `token_log_probs`.
    """
    _check_answers("sft_loss", ids, mask)
    # BEGIN SOLUTION a14.1
    return model.loss(ids[:, :-1], ids[:, 1:].masked_fill(~mask, -1))
    # END SOLUTION a14.1


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float = 0.1,
) -> Tensor:
    """Direct preference optimization: the mean over N pairs of answers -> []

        margin = beta * ((log p - log r of chosen) - (log p - log r of rejected))
        loss   = -log sigmoid(margin)

    Args:
        chosen, rejected: [N], log p of the whole better and worse answer
            (`token_log_probs(...).sum(1)`), by the model that learns.
        reference_chosen, reference_rejected: [N], log r, the same by the model that it
            was at first; nothing learns through them.
        beta: how far the model may go from the reference; smaller is further.

    Errors: ValueError for shapes that are not one [N], and a beta that is not above 0.
    """
    given = (chosen, rejected, reference_chosen, reference_rejected)
    shapes = [tuple(a.shape) for a in given]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1 or not len(chosen):
        raise ValueError(f"dpo_loss: log p are {shapes}; expected all four [N], N > 0")
    if not beta > 0:
        raise ValueError(f"dpo_loss: beta is {beta}; expected a number above 0")
    # BEGIN SOLUTION a14.3
    gained = chosen - reference_chosen.detach()
    lost = rejected - reference_rejected.detach()
    return -F.logsigmoid(beta * (gained - lost)).mean()
    # END SOLUTION a14.3


def group_advantages(
    rewards: Tensor, normalize: bool = True, eps: float = 1e-6
) -> Tensor:
    """How much better each answer is than others to the same prompt: [P, G] -> [P, G]

        advantage = (reward - mean) / (std + eps)

    Mean and standard deviation (over G, not G - 1) are those of the row. Where all
    rewards of a row are equal there is nothing to learn: 0.

    Args:
        rewards: of G answers to each of P prompts.
        normalize: False leaves the division out, as Dr. GRPO does: else prompts that
            are nearly always or nearly never solved count for more.

    Errors: ValueError for another shape, TypeError for rewards that are no floats.
    """
    if rewards.dim() != 2 or not rewards.numel():
        raise ValueError(
            f"group_advantages: rewards are {tuple(rewards.shape)}; expected (prompts, "
            f"answers to each)"
        )
    if not rewards.dtype.is_floating_point:
        raise TypeError(
            f"group_advantages: rewards are {rewards.dtype.name}; expected floats"
        )
    # BEGIN SOLUTION a14.4
    above = rewards - rewards.mean(1, keepdim=True)
    if normalize:
        above = above / (rewards.std(1, correction=0, keepdim=True) + eps)
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)
    return above.masked_fill(equal, 0.0)
    # END SOLUTION a14.4


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
    reference_log_probs: Tensor | None = None,
    beta: float = 0.0,
    length: int | None = None,
) -> Tensor:
    """PPO's clipped objective, as GRPO averages it, to be made smaller -> []

    Of a token:

        ratio = exp(log p - log p_old)                   d = log r - log p
        loss  = -min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A)
                + beta * (exp(d) - d - 1)

    The result is the mean over the tokens of an answer, and then over answers. The last
    term estimates KL(p || r) without bias, and is never below 0 (Schulman,
    "Approximating KL divergence", 2020: k3).

    Args:
        log_probs: [N, L], of the model that learns. Only they get a gradient.
        old_log_probs: [N, L], of the model that wrote the answers.
        advantages: A [N], one for all tokens of an answer.
        mask: bool [N, L], which tokens are of the answer; whatever the others are (also
            inf and NaN) does not count. An answer without any has the loss 0.
        reference_log_probs: [N, L], of a model that it shall stay near to; with beta.
        length: what the sum over an answer's tokens is divided by; None: their number.
            Dr. GRPO divides by the same number, the longest answer that could be: else
            a token of a long wrong answer loses less than one of a short one.

    Errors: ValueError for shapes that do not fit, a clip or beta below 0, a length
    below 1, and one of beta and the reference without the other.
    """
    _check_policy(
        log_probs, old_log_probs, advantages, mask, reference_log_probs, clip, beta,
        length,
    )  # fmt: skip
    # BEGIN SOLUTION a14.5
    off = ~mask
    ratio = (log_probs - old_log_probs.detach()).masked_fill(off, 0.0).exp()
    by = advantages.detach().unsqueeze(1)
    losses = -minimum(ratio * by, ratio.clamp(1 - clip, 1 + clip) * by)
    if reference_log_probs is not None:
        d = (reference_log_probs.detach() - log_probs).masked_fill(off, 0.0)
        losses = losses + beta * (d.exp() - d - 1)
    sums = losses.masked_fill(off, 0.0).sum(1)
    if length is None:
        return (sums / mask.to(sums.dtype).sum(1).clamp(min=1)).mean()
    return (sums / length).mean()
    # END SOLUTION a14.5


class Rollouts(NamedTuple):
    """What a model has written to P prompts, G times each: N = P * G answers.

    Attributes:
        answers: the tokens of each, without the one that ended it.
        ids, mask: [N, T] and [N, T - 1], as of `side_by_side`; the token that ends an
            answer is a part of it.
        rewards: [P, G].
        log_probs: [N, T - 1], of the model that wrote.
    """

    answers: list[list[int]]
    ids: Tensor
    mask: Tensor
    rewards: Tensor
    log_probs: Tensor


@no_grad()
def rollouts(
    model: GPT,
    prompts: Ids,
    group: int,
    reward: Callable[[Sequence[int], list[int]], float],
    max_new_tokens: int,
    stop: int,
    generator: Any = None,
) -> Rollouts:
    """Let the model answer each prompt `group` times, and judge the answers.

    Args:
        prompts: P lists of tokens.
        reward: reward(prompt, answer) says how good it is; any rule or program.
        max_new_tokens: the longest answer; `stop` is the token that ends one before.

    Errors: ValueError for a group below 1, and those of `generate`.
    """
    if group < 1:
        raise ValueError(f"rollouts: group is {group}; expected an int, 1 or more")
    each = [list(prompt) for prompt in prompts for _ in range(group)]
    answers: Any = model.generate(each, max_new_tokens, stop=stop, generator=generator)
    ended = [[*a, stop] if len(a) < max_new_tokens else a for a in answers]
    ids, mask = side_by_side(each, ended, model.device)
    found = [float(reward(prompt, answer)) for prompt, answer in zip(each, answers)]
    rewards = tensor(found, device=model.device).reshape(len(prompts), group)
    return Rollouts(answers, ids, mask, rewards, token_log_probs(model, ids, mask))


def _check_answers(name: str, ids: Tensor, mask: Tensor) -> None:
    shape = tuple(ids.shape)
    if len(shape) != 2 or shape[1] < 2 or tuple(mask.shape) != (shape[0], shape[1] - 1):
        raise ValueError(
            f"{name}: ids are {shape} and the mask {tuple(mask.shape)}; expected "
            f"(N, T) and (N, T - 1), T at least 2: a place for each token that follows "
            f"another"
        )
    _check_mask(name, mask)


def _check_mask(name: str, mask: Tensor) -> None:
    if mask.dtype.category != 0:
        raise ValueError(
            f"{name}: the mask is {mask.dtype.name}; expected bool, True where a token "
            f"counts"
        )


def _check_policy(
    log_probs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor,
    reference: Tensor | None, clip: float, beta: float, length: int | None,
) -> None:  # fmt: skip
    more = [] if reference is None else [reference]
    shapes = [tuple(a.shape) for a in (log_probs, old, mask, *more)]
    rows = tuple(advantages.shape)
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or rows != shapes[0][:1]:
        raise ValueError(
            f"policy_loss: log p, the old ones, the mask and the reference's are "
            f"{shapes}, advantages {rows}; expected (N, L) of all, and (N,)"
        )
    _check_mask("policy_loss", mask)
    short = length is not None and length < 1
    if clip < 0 or beta < 0 or short or (beta > 0) == (reference is None):
        raise ValueError(
            f"policy_loss: clip is {clip}, beta {beta}, length {length}, "
            f"reference_log_probs {'None' if reference is None else 'given'}; expected "
            f"0 or more, a length of 1 or more, and a reference just if beta is above 0"
        )
