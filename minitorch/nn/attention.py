"""Attention with heads.

With this file one can let every position of a sequence look at others
(`MultiheadAttention`). Names of parameters are PyTorch's, so that its state dicts load.
"""

from __future__ import annotations

from typing import Any

import minitorch.nn.functional as F
import minitorch.nn.init as init
from minitorch.arguments import check_floating
from minitorch.creation import empty, zeros
from minitorch.dtypes import DType, bool_
from minitorch.functions.attention import NEVER, attention_weights
from minitorch.nn.linear import Linear, check_sizes
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.random import default_generator
from minitorch.tensor import Tensor


class MultiheadAttention(Module):
    """Attention of `num_heads` heads, each on its part of the features.

    query [L, N, E], key [S, N, K] and value [S, N, V] -> [L, N, E]; with `batch_first`
    [N, L, E], [N, S, K] and [N, S, V]; without a batch [L, E], [S, K] and [S, V].

    Args:
        embed_dim: E, a multiple of num_heads.
        dropout: of the weights of attention, in training.
        kdim, vdim: K and V; E if None.

    Of PyTorch's arguments add_bias_kv and add_zero_attn are missing.

    Source: Vaswani et al., "Attention is all you need", 2017.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        check_sizes(
            "MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads,
            kdim=self.kdim, vdim=self.vdim,
        )  # fmt: skip
        if num_heads == 0 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim is {embed_dim} and num_heads "
                f"{num_heads}; the first must be a multiple of the second"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        options: Any = {"device": device, "dtype": dtype}
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        shapes = {f"{x}_proj_weight": (embed_dim, n) for x, n in widths.items()}
        if len(set(widths.values())) == 1:
            shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        for name in (*[f"{x}_proj_weight" for x in widths], "in_proj_weight"):
            made = name in shapes
            weight = Parameter(empty(shapes[name], **options)) if made else None
            self.register_parameter(name, weight)
        first = Parameter(zeros(3 * embed_dim, **options)) if bias else None
        self.register_parameter("in_proj_bias", first)
        self.out_proj = Linear(embed_dim, embed_dim, bias, **options)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        for name in shapes:  # last, as in PyTorch: the same seed gives its weights
            init.xavier_uniform_(getattr(self, name))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attention's output, and its weights [N, L, S] if they are needed.

        Args:
            key_padding_mask: [N, S], keys to leave out: True, or a number to add.
            need_weights: leave this out, and no weights have to be kept.
            attn_mask: [L, S] or [N * heads, L, S], what not to see: True, or a number
                to add to the scores.
            average_attn_weights: the mean of all heads' weights; else [N, heads, L, S].
            is_causal: position i sees the keys 0 .. i; instead of an `attn_mask`.
        """
        self._check(query, key, value)
        single = query.dim() == 2
        swap = not self.batch_first and not single
        parts = self._projected(query, key, value)
        if swap:
            parts = [x.transpose(0, 1) for x in parts]
        q, k, v = (self._heads(x.unsqueeze(0) if single else x) for x in parts)
        if single and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        mask = _added(key_padding_mask, attn_mask, q, k.raw.shape[2])
        causal = is_causal and attn_mask is None
        if causal and mask is not None:
            seen = q.new_ones((q.raw.shape[2], k.raw.shape[2])).tril() > 0
            mask, causal = mask.masked_fill(~seen, NEVER), False
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = attention_weights(q, k, mask, causal)
            weights = F.dropout(weights, p, self.training)
            out = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
        out = out.transpose(1, 2)
        if default_generator.sequence == "philox":
            out = self.out_proj(out.flatten(2))
        else:  # in memory [L, N, E], as in PyTorch, whose dropout draws along memory
            out = self.out_proj(out.transpose(0, 1).flatten(2)).transpose(0, 1)
        if single:
            return out.squeeze(0), weights if weights is None else weights.squeeze(0)
        return out.transpose(0, 1) if swap else out, weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """One batch of all three, or of none; as many values as keys."""
        for x in (query, key, value):
            check_floating("MultiheadAttention", x)
        shapes = q, k, v = query.raw.shape, key.raw.shape, value.raw.shape
        first = self.batch_first and len(q) == 3
        widths = self.embed_dim, self.kdim, self.vdim
        if len(q) == len(k) == len(v) in (2, 3):
            batch, length = (q[:1], k[1]) if first else (q[1:-1], k[0])
            lengths = (q[1] if first else q[0]), length, length
            wanted = [
                (*batch, n, width) if first else (n, *batch, width)
                for n, width in zip(lengths, widths)
            ]
            if wanted == list(shapes):
                return
        names = ("N, L", "N, S") if self.batch_first else ("L, N", "S, N")
        raise ValueError(
            f"MultiheadAttention: query is {q}, key {k} and value {v}; expected "
            f"({names[0]}, {widths[0]}), ({names[1]}, {widths[1]}) and ({names[1]}, "
            f"{widths[2]}), or all of them without N"
        )

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Query, key and value of all heads; one product where all are one tensor."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is None:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        elif query is key is value:
            return list(F.linear(query, weight, bias).chunk(3, -1))
        else:
            weights = weight.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return [
            F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)
        ]

    def _heads(self, x: Tensor) -> Tensor:
        """[N, L, E] -> [N, heads, L, head_dim]"""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"


def _added(
    padding: Tensor | None, mask: Tensor | None, query: Tensor, keys: int
) -> Tensor | None:
    """Both masks as numbers to add to the scores [N, heads, L, S]; None for none."""
    batch, heads, length, _ = query.raw.shape
    scores = length, keys
    _check_mask("key_padding_mask", padding, (batch, keys))
    _check_mask("attn_mask", mask, scores, (batch * heads, *scores))
    total = None
    if padding is not None:
        total = _as_numbers(padding, query).reshape((batch, 1, 1, keys))
    if mask is not None:
        mask = _as_numbers(mask, query)
        if mask.dim() == 3:
            mask = mask.reshape((batch, heads, length, keys))
        total = mask if total is None else total + mask
    return total


def _check_mask(name: str, mask: Tensor | None, *shapes: tuple[int, ...]) -> None:
    if mask is None:
        return
    if mask.raw.shape not in shapes or mask.dtype.category == 1:
        raise ValueError(
            f"MultiheadAttention: {name} is {mask.dtype.name} {mask.raw.shape}; "
            f"expected bool or floating {' or '.join(map(str, shapes))}"
        )


def _as_numbers(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not bool_:
        return mask
    return like.new_zeros(mask.shape).masked_fill(mask, NEVER)
