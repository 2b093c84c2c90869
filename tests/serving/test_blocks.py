"""Blocks: none is used twice or lost, and what lies in one is found again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from helpers import quick
from minitorch.serving.blocks import BlockPool, OutOfBlocksError, extend_keys

SIZE, BLOCK = 6, 2


def keys_of(tokens: list[int]) -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, tokens, BLOCK)
    return keys


class Pool(RuleBasedStateMachine):
    """Texts of few tokens come, grow and go; beside the pool a plain account of it.

    `held` is what lies in each block: the tokens from the text's begin to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE, BLOCK)
        self.texts: list[tuple[list[int], list[int]]] = []  # tokens, blocks
        self.held: dict[int, tuple[int, ...]] = {}

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def begin(self, tokens: list[int]) -> None:
        keys = keys_of(tokens)
        blocks = self.pool.share(keys)
        for i, block in enumerate(blocks):
            assert self.held[block] == tuple(tokens[: (i + 1) * BLOCK])
        need = self.pool.blocks_for(len(tokens)) - len(blocks)
        free = self.pool.available
        if need > free:
            with pytest.raises(OutOfBlocksError, match=f"{free} of {SIZE} are free"):
                self.pool.take(need)
            self.pool.release(blocks)
            return
        new = self.pool.take(need)
        in_use = {block for _, others in self.texts for block in others}
        assert len({*new, *blocks}) == len(new) + len(blocks) and not in_use & {*new}
        for block in new:
            self.held.pop(block, None)
        blocks += new
        self.texts.append((tokens, blocks))
        for i, key in enumerate(keys):
            self.held[blocks[i]] = tuple(tokens[: (i + 1) * BLOCK])
            self.pool.publish(blocks[i], key)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.texts:
            at = data.draw(st.integers(0, len(self.texts) - 1))
            self.pool.release(self.texts.pop(at)[1])

    @invariant()
    def references_count_texts(self) -> None:
        counts = Counter(block for _, blocks in self.texts for block in blocks)
        assert self.pool.references == [counts[block] for block in range(SIZE)]
        assert self.pool.used == len(counts)
        assert self.pool.available == SIZE - len(counts)


TestPool = Pool.TestCase
TestPool.settings = quick


def test_what_was_given_back_first_is_forgotten_first():
    pool = BlockPool(4, BLOCK)
    a, b = keys_of([1, 2, 3, 4]), keys_of([5, 6])
    for keys in (a, b):
        blocks = pool.take(len(keys))
        for block, key in zip(blocks, keys):
            pool.publish(block, key)
        pool.release(blocks)
    pool.take(2)  # one that never held anything, and then the end of the first text
    first = pool.share(a)
    assert len(first) == 1
    assert pool.share(b) and pool.available == 0
    with pytest.raises(OutOfBlocksError):
        pool.take()
    pool.release(first)
    pool.take()
    assert pool.share(a) == []


def test_a_key_is_of_all_tokens_so_far():
    assert keys_of([1, 2, 3, 4])[1] != keys_of([2, 1, 3, 4])[1]
    keys = keys_of([1, 2, 3])
    extend_keys(keys, [1, 2, 3, 4, 5], BLOCK)
    assert keys == keys_of([1, 2, 3, 4])


def test_errors_say_what_was_given():
    with pytest.raises(ValueError, match="size is 0"):
        BlockPool(0)
    with pytest.raises(ValueError, match=r"block_size is 2\.5"):
        BlockPool(1, 2.5)  # type: ignore[arg-type]
    pool = BlockPool(2)
    (block,) = pool.take()
    pool.release([block])
    for wrong in (block, 2, -1):
        with pytest.raises(ValueError, match=f"no text has block {wrong}"):
            pool.release([wrong])
    with pytest.raises(ValueError, match="no text has block"):
        pool.publish(block, b"key")
