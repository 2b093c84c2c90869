"""A table of learned vectors, and positions that need none.

With this file one can turn numbers of words into vectors (`Embedding(10_000, 128)`),
and let queries and keys know where they stand (`RotaryEmbedding(64)`).
"""

from __future__ import annotations

import numpy as np

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import from_numpy, randn
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
        _weight: Tensor | None = None,
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
        table = _weight
        if table is None:
            table = randn(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(table)
        if padding_idx is not None and _weight is None:
            with no_grad():
                self.weight[padding_idx] = 0

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """With the rows of `embeddings` [n, d], whose memory it shares, as its table.

        Args:
            freeze: whether the table does not learn.
        """
        if embeddings.dim() != 2:
            raise ValueError(
                f"Embedding.from_pretrained: embeddings is {embeddings.raw.shape}; "
                f"expected two dimensions"
            )
        rows, width = embeddings.raw.shape
        layer = cls(rows, width, padding_idx, _weight=embeddings)
        layer.weight.requires_grad_(not freeze)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text


class RotaryEmbedding(Module):
    """Turn the vectors of a sequence by angles that grow with their positions.

    x [*, T, dim] -> [*, T, dim]; the points (x_i, x_(i + dim/2)) at position p by the
    angle p * base^(-2i/dim). See `nn.functional.rotary`.

    Args:
        dim: of a head, even.
        max_positions: positions are 0 .. max_positions - 1.
        base: the larger, the slower the last points turn.
        scaling: factor, low, high, length: as Llama 3.1 reads texts that are longer
            than the `length` it learned first. Points that turn less than `low` times
            in it are slower by `factor`, those of more than `high` turns are as before.

    Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding",
    2021; Llama Team, "The Llama 3 herd of models", 2024, and its published model code.
    """

    _shown = ("dim", "max_positions", "base")

    def __init__(
        self,
        dim: int,
        max_positions: int = 2048,
        base: float = 10_000.0,
        device: str | None = None,
        scaling: tuple[float, float, float, float] | None = None,
    ) -> None:
        super().__init__()
        check_sizes("RotaryEmbedding", dim=dim, max_positions=max_positions)
        if dim % 2:
            raise ValueError(f"RotaryEmbedding: dim is {dim}; it must be even")
        self.dim, self.max_positions, self.base = dim, max_positions, base
        speeds = base ** (-np.arange(0, dim, 2) / dim)
        if scaling is not None:
            factor, low, high, length = scaling
            turns = length * speeds / (2 * np.pi)
            kept = np.clip((turns - low) / (high - low), 0, 1)
            speeds = speeds * (kept + (1 - kept) / factor)
        angles = np.arange(max_positions)[:, None] * speeds  # [max_positions, dim/2]
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            table = from_numpy(values.astype(np.float32), device)
            self.register_buffer(name, table, persistent=False)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of the angles at int64 positions [*], each [*, dim/2]."""
        return F.embedding(positions, self.cos), F.embedding(positions, self.sin)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """The first vector of `x` stands at position `offset`: a cache has the others.

        Errors: ValueError where a position is not below `max_positions`.
        """
        end = offset + x.raw.shape[-2]
        if not 0 <= offset <= end <= self.max_positions:
            raise ValueError(
                f"RotaryEmbedding: x is {x.raw.shape} and offset {offset}; positions "
                f"must be from 0 to {self.max_positions - 1}"
            )
        return F.rotary(x, self.cos[offset:end], self.sin[offset:end])
