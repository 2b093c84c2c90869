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
from contextlib import AbstractContextManager, contextmanager
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
        memory: [layers, blocks + 1, block size, 2 * kv heads, head size], keys before
            values: a token's are one row, which is written by one copy.
        nobody: a token of no text, which goes to the last block.
        fresh: whether tokens come that are not each for itself, so that no step takes
            the way of `models/decoding.py`.
    """

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
        shape = config.n_layer, blocks + 1, block_size, *token
        self.memory = zeros(*shape, device=device, dtype=dtype)
        self.layers = [self.memory[i] for i in range(config.n_layer)]
        self.slots = [layer.flatten(0, 1) for layer in self.layers]
        self.block_size, self.nobody = block_size, Part([blocks], 0, 1)
        self.positions: Tensor | None = None
        self.fresh = True
        self.writing: Any = None
        self.together: list[Together] = []

    def reading(self, parts: Sequence[Part]) -> AbstractContextManager[None]:
        """For a block `GPT.features(ids, self)` reads these tokens: ids int64 [N, 1].

        Those that are one token alone stand first.
        """
        positions, slots, _ = self._places(parts)
        together, start = [], 0
        for count, group in groupby(parts, lambda part: part.tokens):
            alike = list(group)
            for some in [alike] if count == 1 else [[part] for part in alike]:
                rows = range(start, start + count * len(some))
                ends = [first + count for _, first, _ in some]
                tables = self._tables(some, -(-max(ends) // self.block_size))
                both = self._tensor(tables), self._tensor(np.array(ends))
                together.append(Together(rows, *both))
                start = rows.stop
        return self._at(self._tensor(positions), self._tensor(slots), together)

    def packed(
        self, ids: Sequence[int], parts: Sequence[Part], wanted: Sequence[int],
        sizes: tuple[int, int, int],
    ) -> Tensor:  # fmt: skip
        """A step in one int64 tensor, of a size that `sizes` alone decide.

        These are how many rows the step has, how many of them are wanted, and how many
        blocks a text has at most. Of each row it says the token, the position, the
        slot, and how many tokens the text has up to this one; then each row's blocks,
        and the rows that are wanted. Rows behind `ids` are tokens of nobody.
        """
        rows, most, pages = sizes
        parts = [*parts, *[self.nobody] * (rows - len(ids))]
        positions, slots, tables = self._places(parts, pages)
        tokens, chosen = np.zeros(rows, np.int64), np.zeros(most, np.int64)
        tokens[: len(ids)], chosen[: len(wanted)] = ids, wanted
        every = tokens, positions, slots, positions + 1, tables.ravel(), chosen
        return self._tensor(np.concatenate(every))

    @contextmanager
    def reading_packed(
        self, packed: Tensor, sizes: tuple[int, int, int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As `reading`, of a step that was `packed`: ids [rows, 1], the wanted rows.

        Each token is as a text of its own, which ends with it.
        """
        rows, most, pages = sizes
        ids, positions, slots, ends = packed[: 4 * rows].reshape((4, rows)).unbind(0)
        tables = packed[4 * rows : -most].reshape((rows, pages))
        with self._at(positions, slots, [Together(range(rows), tables, ends)]):
            self.fresh = False
            yield ids.unsqueeze(1), packed[-most:]

    @contextmanager
    def _at(
        self, positions: Tensor, slots: Tensor, together: list[Together]
    ) -> Iterator[None]:
        self.positions, self.writing = positions.unsqueeze(1), slots
        self.together, self.fresh = together, True
        try:
            with substituted(self.attend):
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

    def attend(self, query: Tensor, memory: Tensor, *_: Any) -> Tensor:
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

    def _places(
        self, parts: Sequence[Part], pages: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of all tokens the positions in their texts, the rows of `slots`, and the
        blocks of their texts, [N, pages or more], as in `_tables`."""
        # BEGIN SOLUTION a18.3
        firsts, counts = np.array([part[1:] for part in parts]).T
        pages = max(pages, -(-int((firsts + counts).max()) // self.block_size))
        tables = np.repeat(self._tables(parts, pages), counts, 0)
        every = np.arange(len(tables))
        positions = every + np.repeat(firsts + counts - counts.cumsum(), counts)
        block, slot = np.divmod(positions, self.block_size)
        return positions, tables[every, block] * self.block_size + slot, tables
        # END SOLUTION a18.3

    def _tables(self, parts: Sequence[Part], pages: int) -> np.ndarray:
        """int64 [R, pages], the blocks of each text, as far as it has tokens with
        these; behind them 0."""
        # BEGIN SOLUTION a18.3
        tables = np.zeros((len(parts), pages), np.int64)
        for row, (blocks, first, count) in zip(tables, parts):
            used = blocks[: -(-(first + count) // self.block_size)]
            row[: len(used)] = used
        return tables
        # END SOLUTION a18.3

    def _tensor(self, array: np.ndarray) -> Tensor:
        return tensor(array, device=self.memory.raw.device)
