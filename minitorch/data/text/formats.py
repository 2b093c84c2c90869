"""The files in which other libraries keep byte-pair encodings.

With this file one can read tiktoken's `.tiktoken` files (`read_tiktoken`), Hugging
Face's `tokenizer.json`, and GPT-2's `vocab.json` with `merges.txt`
(`read_huggingface`). What a file asks for that is not supported is an error, since its
tokens would be others.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minitorch.data.text.split import GPT2
from minitorch.data.text.tokenizer import PathLike, TokenizerError, read_json

VOCAB, MERGES, TOKENIZER = "vocab.json", "merges.txt", "tokenizer.json"

# Of a tokenizer.json's model: what changes the tokens, and may only be this.
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "type": ("BPE", None),
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
}


@contextmanager
def about(path: PathLike) -> Iterator[None]:
    """Errors about the content of a file name the file."""
    try:
        yield
    except TokenizerError:
        raise
    except ValueError as error:
        raise TokenizerError(f"tokenizer: {path}: {error}") from error


@functools.cache
def byte_characters() -> dict[str, int]:
    """The characters by which GPT-2's files write bytes.

    A byte that is a visible character of Latin-1 is written as that; the others, in
    their order, as the characters from U+0100 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def read_tiktoken(path: PathLike) -> dict[bytes, int]:
    """The tokens of a `.tiktoken` file, and their ranks. Raises as `from_tiktoken`."""
    tokens: dict[bytes, int] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            text, rank = line.split()
            token = base64.b64decode(text, validate=True)
            value = int(rank)
        except ValueError as error:
            shown = line[:80].decode("utf-8", "replace")
            raise TokenizerError(
                f"tokenizer: {path}, line {number}: {shown!r}; expected a token in "
                f"base64, a space and its rank"
            ) from error
        if token in tokens:
            raise TokenizerError(
                f"tokenizer: {path}, line {number}: the token {token!r} has the rank "
                f"{tokens[token]} already"
            )
        tokens[token] = value
    if not tokens:
        raise TokenizerError(f"tokenizer: {path} is empty")
    return tokens


def read_huggingface(path: PathLike) -> dict[str, Any]:
    """Of a file, or of the files in a folder: the arguments of `BPE`."""
    place = Path(path)
    if not place.is_dir():
        return _read_tokenizer_json(place)
    if (place / TOKENIZER).exists():
        return _read_tokenizer_json(place / TOKENIZER)
    if not ((place / VOCAB).exists() and (place / MERGES).exists()):
        raise FileNotFoundError(
            f"tokenizer: the folder {place} has no {TOKENIZER}, and not both {VOCAB} "
            f"and {MERGES}"
        )
    return _read_gpt2(place / VOCAB, place / MERGES)


def _read_gpt2(vocab_file: Path, merges_file: Path) -> dict[str, Any]:
    """Tokens that no merge makes are special: "<|endoftext|>" is."""
    lines = merges_file.read_text("utf-8", "replace").split("\n")
    entries = [
        (f"line {number}", line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not (number == 1 and line.startswith("#version"))
    ]
    vocab = read_json(vocab_file)
    with about(merges_file):
        pairs = _pairs(entries, vocab)
    names = {number: name for name, number in vocab.items()}
    made = {names[a] + names[b] for a, b in pairs}
    special = {k: i for k, i in vocab.items() if len(k) > 1 and k not in made}
    with about(vocab_file):
        tokens = _tokens(vocab, special)
    return {"tokens": tokens, "merges": pairs, "special_tokens": special}


def _read_tokenizer_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    with about(path):
        try:
            return _tokenizer(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the file is damaged, or no tokenizer.json: {type(error).__name__}: "
                f"{error}"
            ) from error


def _tokenizer(content: Mapping[str, Any]) -> dict[str, Any]:
    model = content["model"]
    for key, allowed in PLAIN.items():
        if model.get(key) not in allowed:
            _refuse(f"the model's {key}", model[key])
    if content.get("normalizer") is not None:
        _refuse("the normalizer", content["normalizer"])
    special = {entry["content"]: entry["id"] for entry in content["added_tokens"]}
    for entry in content["added_tokens"]:
        for flag in ("lstrip", "rstrip", "single_word"):
            if entry.get(flag):
                _refuse(f"{flag} of the token {entry['content']!r}", True)
    entries = [(f"merge {i}", entry) for i, entry in enumerate(model["merges"])]
    return {
        "tokens": _tokens(model["vocab"], special),
        "merges": _pairs(entries, model["vocab"]),
        "pattern": _pattern(content["pre_tokenizer"]),
        "special_tokens": special,
        "whole_pieces": bool(model.get("ignore_merges")),
    }


def _pattern(step: Mapping[str, Any]) -> str | None:
    """The pattern that a `pre_tokenizer` cuts by, if it does nothing else."""
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    *before, last = steps
    if last["type"] != "ByteLevel" or last.get("add_prefix_space"):
        _refuse("the last pre_tokenizer", last)
    found = GPT2 if last.get("use_regex", True) else None
    for split in before:
        rule = split.get("pattern", {}).get("Regex")
        whole = split["type"], split.get("behavior"), split.get("invert", False), found
        if rule is None or whole != ("Split", "Isolated", False, None):
            _refuse("the pre_tokenizer", split)
        found = rule
    return found


def _refuse(what: str, given: Any) -> None:
    raise ValueError(
        f"{what} is {str(given)[:200]!r}, which is not supported: expected a byte-pair "
        f"encoding of bytes that cuts a text by one pattern, as GPT-2's and Llama 3's"
    )


def _tokens(vocab: Mapping[str, Any], special: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes of each token that is not special."""
    table, tokens = byte_characters(), {}
    for name, number in vocab.items():
        if name in special:
            continue
        foreign = [c for c in name if c not in table]
        if foreign:
            raise ValueError(
                f"the token {name!r} has the character {foreign[0]!r}, which stands "
                f"for no byte; expected a vocabulary of bytes, as GPT-2's"
            )
        tokens[bytes(table[c] for c in name)] = number
    return tokens


def _pairs(
    entries: Sequence[tuple[str, Any]], vocab: Mapping[str, int]
) -> list[tuple[int, int]]:
    """The numbers of merges; each is "a b" or ["a", "b"], with where it stands."""
    pairs = []
    for where, entry in entries:
        parts = entry.split(" ") if isinstance(entry, str) else entry
        if len(parts) != 2 or any(part not in vocab for part in parts):
            raise ValueError(
                f"{where} is {str(entry)[:80]!r}; expected two tokens of the vocabulary"
            )
        pairs.append((vocab[parts[0]], vocab[parts[1]]))
    return pairs
