"""A zip with a path that leads out of its folder."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(path, solution)
        name = "a/" + "../" * 20 + "/tmp/minitorch-attack-was-here"
        archive.writestr(name, "from a zip")
    return target
