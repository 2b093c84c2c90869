"""Attention to keys and values that lie in blocks, anywhere in one memory.

With this file a backend has the attention of `minitorch/serving`: for texts of any
lengths at once, by a copy of their blocks side by side, and `attention` with a mask.
"""

from __future__ import annotations

import minitorch.operators as operators
from minitorch.backend.attention import Attention
from minitorch.backend.indexing import Indexing
from minitorch.dtypes import bool_, computed, float32, float64, int64
from minitorch.tensor_data import TensorData


class Paged(Attention, Indexing):
    """The default for attention through block tables."""

    def paged_attention(
        self, out: TensorData, query: TensorData, memory: TensorData,
        tables: TensorData, lengths: TensorData, scale: float,
    ) -> None:  # fmt: skip
        """Attention of texts whose keys and values lie in blocks: `PagedCache`.

        query and out [R, H, T, E], memory [blocks, block size, 2 K, E] with K heads of
        keys before K of values, tables int64 [R, P], without gaps: the blocks of each
        text, in order. A text has lengths [R] tokens, of which the queries are the last
        T; each sees its own key and those before. What stands in a table behind the
        text's last block is the number of some block.

        Here the blocks are copied side by side; a kernel reads them where they are.

        Source: Kwon et al., "PagedAttention", 2023.
        """
        (R, H, T, E), (_, size, both, _) = query.shape, memory.shape
        S, kind = tables.shape[1] * size, computed(memory.dtype)
        line = TensorData(tables.storage, (tables.size,), None, tables.offset)
        pages = self._converted(self.index_select(memory, 0, line), kind)
        pages = TensorData(pages.storage, (R, S, both, E)).permute((0, 2, 1, 3))
        keys, values = (pages.slice(1, i, both // 2) for i in (0, both // 2))
        last = self.arange(-T, 1, T, int64, -1).unsqueeze(1)  # before the text's end
        last = self.zip(operators.add, lengths.unsqueeze(1).unsqueeze(2), last)
        slots = self.arange(0, 1, S, int64, S - 1)
        seen = self.zip(operators.le, slots, last, bool_).unsqueeze(1)
        total = self.empty((R, H, T), kind if kind is float64 else float32)
        made = out if out.dtype is kind else self.empty(out.shape, kind)
        self.attention(
            made, total, self._converted(query, kind), keys, values, scale, False,
            seen.expand((R, H, T, S)),
        )  # fmt: skip
        if made is not out:
            self.copy_into(out, made)
