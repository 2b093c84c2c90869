"""A folder in which a folder is a link to another one."""

from __future__ import annotations

import os
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    elsewhere = folder / "elsewhere" / path
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text(solution)
    (folder / "student").mkdir()
    first = Path(path).parts[0]
    os.symlink(folder / "elsewhere" / first, folder / "student" / first)
    return folder / "student"
