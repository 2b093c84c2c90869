"""A file that is no zip, although it is called so."""

from __future__ import annotations

from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / "student.zip"
    target.write_bytes(b"PK\x03\x04" + bytes(1000))
    return target
