"""Keys and values of a text that is being written, so that none is computed twice.

With this file one can keep what attention has seen (`KVCache`). All memory is taken
once, and a step writes in place; where it writes is a number in a tensor. So each step
does the same work on the same memory, and can be one CUDA graph.

    slot          0   1   2   3   4   5   6   7
    first text    .   .   a   b   c   d              padding 2, and its next slot is 6
    second text   e   f   g   h   i   j              padding 0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from minitorch.creation import arange, zeros
from minitorch.dtypes import DType

if TYPE_CHECKING:
    from minitorch.models.config import GPTConfig
    from minitorch.tensor import Tensor


class Places(NamedTuple):
    """Where the tokens of a batch stand, and what they see.

    Attributes:
        positions: int64 [B, T] or [1, T], counted from each text's first token.
        mask: bool [B, 1, T, S] or [1, 1, T, S], what a token sees; None: all until
            itself.
        rotation: cos and sin for rotary positions, each [B or 1, 1, T, E/2].
    """

    positions: Tensor
    mask: Tensor | None
    rotation: tuple[Tensor, Tensor] | None = None


def places(queries: Tensor, keys: Tensor, padding: Tensor | None) -> Places:
    """The places of tokens in slots `queries` [T], which look at slots `keys` [S].

    Args:
        padding: int64 [B], how many slots at the left of each row hold no token.
    """
    # BEGIN SOLUTION a10.6
    if queries is keys and padding is None:
        return Places(queries.unsqueeze(0), None)
    mask = (queries.unsqueeze(1) >= keys).reshape((1, 1, len(queries), len(keys)))
    positions = queries.unsqueeze(0)
    if padding is not None:
        first = padding.unsqueeze(1)  # [B, 1]
        mask = mask & (keys >= first).unsqueeze(1).unsqueeze(1)
        positions = (positions - first).clamp(min=0)
    return Places(positions, mask)
    # END SOLUTION a10.6


class KVCache:
    """The keys and values of a batch of texts, in all layers of a model.

    Attributes:
        memory: [layers, B, 2 * kv heads, max_length, head size], keys before values.
        slot: int64 [1], where the next token goes: that many slots are full.
        padding: int64 [B], how many slots at the left of each row hold no token; None
            where all texts are of one length.
        fresh: whether nothing was written yet.
    """

    def __init__(
        self,
        config: GPTConfig,
        batch_size: int = 1,
        max_length: int | None = None,
        padding: Tensor | None = None,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Take the memory.

        Args:
            max_length: in slots; None: the model's block_size, which is the most.
        """
        length = config.block_size if max_length is None else max_length
        if not 1 <= length <= config.block_size:
            raise ValueError(
                f"KVCache: max_length is {length}; the model has {config.block_size} "
                f"positions"
            )
        shape = config.n_layer, batch_size, 2 * config.kv_heads, length
        # Zeros, since what is masked still takes part in products, with the weight 0.
        self.memory = zeros(*shape, config.head_size, device=device, dtype=dtype)
        self.layers = [self.memory[i] for i in range(config.n_layer)]
        self.heads = config.kv_heads
        self.slots = arange(length, device=device)
        self.slot = self.slots[:1].clone()
        self.writing = self.slot  # the slots of the tokens that are being read
        self.padding, self.fresh = padding, True

    @property
    def max_length(self) -> int:
        """How many slots there are."""
        return len(self.slots)

    def places(self, count: int) -> Places:
        """Where the next `count` tokens of each text stand, and what they see."""
        # BEGIN SOLUTION a10.6
        first = self.slots[:count]
        self.writing = first + self.slot
        if self.fresh:  # they see nothing but themselves
            return places(first, first, self.padding)
        return places(self.writing, self.slots, self.padding)
        # END SOLUTION a10.6

    def write(self, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """Keep keys and values [B, 2 * kv heads, T, E] of the tokens of `places`.

        Returns the keys and the values that these tokens look at.
        """
        # BEGIN SOLUTION a10.6
        self.layers[layer].index_copy_(2, self.writing, new.to(self.memory.dtype))
        seen: Any = new if self.fresh else self.layers[layer]
        return seen[:, : self.heads], seen[:, self.heads :]
        # END SOLUTION a10.6

    def advance(self, count: int) -> None:
        """Count tokens that all layers have written; negative: forget the last ones."""
        # BEGIN SOLUTION a10.6
        self.slot.add_(count)
        self.fresh = False
        # END SOLUTION a10.6
