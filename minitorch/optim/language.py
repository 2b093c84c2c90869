"""Optimizers of language models: Lion, LAMB and Muon.

With this file one can train with `Lion` (the sign of a momentum: one state a number),
`LAMB` (Adam, with a step for each tensor that is as long as its weights say, for large
batches) and `Muon` (a momentum whose singular values are all made about 1, for
matrices). Their rules are written with tensor operations, so they read as in the papers
and run on every device; nothing waits for a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from minitorch.creation import ones_like
from minitorch.functions.choice import where
from minitorch.functions.comparison import logical_and
from minitorch.optim.optimizer import (
    Group,
    Optimizer,
    gradient,
    whole_with_grad,
    with_grad,
)
from minitorch.tensor import Tensor


class Lion(Optimizer):
    """p -= lr * sign(beta1 * m + (1 - beta1) * g), then m moves toward g by 1 - beta2.

    Every number takes a step of the same length, so lr should be three to ten times
    smaller than AdamW's, and weight_decay as much larger.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: the share of m in the step, and how much of m remains.
        weight_decay: p first shrinks by lr * weight_decay * p.
        maximize: go up instead.

    Source: Chen and others, "Symbolic discovery of optimization algorithms", 2023.
    """

    _numbers = ("lr", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": maximize})

    def update(self, group: Group) -> None:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        for p in with_grad(group):
            g, m = gradient(p, group["maximize"]), self.started(p, "exp_avg")["exp_avg"]
            _decay(p, lr * group["weight_decay"])
            p.sub_((m * beta1).add_(g, alpha=1 - beta1).sign(), alpha=lr)
            m.mul_(beta2).add_(g, alpha=1 - beta2)


class LAMB(Optimizer):
    """u = m_hat / (sqrt(v_hat) + eps) + weight_decay * p; p -= lr * |p| / |u| * u

    m_hat and v_hat are Adam's, |x| is the norm of a whole tensor. Where one of the two
    norms is 0, the step is lr * u.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: how much of the last running means of g and g^2 remains.
        eps: keeps the division finite.
        weight_decay: the share of p in u.
        maximize: go up instead.

    Source: You and others, "Large batch optimization for deep learning: training BERT
    in 76 minutes", 2020.
    """

    _numbers = ("lr", "eps", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": maximize})

    def update(self, group: Group) -> None:
        beta1, beta2 = group["betas"]
        for p in whole_with_grad("LAMB", group):
            state = self.started(p, "exp_avg", "exp_avg_sq")
            state["step"] = state.get("step", 0) + 1
            g = gradient(p, group["maximize"])
            m, v = state["exp_avg"], state["exp_avg_sq"]
            m.mul_(beta1).add_(g, alpha=1 - beta1)
            v.mul_(beta2).add_(g * g, alpha=1 - beta2)
            fix1, fix2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
            u = (m * (1 / fix1)) / ((v * (1 / fix2)).sqrt() + group["eps"])
            if group["weight_decay"]:
                u = u.add_(p, alpha=group["weight_decay"])
            p.sub_(u * _trust(p.norm(), u.norm()), alpha=group["lr"])


def _trust(weights: Tensor, step: Tensor) -> Tensor:
    """|p| / |u|, and 1 where one of them is 0; on the device."""
    both = logical_and(weights > 0, step > 0)
    return where(both, weights / step, ones_like(weights))


# Of the polynomial a x + b x^3 + c x^5, which takes singular values toward 1: chosen
# for a steep slope at 0, so that small ones get there in five steps.
COEFFICIENTS = (3.4445, -4.775, 2.0315)
ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """b = momentum * b + (1 - momentum) * g; p -= lr * U V^T, where b = U S V^T

    U V^T, the orthogonal matrix nearest to b, is approached by Newton and Schulz'
    iteration, which needs products of matrices alone. For the matrices of hidden
    layers; embeddings, heads, biases and norms belong to another optimizer (AdamW).

    Args:
        params: matrices, or groups of them.
        lr: the learning rate.
        weight_decay: p first shrinks by lr * weight_decay * p.
        momentum: how much of the last b remains.
        nesterov: look ahead, momentum * b + (1 - momentum) * g instead of b.
        ns_coefficients: of the iteration's polynomial.
        eps: the least norm to divide by.
        ns_steps: how many steps of the iteration.
        adjust_lr_fn: what lr is multiplied by, for a matrix [A, B]: None and "original"
            sqrt(max(1, A / B)), "match_rms_adamw" 0.2 * sqrt(max(A, B)), with which
            AdamW's learning rates can be used.

    Raises:
        ValueError: a parameter is no matrix.

    Source: Jordan and others, "Muon: an optimizer for hidden layers in neural
    networks", 2024; the adjustment: Liu and others, "Muon is scalable for LLM
    training", 2025.
    """

    _numbers = ("lr", "weight_decay", "momentum", "eps", "ns_steps")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        super().check(group)
        if len(group["ns_coefficients"]) != 3:
            given = group["ns_coefficients"]
            raise ValueError(f"Muon: ns_coefficients is {given!r}; expected three")
        if group["adjust_lr_fn"] not in ADJUSTMENTS:
            raise ValueError(
                f"Muon: adjust_lr_fn is {group['adjust_lr_fn']!r}; expected one of "
                f"{', '.join(map(repr, ADJUSTMENTS))}"
            )
        for p in group["params"]:
            if isinstance(p, Tensor) and p.dim() != 2:
                raise ValueError(
                    f"Muon: a parameter is {p.raw.shape}; only matrices (2 dims) can "
                    f"be made orthogonal: give the others to AdamW"
                )

    def update(self, group: Group) -> None:
        lr, momentum = group["lr"], group["momentum"]
        for p in whole_with_grad("Muon", group):
            g, b = gradient(p), self.started(p, "momentum_buffer")["momentum_buffer"]
            b.mul_(momentum).add_(g, alpha=1 - momentum)
            ahead = (b * momentum).add_(g, alpha=1 - momentum)
            step = orthogonal(ahead if group["nesterov"] else b, group)
            _decay(p, lr * group["weight_decay"])
            p.sub_(step, alpha=lr * _adjustment(p, group["adjust_lr_fn"]))


def orthogonal(a: Tensor, group: Group) -> Tensor:
    """Nearly U V^T of a = U S V^T [A, B]: its singular values become 0.7 to 1.2.

    One step replaces each singular value s of x by a s + b s^3 + c s^5; with the Gram
    matrix G = x x^T that is a x + (b G + c G G) x. The first division brings all s to
    at most 1. G is made on the shorter side.
    """
    c1, c3, c5 = group["ns_coefficients"]
    tall = a.raw.shape[0] > a.raw.shape[1]
    x = a.t() if tall else a
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.t()
        x = x * c1 + (gram * c3 + (gram @ gram) * c5) @ x
    return x.t() if tall else x


def _adjustment(p: Tensor, name: str | None) -> float:
    """What the learning rate is multiplied by for a matrix of this shape."""
    rows, columns = p.raw.shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


def _decay(p: Tensor, share: float) -> None:
    """p -= share * p"""
    if share:
        p.mul_(1 - share)
