"""A file that is nested too deeply for whoever calls himself at each level."""

from __future__ import annotations

from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student" / path
    target.parent.mkdir(parents=True)
    target.write_text(f"{solution}\nx = {' + '.join(['1'] * 100_000)}\n")
    return folder / "student"
