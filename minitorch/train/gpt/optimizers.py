"""What takes the steps of a GPT: an optimizer by its name, or two as one.

With this file one can make the optimizer that a `GPTTrainConfig` names
(`make_optimizer`). All of them shrink matrices alone: a bias, or the scale of a norm,
is no weight of an input that could be worth less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from minitorch import optim
from minitorch.autodiff import enable_grad
from minitorch.models import GPT
from minitorch.train.gpt.config import GPTTrainConfig


class Together(optim.Optimizer):
    """Optimizers of different parameters, as one: their groups one after the other."""

    def __init__(self, *parts: optim.Optimizer) -> None:
        self.parts = parts
        self.defaults, self.state, self.steps_taken = {}, defaultdict(dict), 0
        self.param_groups = [g for part in parts for g in part.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        self.steps_taken += 1
        return loss

    def state_dict(self) -> dict[str, Any]:
        """{"parts": what each of them has to say}"""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for part, state in zip(self.parts, state_dict["parts"]):
            part.load_state_dict(state)
        self.param_groups = [g for part in self.parts for g in part.param_groups]


def make_optimizer(model: GPT, config: GPTTrainConfig) -> optim.Optimizer:
    """The optimizer that `config.optimizer` names."""
    assert config.lr is not None and config.beta2 is not None
    assert config.weight_decay is not None and config.warm_up is not None
    lr, decay, betas = config.lr, config.weight_decay, (0.9, config.beta2)
    named = dict(model.named_parameters())
    inner = [p for n, p in named.items() if n.startswith("h.") and p.dim() >= 2]
    outer = [p for n, p in named.items() if not n.startswith("h.") and p.dim() >= 2]
    vectors = {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0}
    if config.optimizer == "muon":
        # With this adjustment its steps are as long as AdamW's, which has the same lr.
        muon = optim.Muon(inner, lr, decay, adjust_lr_fn="match_rms_adamw")
        tables = {"params": outer, "weight_decay": decay}
        return Together(muon, optim.AdamW([tables, vectors], lr, betas))
    groups = [{"params": outer + inner, "weight_decay": decay}, vectors]
    if config.optimizer == "lion":
        return optim.Lion(groups, lr)
    if config.optimizer == "lamb":
        return optim.LAMB(groups, lr, betas)
    if config.optimizer == "schedule-free":
        free = optim.AdamWScheduleFree
        return free(groups, lr, betas, warmup_steps=config.warm_up)
    return optim.AdamW(groups, lr, betas)
