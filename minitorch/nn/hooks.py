"""Hooks on the backward pass of a module.

With this file a module shows the gradients of its inputs and outputs
(`Module.register_full_backward_hook`), and before that those of its outputs alone
(`register_full_backward_pre_hook`): its inputs and its outputs pass an operation that
changes nothing, and whose backward pass sees all of their gradients together.

    x -> Inputs -> forward -> Outputs -> y
           |                     |
           v                     v
           |            pre_hook(module, grad_output)
           v                     v
      hook(module, grad_input, grad_output)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minitorch.autodiff import is_grad_enabled
from minitorch.function import UserFunction
from minitorch.tensor import Tensor


class Before(partial):
    """A hook that is called with the gradients of the outputs alone."""


class Watch:
    """One call of a module with hooks on its backward pass.

    Attributes:
        places: which arguments are tensors that a gradient is wanted of.
        constants: the other tensors among them, whose gradients are 0.
        grad_output: of each output, None of what is no tensor, once they are known.
    """

    def __init__(self, module: Any, hooks: Sequence[Callable]) -> None:
        self.module = module
        self.before = [h for h in hooks if isinstance(h, Before)]
        self.hooks = [h for h in hooks if not isinstance(h, Before)]
        self.count, self.places = 0, list[int]()
        self.constants: dict[int, Tensor] = {}
        self.grad_output: tuple[Any, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call `forward` with."""
        self.count = len(args)
        if is_grad_enabled():
            self.places = _wanting(args)
        if self.places:
            rest = set(range(self.count)).difference(self.places)
            self.constants = {i: args[i] for i in rest if isinstance(args[i], Tensor)}
        return self._passed(Inputs, args, self.places)

    def outputs(self, out: Any) -> Any:
        """What the call returns: a tensor, or a tuple or list with tensors."""
        if isinstance(out, Tensor):
            return self.outputs((out,))[0]
        if not isinstance(out, (tuple, list)):
            return out
        self.out_places = _wanting(out)
        self.out_count = len(out)
        return type(out)(self._passed(Outputs, tuple(out), self.out_places))

    def _passed(self, kind: Any, given: tuple[Any, ...], places: list[int]) -> Any:
        if not places:
            return given
        passed = list(given)
        for i, x in zip(places, kind.apply(self, *[given[i] for i in places])):
            passed[i] = x
        return tuple(passed)

    def call(self, grads: Sequence[Any]) -> list[Any]:
        """Call the hooks with the inputs' gradients, which they may replace."""
        spread = _spread(grads, self.places, self.count)
        for i, x in self.constants.items():
            spread[i] = x.new_zeros(x.raw.shape)
        full = self._changed(self.hooks, tuple(spread), self.grad_output)
        return [full[i] for i in self.places]

    def call_before(self, grads: Sequence[Any]) -> list[Any]:
        """Call those hooks with the outputs' gradients, which they may replace."""
        given = tuple(_spread(grads, self.out_places, self.out_count))
        self.grad_output = self._changed(self.before, given)
        return [self.grad_output[i] for i in self.out_places]

    def _changed(
        self, hooks: Sequence[Callable], grads: tuple[Any, ...], *more: Any
    ) -> tuple[Any, ...]:
        """What the hooks make of the gradients, one after the other."""
        for hook in hooks:
            changed = hook(self.module, grads, *more)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(grads):
                name, of = "pre_hook", "output(s)"
                if more:
                    name, of = "hook", "positional argument(s) of forward"
                raise RuntimeError(
                    f"register_full_backward_{name}: a hook returned {len(changed)} "
                    f"gradient(s) for {len(grads)} {of}"
                )
            grads = changed
        return grads


class Same(UserFunction):
    """The same tensors."""

    @staticmethod
    def forward(ctx: Any, watch: Watch, *tensors: Tensor) -> Any:
        ctx.watch = watch
        return tensors


class Inputs(Same):
    """The same tensors; its backward pass calls the hooks."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.watch.call(grads))


class Outputs(Same):
    """The same tensors; its backward pass shows and notes their gradients."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        watch = ctx.watch
        passed = watch.call_before(grads)
        if not watch.places:  # nobody wants the inputs' gradients: now or never
            watch.call(())
        return (None, *passed)


def _wanting(values: Sequence[Any]) -> list[int]:
    """Which of the values are tensors that a gradient is wanted of."""
    return [
        i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad
    ]


def _spread(grads: Sequence[Any], places: list[int], count: int) -> list[Any]:
    """Gradients at their places among `count`, and None elsewhere."""
    spread: list[Any] = [None] * count
    for i, grad in zip(places, grads):
        spread[i] = grad
    return spread
