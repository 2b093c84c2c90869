"""Schedules: learning rates that change during training.

With this file one can lower the learning rate in steps (`StepLR`, `MultiStepLR`),
smoothly (`ExponentialLR`, `CosineAnnealingLR`), warm it up (`LinearLR`), follow any
function (`LambdaLR`) or one cycle (`OneCycleLR`), put schedules one after the other
(`SequentialLR`), and lower it when training gets no further (`ReduceLROnPlateau`).
Call `scheduler.step()` after `optimizer.step()`.

Each schedule gives the next rate from the present one, as in PyTorch, so that several
may act on one optimizer and a rate that was set by hand is respected.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minitorch import absent
from minitorch.optim.optimizer import Group, Optimizer
from minitorch.warn import warn


class LRScheduler:
    """What all schedules share; subclasses define `next_lr`.

    Attributes:
        optimizer: whose "lr" it sets, in each group.
        last_epoch: how many steps were taken.
        base_lrs: the rate that each group began with.
    """

    _goes_on = False  # given a last_epoch, it takes the optimizer's rates as they are

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{name}: got a {type(optimizer).__name__}; expected an optimizer"
            )
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"{name}: to go on from last_epoch={last_epoch}, every group of "
                    f"the optimizer needs its 'initial_lr'"
                )
        self.optimizer = optimizer
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._steps_before = optimizer.steps_taken
        self._last_lr: list[float] = []
        if last_epoch != -1 and self._goes_on:
            self.last_epoch += 1
            self._set([group["lr"] for group in optimizer.param_groups])
        else:
            self._advance()

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        """The rate of group `index` at step `last_epoch`, from the one before."""
        raise NotImplementedError(
            f"{type(self).__name__}: has no next_lr(self, lr, group, index)"
        )

    def first_lr(self, base_lr: float, index: int) -> float:
        """The rate of group number `index` at step 0, when it starts in a sequence."""
        return base_lr

    def get_lr(self) -> list[float]:
        """The rates of all groups for this step."""
        return [
            self.next_lr(group["lr"], group, i)
            for i, group in enumerate(self.optimizer.param_groups)
        ]

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return list(self._last_lr)

    def step(self) -> None:
        """Set the rates for the next step or epoch."""
        if self.last_epoch == 0 and self.optimizer.steps_taken == self._steps_before:
            warn(
                f"{type(self).__name__}: scheduler.step() comes before the first "
                f"optimizer.step(), so the first rate is never used; swap the two"
            )
        self._advance()

    def _advance(self) -> None:
        self.last_epoch += 1
        self._set(self.get_lr())

    def restart(self) -> None:
        """Begin again at step 0, from the base rates."""
        self.last_epoch = 0
        self._set([self.first_lr(lr, i) for i, lr in enumerate(self.base_lrs)])

    def _set(self, rates: Sequence[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates):
            group["lr"] = lr
        self._last_lr = list(rates)

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on from here."""
        return {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("optimizer", "_steps_before")
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict()` returned; the optimizer's is loaded apart."""
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """base_lr * lr_lambda(step), with one function for all groups or one for each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(lambdas) != count:
            raise ValueError(
                f"LambdaLR: got {len(lambdas)} functions for {count} parameter groups"
            )
        self.lr_lambdas = lambdas
        super().__init__(optimizer, last_epoch)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        return self.base_lrs[index] * self.lr_lambdas[index](self.last_epoch)

    def first_lr(self, base_lr: float, index: int) -> float:
        return base_lr * self.lr_lambdas[index](0)

    def state_dict(self) -> dict[str, Any]:
        """As for all schedules, but without the functions."""
        state = super().state_dict()
        del state["lr_lambdas"]
        return state


class StepLR(LRScheduler):
    """The rate times gamma after every step_size steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return lr
        return lr * self.gamma


class MultiStepLR(LRScheduler):
    """The rate times gamma at each of the given steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        return lr * self.gamma ** self.milestones.count(self.last_epoch)


class ExponentialLR(LRScheduler):
    """The rate times gamma at each step."""

    _goes_on = True

    def __init__(
        self, optimizer: Optimizer, gamma: float, last_epoch: int = -1
    ) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        return lr if self.last_epoch == 0 else lr * self.gamma


class LinearLR(LRScheduler):
    """The rate from start_factor to end_factor times base_lr in total_iters steps.

    For warming up: start_factor below 1, end_factor 1.
    """

    _goes_on = True

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            raise ValueError(
                f"LinearLR: start_factor is {start_factor} and end_factor "
                f"{end_factor}; the first must be in (0, 1], the second in [0, 1]"
            )
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float:
        slope = (self.end_factor - self.start_factor) / self.total_iters
        return self.start_factor + slope * step

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self.last_epoch > self.total_iters:
            return lr
        return lr * self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)

    def first_lr(self, base_lr: float, index: int) -> float:
        return base_lr * self.start_factor


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base_lr - eta_min) (1 + cos(pi step / T_max)) / 2

    After T_max steps the rate rises again in the same way.

    Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm
    restarts", 2017 (without the restarts).
    """

    _goes_on = True

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, step: int) -> float:
        return 1.0 + math.cos(math.pi * step / self.T_max)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        if self.last_epoch == 0:
            return lr
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            span = self.base_lrs[index] - self.eta_min  # the height before was 0
            return lr + span * (1.0 - math.cos(math.pi / self.T_max)) / 2.0
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return ratio * (lr - self.eta_min) + self.eta_min


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to initial / final_div_factor.

    Args:
        max_lr: the peak of every group.
        total_steps: the length of the cycle, one step for each batch; or give
            epochs and steps_per_epoch, whose product it is.
        pct_start: the share of the steps that go up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: must be given as False; momentum stays as it is here.

    Source: Smith and Topin, "Super-convergence: very fast training of neural networks
    using large learning rates", 2018.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        *,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ) -> None:
        if cycle_momentum:
            raise ValueError(
                "OneCycleLR: cycle_momentum=True is not offered; pass "
                "cycle_momentum=False"
            )
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "OneCycleLR: give total_steps, or epochs and steps_per_epoch"
                )
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"OneCycleLR: anneal_strategy is {anneal_strategy!r}; expected "
                f'"cos" or "linear"'
            )
        if not isinstance(max_lr, (int, float)):
            raise TypeError(
                f"OneCycleLR: max_lr is {max_lr!r}; expected one number, for all groups"
            )
        self.max_lr, self.total_steps = max_lr, total_steps
        self.peak = float(pct_start * total_steps) - 1
        self.anneal_strategy = anneal_strategy
        self.start_lr = max_lr / div_factor
        self.end_lr = self.start_lr / final_div_factor
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group["initial_lr"] = self.start_lr
        super().__init__(optimizer, last_epoch)

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"OneCycleLR: step {step} is after the last of {self.total_steps}"
            )
        if step <= self.peak:
            share = step / self.peak if self.peak else 1.0
            return self._between(self.start_lr, self.max_lr, share)
        share = (step - self.peak) / (self.total_steps - 1 - self.peak)
        return self._between(self.max_lr, self.end_lr, share)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * share))

    def first_lr(self, base_lr: float, index: int) -> float:
        return self.start_lr


class SequentialLR(LRScheduler):
    """One schedule after the other; number i + 1 begins at step milestones[i].

    `SequentialLR(opt, [LinearLR(opt), CosineAnnealingLR(opt, 95)], milestones=[5])`
    warms up for five steps and then cools down.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedules need "
                f"{len(schedulers) - 1} milestones; got {len(milestones)}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("SequentialLR: a schedule belongs to another optimizer")
        if any(isinstance(scheduler, ReduceLROnPlateau) for scheduler in schedulers):
            raise ValueError("SequentialLR: nobody gives ReduceLROnPlateau its numbers")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for group in optimizer.param_groups:  # each schedule has set its own first rate
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def _advance(self) -> None:
        self.last_epoch += 1
        number = bisect_right(self.milestones, self.last_epoch)
        active = self.schedulers[number]
        if self.last_epoch == 0 or self.last_epoch in self.milestones:
            active.restart()
        else:
            active._advance()
        self._last_lr = active.get_last_lr()

    def restart(self) -> None:
        """Begin again with the first schedule."""
        self.last_epoch = -1
        self._advance()

    def state_dict(self) -> dict[str, Any]:
        """As for all schedules, with the states of those in the sequence."""
        state = super().state_dict()
        state["schedulers"] = [s.state_dict() for s in self.schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict()` returned."""
        inner = state_dict["schedulers"]
        if len(inner) != len(self.schedulers):
            raise ValueError(
                f"SequentialLR.load_state_dict: the state has {len(inner)} schedules; "
                f"this has {len(self.schedulers)}"
            )
        rest = {key: value for key, value in state_dict.items() if key != "schedulers"}
        super().load_state_dict(rest)
        for scheduler, state in zip(self.schedulers, inner):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when a number has not become better for a while.

    `scheduler.step(loss)` comes after each epoch's validation.

    Args:
        mode: "min": lower is better; or "max".
        factor: below 1.
        patience: so many epochs without a better number are allowed.
        threshold: better is what differs from the best number by this share of it, or
            with the threshold_mode "abs" by the threshold itself.
        cooldown: so many epochs after a change do not count.
        min_lr: the lowest rate, of all groups or a list with one for each.
        eps: smaller changes are left out.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(optimizer)
        count = len(self.base_lrs)
        self.min_lrs = (
            list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * count
        )
        if factor >= 1 or len(self.min_lrs) != count:
            raise ValueError(
                f"ReduceLROnPlateau: factor is {factor} and min_lr {min_lr}; expected "
                f"a factor below 1, and one rate or {count}, one for each group"
            )
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: mode is {mode!r} and threshold_mode "
                f'{threshold_mode!r}; expected "min" or "max", and "rel" or "abs"'
            )
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0

    def next_lr(self, lr: float, group: Group, index: int) -> float:
        if self.last_epoch == 0 or self.num_bad_epochs <= self.patience:
            return lr
        # A group that has joined since then has the last one's.
        least = self.min_lrs[min(index, len(self.min_lrs) - 1)]
        new = max(lr * self.factor, least)
        return new if lr - new > self.eps else lr

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Take note of an epoch's number, and set the rates for the next one."""
        current, sign = float(metrics), 1.0 if self.mode == "max" else -1.0
        more, best = sign * self.threshold, self.best
        limit = best + more if self.threshold_mode == "abs" else best * (1.0 + more)
        self.num_bad_epochs += 1
        if sign * current > sign * limit:
            self.best, self.num_bad_epochs = current, 0
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        self._advance()
        if self.num_bad_epochs > self.patience:
            self.num_bad_epochs, self.cooldown_counter = 0, self.cooldown


__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


if not TYPE_CHECKING:  # for which a name that is not there stays an error
    __getattr__ = absent.explain(__name__)
