"""docs/first_steps.ipynb: its cells run, one after the other, and show what is said."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minitorch

ROOT = Path(minitorch.__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "first_steps.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]

# What IPython does with the lines that begin with ! and %.
AROUND = """
import subprocess
import sys

import matplotlib
matplotlib.use("agg")

def shell(line):
    assert line.startswith("minitorch "), f"{line}: it is installed here"
    command = [sys.executable, "-m", *line.split()]
    sys.stdout.flush()
    subprocess.run(command)
"""


PARTS = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def plain(text: str) -> str:
    shell = lambda line: f"{line[1]}shell({line[2]!r})"
    return re.sub(r"^( *)[!%](.+)$", shell, text, flags=re.M)


@pytest.mark.timeout(600)
def test_its_cells_run(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(AROUND + plain("\n\n".join(PARTS)))
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[ 2.,  4.,  6.]" in done.stdout
    assert float(re.search(r"([\d.]+)% right", done.stdout)[1]) > 95
    assert done.stdout.count("the same numbers: True") >= 2
    assert "False" not in done.stdout
    assert "0 of 20 points" in done.stdout and (tmp_path / "a0").is_dir()


def test_it_asks_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    lines: list[str] = []
    with pytest.raises(ValueError, match="ADDRESS is empty"):
        exec(plain(PARTS[0]), {"shell": lines.append})
    filled = PARTS[0].replace('ADDRESS = ""', 'ADDRESS = "there"')
    exec(plain(filled), {"shell": lines.append})
    assert [line.split()[0] for line in lines] == ["git", "cd", "pip"]


def test_it_is_kept_without_what_its_cells_printed() -> None:
    for cell in CELLS:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
