"""What happens at the border between work that all ranks do and work that is shared.

With this file a network can enter a region where each rank has a part of the features,
and leave it. All ranks compute one loss, the same; each operator's backward pass is the
forward pass of another:

    operator           forward           backward
    enter (f)          -                 sum of all ranks' gradients
    leave (g)          sum of all ranks  -
    gather             all parts         our part of the sum
    reduce_scatter     our part of the sum    all parts

f and g belong to activations that all ranks have, the other two to activations that are
cut along the sequence. An all-reduce is a reduce-scatter and an all-gather, so that the
second pair sends no more than the first.

Source: Shoeybi et al., "Megatron-LM", 2019; Korthikanti et al., "Reducing activation
recomputation in large transformer models", 2022.
"""

from __future__ import annotations

from typing import Any

from minitorch.creation import empty
from minitorch.distributed.collectives import (
    all_gather_into_tensor,
    all_reduce,
    reduce_scatter_tensor,
)
from minitorch.distributed.group import ProcessGroup, Work
from minitorch.distributed.nn import functional
from minitorch.distributed.tensor.placement import Placement, Replicate
from minitorch.function import UserFunction
from minitorch.functions.autocasting import in_lower, lower_here
from minitorch.nn.functional import linear
from minitorch.tensor import Tensor


def new(like: Tensor, *shape: int) -> Tensor:
    """Memory in which anything may stand."""
    return empty(shape, dtype=like.dtype, device=like.raw.device)


def summed(x: Tensor, group: ProcessGroup) -> Tensor:
    """The sum of all ranks' tensors, as a new one."""
    out = x.detach().clone()
    all_reduce(out, group=group)
    return out


class Gathering:
    """All ranks' parts side by side along `dim`, once they have come."""

    def __init__(self, x: Tensor, dim: int, group: ProcessGroup) -> None:
        self.dim = dim % x.dim()
        self.out = new(x, group.size(), *x.shape)
        mine = x.detach().contiguous()
        self.work = all_gather_into_tensor(self.out, mine, group, async_op=True)

    def wait(self) -> Tensor:
        """[..., n * size, ...]"""
        assert self.work is not None
        self.work.wait()
        return self.out.movedim(0, self.dim).flatten(self.dim, self.dim + 1)


class Scattering:
    """Our part along `dim` of the sum of all ranks' tensors, once it has come.

    Errors: ValueError where the dimension cannot be cut into equal parts.
    """

    def __init__(self, x: Tensor, dim: int, group: ProcessGroup) -> None:
        dim, n = dim % x.dim(), group.size()
        if x.shape[dim] % n:
            raise ValueError(
                f"tensor parallel: a sequence of {x.shape[dim]} cannot be cut into "
                f"{n} equal parts; make it a multiple of {n}, or leave out "
                f"sequence parallel"
            )
        parts = x.detach().unflatten(dim, (n, -1)).movedim(dim, 0).contiguous()
        self.out = new(x, *parts.shape[1:])
        self.work: Work | None = reduce_scatter_tensor(
            self.out, parts, group=group, async_op=True
        )

    def wait(self) -> Tensor:
        """[..., size / n, ...]"""
        assert self.work is not None
        self.work.wait()
        return self.out


class Enter(UserFunction):
    """f: as it is; the gradient is the sum of those of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        # BEGIN SOLUTION a13.4
        ctx.group = group
        return x.detach()
        # END SOLUTION a13.4

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # BEGIN SOLUTION a13.4
        return summed(grad.contiguous(), ctx.group), None
        # END SOLUTION a13.4


class Leave(UserFunction):
    """g: the sum of all ranks' tensors; the gradient is as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        # BEGIN SOLUTION a13.4
        return summed(x.contiguous(), group)
        # END SOLUTION a13.4

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # BEGIN SOLUTION a13.4
        return grad, None
        # END SOLUTION a13.4


class ReduceScatter(UserFunction):
    """Our part of the sum of all ranks' tensors; the gradient is that of all parts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: ProcessGroup) -> Tensor:
        ctx.where = dim, group
        return Scattering(x, dim, group).wait()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Gathering(grad, *ctx.where).wait(), None, None


class GatheredLinear(UserFunction):
    """y = x @ weight^T + bias, where x is in parts along `dim`.

    grad_x = our part of the sum of grad @ weight, grad_weight = grad^T @ x.

    Only our part of x is kept; the others are gathered again in the backward pass,
    while grad @ weight is computed, and grad_x is sent while grad_weight is.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dim: int,
        group: ProcessGroup,
    ) -> Tensor:  # fmt: skip
        ctx.where = dim, group
        ctx.save_for_backward(x, weight)
        return linear(Gathering(x, dim, group).wait(), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gathering = Gathering(x, *ctx.where)
        scattering = Scattering(grad @ weight, *ctx.where)
        rows, whole = grad.flatten(0, -2), gathering.wait().flatten(0, -2)
        weight_grad = rows.mT @ whole if ctx.needs_input_grad[1] else None
        bias_grad = rows.sum(0) if ctx.needs_input_grad[2] else None
        return scattering.wait(), weight_grad, bias_grad, None, None


@in_lower
def linear_into(
    x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Placement,
    group: ProcessGroup,
) -> Tensor:  # fmt: skip
    """x @ weight^T + bias with this rank's rows of the weight: we enter the region."""
    # BEGIN SOLUTION a13.4
    if isinstance(inputs, Replicate):
        return linear(Enter.apply(x, group), weight, bias)
    return GatheredLinear.apply(x, weight, bias, inputs.dim, group)
    # END SOLUTION a13.4


def enter(x: Tensor, inputs: Placement, group: ProcessGroup) -> Tensor:
    """All of x, for products that are shared: we enter the region."""
    x = x.to(lower_here(x))
    if isinstance(inputs, Replicate):
        return Enter.apply(x, group)
    whole = functional.all_gather_into_tensor(x.movedim(inputs.dim, 0), group)
    return whole.movedim(0, inputs.dim)


def leave(x: Tensor, outputs: Placement, group: ProcessGroup) -> Tensor:
    """The sum of what all ranks computed, or our part of it: we leave the region."""
    if isinstance(outputs, Replicate):
        return Leave.apply(x, group)
    return ReduceScatter.apply(x, outputs.dim, group)
