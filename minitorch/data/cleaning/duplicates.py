"""What is there twice: to the letter, or nearly.

With this file one can drop documents and lines that there are already
(`drop_duplicates`, `drop_duplicate_lines`), and documents that differ little from
another one (`drop_near_duplicates`). To compare each with each takes the square of
their number, so the latter goes in four steps:

    normalized, shingles     a text becomes the set of its runs of n words
    MinHash                  the set becomes 128 numbers; the share of equal ones is
                             about the sets' similarity
    candidate_pairs          only those are compared that have a whole band in common
    clusters                 what is like what is like the first, is one cluster

Source: Broder, "On the resemblance and containment of documents", 1997; Leskovec,
Rajaraman and Ullman, "Mining of massive datasets", chapter 3; Lee et al.,
"Deduplicating training data makes language models better", 2022.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

import numpy as np
import numpy.typing as npt

from minitorch.data.cleaning.pipeline import Dropped

# The largest prime p below 2^32: a * x + b fits into 64 bits for all a, b, x below p.
PRIME = 4_294_967_291
BLOCK = 4096  # shingles that are hashed at once, so that memory has an end
Signature = npt.NDArray[np.uint32]


def digest(text: str, size: int = 8) -> bytes:
    """`size` bytes that stand for a text, the same in every process (`hash` is not).

    Of 64 bits, a million texts share one with the probability 3e-8.
    """
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=size).digest()


# --------------------------------------------------------------------- to the letter


def drop_duplicates(texts: Sequence[str]) -> list[str | Dropped]:
    """Every text once, where it comes first: a step for `clean`.

    Memory: eight bytes a text, whatever its length (`digest`).
    """
    # BEGIN SOLUTION a15.1
    seen: set[bytes] = set()
    out: list[str | Dropped] = []
    for text in texts:
        key = digest(text)
        out.append(Dropped("copy") if key in seen else text)
        seen.add(key)
    return out
    # END SOLUTION a15.1


def drop_duplicate_lines(texts: Sequence[str], times: int = 1) -> list[str | Dropped]:
    r"""Without the lines that there are more than `times` times: a step for `clean`.

    Such a line goes everywhere, also where it came first: menus, footers, notices.
    Lines end at "\n"; white space around a line makes no other line of it. Blank lines
    do not count, and stay. A text that loses its last line with words is dropped.
    Where whole texts come twice nothing of them is left: drop these before.

    Memory: the counts, of eight bytes for a line.

    Errors: ValueError if `times` is below 1.
    """
    if times < 1:
        raise ValueError(f"drop_duplicate_lines: times is {times}; expected 1 or more")
    # BEGIN SOLUTION a15.1
    counts = Counter(
        digest(line.strip()) for text in texts for line in text.split("\n")
    )
    counts[digest("")] = 0
    out: list[str | Dropped] = []
    for text in texts:
        lines = text.split("\n")
        left = [line for line in lines if counts[digest(line.strip())] <= times]
        gone = len(left) < len(lines) and not any(map(str.strip, left))
        out.append(Dropped("lines that are elsewhere") if gone else "\n".join(left))
    return out
    # END SOLUTION a15.1


# ------------------------------------------------------------------------------ nearly


def normalized(text: str) -> str:
    """The words of a text in lower case, without accents, with one space between two.

    The text is decomposed (Unicode's NFD), and all marks are dropped, also those that
    are vowels in Hindi or Thai; all else that is no letter or digit ends a word.

        "Déjà-vu,  said ALICE!" -> "deja vu said alice"
    """
    # BEGIN SOLUTION a15.2
    plain = unicodedata.normalize("NFD", text).lower()
    kept = [c for c in plain if not unicodedata.category(c).startswith("M")]
    return " ".join("".join(c if c.isalnum() else " " for c in kept).split())
    # END SOLUTION a15.2


def shingles(text: str, n: int = 5) -> set[str]:
    """All runs of n words of the normalized text.

    A text of fewer words, but not of none, has one shingle: all its words.

    Errors: ValueError if n is below 1.
    """
    if n < 1:
        raise ValueError(f"shingles: n is {n}; expected a number of words, 1 or more")
    # BEGIN SOLUTION a15.2
    words = normalized(text).split()
    last = max(len(words) - n, 0)
    return {" ".join(words[i : i + n]) for i in range(last + 1)} - {""}
    # END SOLUTION a15.2


def jaccard(a: AbstractSet[str], b: AbstractSet[str]) -> float:
    """How alike two sets are: what both have, of what one of them has. 1 if both are
    empty."""
    # BEGIN SOLUTION a15.2
    return len(a & b) / len(a | b) if a or b else 1.0
    # END SOLUTION a15.2


class MinHash:
    """Signatures of sets: of equal length for all, and alike where the sets are.

    Hash function i numbers all shingles anew, h_i(x) = (a_i * x + b_i) mod PRIME, and
    entry i of a signature is the smallest number in the set. It is the same for two
    sets if the first of their union, in the order of h_i, is in both: with the
    probability `jaccard`.

    Args:
        hashes: how many entries. The estimate of a similarity s is off by
            sqrt(s * (1 - s) / hashes), one standard deviation.
        seed: of a and b; only signatures of one seed can be compared.
    """

    def __init__(self, hashes: int = 128, seed: int = 0) -> None:
        if hashes < 1:
            raise ValueError(f"MinHash: hashes is {hashes}; expected 1 or more")
        # Philox' raw numbers stay the same with later NumPys.
        raw = np.random.Philox(np.random.SeedSequence(seed)).random_raw(2 * hashes)
        self.a = raw[:hashes] % np.uint64(PRIME - 1) + np.uint64(1)
        self.b = raw[hashes:] % np.uint64(PRIME)

    def signature(self, shingles: Collection[str]) -> Signature:
        """uint32 [hashes]; of no shingles, PRIME everywhere."""
        # BEGIN SOLUTION a15.2
        numbers = (int.from_bytes(digest(s), "little") % PRIME for s in shingles)
        x = np.fromiter(numbers, np.uint64, len(shingles))
        least = np.full(len(self.a), PRIME, np.uint64)
        for start in range(0, len(x), BLOCK):
            some = self.a[:, None] * x[start : start + BLOCK] + self.b[:, None]
            least = np.minimum(least, (some % np.uint64(PRIME)).min(1))
        return least.astype(np.uint32)
        # END SOLUTION a15.2

    @staticmethod
    def similarity(one: Signature, other: Signature) -> float:
        """The share of equal entries, which estimates `jaccard` of the two sets."""
        # BEGIN SOLUTION a15.2
        return float((one == other).mean())
        # END SOLUTION a15.2


def caught(similarity: float, bands: int, rows: int) -> float:
    """How probably two sets become a candidate pair: 1 - (1 - s^rows)^bands

    All rows of a band are equal with the probability s^rows. As a function of s it is
    a step, which is steepest near (1 / bands)^(1 / rows).
    """
    return 1.0 - (1.0 - similarity**rows) ** bands


def candidate_pairs(signatures: npt.ArrayLike, bands: int) -> set[tuple[int, int]]:
    """Pairs (i, j), i < j, of signatures with a band in common.

    A signature is cut into `bands` pieces of equal length. Two that are equal in a
    whole piece, at the same place, fall into one bucket. All pairs of a bucket are
    returned: their number is the square of that of copies, exact or near, and of texts
    without a word. Drop these before.

    Args:
        signatures: [N, hashes].

    Errors: ValueError if `hashes` is no multiple of `bands`.
    """
    table = np.asarray(signatures, np.uint32)
    width = table.shape[-1] if table.ndim == 2 else 0
    if not 0 < bands <= width or width % bands:
        raise ValueError(
            f"candidate_pairs: signatures are {table.shape} and bands {bands}; "
            f"expected (texts, hashes), where hashes is a multiple of bands"
        )
    # BEGIN SOLUTION a15.3
    rows = width // bands
    pairs: set[tuple[int, int]] = set()
    for start in range(0, width, rows):
        buckets: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, band in enumerate(table[:, start : start + rows].tolist()):
            buckets[tuple(band)].append(i)
        for bucket in buckets.values():
            pairs.update(combinations(bucket, 2))
    return pairs
    # END SOLUTION a15.3


def clusters(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each of `count` items, the smallest one that pairs lead to: union-find.

    Two items are in one cluster if a chain of pairs joins them, and then the smallest
    of the cluster stands for both.

        clusters(5, [(1, 2), (4, 2)]) -> [0, 1, 1, 3, 1]

    Time: nearly that of reading the pairs (Tarjan, 1975).
    """
    # BEGIN SOLUTION a15.3
    leader = list(range(count))

    def first(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]  # the next one finds a shorter way
            i = leader[i]
        return i

    for i, j in pairs:
        low, high = sorted((first(i), first(j)))
        leader[high] = low
    return [first(i) for i in range(count)]
    # END SOLUTION a15.3


def drop_near_duplicates(
    texts: Sequence[str],
    threshold: float = 0.7,
    n: int = 5,
    hashes: int = 128,
    bands: int = 32,
    seed: int = 0,
) -> list[str | Dropped]:
    """One text of each cluster of similar ones, the first: a step for `clean`.

    Similar are candidate pairs whose sets of shingles have a `jaccard` of `threshold`
    or more: signatures say whom to compare, and the sets decide. A pair of similarity
    s is found with the probability `caught(s, bands, hashes // bands)`. Equal sets, as
    those of all texts without a word, need no comparison.

    Errors: ValueError if the threshold is not from 0 to 1, and those of `shingles`,
    `MinHash` and `candidate_pairs`.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"drop_near_duplicates: threshold is {threshold}; expected 0 to 1"
        )
    # BEGIN SOLUTION a15.3
    sets = [frozenset(shingles(text, n)) for text in texts]
    # Equal sets are alike: the first of them alone is compared with others.
    first: dict[frozenset[str], int] = {}
    equal = [(first.setdefault(one, i), i) for i, one in enumerate(sets)]
    some, minhash = list(first.values()), MinHash(hashes, seed)
    table = [minhash.signature(sets[i]) for i in some]
    candidates = candidate_pairs(np.reshape(table, (len(some), hashes)), bands)
    pairs = [(some[i], some[j]) for i, j in candidates]
    alike = [(i, j) for i, j in pairs if jaccard(sets[i], sets[j]) >= threshold]
    firsts = clusters(len(sets), [*equal, *alike])
    return [
        text if first == i else Dropped("nearly a copy")
        for i, (text, first) in enumerate(zip(texts, firsts))
    ]
    # END SOLUTION a15.3
