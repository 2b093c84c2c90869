"""A zip whose entry says it is small, and is not."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    size = 64 << 20
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(path, solution.encode() + bytes(size))
    data = target.read_bytes()
    honest = (len(solution.encode()) + size).to_bytes(4, "little")
    target.write_bytes(data.replace(honest, (1000).to_bytes(4, "little")))
    return target
