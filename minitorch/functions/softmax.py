"""Softmax, its logarithm, and the cross-entropy that trains classifiers.

With this file one can see why the two are computed together: the gradient of
cross-entropy after softmax is just `softmax(logits) - onehot(target)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.arguments import check_floating, dim_in, numpy_names
from minitorch.autodiff import grad_mode
from minitorch.dtypes import DType
from minitorch.function import Context, Function, once_differentiable
from minitorch.functions.autocasting import float32_here
from minitorch.functions.indexing import ScatterAdd
from minitorch.functions.operands import cast

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Softmax(Function):
    """out = exp(a) / sum(exp(a)) along dim

    grad_a = out * (grad - sum(grad * out)).
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        out = a.backend.softmax(a.raw, dim)
        ctx.save_for_backward(out)
        ctx.dim = dim
        return out

    # BEGIN SOLUTION a6.4
    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (out,) = ctx.saved_tensors
        dim: int = ctx.dim
        if grad_mode.enabled:
            return out * (grad - (grad * out).sum(dim, keepdim=True)), None
        raw = grad.backend.softmax_backward(grad.raw, out.raw, dim)
        return grad.wrap(raw), None

    # END SOLUTION a6.4


class LogSoftmax(Function):
    """out = a - logsumexp(a) along dim

    grad_a = grad - exp(out) * sum(grad).
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        out = a.backend.log_softmax(a.raw, dim)
        ctx.save_for_backward(out)
        ctx.dim = dim
        return out

    # BEGIN SOLUTION a6.4
    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (out,) = ctx.saved_tensors
        dim: int = ctx.dim
        if grad_mode.enabled:
            return grad - out.exp() * grad.sum(dim, keepdim=True), None
        raw = grad.backend.log_softmax_backward(grad.raw, out.raw, dim)
        return grad.wrap(raw), None

    # END SOLUTION a6.4


@numpy_names
def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`: [*] -> [*]"""
    return _along("softmax", Softmax, input, dim)


@numpy_names
def log_softmax(input: Tensor, dim: int) -> Tensor:
    """x - logsumexp(x) along `dim`: [*] -> [*]"""
    return _along("log_softmax", LogSoftmax, input, dim)


def _along(name: str, op: type[Function], input: Tensor, dim: int) -> Tensor:
    """An operation on rows; a tensor without dims is a row of one element."""
    a, dim = check_floating(name, input), dim_in(name, input, dim)
    return op.apply(a, dim) if a.dim() else op.apply(a.reshape(1), 0).reshape(())


class CrossEntropy(Function):
    """losses[n] = logsumexp(logits[n]) - logits[n, target[n]]

    grad_logits[n] = grad[n] * (softmax(logits[n]) - onehot(target[n])).

    Half logits are read as they are, also where the losses are to be float32.
    """

    @staticmethod
    def forward(
        ctx: Context, logits: Tensor, target: Tensor, ignore: int, dtype: DType
    ) -> Any:
        losses, lse = logits.backend.cross_entropy(logits.raw, target.raw, ignore)
        ctx.save_for_backward(logits, target, lse)
        ctx.ignore = ignore
        return losses if losses.dtype is dtype else logits.backend.copy(losses, dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable(
            "cross_entropy", "-logits.log_softmax(1).gather(1, target.unsqueeze(1))"
        )
        logits, target, lse = ctx.saved_tensors
        raw = logits.backend.cross_entropy_backward(
            grad.raw,
            logits.raw,
            target.raw,
            lse.raw,
            ctx.ignore,
        )
        return grad.wrap(raw), None, None, None


class MeanLoss(Function):
    """The mean of the losses [N] whose target is not ignored -> []

    Each loss gets the same share of the gradient, 1 / count. (An ignored one gets it,
    too; `CrossEntropy` gives nothing on.) The losses are counted where they are.
    """

    @staticmethod
    def forward(ctx: Context, losses: Tensor, target: Tensor, ignore: int) -> Any:
        mean, share = losses.backend.mean_loss(losses.raw, target.raw, ignore)
        ctx.save_for_backward(share)
        ctx.count = losses.raw.shape[0]
        return mean

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (share,) = ctx.saved_tensors
        return cast(share * grad, grad.dtype).expand((ctx.count,)), None, None


class NLL(Function):
    """losses[n] = -scores[n, target[n]], or 0 where the target is ignored

    Or the mean of those that are not ignored, as `MeanLoss`.
    """

    @staticmethod
    def forward(
        ctx: Context, scores: Tensor, target: Tensor, ignore: int, mean: bool
    ) -> Any:
        ctx.options = scores.raw.shape, ignore
        args = scores.raw, target.raw, ignore
        if not mean:
            ctx.save_for_backward(target, None)
            return scores.backend.nll(*args)
        out, share = scores.backend.mean_nll(*args)
        ctx.save_for_backward(target, share)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        target, share = ctx.saved_tensors
        shape, ignore = ctx.options
        if share is not None:
            grad = cast(share * grad, grad.dtype).expand(shape[:1])
        if not grad_mode.enabled:
            raw = grad.backend.nll_backward(grad.raw, target.raw, shape[1], ignore)
            return grad.wrap(raw), None, None, None
        keep = target != ignore
        there = target.where(keep, 0).unsqueeze(1)
        given = (-grad).where(keep, 0.0).unsqueeze(1)
        out = ScatterAdd.apply(grad.new_zeros(shape), 1, there, given)
        return out, None, None, None


def nll(
    scores: Tensor, target: Tensor, ignore_index: int = -100, mean: bool = False
) -> Tensor:
    """The loss of each row of log-probabilities: [N, C] and int64 [N] -> [N]

    Or, with `mean`, the mean [] of those that count; NaN for none.
    """
    try:
        return NLL.apply(scores, cast(target, dtypes.int64), int(ignore_index), mean)
    except IndexError as error:
        raise IndexError(f"nll_loss: a target is not a class: {error}") from None


def mean_loss(losses: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """The mean [] of what `cross_entropy` made of the same target; NaN for none."""
    return MeanLoss.apply(losses, target, int(ignore_index))


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """The loss of each row: logits [N, C] and class numbers target [N] -> [N].

    Rows whose target is `ignore_index` have the loss 0. Losses of half logits are
    float32 inside of `autocast`.

    Raises:
        ValueError: the shapes are not [N, C] and [N].
        TypeError: logits are no floats, or the target is not int64.
        IndexError: a target is not a class.
    """
    shape, rows = logits.raw.shape, target.raw.shape
    if len(shape) != 2 or shape[:1] != rows:
        raise ValueError(
            f"cross_entropy: logits are {shape} and the target is {rows}; expected "
            f"(N, C) and (N,)"
        )
    if not logits.raw.storage.dtype.is_floating_point:
        raise TypeError(
            f"cross_entropy: logits are {logits.dtype.name}; expected a floating type"
        )
    if target.dtype.category != 1:
        raise TypeError(
            f"cross_entropy: the target is {target.dtype.name}; expected class numbers "
            f"as int64"
        )
    dtype = float32_here(logits)
    target = cast(target, dtypes.int64)
    return CrossEntropy.apply(logits, target, int(ignore_index), dtype)
