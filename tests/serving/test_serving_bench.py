"""The table of docs/serving.md: who is served when, and what its program prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import minitorch
from minitorch.bench import serving
from minitorch.bench.serving import Request, Wait
from minitorch.models import GPT
from minitorch.serving import Engine

PAGE = Path(minitorch.__file__).parent.parent / "docs" / "serving.md"
COMING = [Request(0.0, [1, 2], 3), Request(0.5, [3], 1), Request(9.0, [4, 5], 2)]


def test_requests_are_drawn_by_the_seed():
    some = serving.draw(400, 4.0, 9, (2, 5), (1, 3))
    assert some == serving.draw(400, 4.0, 9, (2, 5), (1, 3))
    assert some != serving.draw(400, 4.0, 9, (2, 5), (1, 3), seed=1)
    assert some[-1].at == pytest.approx(100, rel=0.2)
    assert {len(r.prompt) for r in some} == {2, 3, 4, 5}
    assert {r.tokens for r in some} == {1, 2, 3}


@pytest.mark.parametrize("way", ["static", "continuous"])
def test_waits_are_from_the_arrival(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes a second: the second request comes in the first one's first."""
    now, model = [0.0], GPT.preset("tiny")
    step = Engine.step

    def later(self: Engine) -> Any:
        now[0] += 1
        return step(self)

    def stream(self: GPT, rows: Any, tokens: int, **_: Any) -> Iterator[list[int]]:
        for _ in range(tokens):
            now[0] += 1
            yield [0] * len(rows)

    monkeypatch.setattr(Engine, "step", later)
    monkeypatch.setattr(GPT, "stream", stream)
    waits = serving.WAYS[way](model, COMING, 64, 4, lambda: now[0])
    second = Wait(3.5, 3.5, 4.0) if way == "static" else Wait(1.5, 1.5, 2.0)
    assert set(waits) == {Wait(1.0, 3.0, 3.0), second, Wait(1.0, 2.0, 11.0)}


def test_the_program_prints_the_table_of_the_page():
    app = typer.Typer()
    app.command()(serving.main)
    small = ["--preset", "tiny", "--rates", "9", "--requests", "3", "--prompt", "2,4"]
    result = CliRunner().invoke(app, [*small, "--tokens", "2,3", "--memory", "64"])
    assert result.exit_code == 0, result.output
    head, rule, *rows = result.output.splitlines()
    assert f"{head}\n{rule}\n" in PAGE.read_text()
    assert [line.split(" | ")[:2] for line in rows] == [
        ["| 9", "static"], ["| 9", "continuous"]
    ]  # fmt: skip
