"""Texts: where they are looked for, and what happens when one cannot be had; token
files, and windows of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data import (
    DataLoader,
    TextFileError,
    TokenWindows,
    load_text,
    open_tokens,
    write_tokens,
)
from minitorch.data.text import corpus

PLAY = "First Citizen:\r\nBefore we proceed any further, hear me speak: è!\n"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A short play takes tinyshakespeare's place; an empty cache, no network."""
    digest = hashlib.sha256(PLAY.encode()).hexdigest()
    monkeypatch.setattr(corpus, "SHA256", digest)
    monkeypatch.setattr(corpus, "URLS", [(tmp_path / "nowhere").as_uri()])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MINITORCH_DATA", raising=False)
    return tmp_path / "cache" / "minitorch" / "text" / "tinyshakespeare.txt"


def put(path: Path, text: str = PLAY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("name", corpus.NAMES)
def test_a_named_folder(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "data" / name)
    assert load_text(data_dir=tmp_path / "data").text == PLAY
    monkeypatch.setenv("MINITORCH_DATA", str(tmp_path / "data"))
    data = load_text()
    assert (data.text, data.source, data.notice) == (PLAY, "tinyshakespeare", "")
    assert not cache.exists()


def test_a_named_folder_must_have_it(cache: Path, tmp_path: Path) -> None:
    put(cache)
    with pytest.raises(
        TextFileError, match=r"none of .* is in .*, which data_dir names"
    ):
        load_text(data_dir=tmp_path)
    wrong = put(tmp_path / "input.txt", "To be")
    with pytest.raises(TextFileError, match=r"\(5 bytes\) is another text.*left as it"):
        load_text(data_dir=tmp_path)
    assert wrong.read_text() == "To be"
    assert load_text(wrong).text == "To be"


def test_it_is_downloaded_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right = put(tmp_path / "wrong", "Alas"), put(tmp_path / "right")
    urls = [wrong.as_uri(), right.as_uri()]
    monkeypatch.setattr(corpus, "URLS", urls)
    assert load_text(allow_download=False).source == "alice"
    assert load_text().text == PLAY
    assert cache.read_bytes() == PLAY.encode()
    monkeypatch.setattr(corpus, "URLS", [])
    assert load_text().text == PLAY
    put(cache, "damaged")
    with pytest.warns(UserWarning, match=r"it is now tinyshakespeare.txt.broken"):
        data = load_text()
    assert data.source == "alice" and "broken; it is now" in data.notice
    assert [file.name for file in cache.parent.iterdir()] == [f"{cache.name}.broken"]


def test_a_broken_file_that_cannot_be_put_aside(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError("a folder for reading alone")

    put(cache, "damaged")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(UserWarning, match="cannot be put aside: a folder for reading"):
        data = load_text(allow_download=False)
    assert data.source == "alice" and "cannot be put aside" in data.notice


def test_without_a_network_there_is_a_text(cache: Path, tmp_path: Path) -> None:
    data = load_text()
    assert data.source == "alice" and data.text.startswith("CHAPTER I\n")
    assert "is not to be had" in data.notice and "MINITORCH_DATA" in data.notice
    assert (tmp_path / "nowhere").as_uri() in data.notice
    assert load_text("alice").notice == ""
    with pytest.raises(TextFileError, match=r"not to be had. Tried"):
        load_text("tinyshakespeare")
    wrong = put(tmp_path / "wrong", "Alas")
    corpus.URLS = [wrong.as_uri()]  # undone by the fixture
    assert "sent a wrong file" in load_text().notice


def test_a_text_of_ones_own(cache: Path, tmp_path: Path) -> None:
    data = load_text(put(tmp_path / "mine.txt"))
    assert data.text == PLAY and data.source == str(tmp_path / "mine.txt")
    train, val = data.split()
    assert train + val == PLAY and len(train) == int(0.9 * len(PLAY))
    (tmp_path / "mine.txt").write_bytes(b"gr\xfc\xdfe")
    with pytest.raises(TextFileError, match=r"no text in UTF-8: .* at byte 2"):
        load_text(tmp_path / "mine.txt")
    (tmp_path / "mine.txt").write_bytes(b"")
    with pytest.raises(TextFileError, match=r"mine.txt is empty; expected a text"):
        load_text(tmp_path / "mine.txt")
    with pytest.raises(TextFileError, match=r"yours.txt cannot be read \(No such file"):
        load_text(tmp_path / "yours.txt")


@pytest.mark.skipif(
    "MINITORCH_DATA" not in os.environ, reason="needs the text: set MINITORCH_DATA"
)
def test_tinyshakespeare() -> None:
    data = load_text()
    assert data.source == "tinyshakespeare" and len(data.text) == 1_115_394
    assert len(set(data.text)) == 65


# ---------------------------------------------------------------- tokens and windows


@pytest.mark.parametrize("vocab_size", [65, 1 << 16, (1 << 16) + 1])
def test_token_files(vocab_size: int, tmp_path: Path) -> None:
    path, ids = tmp_path / "train.bin", [0, 7, vocab_size - 1, 7]
    write_tokens(path, ids, vocab_size)
    assert path.stat().st_size == len(ids) * (2 if vocab_size <= 1 << 16 else 4)
    tokens = open_tokens(path, vocab_size)
    assert isinstance(tokens, np.memmap) and tokens.tolist() == ids
    with pytest.raises(ValueError, match=f"are from 0 to {vocab_size - 1}; vocab_size"):
        write_tokens(path, ids, vocab_size - 1)
    write_tokens(path, [], vocab_size)
    assert open_tokens(path, vocab_size).tolist() == []


def test_damaged_token_files(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match=r"has 3 bytes, .* cut off"):
        open_tokens(path, 65)


@given(n=st.integers(2, 40), block=st.integers(1, 12), seed=st.integers(0, 2**64))
def test_windows_are_pieces_of_the_text(n: int, block: int, seed: int) -> None:
    tokens = np.arange(n, dtype=np.uint16)
    if n <= block:
        with pytest.raises(ValueError, match="one more than block_size"):
            TokenWindows(tokens, block)
        return
    windows = TokenWindows(tokens, block)
    x, y = (part.numpy() for part in windows.draw((2, 3), seed, 5))
    assert x.shape == y.shape == (2, 3, block) and x.dtype == np.int64
    assert np.array_equal(y, x + 1) and 0 <= x.min() and y.max() < n
    assert np.array_equal(np.diff(x), np.ones((2, 3, block - 1)))
    again = windows.draw((2, 3), seed, 5)[0].numpy()
    assert np.array_equal(x, again)


def test_every_window_is_drawn_and_seeds_matter() -> None:
    windows = TokenWindows(np.arange(14, dtype=np.uint16), 4)
    starts = [windows.draw((400,), seed, 0)[0].numpy()[:, 0] for seed in (0, 1)]
    assert set(starts[0].tolist()) == set(range(10))
    assert not np.array_equal(*starts)
    other = windows.draw((400,), 0, 1)[0].numpy()[:, 0]
    assert not np.array_equal(starts[0], other)


def test_windows_are_a_data_set() -> None:
    windows = TokenWindows(np.arange(11, dtype=np.uint16), 4)
    assert len(windows) == 7
    x, y = windows[-1]
    assert x.tolist() == [6, 7, 8, 9] and y.tolist() == [7, 8, 9, 10]
    with pytest.raises(IndexError):
        windows[7]
    batches = [x.numpy()[:, 0] for x, _ in DataLoader(windows, 3, shuffle=True)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(7))
