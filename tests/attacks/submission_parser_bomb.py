"""A file that brings parsers down."""

from __future__ import annotations

from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student" / path
    target.parent.mkdir(parents=True)
    target.write_text(
        f"{solution}\nx = {'-' * 200_000}1\ny = {'(' * 5000}{')' * 5000}\n"
    )
    return folder / "student"
