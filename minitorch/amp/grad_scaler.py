"""Losses made larger, so that small gradients are not lost in float16.

With this file float16 can train: its smallest number is 6e-8, and many gradients are
below. A `GradScaler` multiplies the loss, and so all gradients, and divides them again
before the step, in float32. The factor finds itself: too large, and some gradient is
infinite; then the step is skipped and the factor halved. After 2,000 steps without, it
is doubled.

        scale ^      ____          ____
              |  ___|    |____..._|    |__       up: growth_interval good steps
              | |              down: a step that is skipped
              +------------------------------> steps

Source: Micikevicius et al., "Mixed precision training", 2018, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minitorch.amp.autocast import usable
from minitorch.autodiff import no_grad
from minitorch.dtypes import float16, float32, rounded
from minitorch.executor import advance
from minitorch.functions.movement import stack
from minitorch.nn.utils import anywhere
from minitorch.tensor import Tensor

if TYPE_CHECKING:
    from minitorch.optim import Optimizer

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


def _float32(number: float) -> float:
    """The nearest float32: PyTorch keeps the factor in a tensor."""
    return float(rounded(number, float32))


def _all(flags: list[Tensor]) -> bool:
    """Whether all are true, which waits for their device once."""
    if len({flag.device for flag in flags}) > 1:
        return all(map(bool, flags))
    return bool(stack(flags).all())


class GradScaler:
    """Scale losses, unscale gradients, skip steps whose gradients are not finite.

    Args:
        device: the kind of device, "cuda" by default; without a GPU it does nothing.
        init_scale: the first factor.
        growth_factor: what the factor is multiplied by when all goes well, above 1.
        backoff_factor: what it is multiplied by after a skipped step, below 1.
        growth_interval: so many steps in a row must go well for that.
        enabled: False: `scale` returns what it is given, `step` just steps.

    Raises:
        ValueError: a growth factor of at most 1, or a backoff factor of at least 1.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._enabled = bool(enabled) and usable("GradScaler", device)
        if growth_factor <= 1.0 or backoff_factor >= 1.0:
            raise ValueError(
                f"GradScaler: growth_factor is {growth_factor} and backoff_factor "
                f"{backoff_factor}; the first must be above 1, the second below"
            )
        self._scale = _float32(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0  # good steps since the last change
        self._started = False  # whether anything was scaled
        # For each optimizer by its id: how far it is, and whether a gradient of it is
        # not finite.
        self._stages: dict[int, tuple[str, bool]] = {}

    def scale(self, outputs: Any) -> Any:
        """A loss, or several in lists or tuples, times the factor, in float32."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            self._started = True
            # BEGIN SOLUTION a11.5
            return outputs * outputs.new_tensor(self._scale, dtype=float32)
            # END SOLUTION a11.5
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(output) for output in outputs])
        raise ValueError(
            f"GradScaler.scale: got a {type(outputs).__name__}; expected a tensor, or "
            f"a list or tuple of tensors"
        )

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the factor, in place.

        `step` does it otherwise; before clipping it has to be asked for.

        Raises:
            RuntimeError: it was done since the last `update()`.
            ValueError: a gradient is float16; only weights in float32 can be trained.
        """
        if not self._enabled:
            return
        self._check_started("unscale_")
        stage, _ = self._stages.get(id(optimizer), (READY, False))
        if stage != READY:
            done = "unscale_() has been called" if stage == UNSCALED else "step() was"
            raise RuntimeError(
                f"GradScaler.unscale_: {done} on this optimizer since the last "
                f"update(); call it once, before step()"
            )
        params = [p for g in optimizer.param_groups for p in g["params"]]
        found = anywhere(params, self._unscale(params))
        self._stages[id(optimizer)] = UNSCALED, found

    @no_grad()
    def _unscale(self, params: list[Tensor]) -> bool:
        """Whether a gradient is infinite or NaN; all are divided."""
        grads = [p.grad for p in params if p.grad is not None]
        if any(grad.dtype is float16 for grad in grads):
            raise ValueError(
                "GradScaler.unscale_: a gradient is float16, in which small ones "
                "are lost again; keep the weights in float32 and use autocast"
            )
        if not grads:
            raise RuntimeError(
                "GradScaler: no parameter of the optimizer has a gradient; call "
                "scaler.scale(loss).backward() first"
            )
        # BEGIN SOLUTION a11.5
        inverse, finite = _float32(1.0 / self._scale), []
        for grad in grads:
            finite.append(grad.isfinite().all())
            grad.mul_(inverse)
        return not _all(finite)
        # END SOLUTION a11.5

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), unless a gradient is infinite or NaN; None if skipped.

        Raises:
            RuntimeError: a closure is given, nothing was scaled, or a second step
                before `update()`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise RuntimeError(
                "GradScaler.step: a closure computes gradients that are not unscaled; "
                "call step() without one"
            )
        self._check_started("step")
        stage, found = self._stages.get(id(optimizer), (READY, False))
        if stage == STEPPED:
            raise RuntimeError(
                "GradScaler.step: step() was called since the last update()"
            )
        if stage == READY:
            self.unscale_(optimizer)
            _, found = self._stages[id(optimizer)]
        self._stages[id(optimizer)] = STEPPED, found
        # BEGIN SOLUTION a11.5
        if found:
            optimizer.steps_taken += 1  # it had its turn, as schedulers count
            return None
        return optimizer.step(**kwargs)
        # END SOLUTION a11.5

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """The factor for the next step; call it once, behind all `step`s.

        Args:
            new_scale: a factor of one's own instead.

        Raises:
            RuntimeError: no gradients were looked at since the last time.
        """
        if not self._enabled:
            return
        self._check_started("update")
        if new_scale is None and not self._stages:
            raise RuntimeError(
                "GradScaler.update: no gradients were looked at; call step(optimizer) "
                "or unscale_(optimizer) first"
            )
        advance("GradScaler.update", self._update, new_scale)

    def _update(self, new_scale: float | Tensor | None) -> None:
        # BEGIN SOLUTION a11.5
        scale = self._scale
        if new_scale is not None:
            scale = _float32(float(new_scale))
        elif any(found for _, found in self._stages.values()):
            scale, self._growth_tracker = _float32(scale * self._backoff_factor), 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                larger = _float32(scale * self._growth_factor)
                scale = scale if math.isinf(larger) else larger
                self._growth_tracker = 0
        self._scale, self._stages = scale, {}
        # END SOLUTION a11.5

    def _check_started(self, name: str) -> None:
        if not self._started:
            raise RuntimeError(
                f"GradScaler.{name}: nothing was scaled yet; call "
                f"scaler.scale(loss).backward() first"
            )

    # ---------------------------------------------------------- options, saving

    def get_scale(self) -> float:
        """The factor; 1 if this is not enabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by when all goes well."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Grow by another factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by after a skipped step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Shrink by another factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many steps in a row must go well for the factor to grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Grow after another number of steps."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """All numbers, by PyTorch's names; empty if this is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on as the scaler that `state_dict` is from.

        Raises:
            RuntimeError: it is empty, from a scaler that was not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "GradScaler.load_state_dict: the state is empty; it may be that of a "
                "scaler with enabled=False"
            )
        self._scale = _float32(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = int(state_dict["_growth_tracker"])
