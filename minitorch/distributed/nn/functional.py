"""Collectives that gradients go through.

With this file one can send activations between ranks in the middle of a network. The
loss whose gradients come out is the sum of all ranks' losses, so that the backward pass
of a collective is the one that sends the other way:

    forward          backward
    all_reduce       all_reduce
    broadcast        reduce
    all_gather       reduce_scatter
    reduce_scatter   all_gather
    all_to_all       all_to_all

All ranks must take part in the backward pass, in the same order. Each function returns
a new tensor, and its argument stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitorch.distributed import collectives
from minitorch.distributed.collectives import Group, member
from minitorch.distributed.rules import ReduceOp
from minitorch.function import UserFunction
from minitorch.tensor import Tensor


def _sums(caller: str, op: ReduceOp) -> None:
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueError(f"{caller}: op is {op}; gradients go through SUM and AVG only")


def _new(x: Tensor, *sizes: int) -> Tensor:
    """Memory for what comes, of these sizes in the first dimension."""
    return x.new_zeros(sum(sizes), *x.shape[1:])


class AllReduce(UserFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: ReduceOp, group: Group) -> Tensor:
        ctx.op, ctx.group = op, group
        out = x.detach().clone()
        collectives.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return AllReduce.apply(grad.contiguous(), ctx.op, ctx.group), None, None


class Broadcast(UserFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, src: int, group: Group) -> Tensor:
        ctx.src, ctx.group = src, group
        out = x.detach().clone()
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        g = member("broadcast", ctx.group)
        grad = grad.detach().clone()
        collectives.reduce(grad, ctx.src, group=ctx.group)
        here = g is not None and g.ranks[g.rank()] == ctx.src
        return grad if here else grad.new_zeros(*grad.shape), None, None


class AllGather(UserFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        out = _new(x, *[x.shape[0]] * member("all_gather", group).size())  # type: ignore[union-attr]
        collectives.all_gather_into_tensor(out, x.detach().contiguous(), group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ReduceScatter.apply(grad.contiguous(), ReduceOp.SUM, ctx.group), None


class ReduceScatter(UserFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: ReduceOp, group: Group) -> Tensor:
        ctx.op, ctx.group = op, group
        ctx.n = member("reduce_scatter", group).size()  # type: ignore[union-attr]
        out = _new(x, x.shape[0] // ctx.n)
        collectives.reduce_scatter_tensor(out, x.detach().contiguous(), op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        out = AllGather.apply(grad.contiguous(), ctx.group)
        return out / ctx.n if ctx.op is ReduceOp.AVG else out, None, None


class AllToAll(UserFunction):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, came: Sequence[int], went: Sequence[int], group: Group
    ) -> Tensor:
        ctx.splits, ctx.group = (came, went), group
        out = _new(x, *came)
        x = x.detach().contiguous()
        collectives.all_to_all_single(out, x, came, went, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        came, went = ctx.splits
        back = AllToAll.apply(grad.contiguous(), went, came, ctx.group)
        return back, None, None, None


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """The sum (or average) of all ranks' tensors."""
    _sums("all_reduce", op)
    return AllReduce.apply(tensor, op, group)


def broadcast(tensor: Tensor, src: int = 0, group: Group = None) -> Tensor:
    """The tensor of rank `src`."""
    return Broadcast.apply(tensor, src, group)


def all_gather_into_tensor(tensor: Tensor, group: Group = None) -> Tensor:
    """All ranks' tensors [k, ...], one behind the other: [n * k, ...]."""
    return AllGather.apply(tensor if tensor.dim() else tensor.unsqueeze(0), group)


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, in their order."""
    return tuple(AllGather.apply(tensor.unsqueeze(0), group))


def reduce_scatter_tensor(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """This rank's part [k, ...] of the sum (or average) of all [n * k, ...]."""
    _sums("reduce_scatter_tensor", op)
    return ReduceScatter.apply(tensor, op, group)


def all_to_all_single(
    tensor: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> Tensor:
    """Part r of `tensor` goes to rank r; what came, in the order of ranks.

    Args:
        output_split_sizes, input_split_sizes: rows of each part; equal parts, if None.
    """
    g = member("all_to_all_single", group)
    assert g is not None
    equal = [tensor.shape[0] // g.size()] * g.size()
    came, went = output_split_sizes or equal, input_split_sizes or equal
    return AllToAll.apply(tensor, list(came), list(went), group)
