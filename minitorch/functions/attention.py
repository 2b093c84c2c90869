"""Attention: each query takes a mean of the values, weighted by how its key fits.

With this file one can see attention as three known steps, products of queries and keys,
softmax, and products of the weights with the values; and what masks, causality and
shared heads add to it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.arguments import check_floating
from minitorch.functions.autocasting import in_lower
from minitorch.functions.choice import where
from minitorch.functions.indexing import repeat_interleave
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    check_same_device,
)
from minitorch.functions.random import dropout
from minitorch.functions.softmax import softmax

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

NEVER = -math.inf  # the score of a key that may not be seen: its weight is 0


@in_lower
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, with batch dims * that broadcast.

    query [*, L, E], key [*, S, E], value [*, S, V] -> [*, L, V]. Before L and S stands
    the dimension of heads, if there is one.

    Args:
        attn_mask: [*, L, S]; bool: whether a query sees a key; floating: added to the
            scores. A query that sees no key gets zeros.
        dropout_p: with this probability a weight becomes 0, and the others are divided
            by 1 - p. There is no training flag: give 0 for evaluation.
        is_causal: query i sees the keys 0 .. i, also where there are more keys.
        scale: 1 / sqrt(E) if None.
        enable_gqa: heads of the query come in groups that share one head of key and
            value: query head h takes head h // (query heads / key heads).

    Errors: ValueError for shapes that do not fit and a mask beside `is_causal`,
    TypeError for dtypes, RuntimeError for devices.

    Source: Vaswani et al., "Attention is all you need", 2017; groups of heads: Ainslie
    et al., 2023.
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        key, value = (_for_all_heads(query, x) for x in (key, value))
    batches = [x.raw.shape[:-2] for x in (query, key, value)]
    check_broadcast("scaled_dot_product_attention: batch", *batches)
    # Half types are rounded once, at the end.
    dtype, wide = query.dtype, dtypes.promote(query.dtype, dtypes.float32)
    query, key, value = (cast(x, wide) for x in (query, key, value))
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    out = (dropout(weights, dropout_p) if dropout_p else weights) @ value
    return cast(out, dtype)


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """What share each query takes of each value, [*, L, S]: rows with the sum 1.

    The arguments are those of `scaled_dot_product_attention`, which checks them.
    """
    width = query.raw.shape[-1]
    scale = 1 / math.sqrt(max(width, 1)) if scale is None else scale
    scores = (query * scale) @ key.mT
    if is_causal:
        seen = scores.new_ones(scores.shape[-2:]).tril() > 0
        return softmax(where(seen, scores, NEVER), -1)
    if attn_mask is not None:
        return _masked_softmax(scores, attn_mask)
    return softmax(scores, -1)


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax of the scores of keys that are seen; zeros where none is."""
    check_broadcast(
        "scaled_dot_product_attention: mask", mask.raw.shape, scores.raw.shape
    )
    if mask.dtype.category == 0:
        scores = where(mask, scores, NEVER)
    else:
        scores = scores + mask
    # Of nothing but -inf the softmax is NaN, and so would be the gradient.
    none = (scores == NEVER).all(-1, keepdim=True)
    return softmax(scores.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)


def _for_all_heads(query: Tensor, x: Tensor) -> Tensor:
    """Each head of `x` as often as query heads share it."""
    if query.dim() < 3 or x.dim() < 3:
        raise ValueError(
            f"scaled_dot_product_attention: enable_gqa needs a dimension of heads; the "
            f"query is {query.raw.shape}, key or value {x.raw.shape}"
        )
    many, few = query.raw.shape[-3], x.raw.shape[-3]
    if few == 0 or many % few:
        raise ValueError(
            f"scaled_dot_product_attention: the query has {many} heads, key or value "
            f"{few}; with enable_gqa the first must be a multiple of the second"
        )
    return x if many == few else repeat_interleave(x, many // few, -3)


def _check(
    query: Any, key: Any, value: Any, mask: Tensor | None, is_causal: bool
) -> None:
    name = "scaled_dot_product_attention"
    for x in (query, key, value):
        check_floating(name, x)
    check_alike(name, query, key, value)
    q, k, v = (x.raw.shape for x in (query, key, value))
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise ValueError(
            f"{name}: query is {q}, key {k} and value {v}; expected (*, L, E), "
            f"(*, S, E) and (*, S, V)"
        )
    if mask is None:
        return
    if is_causal:
        raise ValueError(f"{name}: give attn_mask or is_causal=True, not both")
    check_same_device(name, query, mask)
    if mask.dtype is not query.dtype and mask.dtype is not dtypes.bool_:
        raise TypeError(
            f"{name}: the mask is {mask.dtype.name}; expected bool or, as the query, "
            f"{query.dtype.name}"
        )
