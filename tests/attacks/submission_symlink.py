"""A folder whose file is a link to a file of the teacher."""

from __future__ import annotations

import os
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    elsewhere = folder / "elsewhere.py"
    elsewhere.write_text(solution)
    target = folder / "student" / path
    target.parent.mkdir(parents=True)
    os.symlink(elsewhere, target)
    return folder / "student"
