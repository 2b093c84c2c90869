"""Every listing of the book comes from a file that is tested, or is run here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import minitorch
from assignments.a16_scaling_laws.forecast import measured
from minitorch import distributed
from minitorch.data import TensorDataset
from minitorch.distributed import init_device_mesh, spawn_threads
from minitorch.distributed.pipelining import one_f_one_b
from minitorch.models import GPT, GPTConfig
from minitorch.optim import AdamW
from minitorch.serving import Engine

ROOT = Path(minitorch.__file__).parent.parent
PAGES = [
    page
    for place in ("*.md", "docs/*.md", "docs/book/*.md", "assignments/*/README.md")
    for page in ROOT.glob(place)
]
# Programs with what they print: test_docs.py and distributed/test_threads.py run them.
RUN = ("CONTRIBUTING.md", "distributed.md")
WHOLE = ("README.md", "compiler.md")  # test_docs.py runs all that stands there


def generation() -> dict[str, Any]:
    return {"GPT": SimpleNamespace(preset=lambda name: GPT.preset("tiny")), "ids": [3]}


def quantized() -> dict[str, Any]:
    return {"model": GPT.preset("tiny", block_size=128), "ids": [3]}


def aligned() -> dict[str, Any]:
    lists = {"prompts": [[1, 2], [3]], "good": [[4], [5, 6]], "bad": [[6], [4, 5]]}
    return {"model": GPT.preset("tiny"), **lists}


def raw() -> dict[str, Any]:
    return {"texts": ["a page", "a page", "write to info@example.org"]}


def scaled() -> dict[str, Any]:
    return {"runs": measured()}


def compressed() -> dict[str, Any]:
    nn = minitorch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return {
        "nn": nn,
        "model": model,
        "x": minitorch.ones(1, 4),
        "y": minitorch.tensor([2]),
    }


def served() -> dict[str, Any]:
    return {"model": GPT.preset("tiny"), "Engine": Engine}


def profiled() -> dict[str, Any]:
    layer = minitorch.nn.Linear(2, 2)
    names = {"model": layer, "optimizer": None, "x": minitorch.ones(1, 2), "y": None}
    return {**names, "train_step": lambda model, optimizer, x, y: model(x)}


def replicated() -> dict[str, Any]:
    x = minitorch.ones(64, 2)
    return {"model": minitorch.nn.Linear(2, 1), "data": TensorDataset(x, x)}


def sharded() -> dict[str, Any]:
    types = {"bfloat16": minitorch.bfloat16, "float32": minitorch.float32}
    return {"model": GPT(GPTConfig(7, 8, 2, 1, 4)), "AdamW": AdamW, **types}


def piped() -> dict[str, Any]:
    ids = minitorch.arange(16 * 1024).reshape(16, 1024) % 7
    mesh = init_device_mesh("cpu", (4,), ("pp",))
    names = {"ids": ids, "targets": ids, "AdamW": AdamW, "one_f_one_b": one_f_one_b}
    return {"model": GPT(GPTConfig(7, 1024, 4, 1, 4)), "mesh": mesh, **names}


# Pieces of programs, by their page and a line: what is there before, and for how many
# ranks.
PIECES: dict[tuple[str, str], tuple[Callable[[], dict[str, Any]], int]] = {
    ("generation.md", 'model = GPT.preset("char")'): (generation, 0),
    ("serving.md", "engine = Engine(model"): (served, 0),
    ("quantization.md", 'quantize_(model, "int8")'): (quantized, 0),
    ("alignment.md", "add_lora_(model, rank=4)"): (aligned, 0),
    ("data.md", "result = clean(texts, steps)"): (raw, 0),
    ("scaling.md", "law.optimal(1e13)"): (scaled, 0),
    ("compression.md", "prune.L1Unstructured, amount=0.9"): (compressed, 0),
    ("profiler.md", 'prof.export_chrome_trace("trace.json")'): (profiled, 0),
    ("cpu_kernels.md", "x = mt.ones(4096, 4096)"): (dict, 0),
    ("distributed.md", 'init_process_group("gloo")'): (replicated, 2),
    ("distributed.md", "for block in model.h:"): (sharded, 2),
    ("distributed.md", 'pipe = pipeline(model, mesh["pp"]'): (piped, 4),
}


def piece_of(page: Path, code: str) -> tuple[str, str] | None:
    names = [key for key in PIECES if key[0] == page.name and key[1] in code]
    return names[0] if names else None


def test_each_listing_is_quoted_or_run() -> None:
    found = set()
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"```python\n(.*?)```\n(\n```text)?", text, re.S):
            before = text[: match.start()].rstrip("\n").rsplit("\n", 1)[-1]
            piece = piece_of(page, match[1])
            found.add(piece)
            quoted = before.startswith("<!-- from ")
            printed = page.name in WHOLE or (page.name in RUN and match[2])
            assert quoted or printed or piece, f"{page}: nobody runs\n{match[1]}"
    assert found - {None} == set(PIECES)


@pytest.mark.parametrize("key", PIECES, ids=lambda key: f"{key[0]}: {key[1][:16]}")
def test_a_piece_of_a_program_runs(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("init_process_group", "destroy_process_group"):  # these ranks are met
        monkeypatch.setattr(distributed, name, lambda *_: None)
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / key[0]).read_text(), re.S
    )
    (code,) = [block for block in blocks if key[1] in block]
    names, ranks = PIECES[key]

    def program() -> dict[str, Any]:
        space = names()
        exec(compile(code, key[0], "exec"), space)
        return space

    if ranks:
        spaces = spawn_threads(program, ranks)
        assert "pipe" not in spaces[0] or spaces[-1]["loss"].item() > 0
    else:
        program()
