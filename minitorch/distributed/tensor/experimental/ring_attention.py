"""Attention over a sequence that is too long for one rank.

With this file each rank has a part of a sequence (`own_part`) and its queries look at
all keys (`ring_attention`): keys and values go round the ring of ranks, and while a
block of them is looked at, the next one is on its way. No rank ever has more than two
blocks, and nobody waits if looking takes longer than sending.

What queries found in one block of keys is o_i, a mean with the weights exp(score), and
z_i, the logarithm of the sum of these weights. Two blocks are merged exactly:

    z = log(exp(z_1) + exp(z_2))        o = exp(z_1 - z) o_1 + exp(z_2 - z) o_2

A causal query sees no keys behind it, so that with parts in order the last rank would
have nearly all of the work. The sequence is cut into twice as many chunks as there are
ranks, and rank r has chunks r and 2 n - 1 - r:

    n = 4       rank 0: 0 7     rank 1: 1 6     rank 2: 2 5     rank 3: 3 4

All queries of a rank then see the first chunk of each rank before it, and its second
chunk of queries sees all keys of each rank behind it: half of all pairs, always.

Source: Liu et al., "Ring attention with blockwise transformers", 2023; two chunks a
rank: Dubey et al., "The Llama 3 herd of models", 2024, section 3.3.2.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from minitorch.creation import empty, zeros
from minitorch.distributed.collectives import P2POp, batch_isend_irecv, irecv, isend
from minitorch.distributed.collectives import member as group_of
from minitorch.distributed.device_mesh import DeviceMesh
from minitorch.distributed.group import ProcessGroup
from minitorch.dtypes import float32, promote
from minitorch.function import UserFunction, once_differentiable
from minitorch.functions.attention import laid_out_as, substituted
from minitorch.functions.autocasting import in_lower
from minitorch.functions.movement import cat
from minitorch.tensor import Tensor


def context_parallel(mesh: DeviceMesh) -> AbstractContextManager[None]:
    """For a block, `scaled_dot_product_attention` is `ring_attention`: for models that
    are given parts of sequences, and the positions of these."""
    return substituted(partial(ring_attention, group=mesh.get_group()))


def own_part(x: Tensor, group: ProcessGroup, dim: int = 1) -> Tensor:
    """This rank's two chunks of a sequence along `dim`.

    Errors: ValueError for a length that is no multiple of twice the number of ranks.
    """
    n, me, length = group.size(), group.rank(), x.shape[dim]
    if length % (2 * n):
        raise ValueError(
            f"own_part: a sequence of {length} on {n} ranks, each of which has two "
            f"chunks; make the length a multiple of {2 * n}"
        )
    chunks = x.chunk(2 * n, dim)
    return cat([chunks[me], chunks[2 * n - 1 - me]], dim)


class Round:
    """A tensor on its way to the next rank of the ring, and that of the rank before."""

    def __init__(self, x: Tensor, group: ProcessGroup) -> None:
        self.x, self.works = x, list[Any]()
        if group.size() > 1:
            me, ranks, x = group.rank(), group.ranks, x.detach().contiguous()
            self.x = empty(x.shape, dtype=x.dtype, device=x.raw.device)
            there = P2POp(isend, x, ranks[(me + 1) % len(ranks)], group)
            here = P2POp(irecv, self.x, ranks[me - 1], group)
            self.works = batch_isend_irecv([there, here])

    def wait(self) -> Tensor:
        """What came."""
        for work in self.works:
            work.wait()
        return self.x


class RingAttention(UserFunction):
    """`Attention` of this rank's queries to the keys of all ranks.

    With z of all keys, a block's weights are exp(score - z), so that the gradients of
    each block are those of `Attention`, block by block. Those of queries add up here;
    those of a block of keys go round with it, and are home after as many steps as there
    are ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float,
        causal: bool, group: ProcessGroup,
    ) -> Tensor:  # fmt: skip
        ctx.options = scale, causal, group
        block, n = cat([key, value], -1), group.size()
        coming = Round(block, group)
        out, total = _attend(query, key, value, scale, causal)
        for step in range(1, n):
            block = coming.wait()
            if step < n - 1:
                coming = Round(block, group)
            rows, k, v = _seen(query, block, key.shape[-1], causal, group, step)
            new, sums = _attend(query[:, :, rows], k, v, scale, False)
            _merge(out[:, :, rows], total[:, :, rows], new, sums)
        made = query.wrap(laid_out_as(query.backend, query.raw, out.raw.shape))
        ctx.save_for_backward(query, key, value, made.copy_(out), total)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        once_differentiable("ring_attention", "scaled_dot_product_attention")
        query, key, value, out, total = ctx.saved_tensors
        (scale, causal, group), wide = ctx.options, total.dtype
        block, n, width = cat([key, value], -1), group.size(), key.shape[-1]
        where: Any = {"dtype": wide, "device": query.raw.device}
        query_grad, going = zeros(query.shape, **where), None
        for step in range(n):
            coming = Round(block, group) if step < n - 1 else None
            rows, k, v = _seen(query, block, width, causal, group, step)
            own = causal and step == 0
            q, g, o, z = (x[:, :, rows] for x in (query, grad, out, total))
            slope, *both = _slopes(q, g, o, z, k, v, scale, own)
            query_grad[:, :, rows].add_(slope.to(wide))
            home = zeros(block.shape, **where) if going is None else going.wait()
            _seen_keys(home, causal, group, step).add_(cat(both, -1).to(wide))
            going = Round(home, group)
            block = block if coming is None else coming.wait()
        assert going is not None
        grads = query_grad, *going.wait().split((width, value.shape[-1]), -1)
        return *(x.to(query.dtype) for x in grads), None, None, None


def _seen(
    query: Tensor, block: Tensor, width: int, causal: bool, group: ProcessGroup,
    step: int,
) -> tuple[slice, Tensor, Tensor]:  # fmt: skip
    """Which queries look at the block that has gone `step` ranks far; keys, values."""
    behind = causal and step > group.rank()  # it comes from a rank behind us
    keys = _seen_keys(block, causal, group, step)
    rows = slice(query.shape[2] // 2 if behind else 0, None)
    return rows, keys[..., :width], keys[..., width:]


def _seen_keys(block: Tensor, causal: bool, group: ProcessGroup, step: int) -> Tensor:
    """The keys of the block that any query here sees."""
    before = causal and 0 < step <= group.rank()  # it comes from a rank before us
    return block[:, :, : block.shape[2] // 2] if before else block


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """What queries find in a block, and the logarithm of the sum of their weights; in
    float32 at least, since they are to be added."""
    backend, dtype = query.backend, promote(query.dtype, float32)
    out = backend.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    total = backend.empty(query.shape[:-1], dtype)
    backend.attention(out, total, query.raw, key.raw, value.raw, scale, causal)
    return query.wrap(out).to(dtype), query.wrap(total)


def _slopes(
    query: Tensor, grad: Tensor, out: Tensor, total: Tensor, key: Tensor, value: Tensor,
    scale: float, causal: bool,
) -> list[Tensor]:  # fmt: skip
    """The gradients of query, key and value by way of one block."""
    backend, inputs = query.backend, [x.raw for x in (query, key, value)]
    raws = [backend.empty(x.shape, query.dtype) for x in (query, key, value)]
    found = out.raw, total.contiguous().raw
    backend.attention_backward(*raws, grad.raw, *inputs, *found, scale, causal)
    return [query.wrap(raw) for raw in raws]


def _merge(out: Tensor, total: Tensor, new: Tensor, sums: Tensor) -> None:
    """Let out and total hold what was found in this block as well."""
    most = total.maximum(sums)
    old, other = (total - most).exp(), (sums - most).exp()
    both = old + other
    out.mul_((old / both).unsqueeze(-1)).add_(new * (other / both).unsqueeze(-1))
    total.copy_(both.log() + most)


@in_lower
def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    """`scaled_dot_product_attention` where each rank has a part of the sequence.

    query [B, H, L, E], key [B, K, L, E], value [B, K, L, V] -> [B, H, L, V], where H is
    a multiple of K (with `enable_gqa`) and L the length of this rank's part; if
    `is_causal`, the parts are those of `own_part`.

    Errors: ValueError for a mask or dropout, which are not offered, and for shapes that
    don't fit.
    """
    found = group_of("ring_attention", group)
    assert found is not None
    if attn_mask is not None or dropout_p:
        raise ValueError(
            "ring_attention: masks and dropout of weights are not offered; leave out "
            "attn_mask, and set dropout to 0"
        )
    _check(query, key, value, is_causal, enable_gqa)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else float(scale)
    return RingAttention.apply(query, key, value, scale, is_causal, found)


def _check(query: Tensor, key: Tensor, value: Tensor, causal: bool, gqa: bool) -> None:
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    fits = len(q) == len(k) == len(v) == 4 and k[:3] == v[:3]
    fits = fits and (q[0], q[2], q[3]) == (k[0], k[2], k[3])
    if not fits or q[1] % k[1] or (q[1] != k[1] and not gqa):
        raise ValueError(
            f"ring_attention: query, key and value are {q}, {k} and {v}; expected "
            f"(B, H, L, E), (B, K, L, E) and (B, K, L, V), with H = K, or with "
            f"enable_gqa a multiple of it"
        )
    if causal and q[2] % 2:
        raise ValueError(
            f"ring_attention: a part of {q[2]} tokens has no halves; see own_part"
        )
