"""The documentation runs: the walk through `a + b`, and the README's program."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

import minitorch

ROOT = Path(minitorch.__file__).parent.parent


def test_trace_add_walks_the_trail(capsys):
    runpy.run_path(str(ROOT / "docs" / "trace_add.py"), run_name="__main__")
    printed = capsys.readouterr().out
    trail = "minitorch.tensor -> minitorch.functions.elementwise -> {} -> "
    for backend in ("minitorch.simple_ops.elementwise", "fast_ops.elementwise"):
        assert trail.format(backend) + "minitorch.operators" in printed


def test_the_program_in_the_readme_learns_xor(capsys):
    text = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    space: dict = {}
    exec(compile(program, "README.md", "exec"), space)
    assert capsys.readouterr().out.strip()
    out = space["model"](space["X"]).detach().numpy()
    assert np.abs(out - space["y"].numpy()).max() < 0.1


def test_paths_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    named = re.findall(r"(?:minitorch|fast_ops|docs)/[\w/]+\.py", text)
    assert links and named
    for path in {*links, *named}:
        assert (ROOT / path).exists(), path
