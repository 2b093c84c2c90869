"""Losses as modules: `criterion = CrossEntropyLoss(); loss = criterion(out, target)`.

With this file one can keep a loss and its options together. The mathematics is in
`minitorch/nn/functional.py`. All take `reduction`: "none", "mean" (default) or "sum",
and `KLDivLoss` also "batchmean".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import minitorch.nn.functional as F
from minitorch.functions.losses import check_reduction
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class _Loss(Module):
    """A function of (input, target), and the attributes that are its options."""

    _loss: ClassVar[Callable[..., Tensor]]
    _options: ClassVar[tuple[str, ...]] = ("reduction",)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        check_reduction(type(self).__name__, reduction)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = {name: getattr(self, name) for name in self._options}
        return self._loss(input, target, **options)


class _WeightedLoss(_Loss):
    _options: ClassVar[tuple[str, ...]] = ("weight", "reduction")

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss):
    """(input - target)^2"""

    _loss = staticmethod(F.mse_loss)


class L1Loss(_Loss):
    """|input - target|"""

    _loss = staticmethod(F.l1_loss)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2"""

    _loss = staticmethod(F.smooth_l1_loss)
    _options = ("reduction", "beta")

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta


class HuberLoss(_Loss):
    """d^2 / 2 where d = |input - target| < delta, else delta (d - delta / 2)"""

    _loss = staticmethod(F.huber_loss)
    _options = ("reduction", "delta")

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta


class CrossEntropyLoss(_WeightedLoss):
    """The negative log-probability that softmax(input) gives the target.

    input [N, C] or [N, C, *]; target int64 [N] or [N, *], or probabilities in the
    shape of the input; weight [C]. See `functional.cross_entropy`.
    """

    _loss = staticmethod(F.cross_entropy)
    _options = ("weight", "ignore_index", "reduction", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing


class NLLLoss(_WeightedLoss):
    """-input[n, target[n]] for log-probabilities input [N, C] or [N, C, *]"""

    _loss = staticmethod(F.nll_loss)
    _options = ("weight", "ignore_index", "reduction")

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index


class BCELoss(_WeightedLoss):
    """-(t log x + (1 - t) log(1 - x)) for probabilities x and t"""

    _loss = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(_WeightedLoss):
    """Binary cross-entropy of sigmoid(input), without overflow"""

    _loss = staticmethod(F.binary_cross_entropy_with_logits)
    _options = ("weight", "reduction", "pos_weight")

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)


class KLDivLoss(_Loss):
    """target (log target - input) for log-probabilities; see `functional.kl_div`."""

    _loss = staticmethod(F.kl_div)
    _options = ("reduction", "log_target")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, log_target
