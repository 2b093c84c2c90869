"""Make the pictures, and the rows of tables that chapters quote, again:
`python -m assignments.pictures [--check]`."""

from __future__ import annotations

import os
import sys

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before anything imports Numba

from assignments.pictures import pictures
from assignments.pictures.tables import tables


def main(check: bool) -> int:
    """Write what differs from its file, or only name it; 1 if `check` finds some."""
    different = 0
    for path, text in {**tables(), **pictures()}.items():
        if not path.is_file() or path.read_text() != text:
            different += 1
            print(f"{path}: {'differs' if check else 'written'}")
            if not check:
                path.write_text(text)
    return int(check and different > 0)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
