"""Temporary folders of a grader, which disappear with it, or else with a later one.

With this file the grader makes a folder that is removed when its process ends
(`until_exit`). A process that is killed removes nothing; so each one holds a lock on
its folders, and removes those of others that nobody holds.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# Seconds after which a folder without a lock has been left behind, and is not one that
# is just being made.
AGE = 3600.0


def until_exit(prefix: str) -> Path:
    """A new folder that goes with this process (not with a fork of it)."""
    _remove_left(prefix)
    folder, owner = Path(tempfile.mkdtemp(prefix=prefix)), os.getpid()
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)  # until the process ends

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _remove_left(prefix: str) -> None:
    """Remove this user's old folders that no process holds any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            found = path.lstat()
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < AGE:
                continue
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
