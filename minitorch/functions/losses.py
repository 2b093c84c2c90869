"""Losses: how far a network's output is from what is wanted.

With this file one can compare numbers (`mse_loss`, `huber_loss`), probabilities
(`binary_cross_entropy`, `kl_div`) and the scores of classes (`cross_entropy`), of
which there may be more than fit into memory (`linear_cross_entropy`). All are found in
`minitorch.nn.functional`, and as modules in `minitorch.nn`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import check_floating, dims_of
from minitorch.backend.softmax import not_probabilities
from minitorch.function import Context, Function
from minitorch.functions import autocasting
from minitorch.functions import linear_cross_entropy as head
from minitorch.functions import softmax as softmaxes
from minitorch.functions.linear import linear
from minitorch.functions.linear_cross_entropy import LinearCrossEntropyOptions
from minitorch.functions.operands import (
    check_broadcast,
    check_same_device,
    checked_tensor,
    operands,
    unbroadcast,
)
from minitorch.functions.reduce import dropped
from minitorch.warn import warn

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


class PointwiseLoss(Function):
    """A loss of each number and what was wanted, or the mean or the sum of these.

    A subclass has `losses`, by a backend, and `slope`: the derivative, of which the
    `factor` is left out. That for the target is `target_slope`, else `slope` with
    another sign.
    """

    losses: Any
    slope: Any
    target_slope: Any = None
    factor = 1.0

    @classmethod
    def forward(
        cls, ctx: Context, x: Tensor, target: Tensor, reduction: str, number: float
    ) -> Any:
        ctx.save_for_backward(x, target)
        losses = cls.losses(x.backend, x.raw, target.raw, number)
        count, dims = math.prod(losses.shape), tuple(range(len(losses.shape)))
        ctx.options = (count if reduction == "mean" else 1) / cls.factor, number
        if reduction == "mean":
            return dropped(x.backend.mean(losses, dims, count), dims)
        if reduction == "sum":
            return dropped(x.backend.reduce(operators.add, losses, dims, 0), dims)
        return losses

    @classmethod
    def backward(cls, ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, target = ctx.saved_tensors
        count, number = ctx.options
        need_x, need_target = ctx.needs_input_grad[:2]
        grad = grad if count == 1 else grad / count
        dx: Any = None
        dt: Any = None
        if need_x or cls.target_slope is None:
            dx = grad * cls.slope(x, target, number)
        if need_target:
            slope = cls.target_slope
            dt = -dx if slope is None else grad * slope(x, target)
            dt = unbroadcast(dt, target.raw.shape)
        return unbroadcast(dx, x.raw.shape) if need_x else None, dt, None, None


class MSELoss(PointwiseLoss):
    """(x - target)^2"""

    factor = 2.0

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, number: float) -> Any:
        return backend.zip(operators.squared_difference, x, target)

    @staticmethod
    def slope(x: Tensor, target: Tensor, number: float) -> Tensor:
        return x - target


class HuberLoss(PointwiseLoss):
    """d^2 / 2 where |d| < delta, else delta (|d| - delta / 2), for d = x - target"""

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, delta: float) -> Any:
        difference = backend.zip(operators.sub, x, target)
        number = backend.number(delta, difference.dtype)
        return backend.zip(operators.huber, difference, number, None, difference)

    @staticmethod
    def slope(x: Tensor, target: Tensor, delta: float) -> Tensor:
        return (x - target).clamp(-delta, delta)


def _pair(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both of one dtype; a warning where shapes differ but broadcast, which is seldom
    what was meant."""
    check_same_device(name, input, target)
    if input.raw.shape != target.raw.shape:
        shape = check_broadcast(name, input.raw.shape, target.raw.shape)
        warn(
            f"{name}: the input is {input.raw.shape} and the target "
            f"{target.raw.shape}; they are broadcast to {shape}, which is likely to "
            f"give a wrong loss; make both the same shape"
        )
    return operands(name, input, target)


def _distance(
    name: str, op: type[PointwiseLoss], input: Tensor, target: Tensor, reduction: str,
    number: float = 0.0,
) -> Tensor:  # fmt: skip
    """A loss of two tensors."""
    check_reduction(name, reduction)
    input, target = _pair(name, input, target)
    return op.apply(check_floating(name, input), target, reduction, number)


@autocasting.in_float32
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)^2"""
    return _distance("mse_loss", MSELoss, input, target, reduction)


@autocasting.in_float32
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|"""
    input, target = _pair("l1_loss", input, target)
    return _reduce("l1_loss", (input - target).abs(), reduction)


@autocasting.in_float32
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2"""
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta is {beta}; it must be 0 or more")
    if beta == 0:
        return l1_loss(input, target, reduction)
    loss = _distance("smooth_l1_loss", HuberLoss, input, target, reduction, beta)
    return loss if beta == 1 else loss * (1.0 / beta)


@autocasting.in_float32
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 where d = |input - target| < delta, else delta (d - delta / 2)

    Source: Huber, "Robust estimation of a location parameter", 1964.
    """
    if delta <= 0:
        raise ValueError(f"huber_loss: delta is {delta}; it must be above 0")
    return _distance("huber_loss", HuberLoss, input, target, reduction, delta)


class KLDiv(PointwiseLoss):
    """t (log t - x), 0 for t = 0; d/dx = -t, d/dt = 1 + log t - x, or -x for t = 0"""

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, number: float) -> Any:
        return backend.zip(operators.kl_div, x, target)

    @staticmethod
    def slope(x: Tensor, target: Tensor, number: float) -> Tensor:
        return -target

    @staticmethod
    def target_slope(x: Tensor, target: Tensor) -> Tensor:
        none = target == 0
        return (target.masked_fill(none, 1.0).log() + 1.0).masked_fill(none, 0.0) - x


class KLDivLog(PointwiseLoss):
    """e^t (t - x); d/dx = -e^t, d/dt = e^t (1 + t - x)"""

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, number: float) -> Any:
        apart = backend.zip(operators.sub, target, x)
        return backend.zip(operators.mul, backend.map(operators.exp, target), apart)

    @staticmethod
    def slope(x: Tensor, target: Tensor, number: float) -> Tensor:
        return -target.exp()

    @staticmethod
    def target_slope(x: Tensor, target: Tensor) -> Tensor:
        return target.exp() * (1.0 + target - x)


@autocasting.in_float32
def kl_div(
    input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target (log target - input), for log-probabilities `input`; 0 where target is 0

    Their sum over classes is how far the input's distribution is from the target's:
    reduction "batchmean" (the sum by the first size), while "mean" is over all numbers.

    Args:
        log_target: whether the target is log-probabilities, too.
    """
    name = "kl_div"
    whole = "sum" if reduction == "batchmean" else reduction
    check_reduction(name, whole)
    x, y = operands(name, check_floating(name, input), target)
    if x.raw.shape != y.raw.shape:  # slopes of one alone are not wide enough
        shape = check_broadcast(name, x.raw.shape, y.raw.shape)
        x, y = x.expand(shape), y.expand(shape)
    loss = (KLDivLog if log_target else KLDiv).apply(x, y, whole, 0.0)
    if whole == reduction or not input.raw.shape:
        return loss
    return loss / input.raw.shape[0]


def _check_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    check_same_device(name, input, target)
    if input.raw.shape != target.raw.shape:
        raise ValueError(
            f"{name}: the input is {input.raw.shape} and the target "
            f"{target.raw.shape}; both must have one shape"
        )


class BinaryCrossEntropy(PointwiseLoss):
    """-(t log x + (1 - t) log(1 - x)); d/dx = (x - t) / (x (1 - x))

    Logarithms stop at -100 and the slope's divisor at 1e-12, as in PyTorch, so that
    x = 0 and x = 1 give finite numbers.
    """

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, number: float) -> Any:
        return backend.zip(operators.binary_cross_entropy, x, target)

    @staticmethod
    def slope(x: Tensor, target: Tensor, number: float) -> Tensor:
        return (x - target) / (x * (1.0 - x)).clamp(min=1e-12)

    @staticmethod
    def target_slope(x: Tensor, target: Tensor) -> Tensor:
        return (1.0 - x).log() - x.log()


class BinaryCrossEntropyWithLogits(PointwiseLoss):
    """(1 - t) x + log(1 + exp(-x)); d/dx = sigmoid(x) - t"""

    @staticmethod
    def losses(backend: Any, x: Any, target: Any, number: float) -> Any:
        return backend.zip(operators.binary_cross_entropy_with_logits, x, target)

    @staticmethod
    def slope(x: Tensor, target: Tensor, number: float) -> Tensor:
        return x.sigmoid() - target

    @staticmethod
    def target_slope(x: Tensor, target: Tensor) -> Tensor:
        return -x


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
    inside = input.backend.check_probabilities(input.raw)
    if inside is not None and not input.wrap(inside):
        raise not_probabilities()
    target = target.to(input.dtype)
    return _weighted_pairs(name, BinaryCrossEntropy, input, target, weight, reduction)


def _weighted_pairs(
    name: str, op: type[PointwiseLoss], input: Tensor, target: Tensor,
    weight: Tensor | None, reduction: str,
) -> Tensor:  # fmt: skip
    """Losses times their weights, if there are any, in one operation without."""
    check_reduction(name, reduction)
    if weight is None:
        return op.apply(input, target, reduction, 0.0)
    return _reduce(name, op.apply(input, target, "none", 0.0) * weight, reduction)


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
    if pos_weight is None:
        input, target = operands(name, input, target)
        check_floating(name, input)
        op = BinaryCrossEntropyWithLogits
        return _weighted_pairs(name, op, input, target, weight, reduction)
    losses = (-input).softplus() * ((pos_weight - 1.0) * target + 1.0)
    losses = (1.0 - target) * input + losses
    return _reduce(name, losses if weight is None else losses * weight, reduction)


@autocasting.in_float32
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-input[n, target[n]] for log-probabilities; the arguments of cross_entropy."""
    check_reduction("nll_loss", reduction)
    check_same_device("nll_loss", input, target)
    rows, flat = _rows("nll_loss", input, target)
    if weight is None and reduction == "mean":
        return softmaxes.nll(rows, flat, ignore_index, mean=True)
    losses = softmaxes.nll(rows, flat, ignore_index)
    if weight is not None:
        _check_weight("nll_loss", weight, rows)
        losses, divisor = _weighted(losses, rows, flat, weight, ignore_index, 0.0)
        if reduction == "mean":
            return losses.sum() / divisor
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
    check_same_device("cross_entropy", input, target)
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
    if dims_of("linear_cross_entropy", input) not in (1, 2):
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
        warn(
            "linear_cross_entropy: options are for rows [N, K], class numbers and a "
            "mean or sum, without bias, weight and smoothing; all scores are made at "
            "once"
        )
        options = None
    checked_tensor("linear_cross_entropy", linear_weight)
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
        nll = -rows.log_softmax(1)
        nll = nll if weight is None else nll * weight
        even = nll.mean(1).where(keep, losses.new_zeros(()))
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
    check_same_device(name, weight, input)
    classes = input.raw.shape[0 if input.dim() == 1 else 1]
    if weight.raw.shape != (classes,):
        raise ValueError(
            f"{name}: the weight is {weight.raw.shape}; expected ({classes},), one "
            f"number for each class"
        )
