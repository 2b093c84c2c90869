"""Attention: each query takes a mean of the values, weighted by how its key fits.

With this file one can see attention as three known steps, products of queries and keys,
softmax, and products of the weights with the values; and what masks, causality, dropout
and shared heads add to it. The three are one operation (`Attention`), which need not
keep the weights; one by one they run where a mask has a gradient.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.arguments import check_floating
from minitorch.autodiff import grad_mode
from minitorch.backend.attention import KEEP_ALL, Drop, random_words
from minitorch.function import Context, Function
from minitorch.functions.autocasting import in_lower
from minitorch.functions.choice import where
from minitorch.functions.indexing import repeat_interleave
from minitorch.functions.movement import in_shape, joined
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    check_same_device,
)
from minitorch.functions.random import check_probability, dropout
from minitorch.functions.softmax import softmax
from minitorch.random import default_generator
from minitorch.tensor_data import Shape, TensorData, broadcast_shapes

if TYPE_CHECKING:
    from minitorch.backend import Backend
    from minitorch.tensor import Tensor

NEVER = -math.inf  # the score of a key that may not be seen: its weight is 0


class _Substitute(threading.local):
    """What works in the place of `scaled_dot_product_attention`, or None: see
    `minitorch/distributed/tensor/experimental`."""

    attend: Callable[..., Any] | None = None


substitute = _Substitute()


@contextmanager
def substituted(attend: Callable[..., Any] | None) -> Iterator[None]:
    """For a block, `scaled_dot_product_attention` is another function; None: itself."""
    before, substitute.attend = substitute.attend, attend
    try:
        yield
    finally:
        substitute.attend = before


class Attention(Function):
    """out = (M * P) value, with the weights P = softmax(query key^T * scale + mask)

    dS = P * (M * grad value^T - rowsum(grad * out)) * scale;
    grad_query = dS key, grad_key = dS^T query, grad_value = (M * P)^T grad.

    Of the weights only the logarithm of each row's sum is kept, from which the backward
    pass makes them again; and of dropout, M, the place of its random numbers.

    query [B, H, L, E], key [B, K, S, E], value [B, K, S, V] -> [B, H, L, V], where H is
    a multiple of K. Source: Dao et al., "FlashAttention", 2022.
    """

    @staticmethod
    def forward(
        ctx: Context, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
        scale: float, causal: bool, drop: Drop,
    ) -> Any:  # fmt: skip
        backend, shape = query.backend, query.raw.shape[:-1]
        out = laid_out_as(backend, query.raw, (*shape, value.raw.shape[-1]))
        exact = query.dtype is dtypes.float64
        total = backend.empty(shape, dtypes.float64 if exact else dtypes.float32)
        ctx.options = scale, causal, None if mask is None else mask.raw, drop
        backend.attention(out, total, query.raw, key.raw, value.raw, *ctx.options)
        ctx.save_for_backward(query, key, value, out, total, mask)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        query, key, value, out, total, mask = ctx.saved_tensors
        if grad_mode.enabled:
            scale, causal, _, drop = ctx.options
            kept = _kept_weights(query, key, drop) if drop[0] else None
            grads = _composed_backward(
                grad, query, key, value, scale, causal, mask, kept
            )
            return (*grads, None, None, None, None)
        inputs = [x.raw for x in (query, key, value)]
        raws = _gradients_for(grad.backend, inputs)
        grad.backend.attention_backward(
            *raws, grad.raw, *inputs, out.raw, total.raw, *ctx.options
        )
        return (*[grad.wrap(raw) for raw in raws], None, None, None, None)


def laid_out_as(backend: Backend, like: TensorData, shape: Shape) -> TensorData:
    """New memory for `shape` [B, H, L, E] with heads and positions as in `like`.

    Models make heads of features, so that a position's heads lie side by side. Where
    they do so again in the output, the way back to features is no copy.
    """
    b, h, n, e = shape
    if like.strides[1] >= like.strides[2]:
        return backend.empty(shape, like.dtype)
    return backend.empty((b, n, h, e), like.dtype).permute((0, 2, 1, 3))


def _gradients_for(backend: Backend, inputs: list[TensorData]) -> list[TensorData]:
    """New memory for the gradients of query, key and value: in one piece where these
    are heads of one product, whose gradient is there then."""
    whole = joined(inputs, 1)
    if whole is None:
        return [laid_out_as(backend, x, x.shape) for x in inputs]
    room = laid_out_as(backend, whole, whole.shape)
    sizes = [x.shape[1] for x in inputs]
    return [room.slice(1, sum(sizes[:i]), n) for i, n in enumerate(sizes)]


def _kept_weights(query: Tensor, key: Tensor, drop: Drop) -> Tensor:
    """What dropout multiplies weights by, [B, H, L, S]."""
    shape = *query.raw.shape[:3], key.raw.shape[2]
    return query.wrap(query.backend.kept_weights(shape, drop, query.dtype))


def _composed_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float,
    causal: bool, mask: Tensor | None = None, kept: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The formulas of `Attention`, as operations of which there are gradients.

    `mask` and `kept`, the M of dropout, are [B, H, L, S]. Groups of heads are a
    dimension of their own: [B, K, H / K, *].
    """
    heads = key.raw.shape[1]
    groups = heads, query.raw.shape[1] // max(heads, 1)
    mask, kept = (x if x is None else x.unflatten(1, groups) for x in (mask, kept))
    # BEGIN SOLUTION a10.2
    q, g = (x.unflatten(1, groups) for x in (query, grad))
    k, v = key.unsqueeze(2), value.unsqueeze(2)
    weights = attention_weights(q, k, mask, causal, scale)
    dropped = weights if kept is None else weights * kept
    slope = dropped * (g @ v.mT)
    slope = (slope - weights * slope.sum(-1, keepdim=True)) * scale
    return (slope @ k).flatten(1, 2), (slope.mT @ q).sum(2), (dropped.mT @ g).sum(2)
    # END SOLUTION a10.2


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
    if substitute.attend is not None:
        how = attn_mask, dropout_p, is_causal, scale, enable_gqa
        return substitute.attend(query, key, value, *how)
    _check(query, key, value, attn_mask, is_causal)
    check_probability(dropout_p)
    fused = dropout_p < 1 and _is_constant(attn_mask)
    fused = fused and (dropout_p == 0 or default_generator.sequence == "philox")
    if enable_gqa:
        _check_heads(query, key, value)
        if not fused or key.raw.shape[-3] != value.raw.shape[-3]:
            key, value = (_for_all_heads(query, x) for x in (key, value))
    batches = [x.raw.shape[: -3 if enable_gqa else -2] for x in (query, key, value)]
    check_broadcast("scaled_dot_product_attention: batch", *batches)
    if fused:
        return _fused(query, key, value, attn_mask, dropout_p, is_causal, scale)
    # Half types are rounded once, at the end.
    dtype, wide = query.dtype, dtypes.promote(query.dtype, dtypes.float32)
    query, key, value = (cast(x, wide) for x in (query, key, value))
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    out = (dropout(weights, dropout_p) if dropout_p else weights) @ value
    return cast(out, dtype)


def _is_constant(mask: Tensor | None) -> bool:
    """Whether no gradient of the mask is wanted."""
    return mask is None or not (mask.requires_grad and grad_mode.enabled)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float,
    is_causal: bool, scale: float | None,
) -> Tensor:  # fmt: skip
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
    heads = (*lead, many) if max(x.dim() for x in parts) > 2 else ()
    scores = query.raw.shape[-2], key.raw.shape[-2]
    if mask is not None:
        _check_mask(mask, (*heads, *scores))
        mask = _expanded(mask, (*lead, many, *scores))
    drop = _drop(math.prod((*lead, many, scores[0])), scores[1], p)
    out = Attention.apply(*rows, mask, _scale_of(query, scale), bool(is_causal), drop)
    return in_shape(out, (*heads, *out.raw.shape[-2:]))


def _check_mask(mask: Tensor, scores: Shape) -> None:
    name, shape = "scaled_dot_product_attention: mask", mask.raw.shape
    if check_broadcast(name, shape, scores) != scores:
        raise ValueError(
            f"{name}: it is {shape}, which does not expand to the scores, {scores}"
        )


def _drop(rows: int, keys: int, p: float) -> Drop:
    """Random words for `rows` rows of weights, as `Backend.kept_weights` uses them."""
    if not p:
        return KEEP_ALL
    return float(p), *default_generator.take(rows * random_words(keys))


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
    # BEGIN SOLUTION a10.2
    scores = (query * _scale_of(query, scale)) @ key.mT
    if is_causal:
        seen = scores.new_ones(scores.shape[-2:]).tril() > 0
        return softmax(where(seen, scores, NEVER), -1)
    if attn_mask is not None:
        return _masked_softmax(scores, attn_mask)
    return softmax(scores, -1)
    # END SOLUTION a10.2


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax of the scores of keys that are seen; zeros where none is."""
    check_broadcast(
        "scaled_dot_product_attention: mask", mask.raw.shape, scores.raw.shape
    )
    # BEGIN SOLUTION a10.2
    if mask.dtype.category == 0:
        scores = where(mask, scores, NEVER)
    else:
        scores = scores + mask
    # Of nothing but -inf the softmax is NaN, and so would be the gradient.
    none = (scores == NEVER).all(-1, keepdim=True)
    return softmax(scores.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)
    # END SOLUTION a10.2


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
    # BEGIN SOLUTION a10.2
    many, few = query.raw.shape[-3], x.raw.shape[-3]
    return x if many == few else repeat_interleave(x, many // few, -3)
    # END SOLUTION a10.2


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
