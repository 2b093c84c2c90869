"""A GPT for one token of each text, in few kernels.

With this file a step of generation on a GPU does what `GPT.features` does (`features`),
with what stands around a product done by its kernel: norm, bias, GELU and the sum with
the stream. Each of these is a launch of two microseconds, and there are hundreds of
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch import nn
from minitorch.autodiff import modes
from minitorch.dtypes import float32, int64
from minitorch.functions.linear import as_rows, reshaped
from minitorch.quantization import QuantizedLinear

if TYPE_CHECKING:
    from minitorch.models.cache import KVCache
    from minitorch.tensor import Tensor
    from minitorch.tensor_data import TensorData

# Bytes of a part of the head's weight, which is too large for caches.
HEAD = 2**23


def takes(kinds: set[type], model: Any, ids: Tensor, cache: KVCache | None) -> bool:
    """Whether `features` does for `ids` what the model does: they are a token of each
    text on a GPU, and the model has GPT-2's parts (`kinds`, and layers of `nn`), as
    they were made, and nobody's hooks. What is wrong with a cache, the layers say."""
    if cache is None or cache.fresh or ids.shape[1] != 1:
        return False
    if not ids.raw.device.startswith("cuda") or modes.get() != (False, None):
        return False
    parts = list(model.modules())[1:]
    known = kinds | {nn.Linear, nn.LayerNorm, nn.Dropout, nn.Embedding, nn.ModuleList}
    known.add(QuantizedLinear)
    changed = any(m._forward_hooks or m._forward_pre_hooks or m.training for m in parts)
    plain = model.wpe is not None and model.config.mlp != "swiglu" and not changed
    return plain and {type(m) for m in parts} <= known and _fits(model, ids, cache)


def _fits(model: Any, ids: Tensor, cache: KVCache) -> bool:
    """Whether the kernels, which do not ask, read and write within the cache."""
    c, (B, _), memory = model.config, ids.shape, cache.memory
    right = ids.dtype is int64
    if not hasattr(cache, "attend"):
        shape = c.n_layer, B, 2 * c.kv_heads, cache.max_length, c.head_size
        of_all = cache.padding is None or cache.padding.shape == (B,)
        right = right and memory.shape == shape and of_all
    kinds = {(a.raw.device, a.dtype) for a in (memory, *model.parameters())}
    here = {b.raw.device for b in model.buffers()} == {ids.raw.device}
    return right and here and kinds == {(ids.raw.device, memory.dtype)}


def features(model: Any, ids: Tensor, cache: Any) -> Tensor:
    """ids [B, 1] -> [B, 1, C], and their keys and values into the cache.

    A `KVCache` is written by the product that makes keys and values; a cache that can
    `attend` (`PagedCache`) does both by itself.

    While a layer is computed, the weight of the one after the next comes to a GPU's
    cache; that of the next is already being read then.
    """
    if hasattr(cache, "attend"):
        x, mask = model.wte(ids) + model.wpe(cache.positions), None
    else:
        x, mask = _begun(model, ids, cache)
    soon = _weights(model)
    next(soon), next(soon)
    for layer, block in enumerate(model.h):
        x = _step(block, x, mask, cache, layer, soon)
    return model.ln_f(x)


def _weights(model: Any) -> Iterator[TensorData]:
    """In the order of their use; at the end two parts of the head's."""
    for block in model.h:
        a, m = block.attn, block.mlp
        yield from (_weight(x)[0] for x in (a.c_attn, a.c_proj, m.c_fc, m.c_proj))
    head, _ = _weight(model.lm_head)
    row = head.size // head.shape[0] * head.dtype.itemsize
    rows = min(head.shape[0] // 2, HEAD // row)
    yield from (head.slice(0, i * rows, rows) for i in range(2))


def _weight(linear: Any) -> tuple[TensorData, TensorData | None]:
    """The weight of a layer, and its scales, where it is quantized."""
    if isinstance(linear, QuantizedLinear):
        return linear.q.raw, linear.scale.raw
    return linear.weight.raw, None


def _begun(model: Any, ids: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
    """Where the blocks begin, and the mask; the cache counts the tokens."""
    from cuda_ops.told import begin

    x, mask, writing = begin(
        ids.raw, model.wte.weight.raw, model.wpe.weight.raw, cache.slot.raw,
        cache.max_length, None if cache.padding is None else cache.padding.raw,
    )  # fmt: skip
    cache.writing, cache.fresh = ids.wrap(writing), False
    return ids.wrap(x), ids.wrap(mask)


def _step(
    block: Any, x: Tensor, mask: Tensor | None, cache: Any, layer: int,
    soon: Iterator[TensorData],
) -> Tensor:  # fmt: skip
    """x [B, 1, C] -> [B, 1, C], through a block."""
    a, m = block.attn, block.mlp
    kept = None if mask is None else (cache, layer)
    heads = _layer(x, a.c_attn, next(soon), block.ln_1, kept=kept)
    heads = heads.unflatten(-1, (-1, a.size)).transpose(1, 2)
    if mask is None:
        y = cache.attend(heads[:, : a.heads], *cache.write(layer, heads[:, a.heads :]))
    else:
        y = _attend(heads[:, : a.heads], mask, cache, layer)
    x = _layer(y.transpose(1, 2).flatten(2), a.c_proj, next(soon), residual=x)
    gelu = operators.gelu_tanh if m.kind == "gelu_tanh" else operators.gelu
    y = _layer(x, m.c_fc, next(soon), block.ln_2, gelu)
    return _layer(y, m.c_proj, next(soon), residual=x)


def _attend(q: Tensor, mask: Tensor, cache: Any, layer: int) -> Tensor:
    """q [B, H, 1, E] -> [B, H, 1, E], from what its layer has in the cache."""
    backend, shape = q.backend, q.raw.shape
    k, v = (x.raw for x in cache.layers[layer].split(cache.heads, 1))
    out, total = backend.empty(shape, q.dtype), backend.empty(shape[:3], float32)
    backend.attention(
        out, total, q.raw, k, v, 1 / math.sqrt(shape[3]), False,
        mask.raw.expand((*shape[:3], k.shape[2])), newest=cache.writing.raw,
    )  # fmt: skip
    return q.wrap(out)


def _layer(
    x: Tensor, linear: Any, soon: TensorData, norm: Any = None,
    fn: Callable | None = None, residual: Tensor | None = None,
    kept: tuple[KVCache, int] | None = None,
) -> Tensor:  # fmt: skip
    """residual + fn(linear(norm(x))), by one kernel where there is one.

    The last columns are keys and values for the cache of `kept`, in its layer. `soon`
    is a weight that is wanted soon.
    """

    def raw(a: Tensor | None) -> Any:
        return None if a is None else a.raw

    backend, about, more, cache = x.backend, None, residual, None
    if norm is not None:
        about = raw(norm.weight), raw(norm.bias), norm.eps
    if kept is not None:
        cache = kept[0].layers[kept[1]].raw, kept[0].writing.raw
    weight, scale = _weight(linear)
    made = backend.linear(
        as_rows(x.raw, backend), weight, raw(linear.bias), fn,
        None if more is None else as_rows(more.raw, backend), about, True, cache,
        soon, scale,
    )  # fmt: skip
    if made is not None:
        return x.wrap(reshaped(made, (*x.raw.shape[:-1], made.shape[1])))
    y = linear(x if norm is None else norm(x))
    y = y if fn is None else y.wrap(backend.map(fn, y.raw))
    if kept is not None:
        _, many, _, size = kept[0].layers[kept[1]].shape
        heads = y.unflatten(-1, (-1, size)).transpose(1, 2)
        kept[0].write(kept[1], heads[:, -many:])
    return y if residual is None else residual + y
