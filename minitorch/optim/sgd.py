"""Stochastic gradient descent.

With this file one can train with `SGD`: plain, with momentum or Nesterov's momentum.
The arithmetic is the backend's `sgd_step`, one pass over the memory of each parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minitorch.optim.optimizer import (
    Group,
    Optimizer,
    check_fused,
    in_order,
    is_coming,
    raw_gradients,
    refuse,
    touch,
    with_grad,
)
from minitorch.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * g, or with momentum: v = momentum * v + g, p -= lr * v

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: how much of the last velocity remains.
        dampening: the share of the gradient that does not enter the velocity.
        weight_decay: adds weight_decay * p to the gradient.
        nesterov: look ahead, p -= lr * (g + momentum * v).
        maximize: go up instead.
        foreach, fused: how PyTorch computes the step; here it is always fused, for all
            parameters together.

    Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
    and momentum in deep learning", 2013.
    """

    _numbers = ("lr", "momentum", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse("SGD", differentiable=differentiable)
        check_fused("SGD", foreach, fused)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError(
                f"SGD: nesterov=True needs a momentum above 0 and no dampening; they "
                f"are {group['momentum']} and {group['dampening']}"
            )

    def update(self, group: Group) -> None:
        kinds: dict[Any, list[Tensor]] = {}
        for p in with_grad(group):
            first = group["momentum"] != 0 and self._start(p)
            storage = p.raw.storage
            kind = storage.device, storage.dtype, first, is_coming(p)
            kinds.setdefault(kind, []).append(p)
        for (_, _, first, _), params in in_order(kinds):
            self._step_together(params, group, first)

    def _start(self, p: Tensor) -> bool:
        """Make a velocity for p if it has none; whether that was so."""
        if self.state[p].get("momentum_buffer") is not None:
            return False
        self.state[p]["momentum_buffer"] = p.new_zeros(p.raw.shape)
        return True

    def _step_together(self, params: list[Tensor], group: Group, first: bool) -> None:
        buffers = None
        if group["momentum"] != 0:
            buffers = [self.state[p]["momentum_buffer"].raw for p in params]
        params[0].backend.sgd_step(
            [p.raw for p in params],
            raw_gradients(params, group["maximize"]),
            buffers,
            group["lr"],
            group["momentum"],
            group["dampening"],
            group["weight_decay"],
            group["nesterov"],
            first,
        )
        touch(params)
