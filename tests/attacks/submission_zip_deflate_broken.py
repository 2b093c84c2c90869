"""A zip whose contents zlib cannot unpack."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(path, solution * 20)
    data = bytearray(target.read_bytes())
    first = 30 + len(path) + 3
    data[first : first + 200] = b"\xff" * 200
    target.write_bytes(data)
    return target
