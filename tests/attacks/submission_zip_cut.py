"""A zip of which the upload lost the end."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(path, solution)
    target.write_bytes(target.read_bytes()[:-30])
    return target
