"""What a14 is checked with; the oracle is PyTorch, or the definition in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assignments.a10_language_models.reference import Model
from assignments.a10_language_models.writing import KINDS, ids_of, seed_of
from assignments.a14_alignment import calls
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.compare import Difference, difference
from assignments.draw import Draw
from assignments.gpts import SIZES
from assignments.oracles import as_torch, torch_gradients

DEFINITION = "the definition in float64"
VOCAB = SIZES["vocab_size"]

# ---------------------------------------------------------------------------- answers


def _lists(draw: Draw, n: int, least: int, most: int) -> list[list[int]]:
    return [
        draw.array((draw.integer(least, most),), "int64", 0, VOCAB - 1).tolist()
        for _ in range(n)
    ]


def _pairs_inputs(draw: Draw, n: int) -> Inputs:
    prompts, answers = _lists(draw, n, 1, 3), _lists(draw, n, 0, 3)
    if all(len(p) + len(a) < 2 for p, a in zip(prompts, answers)):
        answers[0] = [1]
    return {"prompts": prompts, "answers": answers}


def _filled(
    prompts: calls.Lists, answers: calls.Lists
) -> tuple[np.ndarray, np.ndarray]:
    width = max(len(p) + len(a) for p, a in zip(prompts, answers))
    ids = np.zeros((len(prompts), width), np.int64)
    mask = np.zeros((len(prompts), width), bool)
    for n, (p, a) in enumerate(zip(prompts, answers)):
        ids[n, : len(p) + len(a)] = [*p, *a]
        mask[n, len(p) : len(p) + len(a)] = True
    return ids, mask[:, 1:]


def _pairs_expected(prompts: calls.Lists, answers: calls.Lists) -> dict[str, Any]:
    ids, mask = _filled(prompts, answers)
    return {"ids": ids, "mask": mask, "lists unchanged": True}


def _mask(draw: Draw, n: int, length: int) -> np.ndarray:
    """Some tokens; at least one."""
    mask = draw.array((n, length), "bool")
    mask[draw.integer(0, n - 1), draw.integer(0, length - 1)] = True
    return mask


def _answers_inputs(draw: Draw, n: int, length: int) -> Inputs:
    return {
        "kind": draw.choice(KINDS),
        "seed": seed_of(draw),
        "ids": ids_of(draw, (n, length + 1)),
        "mask": _mask(draw, n, length),
    }


def _log_probs_inputs(draw: Draw, n: int, length: int) -> Inputs:
    grad = draw.array((n, length))
    return {**_answers_inputs(draw, n, length), "grad": grad}


def _each(model: Model, ids: np.ndarray, mask: Any) -> Any:
    """log p of each next token, 0 where the mask does not hold."""
    made = model.scores(ids[:, :-1]).log_softmax(-1)
    found = made.gather(2, as_torch(ids[:, 1:])[..., None])[..., 0]
    return found * as_torch(mask)


def _log_probs_expected(
    kind: str, seed: int, ids: np.ndarray, mask: np.ndarray, grad: np.ndarray
) -> dict[str, Any]:
    model = Model(kind, 1, seed)
    found = torch_gradients(_each(model, ids, mask), grad)
    return {**found, **_parameters(model, "grad of "), "scores for answers alone": True}


def _parameters(model: Model, head: str) -> dict[str, Any]:
    names = ("wte", "ln_f")
    return {f"{head}{n}": model.given[f"{n}.weight"].grad.numpy() for n in names}


def _tuned_expected(
    kind: str, seed: int, ids: np.ndarray, mask: np.ndarray
) -> dict[str, Any]:
    model = Model(kind, 1, seed)
    loss = -_each(model, ids, mask).sum() / int(mask.sum())
    loss.backward()
    return {"loss": loss.item(), **_parameters(model, "grad_")}


TEXTS = {"n": (1, 3), "length": (1, 5)}
TEXT_EDGES = sizes_of("n length", (1, 1), (3, 7))

ANSWERS = (
    Check(
        *("a14.1", "side_by_side", calls.pairs, _pairs_inputs, _pairs_expected),
        *({"n": (1, 4)}, ({"n": 1}, {"n": 6})),
        examples=15,
        oracle="the task",
        hint="Place t of the mask is about token t + 1. What is a prompt's first "
        "token, and what fills up?",
    ),
    Check(
        *("a14.1", "token_log_probs", calls.log_probs),
        *(_log_probs_inputs, _log_probs_expected, TEXTS, TEXT_EDGES),
        tolerance=2e-4,
        examples=8,
        hint="The score of token t + 1 is made at token t. The head needs the rows "
        "that the mask names, and no others.",
    ),
    Check(
        *("a14.1", "sft_loss", calls.tuned),
        *(_answers_inputs, _tuned_expected, TEXTS, TEXT_EDGES),
        tolerance=2e-4,
        examples=8,
        hint="All tokens of all answers have the same share in the mean, and nothing "
        "else has one.",
    ),
)

# --------------------------------------------------------------------------- adapters


def _layer_inputs(draw: Draw, n: int, k: int, rank: int, rows: int) -> Inputs:
    n, k = max(n, rank), max(k, rank)
    shapes = {"w": (n, k), "b": (n,), "low": (rank, k), "high": (n, rank)}
    shapes |= {"x": (rows, k), "grad": (rows, n)}
    arrays = {name: draw.array(shape) for name, shape in shapes.items()}
    return {**arrays, "alpha": draw.choice((1.0, 6.0, 0.5))}


def _layer_expected(
    w: np.ndarray, b: np.ndarray, low: np.ndarray, high: np.ndarray, alpha: float,
    x: np.ndarray, grad: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    leaves = {n: as_torch(a, True) for n, a in (("x", x), ("low", low), ("high", high))}
    weight = as_torch(w) + alpha / len(low) * (leaves["high"] @ leaves["low"])
    out = leaves["x"] @ weight.t() + as_torch(b)
    found = torch_gradients(out, grad, **leaves)
    whole = weight.detach().numpy()
    return {
        **found,
        "weight": whole,
        "merged": found["out"],
        "merged weight": whole,
        "old weight": w,
        **dict.fromkeys(("nothing for the base", "one layer", "frozen"), True),
    }


TARGETS = (("c_attn",), ("c_fc", "c_proj"), ("lm_head", "c_proj"))


def _adapted_inputs(draw: Draw, n: int, length: int, rank: int) -> Inputs:
    return {
        "kind": draw.choice(KINDS),
        "seed": seed_of(draw),
        "rank": rank,
        "alpha": draw.choice((1.0, 4.0)),
        "targets": list(draw.choice(TARGETS)),
        "ids": ids_of(draw, (n, length)),
        "wanted": ids_of(draw, (n, length)),
    }


def _adapted_expected(
    kind: str, seed: int, rank: int, alpha: float, targets: Sequence[str],
    ids: np.ndarray, wanted: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    from torch.nn.functional import cross_entropy

    model = Model(kind, 1, seed)
    table = model.given["wte.weight"]
    parts = calls.adapters(kind, rank, targets, seed)
    given = {name: as_torch(value, True) for name, value in parts.items()}
    head = table
    for name in {name.rpartition(".")[0] for name in given}:
        more = alpha / rank * (given[f"{name}.lora_B"] @ given[f"{name}.lora_A"])
        if name == "lm_head":
            head = table + more
        else:
            model.given[f"{name}.weight"] = model.given[f"{name}.weight"] + more
    scores = model.scores(ids, head)
    cross_entropy(scores.flatten(0, 1), as_torch(wanted).flatten()).backward()
    made = scores.detach().numpy()
    return {
        "the model itself": True,
        "begins as it was": True,
        "learns": sorted(given),
        "scores": made,
        "merged": made,
        **{f"grad of {name}": given[name].grad.numpy() for name in sorted(given)},
        "embedding": table.detach().numpy(),
    }


ADAPTERS = (
    Check(
        *("a14.2", "a layer", calls.layer, _layer_inputs, _layer_expected),
        {"n": (1, 5), "k": (1, 5), "rank": (1, 3), "rows": (1, 3)},
        sizes_of("n k rank rows", (1, 1, 1, 1), (7, 9, 3, 4)),
        tolerance=1e-4,
        examples=10,
        hint="Write the shapes down: x [*, in], A [rank, in], B [out, rank]. What is "
        "B A multiplied by?",
    ),
    Check(
        *("a14.2", "a model", calls.adapted, _adapted_inputs, _adapted_expected),
        {"n": (1, 2), "length": (1, 4), "rank": (1, 3)},
        sizes_of("n length rank", (1, 1, 1), (2, 8, 2)),
        tolerance=3e-4,
        examples=6,
        hint="Only adapters learn. The head shares its weight with the embedding, "
        "which is to stay when the head is merged.",
    ),
)

# -------------------------------------------------------------- preferences and rewards


def _preferred_inputs(draw: Draw, n: int) -> Inputs:
    far = np.float32(draw.choice((1.0, 10.0, 3000.0)))
    names = ("chosen", "rejected", "reference_chosen", "reference_rejected")
    arrays = {name: draw.array((n,)) * far for name in names}
    return {**arrays, "beta": draw.choice((0.125, 1.0))}


def _preferred_expected(
    chosen: np.ndarray, rejected: np.ndarray, reference_chosen: np.ndarray,
    reference_rejected: np.ndarray, beta: float,
) -> dict[str, Any]:  # fmt: skip
    a, b, c, d = (
        x.astype(np.float64)
        for x in (chosen, rejected, reference_chosen, reference_rejected)
    )
    margin = beta * ((a - c) - (b - d))
    loss = np.logaddexp(0.0, -margin).mean()
    slope = -beta * np.exp(-np.logaddexp(0.0, margin)) / len(a)
    return {
        "loss": float(loss),
        "grad_chosen": slope.astype(np.float32),
        "grad_rejected": (-slope).astype(np.float32),
        "grad_reference_chosen": None,
        "grad_reference_rejected": None,
    }


def _rewards_inputs(draw: Draw, prompts: int, group: int) -> Inputs:
    """Right or wrong, or any numbers; in some rows all are equal."""
    if draw.choice((True, False)):
        rewards = draw.array((prompts, group), "int64", 0, 1).astype(np.float32)
    else:
        rewards = draw.array((prompts, group)) * np.float32(draw.choice((1.0, 100.0)))
    constant = draw.array((prompts, 1), "bool")
    rewards = np.where(constant, rewards[:, :1] + np.float32(0.1), rewards)
    rewards[-1] = np.float32(draw.choice((0.9, 1.7))) if prompts > 2 else rewards[-1]
    eps = draw.choice((1e-6, 0.5))
    return {"rewards": rewards, "normalize": draw.choice((True, False)), "eps": eps}


def _rewards_expected(rewards: np.ndarray, normalize: bool, eps: float) -> Any:
    wide = rewards.astype(np.float64)
    above = wide - wide.mean(1, keepdims=True)
    if normalize:
        above /= wide.std(1, keepdims=True) + eps
    equal = (rewards == rewards[:, :1]).all(1, keepdims=True)
    return {"out": np.where(equal, 0.0, above).astype(np.float32)}


@dataclass(frozen=True)
class Zeros(Check):
    """Advantages, which are 0, and not nearly so, where all rewards are equal."""

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """What is wrong, or None."""
        found = super().judge(inputs, outputs)
        if found is None:
            rows = (inputs["rewards"] == inputs["rewards"][:, :1]).all(1)
            if outputs["out"][rows].any():
                said = "equal rewards have an advantage that is not 0"
                return Difference("out", said, str(outputs["out"][rows]), "0")
        return found


def _policy_inputs(draw: Draw, n: int, length: int) -> Inputs:
    """Some places hold what must not count; an answer may have no token at all."""
    mask = draw.array((n, length), "bool")
    near = np.float32(draw.choice((0.25, 1.0)))
    old = draw.array((n, length), "float32", -3, 0)
    now = old + draw.array((n, length)) * near
    reference = old + draw.array((n, length)) * near if draw.choice((0, 1)) else None
    odd = np.float32(draw.choice((0.0, np.nan, -np.inf)))
    return {
        "log_probs": np.where(mask, now, odd).astype(np.float32),
        "old": np.where(mask, old, np.float32(0)).astype(np.float32),
        "advantages": draw.array((n,)),
        "mask": mask,
        "reference": None if reference is None else reference.astype(np.float32),
        "clip": draw.choice((0.2, 0.5)),
        "beta": 0.0 if reference is None else draw.choice((0.25, 2.0)),
        "length": draw.choice((None, length + 3)),
    }


def _policy_expected(
    log_probs: np.ndarray, old: np.ndarray, advantages: np.ndarray, mask: np.ndarray,
    reference: np.ndarray | None, clip: float, beta: float, length: int | None,
) -> dict[str, Any]:  # fmt: skip
    """One answer after the other, in float64."""
    import torch

    log_p = as_torch(log_probs, True)
    total = torch.zeros((), dtype=torch.float64)
    for n, row in enumerate(mask):
        if row.any():
            total = total + _answer(
                log_p[n][as_torch(row)].double(), old[n][row], advantages[n],
                None if reference is None else reference[n][row], clip, beta, length,
            )  # fmt: skip
    loss = total / len(mask)
    if mask.any():
        loss.backward()
    grad = np.zeros_like(log_probs) if log_p.grad is None else log_p.grad.numpy()
    found = {"loss": float(loss.item()), "grad_log_probs": grad}
    found |= {"grad_old": None, "grad_advantages": None}
    return found if reference is None else {**found, "grad_reference": None}


def _answer(
    log_p: Any, old: np.ndarray, advantage: float, reference: np.ndarray | None,
    clip: float, beta: float, length: int | None,
) -> Any:  # fmt: skip
    import torch

    a = float(advantage)
    ratio = (log_p - as_torch(old).double()).exp()
    losses = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
    if reference is not None:
        d = as_torch(reference).double() - log_p
        losses = losses + beta * (torch.expm1(d) - d)
    return losses.sum() / (length or len(old))


LOSSES = (
    Check(
        *("a14.3", "dpo_loss", calls.preferred, _preferred_inputs, _preferred_expected),
        *({"n": (1, 4)}, ({"n": 1}, {"n": 9})),
        tolerance=1e-4,
        examples=25,
        oracle=DEFINITION,
        hint="exp of a large number is infinite: which function is log(sigmoid(x)) for "
        "any x? What learns, and what is only compared with?",
    ),
    Zeros(
        *("a14.4", "group_advantages", calls.advantages),
        *(_rewards_inputs, _rewards_expected),
        {"prompts": (1, 3), "group": (1, 5)},
        sizes_of("prompts group", (1, 1), (3, 8), (4, 3)),
        tolerance=2e-4,
        examples=30,
        oracle=DEFINITION,
        hint="A row is one prompt's answers. Over how many numbers is the mean, and "
        "over how many the variance? What is a row of 0.1, minus its mean, in float32?",
    ),
    Check(
        *("a14.5", "policy_loss", calls.policy, _policy_inputs, _policy_expected),
        {"n": (1, 3), "length": (1, 4)},
        sizes_of("n length", (1, 1), (2, 5), (4, 6)),
        tolerance=2e-4,
        examples=40,
        oracle=DEFINITION,
        hint="Take one token, with A = 1 and with A = -1, and ratios 0.5, 1 and 2. "
        "What is exp of what is masked, and what is 0 times that?",
    ),
)

# --------------------------------------------------------------------------- training


def _stepped_inputs(draw: Draw, count: int, group: int, epochs: int) -> Inputs:
    prompts = _lists(draw, count, 1, 3)
    answers = _lists(draw, count * group, 1, 3)
    width = _filled([p for p in prompts for _ in range(group)], answers)[1].shape[1]
    return {
        "kind": draw.choice(KINDS),
        "seed": seed_of(draw),
        "prompts": prompts,
        "answers": answers,
        "rewards": draw.array((count, group), "int64", 0, 2).astype(np.float32),
        "old": draw.array((count * group, width), "float32", -3, -1),
        "epochs": epochs,
        "beta": draw.choice((0.0, 0.5)),
        "lr": 0.25,
    }


def _stepped_expected(
    kind: str, seed: int, prompts: calls.Lists, answers: calls.Lists,
    rewards: np.ndarray, old: np.ndarray, epochs: int, beta: float, lr: float,
) -> dict[str, Any]:  # fmt: skip
    import torch

    model, group = Model(kind, 1, seed), rewards.shape[1]
    ids, mask = _filled([p for p in prompts for _ in range(group)], answers)
    by = _rewards_expected(rewards, True, 1e-6)["out"].reshape(-1)
    kept = _each(Model(kind, 1, seed + 1), ids, mask).detach().numpy() if beta else None
    optimizer = torch.optim.SGD(model.given.values(), lr=lr)
    for _ in range(epochs):
        log_p = _each(model, ids, mask)
        loss = sum(
            _answer(
                log_p[n][as_torch(row)], old[n][row], by[n],
                None if kept is None else kept[n][row], 0.2, beta, None,
            )
            for n, row in enumerate(mask)
        )  # fmt: skip
        optimizer.zero_grad()
        (loss / len(mask)).backward()
        torch.nn.utils.clip_grad_norm_(model.given.values(), 1.0)
        optimizer.step()
    after = {
        n: model.given[n].detach().numpy().reshape(-1) for n in sorted(model.given)
    }
    facts = dict.fromkeys(("answers written once", "nothing for the reference"), True)
    return {"mean reward": float(rewards.mean()), **facts, **after}


STEPS = 24
HIGH = 0.7  # a model that has learnt nothing has 0.4, and ours nearly always 0.99


def _rising_inputs(draw: Draw) -> Inputs:
    return {"seed": seed_of(draw), "steps": STEPS}


@dataclass(frozen=True)
class Rises(Check):
    """Rewards must rise, and the model's answers must then deserve them."""

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """What is wrong, or None."""
        right = self.expected(**inputs)
        rewards = outputs.get("rewards") if isinstance(outputs, dict) else None
        answers = outputs.get("answers") if isinstance(outputs, dict) else None
        if _numbers(rewards, float) and len(rewards) == STEPS:
            first, last = np.mean(rewards[:3]), np.mean(rewards[-5:])
            if not (last >= HIGH and last <= 1):
                said = f"{first:.2f} in the first 3 steps, {last:.2f} in the last 5"
                return Difference("rewards", "the reward does not rise", said)
            right["rewards"] = rewards
        known = isinstance(answers, list) and all(_numbers(row, int) for row in answers)
        if known and len(answers) == 80:
            mean = np.mean([calls.even((), row) for row in answers])
            if not mean >= HIGH:
                said = "the answers of the model are not those that are rewarded"
                return Difference("answers", said, f"{mean:.2f}", f"{HIGH} or more")
            right["answers"] = answers
        return difference(right, outputs, inputs)


def _numbers(found: Any, kind: type) -> bool:
    return isinstance(found, list) and all(type(x) is kind for x in found)


def _rising_expected(seed: int, steps: int) -> dict[str, Any]:
    return {"rewards": [math.nan] * steps, "answers": [[0]] * 80}


TRAINING = (
    Check(
        *("a14.6", "one step", calls.stepped, _stepped_inputs, _stepped_expected),
        {"count": (1, 2), "group": (1, 3), "epochs": (1, 2)},
        sizes_of("count group epochs", (1, 1, 1), (2, 4, 1), (2, 3, 3)),
        tolerance=3e-4,
        examples=5,
        hint="What is computed once, with the answers, and what before each step of "
        "the optimizer? What does the ratio compare with?",
    ),
    Rises(
        *("a14.6", "the reward rises", calls.rising, _rising_inputs, _rising_expected),
        examples=2,
        oracle="the task",
        hint="Print the mean reward of each step. If it falls, look at the sign.",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (*ANSWERS, *ADAPTERS, *LOSSES, *TRAINING)
