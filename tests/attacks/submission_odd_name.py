"""A folder whose name has line ends, commands for terminals and no UTF-8."""

from __future__ import annotations

import os
from pathlib import Path


def make(folder: Path, path: str, solution: str) -> Path:
    """`path` is the place of the file, `solution` what would earn all points."""
    target = folder / os.fsdecode(b"all\\x1b[2J\\n\\xff\\xe2\\x80\\xae passed")
    (target / path).parent.mkdir(parents=True)
    (target / path).write_text(solution.replace("return out", "return 0 * x"))
    return target
