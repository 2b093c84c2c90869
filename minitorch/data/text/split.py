r"""How a text is cut into pieces before byte pairs are merged, which never cross a cut.

With this file one can cut a text (`pieces`) by the pattern of GPT-2 (`GPT2`), of GPT-4
(`GPT4`), or of a tokenizer's file (`compiled`). Such patterns speak of Unicode's
categories, `\p{L}` for letters, which Python's `re` does not know: they are written out
as ranges of characters, by the Unicode of this Python. So a character that came into
Unicode later is cut off as a sign is; that changes the tokens, not the text.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator
from itertools import groupby

# Contractions; a word, number or row of signs, with the space before it; white space,
# whose last space belongs to the word that follows.
# Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
GPT2 = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)  # fmt: skip
# Contractions in capitals as well, numbers of three digits at most, lines kept apart.
# Source: the pattern of cl100k_base in OpenAI's tiktoken, without its possessive
# quantifiers, which make it quicker and cut no other way.
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Unicode's White_Space; Python's \s has the separators \x1c to \x1f as well.
SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

_PART = re.compile(r"\\([pP])\{(\w+)\}|\\([sS])|\\.|\[\^?|\]", re.DOTALL)


def pieces(pattern: str | None, text: str) -> Iterator[str]:
    """`text` cut by `pattern`: its matches, and what lies between two of them.

    All of them together are `text`. None: one piece.
    """
    end = 0
    for found in compiled(pattern).finditer(text) if pattern else ():
        if end < found.start():
            yield text[end : found.start()]
        if found.group():
            yield found.group()
        end = found.end()
    if end < len(text):
        yield text[end:]


@functools.lru_cache(maxsize=16)
def compiled(pattern: str) -> re.Pattern[str]:
    r"""A pattern in which \p{...} and \P{...} may stand.

    Raises:
        ValueError: it cannot be compiled, or needs what `re` has not.
    """
    inside = False  # of [...]

    def written_out(found: re.Match[str]) -> str:
        nonlocal inside
        part, (kind, category, space) = found.group(), found.groups()
        if kind is None and space is None:
            inside = part.startswith("[") or (inside and part != "]")
            return part
        ranges = SPACE if space else _ranges(category)
        if not inside:
            return f"[^{ranges}]" if (kind or space).isupper() else f"[{ranges}]"
        if (kind or space).isupper():
            raise ValueError(f"{part} within [...] is not supported")
        return ranges

    try:
        return re.compile(_PART.sub(written_out, pattern))
    except (ValueError, re.error) as error:
        raise ValueError(
            f"pattern: Python's re cannot use {pattern!r}: {error}"
        ) from error


@functools.cache
def _ranges(category: str) -> str:
    r"""The characters of a category such as "Lu", or of a group such as "L"."""
    chosen = groupby(_runs(), lambda run: run[0].startswith(category))
    found = [list(runs) for is_in, runs in chosen if is_in]
    if not found:
        raise ValueError(f"there is no category {category!r} in Unicode")
    return "".join(f"\\U{runs[0][1]:08x}-\\U{runs[-1][2]:08x}" for runs in found)


@functools.cache
def _runs() -> list[tuple[str, int, int]]:
    """Category, first and last code point of all runs of one category, in order."""
    runs, start = [], 0
    every = map(chr, range(sys.maxunicode + 1))
    for category, run in groupby(map(unicodedata.category, every)):
        end = start + len(list(run))
        runs.append((category, start, end - 1))
        start = end
    return runs
