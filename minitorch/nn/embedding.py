"""A table of learned vectors.

With this file one can turn numbers of words into vectors: `Embedding(10_000, 128)`.
"""

from __future__ import annotations

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import randn
from minitorch.dtypes import DType
from minitorch.nn.linear import check_sizes
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor


class Embedding(Module):
    """Rows of a table: int64 [*] -> [*, embedding_dim].

    Args:
        padding_idx: a row that starts as zeros and receives no gradient.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_sizes(
            "Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim
        )
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"Embedding: padding_idx is {padding_idx}; the table has "
                    f"{num_embeddings} rows"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        table = randn(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(table)
        if padding_idx is not None:
            with no_grad():
                self.weight[padding_idx] = 0

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text
