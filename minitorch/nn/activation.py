"""Activations as modules, for use in `Sequential`.

With this file one can put `ReLU()`, `GELU()`, `Softmax(dim=1)` and so on between
layers. The formulas are in `minitorch/operators.py`.
"""

from __future__ import annotations

import minitorch.nn.functional as F
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class ReLU(Module):
    """max(x, 0)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x, self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x"""

    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope, self.inplace)


class ELU(Module):
    """x where x > 0, else alpha (exp(x) - 1); Clevert, Unterthiner, Hochreiter 2016"""

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha, self.inplace)


class GELU(Module):
    """x P(X <= x) for a standard normal X, or its approximation with tanh"""

    _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(
                f'GELU: approximate is {approximate!r}; expected "none" or "tanh"'
            )
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x, self.inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent"""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold"""

    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along dim"""

    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.dim)


class LogSoftmax(Softmax):
    """x - logsumexp(x) along dim"""

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.dim)


class Identity(Module):
    """x as it is; arguments of the constructor are for show, as in PyTorch."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x
