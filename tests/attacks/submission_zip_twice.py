"""A zip with two entries of the same name."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(path, "import torch")
        archive.writestr(path, solution)
    return target
