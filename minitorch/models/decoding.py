"""A block of a GPT for one token of each text, in few kernels.

With this file a step of generation on a GPU does what `Block` does (`step`), with what
stands around a product done by its kernel: norm, bias, GELU and the sum with the
stream. Each of these is a launch of two microseconds, and there are hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import minitorch.nn.functional as F
import minitorch.operators as operators
from minitorch import nn
from minitorch.autodiff import modes
from minitorch.functions.linear import as_rows, reshaped

if TYPE_CHECKING:
    from minitorch.models.cache import KVCache, Places
    from minitorch.tensor import Tensor


def takes(
    kinds: set[type], block: Any, x: Tensor, where: Places, cache: KVCache | None
) -> bool:
    """Whether `step` does for `x` what the block does: it is a token of each text on a
    GPU, and the block has GPT-2's parts (`kinds`, and layers of `nn`), as they were
    made, and nobody's hooks."""
    if cache is None or cache.fresh or x.raw.shape[1] != 1 or block.training:
        return False
    if not x.raw.device.startswith("cuda") or modes.get() != (False, None):
        return False
    parts = list(block.modules())
    known = kinds | {nn.Linear, nn.LayerNorm, nn.Dropout}
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in parts)
    plain = where.rotation is None and block.mlp.kind != "swiglu" and not hooks
    return plain and {type(m) for m in parts} <= known


def step(block: Any, x: Tensor, where: Places, cache: Any, layer: int) -> Tensor:
    """x [B, 1, C] -> [B, 1, C]; the arguments are those of `Block`."""
    a, m = block.attn, block.mlp
    heads = _layer(x, a.c_attn, block.ln_1, kept=(cache, layer))
    heads = heads.unflatten(-1, (-1, a.size)).transpose(1, 2)
    q, (k, v) = heads[:, : a.heads], cache.layers[layer].split(a.kv_heads, 1)
    y = F.scaled_dot_product_attention(
        q, k, v, where.mask, enable_gqa=a.heads != a.kv_heads
    )
    x = _layer(y.transpose(1, 2).flatten(2), a.c_proj, residual=x)
    gelu = operators.gelu_tanh if m.kind == "gelu_tanh" else operators.gelu
    return _layer(_layer(x, m.c_fc, block.ln_2, gelu), m.c_proj, residual=x)


def _layer(
    x: Tensor, linear: Any, norm: Any = None, fn: Callable | None = None,
    residual: Tensor | None = None, kept: tuple[KVCache, int] | None = None,
) -> Tensor:  # fmt: skip
    """residual + fn(linear(norm(x))), by one kernel where there is one.

    The last columns are keys and values for the cache of `kept`, in its layer.
    """

    def raw(a: Tensor | None) -> Any:
        return None if a is None else a.raw

    backend, about, more, cache = x.backend, None, residual, None
    if norm is not None:
        about = raw(norm.weight), raw(norm.bias), norm.eps
    if kept is not None:
        cache = kept[0].layers[kept[1]].raw, kept[0].writing.raw
    made = backend.linear(
        as_rows(x.raw, backend), linear.weight.raw, raw(linear.bias), fn,
        None if more is None else as_rows(more.raw, backend), about, True, cache,
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
