"""What a GPT learns from: a text as tokens, in the folder of the run.

With this file one can put a text into a run's folder (`prepare_task`): its tokenizer,
and the tokens to train and to validate on; and open it again (`open_task`), as a run
does that is resumed. So that goes on with the very same tokens, whatever became of the
text.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from minitorch.data import (
    BPE,
    CharTokenizer,
    TextData,
    Tokenizer,
    TokenWindows,
    load_text,
    load_tokenizer,
    open_tokens,
    write_tokens,
)
from minitorch.data.text.corpus import TINYSHAKESPEARE
from minitorch.train.checkpoint import CheckpointError
from minitorch.train.config import ConfigError
from minitorch.train.folder import TEXT
from minitorch.train.gpt.config import TOKENIZERS, GPTTrainConfig

TOKENIZER, TRAIN, VAL = TEXT


@dataclass(frozen=True)
class TextTask:
    """The tokenizer of a run, and windows of the text that it trains, and is measured,
    on: its first nine tenths, and the rest."""

    tokenizer: Tokenizer
    train: TokenWindows
    val: TokenWindows

    def prompt(self) -> list[int]:
        """What samples begin behind: a new line, or the first token of the text."""
        try:
            return self.tokenizer.encode("\n")
        except ValueError:  # the text had no second line
            return [int(self.train.tokens[0])]


def read_text(config: GPTTrainConfig) -> TextData:
    """The text that `config.dataset` names."""
    default = config.dataset == TINYSHAKESPEARE
    return load_text(None if default else config.dataset, config.data_dir)


def prepare_task(config: GPTTrainConfig, text: TextData, folder: Path) -> None:
    """Number the tokens of a text, and write them and the tokenizer into the folder."""
    train, val = text.split()
    tokenizer = _tokenizer(config, text.text, train)
    tokenizer.save(folder / TOKENIZER)
    for name, part in ((TRAIN, train), (VAL, val)):
        ids = tokenizer.encode(part)
        if len(ids) <= (config.block_size or 0):
            raise ConfigError(
                "block_size",
                f"got {config.block_size}; {name} has {len(ids)} tokens, of the text's "
                f"{len(text.text)} characters: a window needs one more than block_size",
            )
        write_tokens(folder / name, ids, tokenizer.vocab_size)


def _tokenizer(config: GPTTrainConfig, text: str, train: str) -> Tokenizer:
    """Characters are the whole text's; byte pairs have not seen what validates."""
    if config.tokenizer == "char":
        return CharTokenizer.train(text)
    if config.tokenizer == "bpe":
        assert config.vocab_size is not None
        return BPE.train(train, config.vocab_size)
    try:
        return load_tokenizer(str(config.tokenizer))
    except FileNotFoundError:
        raise ConfigError(
            "tokenizer",
            f"there is no {config.tokenizer!r}; choose from {', '.join(TOKENIZERS)}, "
            f"or name a file that a tokenizer's save wrote",
        ) from None


def take_along(old: Path, new: Path) -> None:
    """Copy the text of a run to the folder where it goes on, if that is another."""
    if not (new.exists() and old.samefile(new)):
        for name in TEXT:
            if (old / name).exists():  # else `open_task` says what is missing
                shutil.copyfile(old / name, new / name)


def open_task(config: GPTTrainConfig, folder: Path) -> TextTask:
    """The text of the run in this folder.

    Raises:
        CheckpointError: the folder lacks a part of it.
        ValueError: a part is damaged; the message says which.
    """
    assert config.block_size is not None
    for name in (TOKENIZER, TRAIN, VAL):
        if not (folder / name).exists():
            raise CheckpointError(
                f"checkpoint: the folder {folder} holds no {name}, which the run needs "
                f"to go on; keep checkpoints in the folder of their run"
            )
    tokenizer = load_tokenizer(folder / TOKENIZER)
    train, val = (
        TokenWindows(
            open_tokens(folder / name, tokenizer.vocab_size), config.block_size
        )
        for name in (TRAIN, VAL)
    )
    return TextTask(tokenizer, train, val)
