"""Attention: a mean of values for each query, weighted by how well the keys fit.

With this file a backend has attention and its gradients, by matrix products and
softmax. The weights, one number for each query and key, are all kept at once here; a
kernel of its own keeps a block of them, and never the whole.

query [B, H, L, E], key [B, K, S, E] and value [B, K, S, V], where H is a multiple of K:
heads of queries come in groups, and query head h looks at head h // (H // K).
"""

from __future__ import annotations

import minitorch.operators as operators
from minitorch.backend.softmax import Softmax
from minitorch.dtypes import DType, bool_, int64
from minitorch.tensor_data import Shape, TensorData

# Dropout of the weights: p, and the seed and offset of its random words.
Drop = tuple[float, int, int]
KEEP_ALL: Drop = (0.0, 0, 0)


def random_words(keys: int) -> int:
    """What dropout draws for a row of so many weights: whole blocks of four."""
    return -(-keys // 4) * 4


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
        mask: TensorData | None = None,
        drop: Drop = KEEP_ALL,
        newest: TensorData | None = None,
    ) -> None:
        """out [B, H, L, V] = dropout(softmax(query key^T * scale + mask)) value.

        If `causal`, query i sees the keys 0 .. i alone. logsumexp [B, H, L]:
        log(sum(exp(scores))) over the keys that a query sees; -infinity, and zeros in
        `out`, where it sees none. Outputs may have any strides, too; logsumexp is
        float64 for float64, else float32.

        Args:
            mask: [B, H, L, S] of any strides, often 0; bool: whether a query sees a
                key; of the query's dtype: added to the scores.
            drop: (p, seed, offset); weights are multiplied by `kept_weights`.
            newest: int64 [1], a key's number; promises that what was started just
                before writes to no other key or value, nor to the mask or to this.

        Source: Vaswani et al., "Attention is all you need", 2017; groups of heads:
        Ainslie et al., 2023.
        """
        heads = key.shape[1]
        scores = self._scores(query, key, scale, causal, mask)
        total = self.logsumexp(scores, (4,))
        # Of nothing but -infinity the softmax is NaN.
        zero = self.number(0.0, scores.dtype)
        weights = self.where(self._unseen(total), zero, self.softmax(scores, 4))
        weights = self._dropped(weights, drop)
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
        mask: TensorData | None = None,
        drop: Drop = KEEP_ALL,
    ) -> None:
        """The gradients of query, key and value, from that of out [B, H, L, V].

        The weights are P = exp(scores - logsumexp) again, and M is `kept_weights`. With
        D = rowsum(grad * out), which is rowsum(P * dP), and
        dS = P * (M * grad value^T - D) * scale: query_grad = dS key;
        key_grad = dS^T query and value_grad = (M * P)^T grad, of which a head of keys
        gets the sum over its group of queries.

        Source: Dao et al., "FlashAttention", 2022, appendix B.
        """
        heads = key.shape[1]
        q, g, o = (in_groups(x, heads) for x in (query, grad, out))
        k, v = key.unsqueeze(2), value.unsqueeze(2)
        total = in_groups(logsumexp, heads).unsqueeze(4)
        scores = self._scores(query, key, scale, causal, mask)
        # Where all scores are -infinity, they stay so: weights of 0.
        total = self.where(self._unseen(total), self.number(0.0, total.dtype), total)
        weights = self.map(operators.exp, self.zip(operators.sub, scores, total))
        dropped = self._dropped(weights, drop)
        self._add_up_groups(value_grad, self.matmul(turned(dropped), g))
        below = self._sum(self._mul(g, o), (4,))
        slope = self._dropped(self.matmul(g, turned(v)), drop)
        slope = self.zip(operators.sub, slope, below)
        slope = self._mul(self._mul(weights, slope), scale)
        self.copy_into(in_groups(query_grad, heads), self.matmul(slope, k))
        self._add_up_groups(key_grad, self.matmul(turned(slope), q))

    def kept_weights(self, shape: Shape, drop: Drop, dtype: DType) -> TensorData:
        """M: what dropout multiplies the weights [B, H, L, S] by, 0 or 1 / (1 - p).

        A row is the first S numbers of one of S rounded up to whole blocks: to key j of
        row r belongs word j % 4 of Philox block offset + r * ceil(S / 4) + j // 4 (and
        else M is as `dropout` says). So a kernel finds all words that its tile needs,
        wherever it lies, with no block in two rows.
        """
        *lead, keys = shape
        ones = self.full((*lead, random_words(keys)), 1.0, dtype)
        kept = self.dropout(ones, *drop)
        return TensorData(kept.storage, shape, kept.strides, kept.offset)

    def triangle(self, rows: int, cols: int, diagonal: int = 0) -> TensorData:
        """bool [rows, cols]: whether column - row <= diagonal.

        It is made where it is used: a copy from the CPU could not be captured in a CUDA
        graph.
        """
        places = self.cumsum(self.full((max(rows, cols),), 1, int64), 0)
        ends = self.zip(operators.add, places, self.number(diagonal, int64))
        row, col = (
            TensorData(x.storage, (n,), x.strides, x.offset)
            for x, n in ((ends, rows), (places, cols))
        )
        return self.zip(operators.le, col, row.unsqueeze(1), bool_)

    def band(self, a: TensorData, low: int, high: int) -> TensorData:
        """a [*, M, N] where low <= column - row <= high, else 0."""
        (rows, cols), zero = a.shape[-2:], self.number(0, a.storage.dtype)
        out = None
        if high < cols - 1:
            a = out = self.where(self.triangle(rows, cols, high), a, zero)
        if out is None or low > 1 - rows:
            out = self.where(self.triangle(rows, cols, low - 1), zero, a, out)
        return out

    def _scores(
        self, query: TensorData, key: TensorData, scale: float, causal: bool,
        mask: TensorData | None,
    ) -> TensorData:  # fmt: skip
        """[B, K, H / K, L, S]; -infinity for keys that may not be seen."""
        heads = key.shape[1]
        q = in_groups(self._mul(query, scale), heads)
        scores = self.matmul(q, turned(key.unsqueeze(2)))
        never = self.number(-operators.inf, scores.dtype)
        if causal:
            scores = self.where(self.triangle(*scores.shape[3:]), scores, never)
        if mask is None:
            return scores
        shown = in_groups(mask, heads)
        if mask.dtype is bool_:
            return self.where(shown, scores, never)
        return self.zip(operators.add, scores, shown)

    def _unseen(self, total: TensorData) -> TensorData:
        """Whether a query sees no key, from the logsumexp of its scores."""
        never = self.number(-operators.inf, total.dtype)
        return self.zip(operators.eq, total, never, bool_)

    def _dropped(self, weights: TensorData, drop: Drop) -> TensorData:
        """weights [B, K, H / K, L, S] * `kept_weights`"""
        if not drop[0]:
            return weights
        b, heads, group, *rest = weights.shape
        kept = self.kept_weights((b, heads * group, *rest), drop, weights.dtype)
        return self._mul(weights, in_groups(kept, heads))

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
