"""Dropout.

With this file one can drop random activations in training: `Dropout(0.5)`.
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
            raise ValueError(f"Dropout: p is {p}; it must be from 0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training, self.inplace)
