"""Optimizers made of tensor operations.

With this file one can train with `RMSprop`, `Adagrad`, `Adadelta` and
`AdamWScheduleFree`. Their rules are written with in-place tensor operations, so they
read as in the papers and run on every device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.optim.optimizer import (
    Group,
    Optimizer,
    gradient,
    refuse,
    with_grad,
)


def _decayed(p: Any, group: Group) -> Any:
    """The gradient to go down by, with what weight decay adds to it."""
    g = gradient(p, group["maximize"])
    return g + group["weight_decay"] * p if group["weight_decay"] else g


class RMSprop(Optimizer):
    """v: running mean of g^2; p -= lr * g / (sqrt(v) + eps)

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        alpha: how much of the last running mean remains.
        eps: keeps the division finite.
        weight_decay: adds weight_decay * p to the gradient.
        momentum: how much of the last step remains.
        centered: divide by the standard deviation of g instead.
        maximize: go up instead.

    Source: Tieleman and Hinton, "Lecture 6.5: RMSProp", 2012; centered: Graves,
    "Generating sequences with recurrent neural networks", 2013.
    """

    _numbers = ("lr", "alpha", "eps", "weight_decay", "momentum")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(
            "RMSprop",
            capturable=capturable,
            foreach=foreach,
            differentiable=differentiable,
        )
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def update(self, group: Group) -> None:
        alpha, momentum = group["alpha"], group["momentum"]
        names = ["square_avg"] + ["momentum_buffer"] * (momentum > 0)
        names += ["grad_avg"] * group["centered"]
        for p in with_grad(group):
            state = self.started(p, *names)
            state["step"] = state.get("step", 0) + 1
            g = _decayed(p, group)
            mean_square = state["square_avg"]
            mean_square.mul_(alpha).add_(g * g, alpha=1 - alpha)
            variance = mean_square
            if group["centered"]:
                mean = state["grad_avg"]
                mean.mul_(alpha).add_(g, alpha=1 - alpha)
                variance = mean_square - mean * mean
            step = g / (variance.sqrt() + group["eps"])
            if momentum > 0:
                step = state["momentum_buffer"].mul_(momentum).add_(step)
            p.sub_(step, alpha=group["lr"])


class Adagrad(Optimizer):
    """s: sum of all g^2; p -= lr / (1 + (step - 1) lr_decay) * g / (sqrt(s) + eps)

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        lr_decay: how fast the rate falls.
        weight_decay: adds weight_decay * p to the gradient.
        initial_accumulator_value: what s starts with.
        eps: keeps the division finite.
        maximize: go up instead.

    Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning
    and stochastic optimization", 2011.
    """

    _numbers = ("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse("Adagrad", foreach=foreach, differentiable=differentiable, fused=fused)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def update(self, group: Group) -> None:
        for p in with_grad(group):
            state = self.state[p]
            if not state:
                start = group["initial_accumulator_value"]
                state["step"], state["sum"] = 0, p.new_full(p.raw.shape, start)
            state["step"] += 1
            g = _decayed(p, group)
            lr = group["lr"] / (1.0 + (state["step"] - 1) * group["lr_decay"])
            total = state["sum"].add_(g * g)
            p.sub_(g / (total.sqrt() + group["eps"]), alpha=lr)


class Adadelta(Optimizer):
    """v, u: running means of g^2 and of the steps' squares;
    p -= lr * g * sqrt(u + eps) / sqrt(v + eps)

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        rho: how much of the last running means remains.
        eps: keeps the division finite, and the first steps above 0.
        weight_decay: adds weight_decay * p to the gradient.
        maximize: go up instead.

    Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
    """

    _numbers = ("lr", "rho", "eps", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(
            "Adadelta",
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def update(self, group: Group) -> None:
        rho, eps = group["rho"], group["eps"]
        for p in with_grad(group):
            state = self.started(p, "square_avg", "acc_delta")
            state["step"] = state.get("step", 0) + 1
            g = _decayed(p, group)
            v = state["square_avg"].mul_(rho).add_(g * g, alpha=1 - rho)
            u = state["acc_delta"]
            step = g * ((u + eps).sqrt() / (v + eps).sqrt())
            u.mul_(rho).add_(step * step, alpha=1 - rho)
            p.sub_(step, alpha=group["lr"])


class AdamWScheduleFree(Optimizer):
    """AdamW whose weights are averaged, so that no learning-rate schedule is needed.

    z takes the steps of AdamW, x is an average of all z, and gradients are wanted at
    y = (1 - beta1) z + beta1 x. While training, a parameter holds y; `eval()` lets it
    hold x, which is better, and `train()` brings y back. Call them together with the
    model's `train()` and `eval()`.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate after the warm-up.
        betas: the share of x in y, and how much of the mean of g^2 remains.
        eps: keeps the division finite.
        weight_decay: decay of y, as in AdamW.
        warmup_steps: the rate rises linearly during so many steps.
        r: later z weigh (step ** r) more in the average.
        weight_lr_power: z weigh (largest lr so far) ** weight_lr_power.

    Source: Defazio, Yang, Mehta, Mishchenko, Khaled and Cutkosky, "The road less
    scheduled", 2024.
    """

    _numbers = ("lr", "eps", "weight_decay", "warmup_steps")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.0025,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        foreach: bool | None = None,
    ) -> None:
        refuse("AdamWScheduleFree", foreach=foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "warmup_steps": warmup_steps,
            "r": r,
            "weight_lr_power": weight_lr_power,
            "k": 0,
            "weight_sum": 0.0,
            "lr_max": 0.0,
            "train_mode": True,
        }
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        super().check(group)
        if group["betas"][0] == 0:
            raise ValueError("AdamWScheduleFree: the first beta must be above 0")

    @no_grad()
    def train(self) -> None:
        """Let the parameters hold y, for training."""
        self._switch(True)

    @no_grad()
    def eval(self) -> None:
        """Let the parameters hold the average x, for evaluation."""
        self._switch(False)

    def _switch(self, training: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] == training:
                continue
            beta = group["betas"][0]
            for p in group["params"]:
                if "z" in self.state[p]:  # p - z shrinks by beta from x to y
                    z = self.state[p]["z"]
                    p.copy_(z + (p - z) * (beta if training else 1.0 / beta))
            group["train_mode"] = training

    def update(self, group: Group) -> None:
        if not group["train_mode"]:
            raise RuntimeError(
                "AdamWScheduleFree: step() after eval(); call optimizer.train() before "
                "training goes on"
            )
        lr, share = self._next_step(group)
        beta1, beta2 = group["betas"]
        correction = 1.0 - beta2 ** group["k"]
        for p in with_grad(group):
            state = self.state[p]
            if not state:
                state["z"] = p.detach().clone()
                state["exp_avg_sq"] = p.new_zeros(p.raw.shape)
            g, z, v = gradient(p), state["z"], state["exp_avg_sq"]
            v.mul_(beta2).add_(g * g, alpha=1.0 - beta2)
            step = g / ((v * (1.0 / correction)).sqrt() + group["eps"])
            if group["weight_decay"]:
                step = step + group["weight_decay"] * p
            x = z + (p - z) * (1.0 / beta1)
            z.sub_(step, alpha=lr)
            x.add_(z - x, alpha=share)
            p.copy_(z + (x - z) * beta1)

    def _next_step(self, group: Group) -> tuple[float, float]:
        """This step's learning rate, and the share of its z in the average x."""
        group["k"] += 1
        warm = min(1.0, group["k"] / max(group["warmup_steps"], 1))
        lr = group["lr"] * warm
        group["lr_max"] = max(lr, group["lr_max"])
        weight = group["k"] ** group["r"] * group["lr_max"] ** group["weight_lr_power"]
        group["weight_sum"] += weight
        return lr, weight / group["weight_sum"] if group["weight_sum"] else 0.0
