"""What a14 runs in the student's process: losses of answers, adapters, steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import read, tensor
from assignments.gpts import SIZES, model_of, shapes

Lists = Sequence[Sequence[int]]


def arrays(sizes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Numbers of these shapes, by a seed: too many to print."""
    random = np.random.default_rng([seed, 2])
    return {n: random.uniform(-1, 1, s).astype(np.float32) for n, s in sizes.items()}


def _learnt(loss: Any, **leaves: Any) -> dict[str, Any]:
    """A loss, and the gradients of what wants one: None where none came."""
    loss.backward()
    grads = {f"grad_{name}": read(x.grad) for name, x in leaves.items()}
    return {"loss": float(loss.item()), **grads}


# ---------------------------------------------------------------------------- answers


def pairs(device: str, prompts: Lists, answers: Lists) -> dict[str, Any]:
    """`side_by_side`"""
    from minitorch.alignment import side_by_side

    given = [list(row) for row in prompts], [list(row) for row in answers]
    ids, mask = side_by_side(*given, device)
    unchanged = given == ([list(r) for r in prompts], [list(r) for r in answers])
    return {"ids": read(ids), "mask": read(mask), "lists unchanged": unchanged}


def log_probs(
    device: str, kind: str, seed: int, ids: np.ndarray, mask: np.ndarray, grad: Any
) -> dict[str, Any]:
    """`token_log_probs`, the gradients of two parameters, and how many rows the head
    has made scores of."""
    from minitorch.alignment import token_log_probs

    model, rows = model_of(device, kind, 1, seed), []
    model.lm_head.register_forward_hook(
        lambda _, args, out: rows.append(out.numel() // out.shape[-1])
    )
    out = token_log_probs(model, tensor(device, ids), tensor(device, mask))
    value = read(out)
    out.backward(tensor(device, grad))
    return {
        "out": value,
        "grad of wte": read(model.wte.weight.grad),
        "grad of ln_f": read(model.ln_f.weight.grad),
        "scores for answers alone": sum(rows) <= int(mask.sum()),
    }


def tuned(
    device: str, kind: str, seed: int, ids: np.ndarray, mask: np.ndarray
) -> dict[str, Any]:
    """`sft_loss`"""
    from minitorch.alignment import sft_loss

    model = model_of(device, kind, 1, seed)
    loss = sft_loss(model, tensor(device, ids), tensor(device, mask))
    return _learnt(loss, wte=model.wte.weight, ln_f=model.ln_f.weight)


# --------------------------------------------------------------------------- adapters


def layer(
    device: str, w: np.ndarray, b: np.ndarray, low: np.ndarray, high: np.ndarray,
    alpha: float, x: np.ndarray, grad: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """A `LoRALinear` with w [N, K], b [N], A = low [R, K] and B = high [N, R]."""
    from minitorch import nn, no_grad
    from minitorch.lora import LoRALinear

    base = nn.Linear(w.shape[1], w.shape[0], device=device)
    made = LoRALinear(base, len(low), alpha)
    with no_grad():
        for p, value in (
            (base.weight, w), (base.bias, b), (made.lora_A, low), (made.lora_B, high)
        ):  # fmt: skip
            p.copy_(tensor(device, value))
    a = tensor(device, x, requires_grad=True)
    out, weight, old = made(a), made.weight, base.weight
    found = {"out": read(out), "weight": read(weight)}
    out.backward(tensor(device, grad))
    learns = {"x": a, "low": made.lora_A, "high": made.lora_B}
    found |= {f"grad_{name}": read(p.grad) for name, p in learns.items()}
    one = made.merged()
    return {
        **found,
        "nothing for the base": base.weight.grad is None and base.bias.grad is None,
        "merged": read(one(a)),
        "merged weight": read(one.weight),
        "one layer": type(one) is nn.Linear,
        "frozen": not any(p.requires_grad for p in one.parameters()),
        "old weight": read(old),
    }


def adapters(kind: str, rank: int, targets: Sequence[str], seed: int) -> Any:
    """Numbers for the adapters of one block and of the head, by their names."""
    known = {
        **shapes(kind, 1),
        "lm_head.weight": (SIZES["vocab_size"], SIZES["n_embd"]),
    }
    sizes = {}
    for name, shape in known.items():
        place = name.removesuffix(".weight")
        if place.rpartition(".")[2] in targets:
            sizes[f"{place}.lora_A"] = rank, shape[1]
            sizes[f"{place}.lora_B"] = shape[0], rank
    return arrays(sizes, seed)


def adapted(
    device: str, kind: str, seed: int, rank: int, alpha: float,
    targets: Sequence[str], ids: np.ndarray, wanted: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """A GPT with adapters: what learns, scores, gradients, and the same merged."""
    from minitorch import no_grad
    from minitorch.lora import add_lora_, merge_

    model, x = model_of(device, kind, 1, seed), tensor(device, ids)
    with no_grad():
        before = read(model(x))
        same = add_lora_(model, rank, alpha, list(targets)) is model
        first = read(model(x))
        given = adapters(kind, rank, targets, seed)
        places = dict(model.named_parameters())
        for name, value in given.items():
            places[name].copy_(tensor(device, value))
    learns = sorted(name for name, p in places.items() if p.requires_grad)
    model.loss(x, tensor(device, wanted)).backward()
    grads = {f"grad of {name}": read(places[name].grad) for name in sorted(given)}
    with no_grad():
        scores = read(model(x))
        merged = read(merge_(model)(x))
    return {
        "the model itself": same,
        "begins as it was": bool(np.array_equal(before, first)),
        "learns": learns,
        "scores": scores,
        "merged": merged,
        **grads,
        "embedding": read(model.wte.weight),
    }


# -------------------------------------------------------------- preferences and rewards


def preferred(
    device: str, chosen: np.ndarray, rejected: np.ndarray,
    reference_chosen: np.ndarray, reference_rejected: np.ndarray, beta: float,
) -> dict[str, Any]:  # fmt: skip
    """`dpo_loss`, with gradients for all that could get one."""
    from minitorch.alignment import dpo_loss

    every = (chosen, rejected, reference_chosen, reference_rejected)
    a, b, c, d = (tensor(device, x, requires_grad=True) for x in every)
    loss = dpo_loss(a, b, c, d, beta)
    return _learnt(loss, chosen=a, rejected=b, reference_chosen=c, reference_rejected=d)


def advantages(
    device: str, rewards: np.ndarray, normalize: bool, eps: float
) -> dict[str, Any]:
    """`group_advantages`"""
    from minitorch.alignment import group_advantages

    a = tensor(device, rewards)
    return {"out": read(group_advantages(a, normalize, eps)), "rewards": read(a)}


def policy(
    device: str, log_probs: np.ndarray, old: np.ndarray, advantages: np.ndarray,
    mask: np.ndarray, reference: np.ndarray | None, clip: float, beta: float,
    length: int | None,
) -> dict[str, Any]:  # fmt: skip
    """`policy_loss`, with gradients for all that could get one."""
    from minitorch.alignment import policy_loss

    leaves = {"log_probs": log_probs, "old": old, "advantages": advantages}
    if reference is not None:
        leaves["reference"] = reference
    a = {n: tensor(device, x, requires_grad=True) for n, x in leaves.items()}
    loss = policy_loss(
        a["log_probs"], a["old"], a["advantages"], tensor(device, mask), clip=clip,
        reference_log_probs=a.get("reference"), beta=beta, length=length,
    )  # fmt: skip
    return _learnt(loss, **a)


# --------------------------------------------------------------------------- training


def stepped(
    device: str, kind: str, seed: int, prompts: Lists, answers: Lists,
    rewards: np.ndarray, old: np.ndarray, epochs: int, beta: float, lr: float,
) -> dict[str, Any]:  # fmt: skip
    """The parameters after one `step`, with answers that are given."""
    from assignments.a14_alignment import sums
    from minitorch import optim
    from minitorch.alignment import Rollouts, side_by_side

    model = model_of(device, kind, 1, seed)
    reference = model_of(device, kind, 1, seed + 1) if beta else None
    ids, mask = side_by_side(
        [list(p) for p in prompts for _ in range(rewards.shape[1])],
        [list(a) for a in answers], device,
    )  # fmt: skip
    kept = tensor(device, old).masked_fill(~mask, 0.0)
    wrote = Rollouts(
        [list(a) for a in answers], ids, mask, tensor(device, rewards), kept
    )
    library, asked = sums.rollouts, []

    def given(*args: Any, **more: Any) -> Any:
        asked.append(1)
        return wrote

    sums.rollouts = given
    try:
        optimizer = optim.SGD(model.parameters(), lr=lr)
        mean = sums.step(
            model, optimizer, prompts, lambda p, a: 0.0, rewards.shape[1], epochs,
            reference, beta,
        )  # fmt: skip
    finally:
        sums.rollouts = library
    after = {n: read(p).reshape(-1) for n, p in sorted(model.named_parameters())}
    other = [] if reference is None else list(reference.parameters())
    return {
        "mean reward": float(mean),
        "answers written once": len(asked) == 1,
        "nothing for the reference": all(p.grad is None for p in other),
        **after,
    }


def even(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The share of an answer that is even digits: a reward to try with."""
    right = sum(token < 10 and token % 2 == 0 for token in answer)
    return right / max(1, len(answer))


def rising(device: str, seed: int, steps: int) -> dict[str, Any]:
    """Train a new model by `step`: its rewards, and what it answers then.

    By SGD: AdamW, which makes long steps of short gradients, ended with 0.6 for one
    seed in a hundred.
    """
    import minitorch
    from assignments.a14_alignment import sums
    from minitorch import optim
    from minitorch.models import GPT, GPTConfig

    minitorch.manual_seed(seed)
    sizes: Any = {"n_layer": 1, "n_head": 2, "n_embd": 16}
    model = GPT(GPTConfig(len(sums.SIGNS), 8, **sizes)).to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    prompts = [[digit, sums.SIGNS.index("=")] for digit in range(5)]
    rewards = [
        float(sums.step(model, optimizer, prompts, even, 16)) for _ in range(steps)
    ]
    answers = model.generate(prompts * 16, 4, stop=sums.STOP)
    return {"rewards": rewards, "answers": answers}
