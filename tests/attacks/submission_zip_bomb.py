"""A small zip that unpacks to gigabytes."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(path, "w", force_zip64=True) as file:
            file.write(solution.encode())
            for _ in range(300):
                file.write(bytes(1 << 20))
    return target
