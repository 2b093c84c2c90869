"""Adam and AdamW.

With this file one can train with steps whose size adapts to each parameter. The
arithmetic is the backend's `adam_step`, one pass over the memory of each parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minitorch.optim.optimizer import (
    Group,
    Optimizer,
    check_fused,
    factor_of,
    in_order,
    is_coming,
    refuse,
    scaled_gradients,
    touch,
    with_grad,
)
from minitorch.tensor import Tensor


class Adam(Optimizer):
    """m and v: running means of g and of g^2; p -= lr * m_hat / (sqrt(v_hat) + eps)

    m_hat = m / (1 - beta1^step) and v_hat = v / (1 - beta2^step) undo the start at 0.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        betas: how much of the last running means remains.
        eps: keeps the division finite.
        weight_decay: adds weight_decay * p to the gradient.
        maximize: go up instead.
        foreach, fused: how PyTorch computes the step; here it is always fused, for all
            parameters together.
        decoupled_weight_decay: decay as in `AdamW`.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015.
    """

    _numbers = ("lr", "eps", "weight_decay")

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        refuse(
            type(self).__name__,
            amsgrad=amsgrad,
            capturable=capturable,
            differentiable=differentiable,
        )
        check_fused(type(self).__name__, foreach, fused)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def update(self, group: Group) -> None:
        kinds: dict[Any, tuple[list[Tensor], list[dict[str, Any]]]] = {}
        for p in with_grad(group):
            state = self.started(p, "exp_avg", "exp_avg_sq")
            state["step"] = state.get("step", 0) + 1
            storage = p.raw.storage
            alike = storage.device, storage.dtype, state["step"], id(factor_of(p))
            kind = *alike, is_coming(p)
            params, states = kinds.setdefault(kind, ([], []))
            params.append(p)
            states.append(state)
        for (_, _, step, *_), (params, states) in in_order(kinds):
            self._step_together(params, states, group, step)

    def _step_together(
        self, params: list[Tensor], states: list[dict[str, Any]], group: Group,
        step: int,
    ) -> None:  # fmt: skip
        beta1, beta2 = group["betas"]
        grads, scale = scaled_gradients(params, group["maximize"])
        params[0].backend.adam_step(
            [p.raw for p in params],
            grads,
            [state["exp_avg"].raw for state in states],
            [state["exp_avg_sq"].raw for state in states],
            step,
            group["lr"],
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["decoupled_weight_decay"],
            scale,
        )
        touch(params)


class AdamW(Adam):
    """Adam whose weight decay shrinks p itself, p -= lr * weight_decay * p

    The arguments are those of Adam, and the default of weight_decay is 0.01.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
