"""Helpers for all parameters at once.

With this file one can keep gradients from exploding (`clip_grad_norm_`,
`clip_grad_value_`) and put all parameters into one vector and back
(`parameters_to_vector`, `vector_to_parameters`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from minitorch import operators
from minitorch.autodiff import no_grad
from minitorch.creation import zeros
from minitorch.dtypes import computed
from minitorch.executor import advance
from minitorch.tensor import Tensor
from minitorch.tensor_data import TensorData


def others(p: Tensor) -> Any:
    """Who has the rest of a parameter that is a part, else None. Their
    `over_ranks(number, largest)` is the sum, or the largest, of a number of each."""
    return getattr(getattr(p, "dealt", None), "others", None)


def _with_grad(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in given if p.grad is not None]


class Clipped(Tensor):
    """A gradient times a factor on its device, which nobody has multiplied yet.

    Whoever looks at it sees the product: it is made when `raw` is asked for first. An
    optimizer whose step takes a factor reads `whole` and `factor` instead, and saves
    the pass over memory.

    Attributes:
        whole: the gradient as it was.
        factor: a tensor without dims.
    """

    __slots__ = ("_product", "factor", "whole")

    def __init__(self, whole: TensorData, factor: TensorData) -> None:
        super().__init__(whole)
        self.whole, self.factor = whole, factor
        advance("clip_grad_norm_", self.forget)

    def forget(self) -> None:
        """Multiply anew: the replay of a CUDA graph has changed the gradient."""
        self._product: TensorData | None = None

    @property
    def pending(self) -> bool:
        """Whether nobody has looked at it."""
        return self._product is None

    @property
    def raw(self) -> TensorData:
        """The product."""
        if self._product is None:
            whole = Tensor(self.whole)
            product = whole.backend.zip(operators.mul, self.whole, self.factor)
            self._product = product
        return self._product

    @raw.setter
    def raw(self, value: TensorData) -> None:
        self._product = value


class Coming(Tensor):
    """A gradient whose numbers may be on their way from other ranks: whoever looks at
    it waits for them.

    Attributes:
        work: what will bring them; None: they are there.
    """

    __slots__ = ("_numbers", "work")

    work: Any

    @property
    def raw(self) -> TensorData:
        """The numbers."""
        if self.work is not None:
            work, self.work = self.work, None
            work.wait()
        return self._numbers

    @raw.setter
    def raw(self, value: TensorData) -> None:
        self._numbers, self.work = value, None


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by one factor, so that their common norm is at most max_norm.

    Norm and factor stay on the device: nobody waits for them. Each `.grad` becomes
    another tensor, the product, which is made when somebody looks at it; Adam and AdamW
    multiply in their own step. Where parameters are dealt out over ranks, as by
    `fully_shard`, all ranks must call this, and the norm is that of all parts.

    Args:
        norm_type: p of the p-norm: a number above 0, or math.inf.
        error_if_nonfinite: read the norm, and raise a RuntimeError if it is infinite
            or NaN.
        foreach: whether to take all gradients together, which happens anyway.

    Returns:
        The norm before, of all gradients as one vector.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent
    neural networks", 2013.
    """
    tensors = _with_grad(parameters)
    if not (norm_type := float(norm_type)) > 0:
        raise ValueError(
            f"clip_grad_norm_: norm_type is {norm_type}; expected a number above 0, or "
            f"math.inf"
        )
    if not tensors:
        return zeros(())
    total = common_norm(tensors, norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of the gradients is {float(total)}; a gradient "
            f"is not finite"
        )
    clip_grads_with_norm_(tensors, max_norm, total)
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor
) -> None:
    """Scale all gradients, whose common norm is `total_norm`, so that it is at most
    max_norm."""
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for (device, dtype, _), some in _by_kind(_with_grad(parameters)).items():
        by = factor.to(device, dtype).raw
        for p in some:
            p.grad = Clipped(p.grad.raw, by)


def _by_kind(parameters: Iterable[Any]) -> dict[Any, list[Any]]:
    """Parameters by device, dtype, and who has the rest of them, None: nobody."""
    kinds: dict[Any, list[Any]] = {}
    for p in parameters:
        kind = p.device, p.dtype, others(p)
        kinds.setdefault(kind, []).append(p)
    return kinds


def common_norm(parameters: list[Any], norm_type: float = 2.0) -> Tensor:
    """The norm of all gradients as one vector, on the device of the first."""
    totals: list[Tensor] = []
    for (_, _, rest), some in _by_kind(parameters).items():
        total = _power_sum([p.grad for p in some], norm_type)
        if rest is not None:
            total = rest.over_ranks(total, norm_type == math.inf)
        totals.append(total.to(totals[0].device if totals else total.device))
    whole = totals[0]
    for other in totals[1:]:
        whole = whole.maximum(other) if norm_type == math.inf else whole + other
    if norm_type == 2:
        return whole.sqrt()
    return whole if norm_type in (1, math.inf) else whole ** (1 / norm_type)


def _power_sum(grads: list[Tensor], norm_type: float) -> Tensor:
    """The sum of all |g|^norm_type, or the largest |g|; 0 of no number."""
    if norm_type == 2:
        return Tensor(grads[0].backend.sum_of_squares([g.raw for g in grads]))
    if norm_type not in (1, math.inf):  # a half type is too narrow for powers
        grads = [g.to(computed(g.dtype)).abs() ** norm_type for g in grads]
        norm_type = 1
    norms = [g.norm(norm_type) for g in grads if g.numel()]
    return Tensor.stack(norms).norm(norm_type) if norms else grads[0].new_zeros(())


@no_grad()
def anywhere(parameters: Iterable[Any], found: bool) -> bool:
    """Whether it was found here, or on a rank that has the rest of the parameters."""
    for rest in dict.fromkeys(map(others, parameters)):
        if rest is not None:
            found = bool(rest.over_ranks(zeros(()) + found, True))
    return found


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
