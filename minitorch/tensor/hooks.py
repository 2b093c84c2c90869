"""Hooks on gradients, and gradients that are asked for without touching `.grad`.

With this file one can take a registered hook away, keep the gradient of a tensor that
is no leaf, and call `grad(outputs, inputs)`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minitorch.arguments import start_gradient
from minitorch.autodiff import Variable, backpropagate

if TYPE_CHECKING:
    from minitorch.tensor.core import Tensor


class Handle:
    """A registered hook; `remove()` takes it away."""

    def __init__(self, hooks: list[Callable], hook: Callable) -> None:
        self.hooks = hooks
        self.hook = hook
        last = bool(hooks) and type(hooks[-1]) is KeepGrad  # it sees what others return
        hooks.insert(len(hooks) - last, hook)

    def remove(self) -> None:
        """Don't call the hook any more."""
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)
        self.hooks = []  # the same hook may be registered twice; remove one only


class KeepGrad:
    """The hook behind `retain_grad`; it does not keep the tensor alive."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, grad: Tensor) -> None:
        """Add to the tensor's `.grad`."""
        tensor = self.tensor()
        if tensor is not None:  # the gradient itself goes on to what is below
            tensor.grad = grad.clone() if tensor.grad is None else tensor.grad + grad


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`; no `.grad` is touched.

    Raises:
        RuntimeError: an output does not depend on one of the inputs, unless
            `allow_unused` (its gradient is then None).
    """
    roots = [outputs] if isinstance(outputs, Variable) else list(outputs)
    ends = [inputs] if isinstance(inputs, Variable) else list(inputs)
    given: list[Any] = [None] * len(roots)
    if grad_outputs is not None:
        one = isinstance(grad_outputs, Variable)
        given = [grad_outputs] if one else list(grad_outputs)
    for x in [*roots, *ends]:
        if x.edge() is None:
            raise RuntimeError(
                f"grad: a tensor of shape {x.raw.shape} does not require grad"
            )
    starts = [start_gradient("grad", r, g) for r, g in zip(roots, given)]
    keep = create_graph if retain_graph is None else retain_graph
    results = backpropagate(roots, starts, keep, create_graph, ends)
    assert results is not None
    if not allow_unused and any(g is None for g in results):
        raise RuntimeError(
            "grad: the outputs do not depend on one of the inputs; pass "
            "allow_unused=True to get None for it"
        )
    return tuple(results)
