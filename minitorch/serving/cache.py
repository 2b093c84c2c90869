"""Keys and values of many texts, in blocks that lie anywhere.

With this file `GPT.features` reads tokens of texts of any lengths together
(`PagedCache`), which begin and end at different times. A `KVCache` has a row of slots
for each text, as long as the longest could become; here a text has a list of blocks,
and gets one more when the last is full:

    memory    [ block 0 ][ block 1 ][ block 2 ][ block 3 ][ block 4 ]
    text a    blocks 3, 0              its 6th token is in block 0, slot 1 (of 4)
    text b    blocks 1, 4, 2

All tokens of a step are rows of one matrix [N, C] for everything but attention, which
is done text by text, or at once for all texts that have one token (Yu et al., "Orca",
2022, call that selective batching). The model stays as it is: its attention is
`substituted` while it reads.

Source of the blocks: Kwon et al., "PagedAttention", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minitorch.creation import tensor, zeros
from minitorch.dtypes import DType
from minitorch.functions.attention import laid_out_as, substituted
from minitorch.models.cache import Places

if TYPE_CHECKING:
    from minitorch.models.config import GPTConfig
    from minitorch.tensor import Tensor


class Part(NamedTuple):
    """Tokens first .. first + tokens - 1 of a text, and the text's blocks in order."""

    blocks: Sequence[int]
    first: int
    tokens: int


class Together(NamedTuple):
    """Texts that attention is done for at once, by the rows of a step.

    Attributes:
        tables: int64 [R, P], their blocks; behind the last one any number.
        lengths: int64 [R], how many tokens each has, with those of this step.
    """

    rows: range
    tables: Tensor
    lengths: Tensor


class PagedCache:
    """The keys and values of many texts, in all layers of a model.

    Attributes:
        memory: [layers, blocks, block size, 2 * kv heads, head size], keys before
            values: a token's are one row, which is written by one copy.
        fresh: always, so that no step takes the way of `models/decoding.py`.
    """

    fresh = True

    def __init__(
        self,
        config: GPTConfig,
        blocks: int,
        block_size: int = 16,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Take the memory."""
        token = 2 * config.kv_heads, config.head_size
        # Zeros, since what is masked still takes part in products, with the weight 0.
        shape = config.n_layer, blocks, block_size, *token
        self.memory = zeros(*shape, device=device, dtype=dtype)
        self.layers = [self.memory[i] for i in range(config.n_layer)]
        self.slots = [layer.flatten(0, 1) for layer in self.layers]
        self.block_size = block_size
        self.positions: Tensor | None = None
        self.writing: Any = None
        self.together: list[Together] = []

    @contextmanager
    def reading(self, parts: Sequence[Part]) -> Iterator[None]:
        """For a block `GPT.features(ids, self)` reads these tokens: ids int64 [N, 1].

        Those that are one token alone stand first.
        """
        places = [np.arange(first, first + n) for _, first, n in parts]
        slots = [self._slots(part, at) for part, at in zip(parts, places)]
        self.positions = self._tensor(np.concatenate(places)[:, None])
        self.writing = self._tensor(np.concatenate(slots))
        self.together, start = [], 0
        for count, group in groupby(parts, lambda part: part.tokens):
            alike = list(group)
            for some in [alike] if count == 1 else [[part] for part in alike]:
                self.together.append(self._together(some, start))
                start += count * len(some)
        try:
            with substituted(self._attend):
                yield
        finally:
            self.positions = None

    def places(self, count: int) -> Places:
        """Where the tokens of `reading` stand."""
        if self.positions is None:
            raise RuntimeError("PagedCache: say which tokens come, by `reading`")
        return Places(self.positions, None)

    def write(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Keep keys and values [N, 2 * kv heads, 1, E] of these tokens.

        Returns the layer's memory, twice, for the attention of this cache.
        """
        rows = new.squeeze(2).to(self.memory.dtype)
        self.slots[layer].index_copy_(0, self.writing, rows)
        return self.layers[layer], self.layers[layer]

    def advance(self, count: int) -> None:
        """Nothing: whoever gives the parts counts."""

    def _attend(self, query: Tensor, memory: Tensor, *_: Any) -> Tensor:
        """query [N, H, 1, E] -> [N, H, 1, E], each row's from its text's blocks."""
        N, H, _, E = query.shape
        backend, raw = query.backend, query.raw
        out = laid_out_as(backend, raw, (N, H, 1, E))
        for rows, tables, lengths in self.together:
            q, z = (x.slice(0, rows.start, len(rows)) for x in (raw, out))
            if len(lengths) < len(rows):  # one text: its tokens as queries
                q, z = q.permute((2, 1, 0, 3)), z.permute((2, 1, 0, 3))
            backend.paged_attention(
                z, q, memory.raw, tables.raw, lengths.raw, 1 / math.sqrt(E)
            )
        return query.wrap(out)

    def _together(self, parts: Sequence[Part], start: int) -> Together:
        ends = [first + count for _, first, count in parts]
        tables = np.zeros((len(parts), -(-max(ends) // self.block_size)), np.int64)
        for row, (blocks, *_), end in zip(tables, parts, ends):
            used = blocks[: -(-end // self.block_size)]
            row[: len(used)] = used
        rows = range(start, start + sum(part.tokens for part in parts))
        return Together(rows, self._tensor(tables), self._tensor(np.array(ends)))

    def _slots(self, part: Part, places: np.ndarray) -> np.ndarray:
        """Which rows of `slots` these tokens of a text have."""
        block, slot = np.divmod(places, self.block_size)
        return np.array(part.blocks)[block] * self.block_size + slot

    def _tensor(self, array: np.ndarray) -> Tensor:
        return tensor(array, device=self.memory.raw.device)
