"""What turns text into numbers and back: the base of all tokenizers, and the simplest.

With this file one can number the characters of a text (`CharTokenizer`), read any
tokenizer that was saved (`load_tokenizer`), and show tokens as they come (`decoded`).

    >>> tokenizer = CharTokenizer.train("to be or not to be")
    >>> tokenizer.encode("robot")
    [6, 5, 1, 5, 7]
"""

from __future__ import annotations

import codecs
import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from minitorch.data.files import atomic_write

PathLike = str | os.PathLike[str]
FORMAT = 1  # of the files that `save` writes
T = TypeVar("T", bound="Tokenizer")
C = TypeVar("C", bound="CharTokenizer")


class TokenizerError(ValueError):
    """A file of a tokenizer that is damaged, or that is something else."""


class Tokenizer:
    """Text to whole numbers below `vocab_size`, and back.

    Derived classes have a `kind`, the word in their files that tells them apart.
    """

    kind = ""
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """The numbers of the tokens that make up `text`."""
        raise NotImplementedError(f"{type(self).__name__} must define encode(text)")

    def decode(self, ids: Iterable[int]) -> str:
        """The text that these tokens make up."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(ids)")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The same in UTF-8; tokens that end within a character, as they are."""
        return self.decode(ids).encode()

    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs, as what JSON knows."""
        raise NotImplementedError(f"{type(self).__name__} must define to_json()")

    @classmethod
    def from_json(cls: type[T], content: Mapping[str, Any]) -> T:
        """The tokenizer of which `to_json` returned `content`."""
        raise NotImplementedError(f"{cls.__name__} must define from_json(content)")

    def save(self, path: PathLike) -> None:
        """Write a JSON file that `load` reads.

        Raises:
            OSError: the file cannot be written.
        """
        content = {"tokenizer": self.kind, "format": FORMAT, **self.to_json()}
        with atomic_write(path) as file:
            file.write((json.dumps(content) + "\n").encode("ascii"))

    @classmethod
    def load(cls: type[T], path: PathLike) -> T:
        """The tokenizer that was saved there.

        Raises:
            FileNotFoundError: there is no such file.
            TokenizerError: the file is damaged, or has something else.
        """
        content = read_json(path)
        kind = content.get("tokenizer")
        if kind != cls.kind:
            raise TokenizerError(
                f"tokenizer: {path} has a tokenizer of the kind {kind!r}; expected "
                f"{cls.kind!r}, as {cls.__name__}.save writes it"
            )
        if content.get("format") != FORMAT:
            raise TokenizerError(
                f"tokenizer: {path} has format {content.get('format')!r}; this version "
                f"reads format {FORMAT}"
            )
        try:
            return cls.from_json(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise TokenizerError(
                f"tokenizer: {path} is damaged: {type(error).__name__}: {error}"
            ) from error
        except ValueError as error:
            raise TokenizerError(f"tokenizer: {path} is damaged: {error}") from error


def read_json(path: PathLike) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: there is no such file.
        TokenizerError: the file has something else.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise type(error)(
            f"tokenizer: {path} cannot be read ({error.strerror or error}); expected "
            f"the JSON file of a tokenizer"
        ) from error
    except ValueError as error:  # no UTF-8, or no JSON
        raise TokenizerError(f"tokenizer: {path} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(
            f"tokenizer: {path} has a JSON {type(content).__name__}; expected an object"
        )
    return content


class CharTokenizer(Tokenizer):
    """A number for each character, in the order of `characters`.

    Raises:
        ValueError: a character comes twice, or there is none.
    """

    kind = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        self.characters = "".join(characters)
        self._numbers = {c: i for i, c in enumerate(self.characters)}
        self.vocab_size = len(self.characters)
        if not self.characters or len(self._numbers) != self.vocab_size:
            raise ValueError(
                f"CharTokenizer: got {self.vocab_size} characters, of which "
                f"{len(self._numbers)} are different; expected at least one, and none "
                f"twice"
            )

    @classmethod
    def train(cls, text: str) -> CharTokenizer:
        """The characters of a text, in the order of their code points."""
        check_text("CharTokenizer.train", text)
        return cls(sorted(set(text)))

    def encode(self, text: str) -> list[int]:
        """A number for each character.

        Raises:
            ValueError: a character that has none; the message says which, and where.
        """
        check_text("CharTokenizer.encode", text)
        try:
            return [self._numbers[c] for c in text]
        except KeyError as error:
            (character,) = error.args
            raise ValueError(
                f"CharTokenizer.encode: no number for {character!r}, at position "
                f"{text.index(character)} of {len(text)}; it was not in the text that "
                f"this tokenizer was trained on. A BPE tokenizer can encode any text"
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """The characters with these numbers.

        Raises:
            ValueError: a number that no character has.
        """
        return "".join(self.characters[i] for i in checked(self, ids))

    def to_json(self) -> dict[str, Any]:
        return {"characters": self.characters}

    @classmethod
    def from_json(cls: type[C], content: Mapping[str, Any]) -> C:
        return cls(content["characters"])


def check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{name}: got a {type(text).__name__}; expected a str")


def checked(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    """`ids` as a list of ints, or an error for one that is no token's number."""
    try:
        numbers = [operator.index(i) for i in ids]
    except (TypeError, ValueError):
        raise TypeError(
            f"{type(tokenizer).__name__}.decode: got {ids!r}; expected whole numbers, "
            f"as encode returns them"
        ) from None
    for i in numbers:
        if not 0 <= i < tokenizer.vocab_size:
            raise ValueError(
                f"{type(tokenizer).__name__}.decode: there is no token {i}; expected "
                f"0 to {tokenizer.vocab_size - 1}"
            )
    return numbers


def load_tokenizer(path: PathLike) -> Tokenizer:
    """The tokenizer that was saved there, of whichever kind. Raises as `load`."""
    from minitorch.data.text.bpe import BPE

    kinds = {kind.kind: kind for kind in (CharTokenizer, BPE)}
    kind = read_json(path).get("tokenizer")
    if kind not in kinds:
        raise TokenizerError(
            f"tokenizer: {path} was not written by a tokenizer's save: its kind is "
            f"{kind!r}; expected one of {', '.join(map(repr, kinds))}. Files of other "
            f"libraries are read by BPE.from_huggingface and BPE.from_tiktoken"
        )
    return kinds[kind].load(path)


def decoded(tokenizer: Tokenizer, tokens: Iterable[Any]) -> Iterator[str]:
    """The text of tokens as soon as it is known.

    A token may end within a character, which then waits for the others.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        if text := decoder.decode(tokenizer.decode_bytes([token])):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
