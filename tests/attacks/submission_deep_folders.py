"""A folder in a folder in a folder, deeper than any path may be."""

from __future__ import annotations

import os
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    (folder / "student").mkdir()
    handle = os.open(folder / "student", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=handle)
        deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    with open(os.open("mini.py", os.O_CREAT | os.O_WRONLY, dir_fd=handle), "w") as file:
        file.write(solution)
    os.close(handle)
    return folder / "student"
