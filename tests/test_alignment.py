"""Losses of alignment beside float64 and PyTorch, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from minitorch import Tensor, float16, float64, optim
from minitorch.alignment import (
    dpo_loss,
    group_advantages,
    policy_loss,
    rollouts,
    sft_loss,
    side_by_side,
    token_log_probs,
)
from minitorch.lora import add_lora_
from minitorch.models import GPT, GPTConfig

DOCS = Path(minitorch.__file__).parents[1] / "docs"
N, L = 5, 4


def small(**changes: Any) -> GPT:
    minitorch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, **changes}
    model = GPT(GPTConfig(vocab_size=11, block_size=12, **sizes))
    for p in model.parameters():
        minitorch.nn.init.normal_(p, 0.0, 0.5)
    return model


def pair(seed: int, *shape: int) -> tuple[Tensor, Any]:
    """The same numbers here and in PyTorch, which want a gradient."""
    array = np.random.default_rng(seed).uniform(-2, 2, shape)
    mine = minitorch.tensor(array, dtype=float64, device="simple").requires_grad_()
    return mine, torch.tensor(array, requires_grad=True)


def close(mine: Tensor, theirs: Any) -> None:
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 1e-9)


def test_answers_stand_beside_their_prompts():
    ids, mask = side_by_side([[1, 2, 3], [4], [5, 6]], [[7], [8, 9, 10], []])
    assert ids.tolist() == [[1, 2, 3, 7], [4, 8, 9, 10], [5, 6, 0, 0]]
    assert mask.tolist() == [[0, 0, 1], [1, 1, 1], [0, 0, 0]]
    assert (ids.dtype, mask.dtype) == (minitorch.int64, minitorch.bool)


def test_log_probs_are_those_of_all_scores():
    model = small()
    ids, mask = side_by_side([[1, 2, 3], [4]], [[5, 6], [7, 8, 9, 10]])
    made = token_log_probs(model, ids, mask)
    scores = torch.tensor(model(ids).detach().numpy())[:, :-1].log_softmax(-1)
    right = scores.gather(2, torch.tensor(ids.numpy())[:, 1:, None])[..., 0]
    right = right * torch.tensor(mask.numpy())
    np.testing.assert_allclose(made.detach().numpy(), right, 1e-5, 1e-5)
    (made * 0.5).sum().backward()
    first = model.wte.weight.grad.numpy()
    model.zero_grad()
    (sft_loss(model, ids, mask) * -0.5 * 6).backward()  # six tokens of answers
    np.testing.assert_allclose(model.wte.weight.grad.numpy(), first, 1e-3, 1e-4)


def test_scores_are_made_for_answers_alone():
    model, seen = small(), []
    model.lm_head.register_forward_hook(lambda _, args, out: seen.append(out.shape))
    ids, mask = side_by_side([[1] * 6, [2] * 5], [[3], [4]])
    token_log_probs(model, ids, mask)
    assert seen == [(2, 11)]


def test_no_token_of_an_answer():
    model = small()
    ids, mask = side_by_side([[1, 2], [3]], [[], []])
    assert token_log_probs(model, ids, mask).tolist() == [[0.0], [0.0]]


def test_what_stands_behind_an_answer_does_not_count():
    model = small()
    ids, mask = side_by_side([[1, 2]], [[3]])
    more, wide = side_by_side([[1, 2], [1] * 5], [[3], [4] * 4])
    alone, padded = (token_log_probs(model, *g) for g in ((ids, mask), (more, wide)))
    np.testing.assert_allclose(padded[0, 1].item(), alone[0, 1].item(), 1e-5)
    assert sft_loss(model, more[:1], wide[:1]).item() == pytest.approx(
        sft_loss(model, ids, mask).item(), rel=1e-5
    )


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_dpo_is_the_formula(beta):
    mine, theirs = zip(*(pair(seed, N) for seed in range(4)))
    found = dpo_loss(*mine, beta)
    chosen, rejected, reference_chosen, reference_rejected = theirs
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    right = -torch.nn.functional.logsigmoid(beta * margin).mean()
    found.backward()
    right.backward()
    close(found, right)
    for a, b in zip(mine[:2], theirs[:2]):
        close(a.grad, b.grad)
    assert mine[2].grad is None and mine[3].grad is None


def test_dpo_of_margins_without_end():
    """exp(1000) is infinite, the loss is not."""
    zero = minitorch.zeros(2)
    far = minitorch.tensor([1e4, -1e4], requires_grad=True)
    loss = dpo_loss(far, zero, zero, zero, beta=1.0)
    loss.backward()
    assert loss.item() == 5e3 and far.grad.tolist() == [0.0, -0.5]


def test_advantages_are_those_of_a_row():
    rewards = minitorch.tensor([[0.0, 1, 1, 0], [3, 1, 1, 1], [0.1, 0.1, 0.1, 0.1]])
    found = group_advantages(rewards).numpy()
    wide = rewards.numpy().astype(float)
    right = wide - wide.mean(1, keepdims=True)
    right[:2] /= wide[:2].std(1, keepdims=True) + 1e-6
    np.testing.assert_allclose(found, right, 1e-5, 1e-7)
    assert (found[2] == 0).all()
    found = group_advantages(rewards, normalize=False).numpy()
    np.testing.assert_allclose(
        found[:2], (wide - wide.mean(1, keepdims=True))[:2], 1e-6
    )
    for shape in ((3, 1), (1, 1)):
        assert group_advantages(minitorch.ones(*shape)).tolist() == [[0.0]] * shape[0]


def objective(
    log_probs: Any, old: Any, advantages: Any, mask: Any, clip: float, reference: Any,
    beta: float, length: int | None,
) -> Any:  # fmt: skip
    """GRPO's objective, one answer and one token at a time."""
    total = 0.0
    for n in range(N):
        inner, count = 0.0, 0
        for t in range(L):
            if mask[n, t]:
                ratio = (log_probs[n, t] - old[n, t].detach()).exp()
                cut = ratio.clamp(1 - clip, 1 + clip)
                a = advantages[n].detach()
                inner = inner - torch.min(ratio * a, cut * a)
                if reference is not None:
                    d = reference[n, t].detach() - log_probs[n, t]
                    inner = inner + beta * (d.exp() - d - 1)
                count += 1
        total = total + inner / (length or max(count, 1))
    return total / N


@pytest.mark.parametrize("length", [None, 7])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_policy_loss_is_the_formula(beta, length):
    mine, theirs = zip(*(pair(s, N, L) for s in range(3)), pair(3, N))
    mask = np.random.default_rng(0).random((N, L)) < 0.6
    mask[0], mask[1] = True, False
    reference = (mine[2], theirs[2]) if beta else (None, None)
    more: dict[str, Any] = {"clip": 0.3, "beta": beta, "length": length}
    found = policy_loss(
        mine[0], mine[1], mine[3], minitorch.tensor(mask, device="simple"),
        reference_log_probs=reference[0], **more,
    )  # fmt: skip
    right = objective(
        theirs[0], theirs[1], theirs[3], mask, reference=reference[1], **more
    )
    found.backward()
    right.backward()
    close(found, right)
    close(mine[0].grad, theirs[0].grad)
    assert all(a.grad is None for a in mine[1:])


def test_what_is_masked_may_be_anything():
    mask = minitorch.tensor([[True, False, False]])
    parts = [
        minitorch.tensor([[-1.0, odd, -math.inf]]) for odd in (math.nan, 3e38, 0.0)
    ]
    parts[0].requires_grad_()
    loss = policy_loss(
        parts[0],
        parts[1],
        minitorch.ones(1),
        mask,
        reference_log_probs=parts[2],
        beta=1,
    )
    loss.backward()
    assert loss.item() == -1.0 and parts[0].grad.tolist() == [[-1.0, 0.0, 0.0]]


def test_the_divergence_is_estimated_without_bias():
    """The mean of k3 over tokens that p draws is KL(p || r)."""
    p, r = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    logs = [minitorch.tensor(np.log(a)[:, None], device="simple") for a in (p, r)]
    zero, mask = (minitorch.zeros(*s, device="simple") for s in ((3,), (3, 1)))
    zero, mask = zero.double(), mask == 0
    each = [
        policy_loss(
            *(a[i : i + 1] for a in (logs[0], logs[0], zero, mask)),
            reference_log_probs=logs[1][i : i + 1], beta=1.0,
        ).item()
        for i in range(3)
    ]  # fmt: skip
    assert min(each) >= 0
    assert (p * each).sum() == pytest.approx((p * np.log(p / r)).sum())


def test_what_is_refused():
    one = minitorch.zeros(2)
    square, mask = minitorch.zeros(2, 3), minitorch.ones(2, 3) > 0
    model, ids = small(), minitorch.ones(2, 4, dtype=minitorch.int64)
    with pytest.raises(ValueError, match="2 prompts and 1 answers"):
        side_by_side([[1], [2]], [[3]])
    with pytest.raises(ValueError, match="a token in each prompt"):
        side_by_side([[]], [[3]])
    for name, call in (("token_log_probs", token_log_probs), ("sft_loss", sft_loss)):
        with pytest.raises(ValueError, match=rf"{name}: ids are \(2, 4\) and the mask"):
            call(model, ids, mask[:, :2])
        with pytest.raises(ValueError, match="the mask is float32; expected bool"):
            call(model, ids, square)
    with pytest.raises(ValueError, match=r"dpo_loss: log p are \[\(2,\), \(2, 3\)"):
        dpo_loss(one, square, one, one)
    with pytest.raises(ValueError, match="beta is 0"):
        dpo_loss(one, one, one, one, beta=0)
    with pytest.raises(ValueError, match=r"rewards are \(2,\)"):
        group_advantages(one)
    with pytest.raises(TypeError, match="rewards are int64"):
        group_advantages(ids)
    with pytest.raises(ValueError, match=r"advantages \(3,\); expected \(N, L\)"):
        policy_loss(square, square, minitorch.zeros(3), mask)
    with pytest.raises(ValueError, match="the mask is float32"):
        policy_loss(square, square, one, square)
    for more in (
        {"clip": -1.0},
        {"beta": 0.1},
        {"reference_log_probs": square},
        {"length": -1},
    ):
        with pytest.raises(ValueError, match="policy_loss: clip is"):
            policy_loss(square, square, one, mask, **more)
    with pytest.raises(ValueError, match="group is 0"):
        rollouts(model, [[1]], 0, lambda p, a: 0.0, 2, 0)


def test_rollouts_are_judged_one_by_one():
    model = small()
    seen: list[Any] = []

    def judge(prompt: Any, answer: list[int]) -> float:
        seen.append((list(prompt), answer))
        return float(len(seen))

    made = rollouts(model, [[1, 2], [3]], 3, judge, 4, stop=0)
    assert [prompt for prompt, _ in seen] == [[1, 2]] * 3 + [[3]] * 3
    assert made.rewards.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert [answer for _, answer in seen] == made.answers
    counts = [min(len(answer) + 1, 4) for answer in made.answers]
    assert made.mask.sum(1).tolist() == counts and len(made.ids) == 6
    again = token_log_probs(model, made.ids, made.mask)
    assert again.equal(made.log_probs) and not made.log_probs.requires_grad


def test_preferences_are_learnt_through_adapters():
    """And the model without them is the reference."""
    model = add_lora_(small(), 4)
    good = side_by_side([[1, 2], [3]], [[4, 5], [6]])
    bad = side_by_side([[1, 2], [3]], [[5, 4], [7]])
    with minitorch.no_grad():
        kept = [token_log_probs(model, *given).sum(1) for given in (good, bad)]
    learn = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses = optim.AdamW(learn, lr=0.02), []
    for _ in range(25):
        now = [token_log_probs(model, *given).sum(1) for given in (good, bad)]
        loss = dpo_loss(*now, *kept, beta=0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), rel=1e-5)
    assert losses[-1] < 0.2


def test_halves_and_other_devices(device):
    """Losses are made of operations, so they are where their operands are."""
    rewards = minitorch.tensor([[0.0, 1.0]], device=device).to(float16)
    found = group_advantages(rewards, normalize=False)
    assert (found.dtype, found.device, found.tolist()) == (
        float16,
        device,
        [[-0.5, 0.5]],
    )
    model = small().to(device)
    ids, mask = side_by_side([[1, 2]], [[3, 4]], device)
    made = token_log_probs(model, ids, mask)
    loss = policy_loss(made, made, minitorch.ones(1, device=device), mask)
    loss.backward()
    assert loss.item() == -1.0 and model.wte.weight.grad is not None
