"""What a student handed in: a folder or a zip, opened with care.

With this file one can read an assignment's files out of a submission (`read`), and
nothing else: no other file is opened, links are not followed, and an archive that is
built to do harm is refused (`Refused`). `intake.py` does it in a process with limits.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from assignments import workspace
from assignments.answers import ANSWERS
from assignments.catalog import Assignment
from assignments.grading.apart import Refused
from assignments.workspace import HINTS

FILE_LIMIT = 512 << 10
ARCHIVE_LIMIT = 32 << 20
UNPACKED_LIMIT = 256 << 20
ENTRIES_LIMIT = 5_000
DEPTH_LIMIT = 4
RATIO_LIMIT = 200
# Folders in which a file's place says what it is.
PACKAGES = {"minitorch", "fast_ops", "cuda_ops", "mojo_ops"}


@dataclass(frozen=True)
class Submission:
    """The files of an assignment that were handed in.

    Attributes:
        name: of the folder or the zip.
        files: for a path in the workspace, the contents.
        missing: files of the assignment that are not there.
        hints: how many hints of each task were taken, as the student's folder says.
        answers: the text of `answers.md`.
    """

    name: str
    files: dict[str, bytes]
    missing: tuple[str, ...]
    hints: dict[str, int] = field(default_factory=dict)
    answers: str = ""

    @property
    def digest(self) -> str:
        """The same for submissions with the same contents."""
        state = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            for part in (path.encode(), data):
                state.update(len(part).to_bytes(8, "little") + part)
        return state.hexdigest()


def read(path: Path, assignment: Assignment) -> Submission:
    """Read a submission.

    Raises:
        Refused: it is neither a folder nor a zip, or it has none of the files, or it
            has links, absolute paths, `..`, too many or too large files.
        FileNotFoundError: there is nothing at this path, which no student is to blame
            for.
    """
    wanted = [file.path for file in assignment.files]
    files = read_files(path, [*wanted, HINTS, ANSWERS])
    hints = files.pop(HINTS, b"").decode(errors="replace")
    answers = files.pop(ANSWERS, b"").decode(errors="replace")
    if not files:
        raise Refused(
            f"none of the assignment's files is there: {', '.join(wanted)}; expected "
            f"the folder that `minitorch start {assignment.id}` makes, or a zip of it"
        )
    missing = tuple(name for name in wanted if name not in files)
    taken = workspace.read_hints(hints, assignment)
    return Submission(path.name, files, missing, taken, answers)


def read_files(path: Path, wanted: list[str]) -> dict[str, bytes]:
    """Those of the wanted files that a folder or a zip has."""
    if path.is_symlink():
        raise Refused(f"{path.name} is a symbolic link")
    if path.is_dir():
        return _read_folder(path, wanted)
    if path.is_file():
        with path.open("rb") as file:
            return _read_zip(file, path.name, wanted)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; expected a folder or a zip")
    raise Refused(f"{path} is neither a folder nor a zip")


def _root(names: Iterable[str], wanted: list[str]) -> str:
    """The folder "a/b/" in which most of the wanted files are.

    Of several the one nearest to the top, and `a1` before the `a1-backup-...` that
    `minitorch start --force` makes.
    """
    paths = [PurePosixPath(name) for name in names]
    counts: dict[str, int] = {}
    for path in paths:
        for want in wanted:
            size = len(PurePosixPath(want).parts)
            if path.parts[-size:] == PurePosixPath(want).parts:
                root = "".join(f"{part}/" for part in path.parts[:-size])
                counts[root] = counts.get(root, 0) + 1
    return min(
        counts,
        key=lambda root: (-counts[root], root.count("/"), root.split("/")),
        default="",
    )


def _found(names: Iterable[str], wanted: list[str]) -> dict[str, str]:
    """For each wanted file that is there its name.

    Forms for uploads leave folders out: without its own, a file counts beside others.
    """
    known = set(names)
    last = [PurePosixPath(want).name for want in wanted]
    root = _root(known, wanted)
    if not any(root + want in known for want in wanted):
        root = _root([n for n in known if PACKAGES.isdisjoint(n.split("/"))], last)
    found = {w: root + name for w, name in zip(wanted, last) if last.count(name) == 1}
    found |= {w: root + w for w in wanted if root + w in known}
    return {want: name for want, name in found.items() if name in known}


# --------------------------------------------------------------------------- folders


def _read_folder(folder: Path, wanted: list[str]) -> dict[str, bytes]:
    names = list(itertools.islice(_names(folder, "", DEPTH_LIMIT), ENTRIES_LIMIT + 1))
    if len(names) > ENTRIES_LIMIT:
        raise Refused(f"it has more than {ENTRIES_LIMIT} files")
    found = _found(names, wanted)
    files = {want: _read_file(folder, name) for want, name in found.items()}
    zips = [n for n in names if re.search(r"(^|/)[^./][^/]*\.zip$", n, re.IGNORECASE)]
    if found.keys() <= {HINTS, ANSWERS} and len(zips) == 1:
        # As Moodle hands over what was handed in, perhaps with answers beside it.
        with _open(folder, zips[0]) as file:
            files = _read_zip(file, zips[0], wanted) | files
    return files


def _names(folder: Path, prefix: str, depth: int) -> Iterable[str]:
    """Paths of files below a folder, links not followed."""
    with os.scandir(folder) as entries:
        some = list(itertools.islice(entries, ENTRIES_LIMIT + 1))
    for entry in sorted(some, key=lambda entry: entry.name):
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if depth > 0 and not entry.name.startswith((".", "__pycache__")):
                yield from _names(Path(entry.path), f"{name}/", depth - 1)
        else:
            yield name


def _read_file(folder: Path, name: str) -> bytes:
    with _open(folder, name) as file:
        return _limited(name, file.read(FILE_LIMIT + 1))


def _open(folder: Path, name: str) -> BinaryIO:
    """Open a regular file; no part of its path may be a link."""
    *folders, last = PurePosixPath(name).parts
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            deeper = os.open(part, flags, dir_fd=handle)
            os.close(handle)
            handle = deeper
        # Without O_NONBLOCK, opening a named pipe would wait for ever.
        number = os.open(
            last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle
        )
    except OSError as error:
        raise Refused(
            f"{name} is a link or cannot be read ({error.strerror})"
        ) from None
    finally:
        os.close(handle)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Refused(f"{name} is no file")
    return open(number, "rb")


def _limited(name: str, data: bytes) -> bytes:
    """What a file holds; of pages for people, with pictures perhaps, the beginning."""
    if len(data) > FILE_LIMIT and PurePosixPath(name).name not in (ANSWERS, HINTS):
        raise Refused(f"{name} has more than {FILE_LIMIT} bytes")
    return data[:FILE_LIMIT]


# ---------------------------------------------------------------------------- zips


def _read_zip(opened: BinaryIO, name: str, wanted: list[str]) -> dict[str, bytes]:
    if os.fstat(opened.fileno()).st_size > ARCHIVE_LIMIT:
        raise Refused(f"{name} has more than {ARCHIVE_LIMIT} bytes")
    try:
        with zipfile.ZipFile(opened) as archive:
            entries = archive.infolist()
            _check_entries(entries)
            by_name = {_plain(e): e for e in entries if not e.is_dir()}
            return {
                want: _read_entry(archive, by_name[there])
                for want, there in _found(by_name, wanted).items()
            }
    except Refused:
        raise
    except Exception as error:
        # Of zipfile and of what unpacks for it: zlib, lzma and bz2 have their own.
        said = f"{type(error).__name__}: {error}"
        raise Refused(f"{name} is no zip that can be read: {said}") from None


def _plain(entry: zipfile.ZipInfo) -> str:
    """The name of an entry; some programs of Windows write `a1\\xor.py`."""
    return entry.filename.replace("\\", "/")


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive as a whole when one entry is no honest file."""
    if len(entries) > ENTRIES_LIMIT:
        raise Refused(f"the zip has {len(entries)} entries")
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        parts = _plain(entry).split("/")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise Refused(f"the zip has an entry outside of its folder: {name!r}")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise Refused(f"the zip has a link or a device: {name!r}")
        if entry.flag_bits & 1:
            raise Refused(f"the zip is encrypted: {name!r}")
        if _plain(entry) in seen:
            raise Refused(f"the zip has two entries called {name!r}")
        if entry.file_size > 1 << 20 and entry.file_size > RATIO_LIMIT * max(
            entry.compress_size, 1
        ):
            raise Refused(f"the zip has an entry that grows too much: {name!r}")
        seen.add(_plain(entry))
    if sum(entry.file_size for entry in entries) > UNPACKED_LIMIT:
        raise Refused(f"the zip unpacks to more than {UNPACKED_LIMIT} bytes")


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as file:
        # What an entry says about its size need not be true.
        return _limited(entry.filename, file.read(FILE_LIMIT + 1))
