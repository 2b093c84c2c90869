"""Losses: how far a network's output is from what is wanted.

With this file one can compare numbers (`mse_loss`, `huber_loss`), probabilities
(`binary_cross_entropy`) and the scores of classes (`cross_entropy`, `nll_loss`), of
which there may be more than fit into memory (`linear_cross_entropy`). All are found in
`minitorch.nn.functional`, and as modules in `minitorch.nn`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import check_floating
from minitorch.function import Context, Function
from minitorch.functions import autocasting
from minitorch.functions import linear_cross_entropy as head
from minitorch.functions import softmax as softmaxes
from minitorch.functions.linear import linear
from minitorch.functions.linear_cross_entropy import LinearCrossEntropyOptions
from minitorch.functions.operands import check_broadcast, check_same_device

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


def _reduce(name: str, losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    check_reduction(name, reduction)
    return losses


def check_reduction(name: str, reduction: str) -> None:
    """Only "none", "mean" and "sum" are reductions."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f'{name}: reduction is {reduction!r}; expected "none", "mean" or "sum"'
        )


def _check_pair(name: str, input: Tensor, target: Tensor) -> None:
    """Warn where shapes differ but broadcast, which is seldom what was meant."""
    if input.raw.shape != target.raw.shape:
        shape = check_broadcast(name, input.raw.shape, target.raw.shape)
        warnings.warn(
            f"{name}: the input is {input.raw.shape} and the target "
            f"{target.raw.shape}; they are broadcast to {shape}, which is likely to "
            f"give a wrong loss; make both the same shape",
            stacklevel=3,
        )


@autocasting.in_float32
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)^2"""
    _check_pair("mse_loss", input, target)
    difference = check_floating("mse_loss", input - target)
    return _reduce("mse_loss", difference * difference, reduction)


@autocasting.in_float32
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|"""
    _check_pair("l1_loss", input, target)
    return _reduce("l1_loss", (input - target).abs(), reduction)


@autocasting.in_float32
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2"""
    _check_pair("smooth_l1_loss", input, target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta is {beta}; it must be 0 or more")
    d = check_floating("smooth_l1_loss", input - target).abs()
    losses = _huber(d, beta) if beta else d
    losses = losses if beta in (0, 1) else losses * (1.0 / beta)
    return _reduce("smooth_l1_loss", losses, reduction)


def _huber(d: Tensor, delta: float) -> Tensor:
    """d^2 / 2 where d < delta, else delta (d - delta / 2): both are c (d - c / 2)"""
    c = d.clamp(max=delta)
    return c * (d - c * 0.5)


@autocasting.in_float32
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 where d = |input - target| < delta, else delta (d - delta / 2)

    Source: Huber, "Robust estimation of a location parameter", 1964.
    """
    _check_pair("huber_loss", input, target)
    if delta <= 0:
        raise ValueError(f"huber_loss: delta is {delta}; it must be above 0")
    d = check_floating("huber_loss", input - target).abs()
    return _reduce("huber_loss", _huber(d, delta), reduction)


def _check_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.raw.shape != target.raw.shape:
        raise ValueError(
            f"{name}: the input is {input.raw.shape} and the target "
            f"{target.raw.shape}; both must have one shape"
        )


class BinaryCrossEntropy(Function):
    """-(t log x + (1 - t) log(1 - x)); d/dx = (x - t) / (x (1 - x))

    Logarithms stop at -100 and the slope's divisor at 1e-12, as in PyTorch, so that
    x = 0 and x = 1 give finite numbers.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, target: Tensor) -> Any:
        ctx.save_for_backward(x, target)
        backend, raw, t, dtype = x.backend, x.raw, target.raw, x.raw.storage.dtype
        one, least = backend.number(1, dtype), backend.number(-100, dtype)
        rest, t_rest = [backend.zip(operators.sub, one, a) for a in (raw, t)]
        logs = [backend.map(operators.log, a) for a in (raw, rest)]
        logs = [backend.zip(operators.maximum, a, least) for a in logs]
        parts = [backend.zip(operators.mul, a, b) for a, b in zip((t, t_rest), logs)]
        return backend.map(operators.neg, backend.zip(operators.add, *parts))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, target = ctx.saved_tensors
        need_x, need_target = ctx.needs_input_grad
        slope = (x - target) / (x * (1.0 - x)).clamp(min=1e-12) if need_x else None
        change = (1.0 - x).log() - x.log() if need_target else None
        return (
            None if slope is None else grad * slope,
            None if change is None else grad * change,
        )


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-(t log x + (1 - t) log(1 - x)) for probabilities x and t, times weight

    Raises:
        ValueError: a shape differs, or an input is not in [0, 1].
    """
    name = "binary_cross_entropy"
    _check_same_shape(name, check_floating(name, input), target)
    if input.numel() and not bool(((input >= 0) & (input <= 1)).all()):
        raise ValueError(
            f"{name}: the input has numbers outside [0, 1]; for logits use "
            f"binary_cross_entropy_with_logits"
        )
    losses = BinaryCrossEntropy.apply(input, target.to(input.dtype))
    return _reduce(name, losses if weight is None else losses * weight, reduction)


@autocasting.in_float32
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Binary cross-entropy of sigmoid(input), without overflow

    With x = input: (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x)).
    """
    name = "binary_cross_entropy_with_logits"
    _check_same_shape(name, input, target)
    losses = (-input).softplus()
    if pos_weight is not None:
        losses = losses * ((pos_weight - 1.0) * target + 1.0)
    losses = (1.0 - target) * input + losses
    return _reduce(name, losses if weight is None else losses * weight, reduction)


@autocasting.in_float32
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-input[n, target[n]] for log-probabilities; the arguments of cross_entropy."""
    check_reduction("nll_loss", reduction)
    rows, flat = _rows("nll_loss", input, target)
    losses = softmaxes.nll(rows, flat, ignore_index)
    if weight is not None:
        _check_weight("nll_loss", weight, rows)
        losses, divisor = _weighted(losses, rows, flat, weight, ignore_index, 0.0)
        if reduction == "mean":
            return losses.sum() / divisor
    elif reduction == "mean":
        return softmaxes.mean_loss(losses, flat, ignore_index)
    return losses.sum() if reduction == "sum" else losses.reshape(target.raw.shape)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The negative log-probability that softmax(input) gives the target.

    Args:
        input: logits [C], [N, C] or [N, C, *].
        target: class numbers, int64 [], [N] or [N, *]; or the probabilities of all
            classes, in the shape of the input.
        weight: [C], how much each class counts; "mean" divides by what was counted.
        ignore_index: targets of this number don't count.
        reduction: "none" [N, *], "mean" or "sum".
        label_smoothing: the share of the target that all classes share equally.
    """
    check_reduction("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"cross_entropy: label_smoothing is {label_smoothing}; expected 0 to 1"
        )
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(
            input, target, weight, ignore_index, reduction, label_smoothing
        )
    rows, flat = _rows("cross_entropy", input, target)
    losses = softmaxes.cross_entropy(rows, flat, ignore_index)
    if weight is not None or label_smoothing > 0:
        losses, divisor = _weighted(
            losses, rows, flat, weight, ignore_index, label_smoothing
        )
        if reduction == "mean":
            return losses.sum() / divisor
    elif reduction == "mean":
        return softmaxes.mean_loss(losses, flat, ignore_index)
    return losses.sum() if reduction == "sum" else losses.reshape(target.raw.shape)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *,
    linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """cross_entropy(linear(input, linear_weight, linear_bias), target, ...)

    With `options` scores are made for some rows at a time, and their gradients with
    them, so that memory does not grow with N times C. That is for class numbers, a
    "mean" or a "sum", without bias, weight and smoothing; others are done as without
    `options`, with a warning.

    Args:
        input: [K] or [N, K].
        linear_weight: [C, K]; `linear_bias` [C].
        target: class numbers, int64 [] or [N], or probabilities.
        options: how many rows at a time; None: all.

    Raises:
        ValueError: the input has other dimensions.
    """
    if input.dim() not in (1, 2):
        raise ValueError(
            f"linear_cross_entropy: the input is {tuple(input.shape)}; expected [K] or "
            f"[N, K]; of sequences, give input.flatten(0, -2) and target.flatten()"
        )
    plain = linear_bias is None and weight is None and label_smoothing == 0.0
    if options is not None and not (
        plain
        and reduction in ("mean", "sum")
        and input.dim() == 2
        and target.dtype.category == 1
    ):
        warnings.warn(
            "linear_cross_entropy: options are for rows [N, K], class numbers and a "
            "mean or sum, without bias, weight and smoothing; all scores are made at "
            "once",
            stacklevel=2,
        )
        options = None
    size, classes = len(input), len(linear_weight)
    kind = autocasting.lower_here(input)
    rows = options.rows(size, classes, kind) if options else 0
    if 0 < rows < size:
        return head.linear_cross_entropy(
            input, linear_weight, target, ignore_index, reduction == "mean", rows
        )
    return cross_entropy(
        linear(input, linear_weight, linear_bias),
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@autocasting.in_float32
def _weighted(
    losses: Tensor, rows: Tensor, target: Tensor, weight: Tensor | None,
    ignore_index: int, smoothing: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Losses [N] with class weights and label smoothing; what a mean divides by."""
    keep = target != ignore_index
    scale = keep.to(rows.dtype)
    if weight is not None:
        _check_weight("cross_entropy", weight, rows)
        scale = scale * weight.index_select(0, target.where(keep, target.new_zeros(())))
    losses = losses * scale
    if smoothing > 0:
        surprise = -rows.log_softmax(1)
        surprise = surprise if weight is None else surprise * weight
        even = surprise.mean(1).where(keep, losses.new_zeros(()))
        losses = losses * (1.0 - smoothing) + even * smoothing
    return losses, scale.sum()


@autocasting.in_float32
def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int,
    reduction: str, smoothing: float,
) -> Tensor:  # fmt: skip
    """Cross-entropy with the probabilities of all classes as the target."""
    _check_same_shape("cross_entropy", input, target)
    if ignore_index >= 0:
        raise ValueError(
            f"cross_entropy: ignore_index is {ignore_index}, but the target holds "
            f"probabilities, not class numbers"
        )
    dim = 0 if input.dim() == 1 else 1
    classes = input.raw.shape[dim]
    if smoothing > 0:
        target = target * (1.0 - smoothing) + smoothing / classes
    products = -input.log_softmax(dim) * target
    if weight is not None:
        _check_weight("cross_entropy", weight, input)
        products = products * weight.reshape((-1, *[1] * (input.dim() - dim - 1)))
    losses = products.sum(dim)
    if reduction == "mean":
        return losses.sum() / float(losses.numel())
    return losses.sum() if reduction == "sum" else losses


def _rows(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Input [C], [N, C] or [N, C, *] as [M, C], and class numbers as [M]."""
    shape = input.raw.shape
    if not shape or target.raw.shape != shape[:1][: len(shape) - 1] + shape[2:]:
        raise ValueError(
            f"{name}: the input is {shape} and the target {target.raw.shape}; expected "
            f"an input (N, C, ...) and class numbers (N, ...)"
        )
    if target.dtype.category != 1:
        raise TypeError(
            f"{name}: the target is {target.dtype.name}; expected class numbers, int64"
        )
    classes = shape[0] if len(shape) == 1 else shape[1]
    if len(shape) > 2:
        input = input.movedim(1, -1)
    if len(shape) == 2:  # the usual case: nothing to reshape
        return input, target
    size = target.numel()
    return input.reshape(size, classes), target.reshape(size)


def _check_weight(name: str, weight: Tensor, input: Tensor) -> None:
    classes = input.raw.shape[0 if input.dim() == 1 else 1]
    if weight.raw.shape != (classes,):
        raise ValueError(
            f"{name}: the weight is {weight.raw.shape}; expected ({classes},), one "
            f"number for each class"
        )
    check_same_device(name, weight, input)
