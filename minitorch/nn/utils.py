"""Helpers for all parameters at once.

With this file one can keep gradients from exploding (`clip_grad_norm_`,
`clip_grad_value_`) and put all parameters into one vector and back
(`parameters_to_vector`, `vector_to_parameters`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.creation import zeros
from minitorch.tensor import Tensor


def _with_grad(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in given if p.grad is not None]


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients by one factor, so that their common norm is at most max_norm.

    Args:
        norm_type: 1, 2 or math.inf.

    Returns:
        The norm before, of all gradients as one vector.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent
    neural networks", 2013.
    """
    tensors = _with_grad(parameters)
    if norm_type not in (1, 2, math.inf):
        raise ValueError(
            f"clip_grad_norm_: norm_type is {norm_type!r}; expected 1, 2 or math.inf"
        )
    if not tensors:
        return zeros(())
    norms = Tensor.stack([p.grad.norm(norm_type) for p in tensors])
    total = norms.norm(norm_type)
    size = float(total)
    if error_if_nonfinite and not math.isfinite(size):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of the gradients is {size}; a gradient is not "
            f"finite"
        )
    factor = max_norm / (size + 1e-6)
    if not factor >= 1.0:  # also for a NaN, which all gradients then become
        for p in tensors:
            p.grad = p.grad * factor  # a new tensor: gradients may share memory
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Set every number of all gradients to the nearest one in +-clip_value."""
    for p in _with_grad(parameters):
        p.grad = p.grad.clamp(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All numbers of all parameters, one after the other."""
    return Tensor.cat([p.reshape(p.numel()) for p in parameters])


@no_grad()
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the numbers of a vector into the parameters, one after the other."""
    given = list(parameters)
    total = sum(p.numel() for p in given)
    if vec.raw.shape != (total,):
        raise ValueError(
            f"vector_to_parameters: the vector is {vec.raw.shape}; the parameters have "
            f"{total} numbers"
        )
    start = 0
    for p in given:
        p.copy_(vec.narrow(0, start, p.numel()).reshape(p.raw.shape))
        start += p.numel()
