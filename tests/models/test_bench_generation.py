"""The table of docs/generation.md: what its program measures, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import minitorch
from minitorch.bench import generation
from minitorch.models import GPT

PAGE = Path(minitorch.__file__).parent.parent / "docs" / "generation.md"


def test_with_and_without_a_cache_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked, now = GPT.preset("tiny"), [], [0.0]

    def writes(rows: Any, tokens: int, use_cache: bool, **options: Any) -> None:
        asked.append((use_cache, len(rows), len(rows[0]), tokens))
        # The first round compiles; in the last all is slower, and the ratio the same.
        now[0] += (1.0 if use_cache else 4.0) * (100, 1, 1, 9)[len(asked) // 2 % 4]

    monkeypatch.setattr(GPT, "generate", lambda self, *a, **o: writes(*a, **o))
    monkeypatch.setattr(generation.time, "perf_counter", lambda: now[0])
    found = generation.measure(model, batch=3, prompt=2, tokens=8, rounds=3)
    assert asked == [(True, 3, 2, 8), (False, 3, 2, 8)] * 4
    assert generation.row(found).startswith("| 3 | 8 | ")


def test_the_program_prints_the_table_of_the_page() -> None:
    app = typer.Typer()
    app.command()(generation.main)
    small = ["--preset", "tiny", "--batches", "1,2", "--tokens", "3", "--prompt", "2"]
    result = CliRunner().invoke(app, [*small, "--rounds", "1"])
    assert result.exit_code == 0, result.output
    head, rule, *rows = result.output.splitlines()
    assert f"{head}\n{rule}\n" in PAGE.read_text()
    assert [line.split(" | ")[:2] for line in rows] == [["| 1", "3"], ["| 2", "3"]]


def test_more_than_the_model_looks_back_at_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"60 \+ 10 tokens.*block_size, 64"):
        generation.measure(GPT.preset("tiny"), 1, 60, 10)
