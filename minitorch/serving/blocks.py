"""Who has which block of the memory for keys and values, and what still lies in it.

With this file one can hand out blocks of some tokens' keys and values (`BlockPool`), to
one text or to several that begin alike, and find a block again by the tokens that it
holds. Nothing here knows tensors.

    prompt        t h e   c a t   s a t          4 tokens a block
    blocks       [t h e _][c a t _][s a t        the last one is not full
    keys          k0 = H(the_)   k1 = H(k0, cat_)

A full block's key is a digest of its tokens and of all before them: a text that begins
with the same tokens has the same first keys, and takes these blocks instead of
computing them. A block that no text uses any more keeps its key until somebody needs
the memory; the one that was given back first goes first.

Source: Kwon et al., "Efficient memory management for large language model serving with
PagedAttention", 2023.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np


class OutOfBlocksError(RuntimeError):
    """No block is free."""


class BlockPool:
    """Blocks 0 .. size - 1, each free or used by one text or more.

    Attributes:
        size: how many there are.
        block_size: tokens that one has room for.
        references: for each block, how many texts use it.
        _free: blocks that nobody uses, in the order in which they are taken.
        _keys, _known: the key of a block that has one, and the block of a key.

    Errors: ValueError for sizes below 1.
    """

    def __init__(self, size: int, block_size: int = 16) -> None:
        for name, value in (("size", size), ("block_size", block_size)):
            if type(value) is not int or value < 1:
                raise ValueError(f"BlockPool: {name} is {value!r}; expected 1 or more")
        self.size, self.block_size = size, block_size
        self.references = [0] * size
        self._free = OrderedDict.fromkeys(range(size))
        self._keys: dict[int, bytes] = {}
        self._known: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """How many blocks `take` could give."""
        return len(self._free)

    @property
    def used(self) -> int:
        """How many blocks texts have."""
        return self.size - len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks so many tokens need."""
        # BEGIN SOLUTION a18.1
        return -(-tokens // self.block_size)
        # END SOLUTION a18.1

    def take(self, count: int = 1) -> list[int]:
        """`count` blocks for one text; what they held is forgotten.

        First go those without a key, then the one that was given back first.

        Errors: OutOfBlocksError where there are not so many; then none is taken.
        """
        # BEGIN SOLUTION a18.1
        if count > len(self._free):
            raise OutOfBlocksError(
                f"BlockPool: {count} blocks are wanted and {len(self._free)} of "
                f"{self.size} are free; give some back first"
            )
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self.references[block] = 1
            if key := self._keys.pop(block, None):
                del self._known[key]
        return taken
        # END SOLUTION a18.1

    def share(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks that hold the first of these keys, each used once more now.

        They end before the first key that is not known.
        """
        # BEGIN SOLUTION a18.2
        found = []
        for key in keys:
            if (block := self._known.get(key)) is None:
                break
            self._free.pop(block, None)
            self.references[block] += 1
            found.append(block)
        return found
        # END SOLUTION a18.2

    def publish(self, block: int, key: bytes) -> None:
        """Let others find a full block; if one with its tokens is known, that stays.

        A block has one key, the first that it got.
        """
        self._check(block)
        # BEGIN SOLUTION a18.2
        if block not in self._keys and key not in self._known:
            self._keys[block], self._known[key] = key, block
        # END SOLUTION a18.2

    def release(self, blocks: Sequence[int]) -> None:
        """Give back a text's blocks, in the order of its tokens.

        The last ones are forgotten first, since who finds a block has found those
        before it.

        Errors: ValueError for a block that no text has.
        """
        # BEGIN SOLUTION a18.1
        for block in reversed(blocks):
            self._check(block)
            self.references[block] -= 1
            if not self.references[block]:
                self._free[block] = None
                if block not in self._keys:  # nobody can want what it holds
                    self._free.move_to_end(block, last=False)
        # END SOLUTION a18.1

    def _check(self, block: int) -> None:
        if not (0 <= block < self.size and self.references[block]):
            raise ValueError(
                f"BlockPool: no text has block {block!r}; expected one that `take` or "
                f"`share` gave, of 0 to {self.size - 1}"
            )


def extend_keys(keys: list[bytes], tokens: Sequence[int], block_size: int) -> None:
    """Add the keys of those full blocks of `tokens` that have none yet.

    Blocks have the same key where all tokens up to their ends are the same.
    """
    # BEGIN SOLUTION a18.2
    for end in range((len(keys) + 1) * block_size, len(tokens) + 1, block_size):
        here = np.array(tokens[end - block_size : end], np.int64).tobytes()
        before = keys[-1] if keys else b""
        keys.append(hashlib.sha256(before + here).digest())
    # END SOLUTION a18.2
