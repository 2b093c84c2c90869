"""With this file one can write a file so that nobody ever sees half of it
(`atomic_write`), remove what killed writers left (`remove_leftovers`), and find the
folders where data sets may be: those that the user named (`user_folders`), and the one
where this library keeps what it can fetch or make again (`cache_folder`).
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


# The folder that MINITORCH_DATA names is searched after `data_dir`.
DATA_VARIABLE = "MINITORCH_DATA"


def user_folders(
    data_dir: str | os.PathLike[str] | None,
) -> Iterator[tuple[str, Path]]:
    """The folders that the user named, and by what: `data_dir`, the environment."""
    if data_dir is not None:
        yield "data_dir", Path(data_dir).expanduser()
    if os.environ.get(DATA_VARIABLE):
        yield DATA_VARIABLE, Path(os.environ[DATA_VARIABLE]).expanduser()


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
def atomic_write(
    path: str | os.PathLike[str], size: int | None = None
) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path`; a clean exit renames it to `path`.

    On any exception the temporary file is removed and `path` is left as it was; what
    killed writers left in the folder is removed before. The rename is atomic because
    both names lie in one folder, so in one file system. Of a symbolic link, the file
    that it leads to is written.

    Args:
        size: how many bytes will be written, for the message where they do not fit.

    Errors: OSError, when the folder does not exist or cannot be written, when `path` is
    a folder, a device or a pipe, which no file may replace, or when the disk is full:
    then it names `path` and the bytes.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = errno.EISDIR if target.is_dir() else errno.EINVAL
        raise OSError(kind, "not a file; expected the name of one", str(path))
    remove_leftovers(target.parent)
    try:
        file = _open_temporary(target.parent)
    except OSError as error:  # which names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error
    temporary = Path(file.name)
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
        if sys.platform == "win32":  # which renames no open file
            file.close()
        os.replace(temporary, target)  # while it is held: else it may be left over
        file.close()
    except BaseException as error:
        written = temporary.stat().st_size if temporary.exists() else 0
        with suppress(OSError):  # for what is in its buffer there is no room, either
            file.close()
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise _no_room(error, target, written, size) from error
        raise


FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def _no_room(error: OSError, path: Path, written: int, size: int | None) -> OSError:
    """The error of a full disk, which by itself names neither file nor sizes."""
    of = "" if size is None else f" of {size:,}"
    free = shutil.disk_usage(path.parent).free
    return OSError(
        error.errno,
        f"{error.strerror} after {written:,}{of} bytes ({free:,} are free there now); "
        f"a file of this name is as it was before; make room, or choose another folder",
        str(path),
    )


# A writer holds a lock on its temporary file, which ends with the process, however that
# ends: what nobody holds is left over. Windows deletes no file that somebody has open.
TEMPORARY = ".minitorch-{}.tmp"


def _open_temporary(folder: Path) -> IO[bytes]:
    """A new file, held."""
    while True:
        # Not tempfile.mkstemp: its files are private to the user (mode 0600) and would
        # stay so after the rename; a plain open follows the umask as other files do.
        path = folder / TEMPORARY.format(os.urandom(8).hex())
        file = open(path, "xb")
        if sys.platform != "win32":
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():  # else `remove_leftovers` came before the lock
            return file
        file.close()


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files in a folder whose writers were killed."""
    for path in folder.glob(TEMPORARY.format("*")):
        with suppress(OSError):  # held, gone, or on a file system without locks
            if sys.platform == "win32":
                path.unlink()
                continue
            with open(path, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
