"""Dropout.

With this file one can drop random activations in training, `Dropout(0.5)`, or
random channels, `Dropout2d(0.5)`.
"""

from __future__ import annotations

import minitorch.nn.functional as F
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class Dropout(Module):
    """In training zeros with probability p, and the others divided by 1 - p.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from
    overfitting", 2014.
    """

    _shown = ("p",)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"{type(self).__name__}: p is {p}; it must be from 0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Dropout of whole channels of x [N, C, *], whose neighbours tell the same."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(x, self.p, self.training, self.inplace)
