"""Random variables that a network decides about.

With this file a policy can draw actions and learn which were good: `Categorical`, as in
torch.distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from minitorch.arguments import check_floating
from minitorch.dtypes import finfo
from minitorch.functions.movement import broadcast_to
from minitorch.functions.random import multinomial
from minitorch.tensor import Size, Tensor
from minitorch.tensor_data import broadcast_shapes


class Categorical:
    """One of C classes, for each row of `probs` or of `logits` [*, C].

    Args:
        probs: how often a class is drawn, in proportion to the others of its row.
        logits: their logarithms, up to a number for each row; one of the two.

    Attributes:
        probs: they sum to 1; `logits`: their logarithms.

    Draws are those of the default generator, and have no gradient. Of PyTorch's
    arguments validate_args is missing: `multinomial` checks what it draws with.
    """

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Categorical: give either probs or logits")
        wanted: Any = logits if probs is None else probs
        given = check_floating("Categorical", wanted)
        if not given.dim():
            raise ValueError("Categorical: got a number; expected [*, C]")
        if probs is None:
            self.logits = given - given.logsumexp(-1, keepdim=True)
            self.probs = self.logits.exp()
        else:
            self.probs = given / given.sum(-1, keepdim=True)
            eps = finfo(given.dtype).eps  # so that all logarithms are finite
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        self.batch_shape, self.event_shape = Size(given.raw.shape[:-1]), Size()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, int64 [*sample_shape, *]"""
        rows = self.probs.detach().reshape(-1, self.probs.raw.shape[-1])
        drawn = multinomial(rows, math.prod(sample_shape), True)
        return drawn.t().reshape(*sample_shape, *self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of each class in `value` [*]."""
        *batch, classes = self.logits.raw.shape
        rows = broadcast_shapes(value.raw.shape, tuple(batch))
        index = broadcast_to(value.long(), rows).unsqueeze(-1)
        logits = broadcast_to(self.logits, (*rows, classes))
        return logits.gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum(p log(p)), a number for each row."""
        finite = self.logits.clamp(min=finfo(self.logits.dtype).min)  # 0 * -inf is 0
        return -(self.probs * finite).sum(-1)

    def __repr__(self) -> str:
        return f"Categorical(probs: {self.probs.shape})"
