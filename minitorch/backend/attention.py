"""Attention: a mean of values for each query, weighted by how well the keys fit.

With this file a backend has attention and its gradients, by matrix products and
softmax. The weights, one number for each query and key, are all kept at once here; a
kernel of its own keeps a block of them, and never the whole.

query [B, H, L, E], key [B, K, S, E] and value [B, K, S, V], where H is a multiple of K:
heads of queries come in groups, and query head h looks at head h // (H // K).
"""

from __future__ import annotations

import numpy as np

import minitorch.operators as operators
from minitorch.backend.softmax import Softmax
from minitorch.tensor_data import TensorData


class Attention(Softmax):
    """Defaults for attention, forward and backward."""

    def attention(
        self,
        out: TensorData,
        logsumexp: TensorData,
        query: TensorData,
        key: TensorData,
        value: TensorData,
        scale: float,
        causal: bool,
    ) -> None:
        """out [B, H, L, V] = softmax(query key^T * scale) value.

        If `causal`, query i sees the keys 0 .. i alone. logsumexp [B, H, L]:
        log(sum(exp(scores))) over the keys that a query sees; -infinity, and zeros in
        `out`, where there are no keys. Outputs may have any strides, too; logsumexp is
        float64 for float64, else float32.

        Source: Vaswani et al., "Attention is all you need", 2017; groups of heads:
        Ainslie et al., 2023.
        """
        heads = key.shape[1]
        scores = self._scores(query, key, scale, causal)
        total = self.logsumexp(scores, (4,))
        weights = self.map(operators.exp, self.zip(operators.sub, scores, total))
        self.copy_into(in_groups(logsumexp, heads), total.squeeze((4,)))
        self.copy_into(in_groups(out, heads), self.matmul(weights, value.unsqueeze(2)))

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
    ) -> None:
        """The gradients of query, key and value, from that of out [B, H, L, V].

        The weights are P = exp(scores - logsumexp) again. With D = rowsum(grad * out),
        which is rowsum(P * dP), and dS = P * (grad value^T - D) * scale:
        query_grad = dS key; key_grad = dS^T query and value_grad = P^T grad, of which a
        head of keys gets the sum over its group of queries.

        Source: Dao et al., "FlashAttention", 2022, appendix B.
        """
        heads = key.shape[1]
        q, g, o = (in_groups(x, heads) for x in (query, grad, out))
        k, v = key.unsqueeze(2), value.unsqueeze(2)
        total = in_groups(logsumexp, heads).unsqueeze(4)
        scores = self._scores(query, key, scale, causal)
        weights = self.map(operators.exp, self.zip(operators.sub, scores, total))
        self._add_up_groups(value_grad, self.matmul(turned(weights), g))
        below = self._sum(self._mul(g, o), (4,))
        slope = self.zip(operators.sub, self.matmul(g, turned(v)), below)
        slope = self._mul(self._mul(weights, slope), scale)
        self.copy_into(in_groups(query_grad, heads), self.matmul(slope, k))
        self._add_up_groups(key_grad, self.matmul(turned(slope), q))

    def _scores(
        self, query: TensorData, key: TensorData, scale: float, causal: bool
    ) -> TensorData:
        """[B, K, H / K, L, S]; -infinity for keys that may not be seen."""
        q = in_groups(self._mul(query, scale), key.shape[1])
        scores = self.matmul(q, turned(key.unsqueeze(2)))
        if not causal:
            return scores
        seen = self.from_numpy(np.tri(*scores.shape[3:], dtype=bool))
        return self.where(seen, scores, self.number(-operators.inf, scores.dtype))

    def _add_up_groups(self, out: TensorData, a: TensorData) -> None:
        """out [B, K, S, *] = the sum of a [B, K, H / K, S, *] over the group."""
        self.copy_into(out, self._sum(a, (2,)).squeeze((2,)))


def in_groups(a: TensorData, heads: int) -> TensorData:
    """[B, H, *] as [B, K, H / K, *] for K heads of keys: queries that share one."""
    group, step = a.shape[1] // max(heads, 1), a.strides[1]
    shape = (a.shape[0], heads, group, *a.shape[2:])
    strides = (a.strides[0], step * group, step, *a.strides[2:])
    return TensorData(a.storage, shape, strides, a.offset)


def turned(a: TensorData) -> TensorData:
    """Rows as columns: [*, M, N] -> [*, N, M]"""
    *batch, rows, columns = range(a.dims)
    return a.permute((*batch, columns, rows))
