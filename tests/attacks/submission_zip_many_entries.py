"""A zip with a hundred thousand entries."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(path, solution)
        for number in range(100_000):
            archive.writestr(f"{number}", "")
    return target
