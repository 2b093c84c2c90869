"""FlashAttention and its gradients: launchers.

With this file a backend of the host has attention with memory for a block of weights
(`attention`, `attention_backward`), if it brings `_attend` and `_attend_backward`,
which see operands [B, H, L, *] whose rows lie without gaps; else the defaults.
"""

from __future__ import annotations

import math
from typing import Any

from minitorch import operators
from minitorch.backend.attention import KEEP_ALL, Attention, Drop
from minitorch.backend.host.memory import HostMemory
from minitorch.tensor_data import TensorData

QUERIES = 64  # in a block; as many as `fast_ops.matmul._pack` lays side by side
TASKS = 16  # into which the backward pass is cut at least, if there are so many blocks

# B, H, K, L, S, E, V: see `minitorch/backend/attention.py`.
Sizes = tuple[int, int, int, int, int, int, int]


class HostAttention(HostMemory, Attention):
    """The launchers; without kernels of its own a backend has the defaults."""

    _attend: Any = None
    _attend_backward: Any = None

    def attention(
        self,
        out: TensorData,
        logsumexp: TensorData,
        query: TensorData,
        key: TensorData,
        value: TensorData,
        scale: float,
        causal: bool,
        mask: TensorData | None = None,
        drop: Drop = KEEP_ALL,
        newest: TensorData | None = None,
    ) -> None:
        """A block of the weights at a time."""
        operands = query, key, value
        how: tuple[Any, ...] = scale, causal, mask, drop
        if self._attend is None:
            super().attention(out, logsumexp, *operands, *how)
            return
        sizes = _sizes(query, value)
        if 0 in sizes[:5]:
            self._fill(out, 0.0)
            self._fill(logsumexp, -math.inf)
            return
        z, total = self._written(out), self._written(logsumexp)
        rows = [*map(self._in_rows, operands), z]
        self._attend(rows, total.flat(), sizes, *how)
        self._give_back(out, z)
        self._give_back(logsumexp, total)

    def attention_backward(
        self,
        query_grad: TensorData,
        key_grad: TensorData,
        value_grad: TensorData,
        grad: TensorData,
        query: TensorData,
        key: TensorData,
        value: TensorData,
        out: TensorData,
        logsumexp: TensorData,
        scale: float,
        causal: bool,
        mask: TensorData | None = None,
        drop: Drop = KEEP_ALL,
    ) -> None:
        """The weights again, a block at a time, for all three gradients."""
        operands, shared = (query, key, value, out), (key_grad, value_grad)
        how: tuple[Any, ...] = scale, causal, mask, drop
        sizes = _sizes(query, value)
        if self._attend_backward is None:
            super().attention_backward(
                query_grad, *shared, grad, *operands, logsumexp, *how
            )
            return
        if 0 in sizes[:5]:
            for gradient in (query_grad, *shared):
                self._fill(gradient, 0.0)
            return
        B, H, K, L, *_ = sizes
        blocks = H // K * -(-L // QUERIES)
        parts = max(1, min(blocks, -(-TASKS // (B * K))))
        dq, *made = self._written(query_grad), *(self._parts(x, parts) for x in shared)
        rows = [dq, *made, *map(self._in_rows, (grad, *operands))]
        logs = self.contiguous(logsumexp).flat()
        self._attend_backward(rows, logs, sizes, *how, parts)
        self._give_back(query_grad, dq)
        for gradient, part in zip(shared, made):
            total = self.reduce(operators.add, part, (0,), 0.0) if parts > 1 else part
            self._give_back(gradient, total.squeeze((0,)))

    def _in_rows(self, a: TensorData) -> TensorData:
        """`a`, copied if its rows have gaps, or lie backwards, in memory."""
        return a if _plain(a) else self.copy(a, a.dtype)

    def _written(self, out: TensorData) -> TensorData:
        """What a kernel can write to: `out`, or memory that `_give_back` copies."""
        plain = _plain(out) and out.dims == 4
        return out if plain or out.contiguous else self.empty(out.shape, out.dtype)

    def _parts(self, out: TensorData, parts: int) -> TensorData:
        """Memory for `parts` gradients that make up `out`, [parts, *]."""
        if parts > 1:
            return self.empty((parts, *out.shape), out.dtype)
        out = self._written(out)
        shape, strides = (1, *out.shape), (0, *out.strides)
        return TensorData(out.storage, shape, strides, out.offset)

    def _give_back(self, out: TensorData, made: TensorData) -> None:
        """Copy to `out` what was not written there."""
        if made.storage is not out.storage:
            self.copy_into(out, made)

    def _fill(self, out: TensorData, value: float) -> None:
        self.copy_into(out, self.full((), value, out.dtype).expand(out.shape))


def _sizes(query: TensorData, value: TensorData) -> Sizes:
    (B, H, L, E), (_, K, S, V) = query.shape, value.shape
    return B, H, K, L, S, E, V


def _plain(a: TensorData) -> bool:
    return a.strides[-1] == 1 and min(a.strides) >= 0
