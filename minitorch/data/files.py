"""With this file one can write a file so that nobody ever sees half of it
(`atomic_write`), and find the folder where this library keeps what it can fetch or
make again (`cache_folder`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def cache_folder(*parts: str) -> Path:
    """Where cached data lives: `<the user's cache>/minitorch/<parts...>`.

    The user's cache is `$XDG_CACHE_HOME` if that is set (to an absolute path, as the
    XDG base directory specification 0.8 demands), else `%LOCALAPPDATA%` on Windows,
    `~/Library/Caches` on macOS and `~/.cache` elsewhere. The folder need not exist.
    """
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    local = os.environ.get("LOCALAPPDATA", "")
    if xdg and os.path.isabs(xdg):
        base = Path(xdg)
    elif sys.platform == "win32" and local:
        base = Path(local)
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches").expanduser()
    else:
        base = Path("~/.cache").expanduser()
    return base.joinpath("minitorch", *parts)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path`; a clean exit renames it to `path`.

    On any exception the temporary file is removed and `path` is left as it was. The
    rename is atomic because both names lie in one folder, so in one file system.

    Errors: OSError, when the folder does not exist or cannot be written.
    """
    target = Path(path)
    # Not tempfile.mkstemp: its files are private to the user (mode 0600) and would
    # stay so after the rename; a plain open follows the umask as other files do.
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
