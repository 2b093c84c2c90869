"""A named pipe in the place of a file: who opens it waits for ever."""

from __future__ import annotations

import os
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student" / path
    target.parent.mkdir(parents=True)
    os.mkfifo(target)
    return folder / "student"
