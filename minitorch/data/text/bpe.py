"""Byte-pair encoding: tokens are bytes, and runs of bytes that are often there.

With this file one can train a tokenizer on a text of one's own (`BPE.train`), use those
of others (`BPE.from_tiktoken`, `BPE.from_huggingface`), and encode any text.

    >>> tokenizer = BPE.train(text, vocab_size=1000)
    >>> tokenizer.decode(tokenizer.encode("To be, or not to be"))
    'To be, or not to be'

A text is cut into pieces (`split.py`); the bytes of each piece are merged, pair by pair
(`merging.py`). Every text has an encoding, since every byte is a token.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import minitorch.data.text.formats as formats
from minitorch.data.text.merging import BYTES, Pair, merge, train_merges
from minitorch.data.text.split import GPT2, compiled, pieces
from minitorch.data.text.tokenizer import PathLike, Tokenizer, check_text, checked

T = TypeVar("T", bound="BPE")

# Pieces whose tokens are remembered: a few words make up most of a text.
REMEMBERED, LONGEST = 1 << 16, 64


class BPE(Tokenizer):
    """A tokenizer by byte pairs.

    Args:
        tokens: the bytes of each token, and its number; all 256 bytes are among them.
        merges: pairs of tokens, those to merge first first. None, as tiktoken does it:
            any two neighbours may be merged whose bytes together are a token, and the
            one with the lowest number first; a piece that is a token is taken whole.
        pattern: cuts a text into pieces (`split.py`); None: it is one piece.
        special_tokens: tokens that no merge makes, such as "<|endoftext|>".
        whole_pieces: take a piece that is a token whole, with `merges` as well.

    Raises:
        ValueError: these do not fit together; the message says what is wrong.
    """

    kind = "bpe"

    def __init__(
        self,
        tokens: Mapping[bytes, int],
        merges: Sequence[Pair] | None,
        *,
        pattern: str | None = GPT2,
        special_tokens: Mapping[str, int] | None = None,
        whole_pieces: bool = False,
    ) -> None:
        self.tokens, self.pattern = dict(tokens), pattern
        self.merges = None if merges is None else [(a, b) for a, b in merges]
        self.special_tokens = dict(special_tokens or {})
        self.whole_pieces = whole_pieces or merges is None
        if pattern is not None:
            compiled(pattern)
        self._bytes = _by_number(self.tokens, self.special_tokens)
        self.vocab_size = max(self._bytes) + 1
        self._merges = (
            _merges_by_rank(self.tokens)
            if self.merges is None
            else _merges_in_order(self.tokens, self._bytes, self.merges)
        )
        self._single = [self.tokens[bytes([i])] for i in range(BYTES)]
        self._known: dict[bytes, list[int]] = {}

    @classmethod
    def train(
        cls: type[T],
        text: str,
        vocab_size: int,
        *,
        special_tokens: Sequence[str] = (),
        pattern: str | None = GPT2,
    ) -> T:
        """Learn from a text which pairs are worth a token (`train_merges`).

        Bytes are tokens 0 to 255, then come merges, and special tokens last. Where a
        text is too short for so many merges, `vocab_size` becomes smaller.

        Raises:
            ValueError: `vocab_size` has no room for bytes and special tokens, or these
                are no list of different texts.
        """
        check_text("BPE.train", text)
        names = list(special_tokens)
        texts = {name for name in names if isinstance(name, str)}
        if isinstance(special_tokens, str) or len(texts) < len(names):
            raise ValueError(
                f"BPE.train: special_tokens is {special_tokens!r}; expected a list of "
                f"texts, none of them twice"
            )
        if type(vocab_size) is not int:
            raise TypeError(f"BPE.train: vocab_size is {vocab_size!r}; expected an int")
        number = vocab_size - len(names)
        if number < BYTES:
            raise ValueError(
                f"BPE.train: vocab_size is {vocab_size}; expected {BYTES} or more for "
                f"the bytes, and {len(names)} for special tokens"
            )
        found = Counter(pieces(pattern, text))
        counts = {_to_bytes(piece): count for piece, count in found.items()}
        learnt, merges = train_merges(counts, number)
        tokens = {token: i for i, token in enumerate(learnt)}
        specials = {s: len(learnt) + i for i, s in enumerate(names)}
        return cls(tokens, merges, pattern=pattern, special_tokens=specials)

    @classmethod
    def from_tiktoken(
        cls: type[T],
        path: PathLike,
        *,
        pattern: str | None = GPT2,
        special_tokens: Mapping[str, int] | None = None,
    ) -> T:
        """Read a `.tiktoken` file, whose lines are a token in base64 and its rank.

        The file has neither pattern nor special tokens: give those that belong to it.

        Raises:
            FileNotFoundError: there is no such file.
            TokenizerError: it is damaged; the message names the line.
        """
        tokens = formats.read_tiktoken(path)
        with formats.about(path):
            return cls(tokens, None, pattern=pattern, special_tokens=special_tokens)

    @classmethod
    def from_huggingface(cls: type[T], path: PathLike) -> T:
        """Read a `tokenizer.json`, or a folder that has one, or that has GPT-2's two
        files, `vocab.json` and `merges.txt`.

        What the file adds to a text of itself (at its beginning, say) is not added.

        Raises:
            FileNotFoundError: there is no such file.
            TokenizerError: it is damaged, or no byte-pair encoding of bytes.
        """
        parts = formats.read_huggingface(path)
        with formats.about(path):
            return cls(**parts)

    # -------------------------------------------------------------- text and numbers

    def encode(
        self, text: str, *, allowed_special: Collection[str] | str = ()
    ) -> list[int]:
        """The tokens of a text.

        Args:
            allowed_special: special tokens that mean themselves where they are in the
                text, or "all" of them. Others are text as any other (tiktoken raises
                an error for them): who types one does not control the model by it.

        Raises:
            ValueError: half of a surrogate pair, which is no text; or an unknown name.
        """
        check_text("BPE.encode", text)
        names = self._allowed(allowed_special)
        parts = (
            re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        )
        ids: list[int] = []
        for part in parts:
            if part in names:
                ids.append(self.special_tokens[part])
            else:
                ids += self._encode(part.encode("utf-8").decode("utf-8"))
        return ids

    def encode_bytes(self, content: bytes) -> list[int]:
        """The tokens of any bytes; those that are no UTF-8 are cut off as signs are."""
        return self._encode(content.decode("utf-8", "surrogateescape"))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these tokens, with U+FFFD for bytes that are no UTF-8.

        Raises:
            ValueError: a number that no token has.
        """
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of these tokens. Raises as `decode`."""
        try:
            # BEGIN SOLUTION a10.1
            return b"".join([self._bytes[i] for i in checked(self, ids)])
            # END SOLUTION a10.1
        except KeyError as error:
            raise ValueError(
                f"BPE.decode: there is no token {error}; the numbers of this tokenizer "
                f"have gaps"
            ) from None

    def _encode(self, text: str) -> list[int]:
        """The tokens of a text, piece by piece."""
        # BEGIN SOLUTION a10.1
        ids: list[int] = []
        for piece in pieces(self.pattern, text):
            ids += self._encode_piece(_to_bytes(piece))
        return ids
        # END SOLUTION a10.1

    def _encode_piece(self, piece: bytes) -> list[int]:
        """The tokens of a piece; those of short ones are remembered."""
        ids = self._known.get(piece)
        if ids is not None:
            return ids
        # BEGIN SOLUTION a10.1
        whole = self.tokens.get(piece) if self.whole_pieces else None
        single = [self._single[byte] for byte in piece]
        ids = [whole] if whole is not None else merge(single, self._merges)
        # END SOLUTION a10.1
        if len(piece) <= LONGEST:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[piece] = ids
        return ids

    def _allowed(self, names: Collection[str] | str) -> list[str]:
        """The special tokens with these names, the longest first."""
        if names == "all":
            names = self.special_tokens
        unknown = [name for name in names if name not in self.special_tokens]
        if isinstance(names, str) or unknown:
            raise ValueError(
                f"BPE.encode: allowed_special is {names!r}; expected 'all', or some of "
                f"{sorted(self.special_tokens)}"
            )
        return sorted(names, key=len, reverse=True)

    # ------------------------------------------------------------------------- files

    def to_json(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "whole_pieces": self.whole_pieces,
            "special_tokens": self.special_tokens,
            "merges": self.merges,
            "tokens": {
                base64.b64encode(token).decode(): i for token, i in self.tokens.items()
            },
        }

    @classmethod
    def from_json(cls: type[T], content: Mapping[str, Any]) -> T:
        return cls(
            {
                base64.b64decode(k, validate=True): i
                for k, i in content["tokens"].items()
            },
            content["merges"],
            pattern=content["pattern"],
            special_tokens=content["special_tokens"],
            whole_pieces=content["whole_pieces"],
        )


def _to_bytes(piece: str) -> bytes:
    """The UTF-8 of a piece, and the bytes that were none, as they were."""
    return piece.encode("utf-8", "surrogateescape")


def _by_number(
    tokens: Mapping[bytes, int], special_tokens: Mapping[str, int]
) -> dict[int, bytes]:
    """The bytes of each token, by its number; checks both tables."""
    named = [*tokens.items(), *((k.encode(), i) for k, i in special_tokens.items())]
    by_number: dict[int, bytes] = {}
    for token, number in named:
        if type(number) is not int or number < 0:
            raise ValueError(
                f"BPE: the number of the token {token!r} is {number!r}; expected a "
                f"whole number, 0 or more"
            )
        if not token:
            raise ValueError(
                f"BPE: the token with the number {number} is empty; it would be found "
                f"between any two characters"
            )
        if number in by_number:
            raise ValueError(
                f"BPE: {by_number[number]!r} and {token!r} both have the number "
                f"{number}"
            )
        by_number[number] = token
    missing = [i for i in range(BYTES) if bytes([i]) not in tokens]
    if missing:
        raise ValueError(
            f"BPE: {len(missing)} of the 256 bytes are no tokens, {missing[0]:#04x} "
            f"for one; without them not every text has an encoding"
        )
    return by_number


def _merges_by_rank(tokens: Mapping[bytes, int]) -> dict[Pair, tuple[int, int]]:
    """All pairs of tokens that make a token; rank and number are the same."""
    merges = {}
    for token, number in tokens.items():
        for i in range(1, len(token)):
            a, b = tokens.get(token[:i]), tokens.get(token[i:])
            if a is not None and b is not None:
                merges[a, b] = number, number
    return merges


def _merges_in_order(
    tokens: Mapping[bytes, int], by_number: Mapping[int, bytes], pairs: Sequence[Pair]
) -> dict[Pair, tuple[int, int]]:
    """The pairs, ranked as they stand there."""
    merges: dict[Pair, tuple[int, int]] = {}
    for rank, (a, b) in enumerate(pairs):
        if a not in by_number or b not in by_number:
            raise ValueError(f"BPE: merge {rank} is of {a} and {b}; one is no token")
        made = by_number[a] + by_number[b]
        if made not in tokens:
            raise ValueError(
                f"BPE: merge {rank} makes {made!r} of {by_number[a]!r} and "
                f"{by_number[b]!r}, which is no token"
            )
        merges.setdefault((a, b), (rank, tokens[made]))
    return merges
