"""`minitorch sample`: models from files write what `generate` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import minitorch
from minitorch.cli.app import app
from minitorch.data import BPE, CharTokenizer, decoded
from minitorch.models import GPT, GPTConfig, from_pretrained, save_weights
from minitorch.quantization import quantize_
from minitorch.train.gpt import GPTTrainConfig, train_gpt

WORDS = "the cat sat on the mat, and the rat ate the hat that the cat had "
CONFIG = {"n_layer": 1, "n_head": 2, "n_embd": 8}


def sample(*arguments: Any) -> Any:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["sample", *map(str, arguments)])


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, BPE]:
    """A folder as one downloads it, with a small model."""
    words = BPE.train(WORDS * 3, vocab_size=270)
    words.special_tokens["<|endoftext|>"] = words.vocab_size
    config = GPTConfig(words.vocab_size + 1, 16, **CONFIG)
    minitorch.manual_seed(0)
    save_weights(GPT(config), tmp_path / "model.safetensors")
    names = {"vocab_size": config.vocab_size, "n_positions": 16, **CONFIG}
    text = json.dumps({"model_type": "gpt2", **names})
    (tmp_path / "config.json").write_text(text)
    words.save(tmp_path / "words.json")
    return tmp_path, words


def test_it_writes_what_generate_writes(published):
    folder, words = published
    options = ("--weights", folder, "--tokenizer", folder / "words.json", "-n", 9)
    told = sample(*options, "-p", "the cat", "--temperature", 1.5, "--seed", 3)
    assert told.exit_code == 0, told.output
    new = from_pretrained(folder).generate(
        words.encode("the cat"), 9, temperature=1.5, generator=minitorch.Generator(3)
    )
    assert told.stdout == "the cat" + words.decode(new) + "\n"
    other = sample(*options, "-p", "the cat", "--temperature", 1.5, "--seed", 4)
    assert other.stdout.startswith("the cat") and other.stdout != told.stdout


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_weights_may_become_bytes(published, kind):
    folder, words = published
    options = ("--weights", folder, "--tokenizer", folder / "words.json", "-n", 9)
    options = (*options, "-p", "the cat", "--temperature", 0, "--quantize")
    told = sample(*options, kind)
    assert told.exit_code == 0, told.output
    model = quantize_(from_pretrained(folder), kind)
    new = model.generate(words.encode("the cat"), 9, temperature=0)
    assert told.stdout == "the cat" + words.decode(new) + "\n"
    told = sample(*options, "int3")
    assert told.exit_code == 1
    assert "'int3'; expected one of 'int8', 'int4'" in told.stderr


@pytest.mark.parametrize("end", ["<|endoftext|>", "</s>", "<|eot_id|>"])
def test_a_text_ends_where_its_model_says(published, monkeypatch, end):
    folder, words = published
    words.special_tokens = {"<pad>": 270, end: 271}
    words.save(folder / "words.json")
    asked: list[Any] = []
    monkeypatch.setattr(GPT, "stream", lambda *_, **how: asked.append(how) or iter(()))
    told = sample("--weights", folder, "--tokenizer", folder / "words.json", "-p", "a")
    assert told.exit_code == 0, told.output
    assert asked[0]["stop"] == [271]


def test_a_run_of_minitorch_train_writes(tmp_path):
    out = tmp_path / "run"
    result = train_gpt(
        GPTTrainConfig(
            dataset="alice", layers=1, heads=1, width=8, block_size=8, batch_size=1,
            steps=1, eval_batches=1, sample=0, out=out, quiet=True,
        )
    )  # fmt: skip
    told = sample(out, "-n", 12, "--temperature", 0)
    assert told.exit_code == 0, told.output
    new = result.model.generate(result.tokenizer.encode("\n"), 12, temperature=0)
    assert told.stdout == "\n" + result.tokenizer.decode(new) + "\n"


def test_what_is_missing_is_said(published):
    folder, _ = published
    for arguments, text in (
        ((), "give the folder of a run, or --weights"),
        (("x", "--weights", "y"), "and not both"),
        (("--weights", folder), "tokenizer.json"),
        (
            ("--weights", folder, "--tokenizer", folder / "words.json", "-p", ""),
            "empty",
        ),
        (("--weights", folder / "no"), "there is no file or folder"),
        (("--weights", folder, "--tokenizer", "no"), "no cannot be read (No such file"),
        ((folder / "nothing",), "there is no file or folder"),
        ((folder,), "holds no last.safetensors"),
    ):
        told = sample(*arguments)
        assert told.exit_code == 1 and text in told.stderr, (text, told.output)


def test_characters_come_whole():
    """However many tokens they are made of; and what is no text comes as well."""
    text = "naïve — 日本 🙂!"
    words = BPE.train("", vocab_size=256)
    parts = list(decoded(words, iter(words.encode(text))))
    assert "".join(parts) == text and len(parts) == len(text)
    for broken in ([0xE6, 0x41, 0xF0], [*"\ufffd日本\ufffd".encode(), *[0xA9] * 9, 65]):
        assert "".join(decoded(words, broken)) == words.decode(broken)
    letters = CharTokenizer.train(text)
    assert list(decoded(letters, letters.encode(text))) == list(text)
