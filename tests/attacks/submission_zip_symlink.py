"""A zip with a symbolic link."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(path, solution)
        link = zipfile.ZipInfo("notes.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return target
