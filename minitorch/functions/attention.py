"""Attention: each query takes a mean of the values, weighted by how its key fits.

With this file one can see attention as three known steps, products of queries and keys,
softmax, and products of the weights with the values; and what masks, causality and
shared heads add to it. Without a mask and dropout the three are one operation
(`Attention`), which need not keep the weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.arguments import check_floating
from minitorch.autodiff import grad_mode
from minitorch.function import Context, Function
from minitorch.functions.autocasting import in_lower
from minitorch.functions.choice import where
from minitorch.functions.indexing import repeat_interleave
from minitorch.functions.movement import in_shape
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    check_same_device,
)
from minitorch.functions.random import dropout
from minitorch.functions.softmax import softmax
from minitorch.tensor_data import Shape, TensorData, broadcast_shapes

if TYPE_CHECKING:
    from minitorch.backend import Backend
    from minitorch.tensor import Tensor

NEVER = -math.inf  # the score of a key that may not be seen: its weight is 0


class Attention(Function):
    """out = P value, with the weights P = softmax(query key^T * scale)

    dS = P * (grad value^T - rowsum(grad * out)) * scale;
    grad_query = dS key, grad_key = dS^T query, grad_value = P^T grad.

    Of the weights only the logarithm of each row's sum is kept, from which the backward
    pass makes them again.

    query [B, H, L, E], key [B, K, S, E], value [B, K, S, V] -> [B, H, L, V], where H is
    a multiple of K. Source: Dao et al., "FlashAttention", 2022.
    """

    @staticmethod
    def forward(
        ctx: Context, query: Tensor, key: Tensor, value: Tensor, scale: float,
        causal: bool,
    ) -> Any:  # fmt: skip
        backend, shape = query.backend, query.raw.shape[:-1]
        out = _laid_out_as(backend, query.raw, (*shape, value.raw.shape[-1]))
        exact = query.dtype is dtypes.float64
        total = backend.empty(shape, dtypes.float64 if exact else dtypes.float32)
        backend.attention(out, total, query.raw, key.raw, value.raw, scale, causal)
        ctx.save_for_backward(query, key, value, out, total)
        ctx.options = scale, causal
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        query, key, value, out, total = ctx.saved_tensors
        scale, causal = ctx.options
        if grad_mode.enabled:
            grads = _composed_backward(grad, query, key, value, scale, causal)
            return (*grads, None, None)
        inputs = [x.raw for x in (query, key, value)]
        raws = [_laid_out_as(grad.backend, x, x.shape) for x in inputs]
        grad.backend.attention_backward(
            *raws, grad.raw, *inputs, out.raw, total.raw, scale, causal
        )
        return (*[grad.wrap(raw) for raw in raws], None, None)


def _laid_out_as(backend: Backend, like: TensorData, shape: Shape) -> TensorData:
    """New memory for `shape` [B, H, L, E] with heads and positions as in `like`.

    Models make heads of features, so that a position's heads lie side by side. Where
    they do so again in the output, the way back to features is no copy.
    """
    b, h, n, e = shape
    if like.strides[1] >= like.strides[2]:
        return backend.empty(shape, like.dtype)
    return backend.empty((b, n, h, e), like.dtype).permute((0, 2, 1, 3))


def _composed_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas of `Attention`, as operations of which there are gradients.

    Groups of heads are a dimension of their own: [B, K, H / K, *].
    """
    heads = key.raw.shape[1]
    groups = heads, query.raw.shape[1] // max(heads, 1)
    q, g = (x.unflatten(1, groups) for x in (query, grad))
    k, v = key.unsqueeze(2), value.unsqueeze(2)
    weights = attention_weights(q, k, None, causal, scale)
    slope = weights * (g @ v.mT)
    slope = (slope - weights * slope.sum(-1, keepdim=True)) * scale
    return (slope @ k).flatten(1, 2), (slope.mT @ q).sum(2), (weights.mT @ g).sum(2)


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
    fused = attn_mask is None and not dropout_p
    if enable_gqa:
        _check_heads(query, key, value)
        if not fused or key.raw.shape[-3] != value.raw.shape[-3]:
            key, value = (_for_all_heads(query, x) for x in (key, value))
    batches = [x.raw.shape[: -3 if enable_gqa else -2] for x in (query, key, value)]
    check_broadcast("scaled_dot_product_attention: batch", *batches)
    if fused:
        return _fused(query, key, value, is_causal, scale)
    # Half types are rounded once, at the end.
    dtype, wide = query.dtype, dtypes.promote(query.dtype, dtypes.float32)
    query, key, value = (cast(x, wide) for x in (query, key, value))
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    out = (dropout(weights, dropout_p) if dropout_p else weights) @ value
    return cast(out, dtype)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None
) -> Tensor:
    """Batch dims broadcast and folded to one, for the operation above."""
    parts = query, key, value
    lead = broadcast_shapes(*[x.raw.shape[:-3] for x in parts])
    many, *both = (x.raw.shape[-3] if x.dim() > 2 else 1 for x in parts)
    few = max(both) if all(both) else 0
    many = many if few and many % few == 0 else few
    rows = [
        _expanded(x, (*lead, heads, *x.raw.shape[-2:]))
        for x, heads in zip(parts, (many, few, few))
    ]
    out = Attention.apply(*rows, _scale_of(query, scale), bool(is_causal))
    heads = (*lead, many) if max(x.dim() for x in parts) > 2 else ()
    return in_shape(out, (*heads, *out.raw.shape[-2:]))


def _expanded(x: Tensor, shape: Shape) -> Tensor:
    """Broadcast to `shape` [*, H, N, E], as [B, H, N, E]."""
    x = x if x.raw.shape == shape else x.expand(shape)
    return in_shape(x, (math.prod(shape[:-3]), *shape[-3:]))


def _scale_of(query: Tensor, scale: float | None) -> float:
    width = max(query.raw.shape[-1], 1)
    return 1 / math.sqrt(width) if scale is None else float(scale)


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
    scores = (query * _scale_of(query, scale)) @ key.mT
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


def _check_heads(query: Tensor, *shared: Tensor) -> None:
    """There are heads, and those of the query are a multiple of the others."""
    name, shapes = "scaled_dot_product_attention", [x.raw.shape for x in shared]
    if query.dim() < 3 or any(len(shape) < 3 for shape in shapes):
        raise ValueError(
            f"{name}: enable_gqa needs a dimension of heads; the query is "
            f"{query.raw.shape}, key and value {' and '.join(map(str, shapes))}"
        )
    many = query.raw.shape[-3]
    for few in [shape[-3] for shape in shapes]:
        if few == 0 or many % few:
            raise ValueError(
                f"{name}: the query has {many} heads, key or value {few}; with "
                f"enable_gqa the first must be a multiple of the second"
            )


def _for_all_heads(query: Tensor, x: Tensor) -> Tensor:
    """Each head of `x` as often as query heads share it."""
    many, few = query.raw.shape[-3], x.raw.shape[-3]
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
