"""Byte-pair encoding itself, on numbers: learn which pairs to merge, and merge them.

With this file one can learn merges from the pieces of a text (`train_merges`) and apply
them to one piece (`merge`). Tokens 0 to 255 are the bytes; a merge makes one of two.

Source: Gage, "A new algorithm for data compression", 1994; Sennrich, Haddow and Birch,
"Neural machine translation of rare words with subword units", 2016; on bytes: Radford
et al., "Language models are unsupervised multitask learners", 2019.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

Pair = tuple[int, int]
BYTES = 256


def train_merges(
    pieces: Mapping[bytes, int], number: int
) -> tuple[list[bytes], list[Pair]]:
    """Learn from a text the bytes of up to `number` tokens, and the merges to them.

        repeat:  merge the pair of neighbours that there is most often, everywhere

    Of pairs that there are equally often, the one with the lower numbers. It ends
    earlier when no pair is there twice any more. Two pairs may make the same token.

    Args:
        pieces: how often each piece is in the text.
        number: how many tokens there are to be, 256 or more.
    """
    # BEGIN SOLUTION a10.1
    # Counting again for each merge would take the length of the text each time. Instead
    # counts are kept, and only pieces that have the pair are looked at. The heap gives
    # the most frequent pair; when a count changes, the new one goes into the heap, and
    # the old one is left out when it comes to the top.
    words, times = [list(piece) for piece in pieces], list(pieces.values())
    counts, where = _count(words, times)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapify(heap)
    tokens = [bytes([i]) for i in range(BYTES)]
    numbers = {token: i for i, token in enumerate(tokens)}
    merges: dict[Pair, int] = {}
    while heap and len(tokens) < number:
        count, pair = heappop(heap)
        if -count != counts[pair]:
            continue  # of the past
        if counts[pair] < 2:
            break
        made = tokens[pair[0]] + tokens[pair[1]]
        new = merges[pair] = numbers.setdefault(made, len(tokens))
        tokens += [made] if new == len(tokens) else []
        changes = _merge_everywhere(words, times, where, pair, new)
        for changed, by in changes.items():
            if by:
                counts[changed] += by
                heappush(heap, (-counts[changed], changed))
    return tokens, list(merges)
    # END SOLUTION a10.1


def _count(
    words: Sequence[Sequence[int]], times: Sequence[int]
) -> tuple[Counter[Pair], defaultdict[Pair, set[int]]]:
    """How often each pair of neighbours is there, and in which words."""
    counts: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += times[i]
            where[pair].add(i)
    return counts, where


def _merge_everywhere(
    words: list[list[int]],
    times: Sequence[int],
    where: defaultdict[Pair, set[int]],
    pair: Pair,
    new: int,
) -> Counter[Pair]:
    """Put `new` in the place of `pair` in all words; by how much counts change."""
    # BEGIN SOLUTION a10.1
    changes: Counter[Pair] = Counter()
    for i in where.pop(pair):
        merged = merge_pair(words[i], pair, new)
        if len(merged) == len(words[i]):
            continue  # an earlier merge took the pair away
        for old in pairwise(words[i]):
            changes[old] -= times[i]
        for now in pairwise(merged):
            changes[now] += times[i]
            where[now].add(i)
        words[i] = merged
    return changes
    # END SOLUTION a10.1


def merge_pair(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """A new list: `ids` with `new` where `pair` was, from left to right."""
    # BEGIN SOLUTION a10.1
    merged: list[int] = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged
    # END SOLUTION a10.1


def merge(ids: Sequence[int], merges: Mapping[Pair, tuple[int, int]]) -> list[int]:
    """Merge pairs of neighbours until none can be merged.

        repeat:  merge the pair of the lowest rank; of several, the leftmost

    Args:
        merges: for a pair, its rank, and the token that it becomes.
    """
    # BEGIN SOLUTION a10.1
    # Looking for it each time would take the square of the length. Here a heap holds
    # the pairs, and each token knows its neighbours, so it takes n log n.
    tokens = list(ids)  # -1: was merged into the one before
    after = list(range(1, len(tokens) + 1))
    before = list(range(-1, len(tokens) - 1))
    heap: list[tuple[int, int, Pair, int]] = []

    def offer(i: int) -> None:
        """Put the pair that begins at i into the heap, if it can be merged."""
        if i >= 0 and after[i] < len(tokens):
            pair = tokens[i], tokens[after[i]]
            if pair in merges:
                rank, new = merges[pair]
                heappush(heap, (rank, i, pair, new))

    for i in range(len(tokens)):
        offer(i)
    while heap:
        _, i, pair, new = heappop(heap)
        j = after[i]
        if j == len(tokens) or (tokens[i], tokens[j]) != pair:
            continue  # of the past
        tokens[i], tokens[j] = new, -1
        after[i] = after[j]
        if after[i] < len(tokens):
            before[after[i]] = i
        offer(before[i])
        offer(i)
    return [token for token in tokens if token >= 0]
    # END SOLUTION a10.1
